"""The running runs of this process are here: their tasks and leases, from the first write to the last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field

from drsai_backend.database import Database
from drsai_backend.database.runs.commands import leave
from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import DatabaseError, LeaseLost, StateError
from drsai_backend.models import turns
from drsai_backend.runs.events import RunEnded
from drsai_backend.runs.failures import HandedOver
from drsai_backend.runs.feed.live_run import LiveRun, LiveRuns
from drsai_backend.runs.gate import AT_ONCE, WAITING, Gate
from drsai_backend.runs.recovery.leases import HeldLease
from drsai_backend.runs.start.plan import KNOWN_TEXTS
from drsai_backend.runs.start.starter import StartedRun
from drsai_backend.runs.warm import WarmThread, WarmThreads
from drsai_backend.state import ResumeRecord
from drsai_backend.state.store import COMPACT_ABOVE, compact

log = logging.getLogger("drsai.engine")

_LEFT = "This server does not run it any more; another process does."
_LAST_SECONDS = 10.0
"""How long cancelled runs may take to give their leases back."""


@dataclass(eq=False)
class Running:
    """The runs under way in this process.

    `changed` is called when a run has started or ended on a thread, or the thread was taken elsewhere.
    """

    _database: Database
    _warm: WarmThreads
    _runs: LiveRuns
    changed: Callable[[ThreadName], None]
    _leases: dict[ThreadName, HeldLease] = field(default_factory=dict[ThreadName, HeldLease])
    _tasks: set[asyncio.Task[object]] = field(default_factory=set[asyncio.Task[object]])
    _turned_away: dict[ThreadName, int] = field(default_factory=dict[ThreadName, int])
    """Keys of threads on which somebody wanted to begin an input of the queue, and found them taken."""

    def __post_init__(self) -> None:
        at_once = AT_ONCE if self._database.dialect == "sqlite" else WAITING
        self._begin, self._end = Gate(at_once), Gate(at_once)

    @property
    def closing(self) -> bool:
        """Whether this process shuts down."""
        return self._runs.is_closing()

    def live(self, name: ThreadName) -> LiveRun | None:
        """The run of this process on a thread, once it has started."""
        return self._runs.live(name)

    def refuse(self) -> None:
        """Begin nothing new."""
        self._runs.closing = True

    def live_run(self, run_id: str) -> LiveRun | None:
        """The run of this process with that id."""
        return next((live for live in self._live_runs() if live.run_id == run_id), None)

    def is_taken(self, name: ThreadName) -> bool:
        """Whether this process does something on the thread."""
        return name in self._runs

    def turn_away(self, name: ThreadName, key: int) -> None:
        """Note that something else is to begin on a thread that is taken. If what begins there fails, it wants a
        look."""
        self._turned_away[name] = key

    @property
    def count(self) -> int:
        """How many runs are under way, or begin."""
        return len(self._runs)

    def held(self) -> list[HeldLease]:
        """The leases of the runs under way."""
        return list(self._leases.values())

    async def launch(
        self, name: ThreadName, begin: Callable[[], Awaitable[StartedRun]], freed: Callable[[int], None]
    ) -> LiveRun:
        """Begin a run in a task of its own, whatever becomes of the caller. The thread must not be taken.

        Args:
            freed: is called with the key of the thread where that wants a look: the run has ended and inputs wait in
                its queue, or it was handed over.

        Raises:
            Exception: what `begin` raised.
        """
        ready: asyncio.Future[LiveRun] = asyncio.get_running_loop().create_future()
        # The caller may be gone before the run has started; then nobody asks for the error.
        ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        assert name not in self._runs
        self._runs[name] = ready
        self.spawn(self._serve(name, begin, freed, ready))
        return await asyncio.shield(ready)

    async def _serve(
        self,
        name: ThreadName,
        begin: Callable[[], Awaitable[StartedRun]],
        freed: Callable[[int], None],
        ready: asyncio.Future[LiveRun],
    ) -> None:
        waiting, started = None, None
        owner = name.owner
        turns.owner.set(owner)
        try:
            try:
                started = await self._begin.through(owner, begin)
            except BaseException as error:
                if not ready.done():
                    ready.set_exception(error)
                if isinstance(error, Exception):
                    return
                raise
            execution = started.execution
            live = execution.live
            self._runs[name] = live
            self._leases[name] = (execution.writer.lease.key, execution.writer.lease.epoch, live.run_id)
            live.leaving = self.closing and not live.is_suspect
            ready.set_result(live)
            self.changed(name)
            resume = await execution.run(self._end)
            self._keep(name, started, resume)
            ended = live.ended
            assert ended is not None
            # Asked to end, it waits for a person or was paused instead.
            unheard = not ended.status.is_final and execution.writer.lease.control == "cancel"
            # An input in the queue comes next; or it is what the run has just asked for.
            next_input = execution.writer.lease.queued and ended.status not in (RunStatus.PAUSED, RunStatus.RUNNING)
            if next_input or unheard or ended.error_code == HandedOver.code:
                waiting = execution.writer.lease.key
        except Exception:
            log.exception("a run was left where it stood", extra={"thread_id": name.thread_id})
            await self._leave(started)
        finally:
            live = self.live(name)
            if live is not None and live.ended is None:
                # Its readers would wait for ever; whoever resumes the run shows its end.
                live.emit(RunEnded(RunStatus.RUNNING, error_code="run_moved", error_message=_LEFT))
            self._runs.pop(name, None)
            self._leases.pop(name, None)
            turned_away = self._turned_away.pop(name, None)
            if started is not None:
                started.release()
                started.execution.close()
            elif turned_away is not None:
                freed(turned_away)
            self.changed(name)
        if waiting is not None:
            freed(waiting)

    async def _leave(self, started: StartedRun | None) -> None:
        """Count that a run came to no end: it is resumed, but not for ever."""
        if started is None:
            return
        lease = started.execution.writer.lease
        try:
            await self._database.write(lambda session: leave(session, lease))
        except LeaseLost:
            return  # It has ended.
        except DatabaseError as error:
            log.warning("a run was not given back: %s", error.message, extra={"thread_id": lease.name.thread_id})

    def spawn(self, work: Coroutine[object, None, object]) -> None:
        """Do something in a task that `close` waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what others say of them --------------------------------------------------------------------------------

    def lost(self, leases: set[HeldLease]) -> None:
        """These leases are another worker's now."""
        for name, lease in list(self._leases.items()):
            live = self.live(name)
            if lease in leases and live is not None:
                live.failure = LeaseLost(f"thread {name.thread_id!r} is run by another worker now", param="thread_id")
                live.token.cancel()

    def asked(self, controls: Mapping[HeldLease, str | None]) -> None:
        """Do what runs are asked to do. Only a cancel does not wait for the next turn boundary."""
        for name, lease in list(self._leases.items()):
            live = self.live(name)
            if live is not None and controls.get(lease) == "cancel":
                self.stop(live)

    def stop(self, live: LiveRun) -> None:
        """End a run at once; its finished turns stay."""
        live.stop_requested = True
        live.token.cancel()

    # --- after a run --------------------------------------------------------------------------------------------

    def _keep(self, name: ThreadName, started: StartedRun, resume: ResumeRecord | None) -> None:
        """Keep the thread warm where its team has come to an end by itself, and fold its journal when that is due."""
        if resume is None:
            return
        execution, before = started.execution, started.head
        lease, end = execution.writer.lease, execution.live.ended
        assert end is not None
        head = ThreadHead(
            key=lease.key,
            **lease.name._asdict(),
            status=end.status,
            team=execution.live.team,
            revision=(0 if before is None else before.revision) + 2,
            last_seq=lease.last_seq,
            turn=lease.turn,
            journal_debt=(0 if before is None else before.journal_debt) + execution.writer.journal_debt,
            run_id=lease.run_id,
            epoch=lease.epoch,
            lease_owner=None,
            lease_expired=True,
            input_request=end.input_request,
            queued=lease.queued,
            branch=None if before is None else before.branch,
        )
        state = execution.session.release(resume)
        texts = [*started.plan.texts, *execution.steering.texts][-KNOWN_TEXTS:]
        plan, conversation = started.plan, execution.writer.conversation.closed()
        hidden = None if execution.steering.texts else plan.hidden
        self._warm.put(name, WarmThread(head, state, texts, plan.system, conversation, hidden))
        if head.journal_debt > COMPACT_ABOVE:
            self.spawn(self._compact(head))

    async def _compact(self, head: ThreadHead) -> None:
        try:
            debt = await self._database.write(lambda session: compact(session, head.key))
        except (DatabaseError, StateError) as error:
            # The journal stays; the next run tries again.
            log.warning("journal not folded: %s", error.message, extra={"thread_id": head.thread_id})
            return
        if debt is not None:
            head.journal_debt = debt

    # --- the end ------------------------------------------------------------------------------------------------

    async def close(self, grace: float) -> None:
        """Let every run come to its next turn boundary and hand it over there; after `grace` seconds cancel the turns
        in flight, which are repeated by whoever resumes them."""
        self._runs.closing = True
        for live in self._live_runs():
            live.leaving = True
        if self._tasks and grace > 0:
            await asyncio.wait(self._tasks, timeout=grace)
        for live in self._live_runs():
            live.leaving = True
            live.token.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_LAST_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._tasks:
            # What they began at their end: to have others look at their threads.
            await asyncio.wait(self._tasks, timeout=_LAST_SECONDS)

    def _live_runs(self) -> list[LiveRun]:
        return [run for run in self._runs.values() if isinstance(run, LiveRun)]
