"""Orphaned runs are found and resumed; and inputs that wait in the queue of a thread that is free.

What there is to do is told by the rows alone, so it does no harm to look at a thread twice, or in two processes at
once: the first write decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from drsai_backend import log_context
from drsai_backend.access.principal import Principal
from drsai_backend.access.switchboard import Switchboard
from drsai_backend.catalog import Catalog
from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database.hooks import Hooks
from drsai_backend.database.runs.commands import (
    REVIVED,
    deadline_of,
    end_unheld,
    give_back,
    hold,
    unattended,
)
from drsai_backend.database.runs.reads import RunRow, ThreadHead, read_head_of, read_run
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.datamodel.lifecycle import SUSPENDED
from drsai_backend.errors import (
    Conflict,
    DatabaseError,
    DatabaseUnavailable,
    DrSaiError,
    ShuttingDown,
    UnknownModel,
    UnsupportedStateVersion,
)
from drsai_backend.runs.commands.stored_request import ask_of_thread
from drsai_backend.runs.failures import failure_text
from drsai_backend.runs.feed.live_run import LiveRun
from drsai_backend.runs.recovery.announcements import Announcements
from drsai_backend.runs.recovery.inputs import WaitingInputs
from drsai_backend.runs.recovery.leases import is_orphan, is_proven_dead, shown_worker, was_in
from drsai_backend.runs.recovery.suspects import DEATHS, Suspects
from drsai_backend.runs.requests import NoAnswer, Placed, ResumeOptions
from drsai_backend.runs.running import Running
from drsai_backend.runs.start.plan import last_messages
from drsai_backend.runs.start.starter import RunStarter, StartedRun

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger("drsai.recovery")

INTERRUPTED = "The run was interrupted: the process that ran it ended before the run did."
UNANSWERED = "Nobody answered in time."
_AGAIN: Final = 0.5
"""Seconds between the looks at threads while the database is away."""
AT_ONCE: Final = 8
"""Threads that are looked at together, of a sweep, or once it is back."""
_HOLD: Final = timedelta(seconds=60)
"""How long a run may take from being taken to its first write: to start a process, to build the team, to load the
state."""


def _reason(question: Mapping[str, object]) -> str:
    """Return why a call is denied that nobody has decided on."""
    by = question.get("by")
    return f"nobody {'answered' if by is None else f'of {by} answered'} until {question['deadline']}"


class WorkerNotifier(Protocol):
    """Has some worker look at a thread soon. It only wakes: what there is to do, the thread's rows say."""

    async def wake(self, thread_key: int) -> bool:
        """Have `Engine.look_at(thread_key)` called somewhere. May be lost: whoever sweeps finds the thread as well.
        False: it is known to be lost."""
        ...

    async def tell(self, thread_key: int) -> None:
        """Have `Engine.controls_changed(thread_key)` called in the process that runs the thread. May be lost: the next
        heartbeat there finds it out as well."""
        ...


@dataclass(eq=False)
class Recovery:
    """Looks at threads for one engine."""

    _db: DatabaseManager
    _catalog: Catalog
    _starter: RunStarter
    _running: Running
    _worker_id: str
    _settings: Settings
    _hooks: Hooks
    _switches: Switchboard
    _is_worker: bool
    """False: what there is to run, this process leaves to others."""
    waker: WorkerNotifier | None = None
    """Has other processes look at a thread, and sweeps. None: this one does, and by itself."""
    _unseen: dict[int, None] = field(default_factory=dict[int, None])
    """Keys of threads that were to be looked at while the database was away, the one that waits longest first."""
    _looks_again: bool = False
    """Whether a task looks at them."""
    _swept: int = 0
    """The key of the last thread that a sweep has found."""

    def __post_init__(self) -> None:
        self.suspects = Suspects(self, self._settings.max_attempts)
        known = (self._db, self._catalog, self._worker_id, self._settings, self._starter)
        self.announcements = Announcements(*known, self._is_worker)
        parts = (self._db, self._catalog, self._starter, self._running, self._settings, self.announcements, self._hooks)
        self._inputs = WaitingInputs(*parts, self.freed)

    def is_orphan(self, head: ThreadHead) -> bool:
        """Whether nobody runs this RUNNING thread any more."""
        return not self._running.is_taken(head.name) and is_orphan(head, self._worker_id)

    async def sweep(self) -> list[int]:
        """The keys of threads that want a look, in their order: those of workers that live do not, and are not read. No
        more than half of what this process can take, so that what its clients ask finds room; the next sweep continues
        behind the last."""
        held = [key for key, _, _ in self._running.held()]
        running, others = await self._db.database.read(lambda session: unattended(session, held, self._is_gone))
        orphans = (head.key for head in running if self.is_orphan(head) and head.key not in self.suspects)
        due = sorted({*orphans, *others}, key=lambda key: (key <= self._swept, key))
        found = due[: max(AT_ONCE, (self._settings.max_runs - self._running.count) // 2)]
        self._swept = found[-1] if found else 0
        return found

    def _is_gone(self, worker: str) -> bool:
        """Return whether what a worker holds wants a look although its heartbeat is not over. What this one holds and
        does not run does."""
        return worker == self._worker_id or is_proven_dead(worker)

    async def look_at(self, key: int) -> None:
        """Resume the thread's run if its worker is gone, or begin the next of its inputs. Returns when that has
        begun, or there is nothing to be done here. Where this process is full, another one is to look.

        Raises:
            DatabaseError: the database cannot be used now.
        """
        if not self._is_worker:
            return
        if self.is_full():
            if self.waker is not None:
                await self.waker.wake(key)
            return
        # Whatever had it looked at, what is found there belongs to other requests.
        token = log_context.bind(None)
        try:
            await self._look_at(key)
        finally:
            log_context.restore(token)

    async def _look_at(self, key: int) -> None:
        head = await self._db.database.read(lambda session: read_head_of(session, key))
        if head is None or self._running.closing:
            return
        if self._running.is_taken(head.name):
            self._running.turn_away(head.name, key)
            return
        if head.status is RunStatus.RUNNING:
            if self.is_orphan(head):
                await self._take_up(head)
        elif head.control == "cancel" and head.status in SUSPENDED:
            # It came too late for the run to end by itself.
            await self.end(head, RunStatus.STOPPED, reason="The run was stopped.")
        elif head.status is RunStatus.AWAITING_INPUT:
            if not await self._end_unanswered(head) and head.queued and await self.announcements.serves(head):
                await self._inputs.answer(head)
        elif head.queued and head.status is not RunStatus.PAUSED:
            await self._inputs.start_next(head)

    def is_full(self, besides: int = 0) -> bool:
        """Whether this process takes up nothing now: not all of what a dead process leaves behind is taken up at once.
        Others sweep, and this one will again. `besides`: how many it may be about to take up."""
        return self._running.count + besides >= self._settings.max_runs or bool(self._switches.off and self.drained)

    @property
    def drained(self) -> ShuttingDown | None:
        """What refuses a request that would begin a run, where an operator has switched off this worker; None: it
        begins runs."""
        if not self._switches.off:
            return None
        found = self._switches.find("worker", shown_worker(self._worker_id), "")
        return None if found is None else ShuttingDown(f"this server begins nothing now: {found.message}")

    # --- runs that were cut -------------------------------------------------------------------------------------

    async def _take_up(self, head: ThreadHead) -> None:
        if await self.announcements.serves(head):
            await self.recover(head)
        else:
            await self._end_unknown(head)

    async def _end_unknown(self, head: ThreadHead) -> None:
        """End a run whose team no worker has known for long enough."""
        if head.team is not None and (unknown := await self.announcements.unknown(head.team)) is not None:
            await self.end(head, RunStatus.ERROR, error=failure_text(unknown, head.team, None))

    async def recover(self, head: ThreadHead) -> None:
        """Resume a run whose worker is gone, or end it."""
        run = await self._run_of(head)
        log_context.bind(None if run is None else run["request_id"], head.thread_id, head.run_id)
        if head.control == "cancel":
            await self.end(head, RunStatus.STOPPED, reason="The run was stopped.")
            return
        deaths = 0 if run is None else self._deaths(head, run)
        # Deaths in processes of their own are counted there; that a run came to no end is stored wherever that was.
        known = deaths if self.suspects.isolate is None else deaths - self._has_failed(head)
        was_cut = head.lease_owner != self._worker_id and (run is None or run["retry_turn"] != REVIVED)
        if run is None or (self._settings.recovery == "fail" and was_cut):
            await self.end(head, RunStatus.ERROR, error=INTERRUPTED)
        elif known >= DEATHS + self._settings.max_attempts:
            reason = f"The run was given up: {known} times its process died in the same turn, or could not end the run."
            await self.end(head, RunStatus.ERROR, error=reason)
        elif deaths >= DEATHS:
            self.suspects.add(head.key)
        elif not self.is_full() and await self._hold(head, deaths):
            ran = self._ran_unseen(head, run) if self._has_failed(head) else 0.0
            await self.resume(head, ResumeOptions(attempt=1, retries=deaths, retry_turn=head.turn, ran=ran))

    def _has_failed(self, head: ThreadHead) -> bool:
        """Whether its worker has died. One that was shut down in order has given its lease back, and this one lives."""
        return head.lease_owner not in (None, self._worker_id)

    def _deaths(self, head: ThreadHead, run: RunRow) -> int:
        """Return how often a run's worker has died in the turn in which the run is, or could not end it."""
        return self._counted(head, run) + self._has_failed(head)

    def _counted(self, head: ThreadHead, run: RunRow) -> int:
        """Return how much of that is stored."""
        return run["retries"] if run["retry_turn"] == head.turn else 0

    def hold_revived(self, session: Session, key: int) -> bool:
        """Take a run in the transaction that made it one that nobody runs: others of a release before that find it with
        `recovery="fail"` would end it."""
        head = read_head_of(session, key)
        return head is not None and hold(session, head, self._worker_id, _HOLD, 0)

    async def _hold(self, head: ThreadHead, deaths: int) -> bool:
        """Take a run that nobody runs, and store the deaths before anything is made of it: a run may kill its process
        while it is loaded, too. False: somebody else was faster."""
        return await self._db.database.write(lambda session: hold(session, head, self._worker_id, _HOLD, deaths))

    # --- suspects: see runs.recovery.suspects -------------------------------------------------------------------

    async def suspect(self, key: int) -> ThreadHead | None:
        """The head of a thread whose run is suspect, while nobody runs it. None: it is neither any more."""
        head = await self._db.database.read(lambda session: read_head_of(session, key))
        if head is None or head.status is not RunStatus.RUNNING or head.control == "cancel" or not self.is_orphan(head):
            return None
        run = await self._run_of(head)
        return None if run is None or self._deaths(head, run) < DEATHS else head

    async def died_of(self, suspect: ThreadHead, pid: int) -> ThreadHead | None:
        """The head of a thread whose run a process took, and died in the same turn of it."""
        head = await self._db.database.read(lambda session: read_head_of(session, suspect.key))
        if head is None or (head.run_id, head.turn, head.status) != (suspect.run_id, suspect.turn, RunStatus.RUNNING):
            return None
        return head if head.lease_owner is not None and was_in(head.lease_owner, pid) else None

    async def resume_here(self, key: int) -> None:
        """Resume a suspect in this process, and return when it has come through its turn, or ended."""
        if (head := await self.suspect(key)) is None or (run := await self._run_of(head)) is None:
            return
        if await self._hold(head, deaths := self._deaths(head, run)):
            await self._resume_suspect(head, deaths)
            await self._until_left(lambda: self._running.is_taken(head.name))

    async def resume_apart(self, keys: Iterable[int]) -> None:
        """Resume those that are suspect in this process, which runs nothing else, and return when each has come through
        its turn, or ended.

        Raises:
            DatabaseError: the database cannot be used now. Those that were not begun are taken by others when this
                process is gone.
        """
        self._running.refuse()  # Nothing follows them here.
        found = [head for key in keys if (head := await self.suspect(key)) is not None]
        taken: list[tuple[ThreadHead, int]] = []
        for head in found:
            # Deaths in such processes are not stored: releases that do not tell them apart give up sooner.
            run = await self._run_of(head)
            deaths = DEATHS if run is None else max(DEATHS, self._counted(head, run))
            if await self._hold(head, deaths):
                taken.append((head, deaths))
        log.warning("%d suspects are resumed in a process of their own", len(taken))
        for head, deaths in taken:
            await self._resume_suspect(head, deaths)
        await self._until_left(lambda: self._running.count > 0)

    async def _resume_suspect(self, head: ThreadHead, deaths: int) -> None:
        await self.resume(head, ResumeOptions(1, deaths, head.turn, is_suspect=True))

    async def _until_left(self, runs: Callable[[], bool]) -> None:
        while runs():  # noqa: ASYNC110 - they may end in many ways
            await asyncio.sleep(_AGAIN / 5)

    def look_later(self, key: int) -> None:
        """`try_recover`, in a task."""
        if not self._running.closing:
            self._running.spawn(self.try_recover(key))

    def _ran_unseen(self, head: ThreadHead, run: RunRow) -> float:
        """Return for how many seconds a run ran after it had stored something, according to its worker's last
        heartbeat."""
        if head.lease_ends is None:
            return 0.0
        alive = head.lease_ends - timedelta(seconds=self._settings.lease_seconds)
        return max(0.0, (alive - run["updated_at"]).total_seconds())

    async def resume(self, head: ThreadHead, options: ResumeOptions) -> LiveRun | None:
        """Resume a run that nobody holds. None: somebody else was faster, or it cannot be resumed and has ended as
        ERROR."""
        if options.attempt and self.is_full():
            return None
        return await self._taken_up(head, partial(self._starter.resume, head), options)

    async def _taken_up(
        self,
        head: ThreadHead,
        start: Callable[[Placed], Awaitable[StartedRun]],
        options: ResumeOptions = ResumeOptions(),  # noqa: B008 - it is frozen
        *,
        answer: NoAnswer | None = None,
    ) -> LiveRun | None:
        """Have `start` take up a run that nobody holds, with the thread's latest input, which has no messages, and with
        an answer. As `resume`."""
        name, run = head.name, None
        assert head.team is not None
        try:
            run = await self._run_of(head)
            recipe = await self._catalog.of_run(head.team, None if run is None else run["definition"])
            ask = await ask_of_thread(self._db, head.team, name)
            log_context.trace.set(ask.trace)
            who = Principal.load(name.owner, None)
            placed = Placed(replace(ask, answer=answer), who, recipe, name, resume=options)
            if self._running.is_taken(name):
                return None
            return await self._running.launch(name, partial(start, placed), self.freed)
        except Exception as raised:
            error = await self._failure_of(head, run, raised)
            if error is not None:
                log.error("a run cannot be resumed", extra={"thread_id": head.thread_id}, exc_info=raised)
                await self.end(head, RunStatus.ERROR, error=failure_text(error, head.team, None))
            return None

    async def _failure_of(self, head: ThreadHead, run: RunRow | None, raised: Exception) -> Exception | None:
        """Return what a run ends with that this process cannot take up; None: another one may."""
        if isinstance(raised, UnsupportedStateVersion):
            error = await self.announcements.unread(raised)
            if error is None:
                await self._db.database.write(lambda session: give_back(session, head.key, self._worker_id))
            return error
        # A stored definition that is not kept is known to no worker.
        is_gone = isinstance(raised, UnknownModel) and run is not None and run["definition"] is not None
        if isinstance(raised, Conflict | DatabaseError | UnknownModel) and not is_gone:
            # Another worker has it, or will have it; or one that knows the team.
            log.info("not resumed: %s", raised.message, extra={"thread_id": head.thread_id})
            return None
        return raised

    async def _run_of(self, head: ThreadHead) -> RunRow | None:
        run_id = head.run_id
        return None if run_id is None else await self._db.database.read(lambda session: read_run(session, run_id))

    async def end(
        self,
        head: ThreadHead,
        status: RunStatus,
        *,
        error: str | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> bool:
        """End a run that nobody holds, and begin what waits behind it. `by`: the user who wants it; None: the thread's
        owner. False: the thread has moved on meanwhile."""
        is_late = reason == UNANSWERED or error is not None
        question = head.input_request if head.status is RunStatus.AWAITING_INPUT else None
        decision, whose = ("expired", None) if is_late else ("withdrawn", by or head.user_id)
        last = partial(last_messages, decision, whose, question)
        with self.looking_after(head.key):
            queued = await self._db.database.write(
                lambda session: end_unheld(session, head, status, error or reason, last=last, hooks=self._hooks)
            )
        if queued is None:
            return False
        used = {"status": status.value, "team": head.team, "reason": error or reason}
        names = {"thread_id": head.thread_id, "run_id": head.run_id}
        names |= self._settings.logged(head.tenant, head.user_id)
        log.log(logging.ERROR if error else logging.INFO, "run ended", extra={**names, **used})
        if queued:
            self._running.spawn(self.try_recover(head.key))
        return True

    @contextmanager
    def looking_after(self, key: int) -> Generator[None]:
        """Look after a write that lets others begin something on a thread. Where it fails because the database is away,
        it may have been stored all the same; then nobody else would look before a sweep."""
        try:
            yield
        except DatabaseUnavailable:
            self._running.spawn(self.try_recover(key))
            raise

    async def _end_unanswered(self, head: ThreadHead) -> bool:
        """Whether it is too late to answer; then the run has ended, or will, and takes no answer."""
        run_id = head.run_id
        if run_id is None:
            return False
        deadline = await self._db.database.read(lambda session: deadline_of(session, run_id))
        if deadline is None or deadline >= utcnow():
            return False
        question = head.input_request or {}
        if question.get("kind") != "approval":
            await self.end(head, RunStatus.STOPPED, reason=UNANSWERED)
        elif await self.announcements.serves(head):
            denied = NoAnswer(question["id"], decision="deny", reason=_reason(question))
            await self._taken_up(head, self._starter.start, answer=denied)
        else:
            await self._end_unknown(head)
        return True

    async def try_recover(self, key: int) -> None:
        """`look_at`, where nobody is there to be told that the database is away: once it is back, this process looks
        again. Sweeps may be long in coming then, as the job queue has lost its connections as well."""
        if await self._has_looked(key):
            return
        self._unseen[key] = None
        if not self._looks_again:
            self._looks_again = True
            self._running.spawn(self._look_again())

    async def _has_looked(self, key: int) -> bool:
        try:
            await self.look_at(key)
        except DrSaiError as error:
            log.warning("a thread was not looked at: %s", error.message)
            return not isinstance(error, DatabaseUnavailable)
        return True

    async def _look_again(self) -> None:
        """One task for all threads: the one that waits longest asks whether the database is back, then some are looked
        at together. Those that it went away from again keep their places, so that each comes to its turn, however short
        the times are in which it answers."""
        try:
            while self._unseen and not self._running.closing:
                await asyncio.sleep(_AGAIN)
                missed: list[int] = []
                while self._unseen and not missed and not self._running.closing:
                    keys = list(islice(self._unseen, AT_ONCE))
                    if not await self._answers(keys[0]):
                        break
                    for key in keys:  # Before the looks: after them, each may have to be looked at once more.
                        del self._unseen[key]
                    seen = await asyncio.gather(*map(self._has_looked, keys))
                    missed = [key for key, has_looked in zip(keys, seen, strict=True) if not has_looked]
                    if missed and await self._answers(missed[0]):
                        self._unseen.update(dict.fromkeys(missed))  # They hold nobody up.
                    else:
                        self._unseen = {**dict.fromkeys(missed), **self._unseen}
        finally:
            self._looks_again = False
            self._unseen.clear()  # Whatever ended this, the next failure begins it anew; sweeps find the rest.

    async def _answers(self, key: int) -> bool:
        """Whether the database does."""
        try:
            await self._db.database.read(lambda session: read_head_of(session, key))
        except DatabaseError:
            return False
        return True

    # --- other processes ----------------------------------------------------------------------------------------

    async def tell(self, key: int) -> None:
        """Another process's live run on this thread was asked for something."""
        if self.waker is not None:
            await self.waker.tell(key)

    async def wake(self, key: int) -> None:
        """The thread is free and has something in its queue."""
        if self.waker is None or not await self.waker.wake(key):
            self._running.spawn(self.try_recover(key))

    def freed(self, key: int) -> None:
        """Tell that this process has done its part on a thread, and there is more to do."""
        if not self._running.closing:
            # The next input runs where the thread is warm.
            self._running.spawn(self.try_recover(key))
        elif self.waker is not None:
            self._running.spawn(self.waker.wake(key))
