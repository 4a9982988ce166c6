"""The engine: runs teams on threads, and stores what they do before anybody is shown it.

A run's life, step by step, and where to look:

1. A request becomes a `RunRequest` (`runs.events`); `Engine.start` takes it. From here on the run is a task of the
   engine (`runs.running`), never of the request. Where the thread is busy, `on_busy` decides (`runs.commands`).
2. Read the thread, warm in memory (`runs.warm`) or stored (`database.runs.reads`), and plan what of the request is new
   and whether it answers a question (`runs.start.read`, `runs.start.plan`, `runs.messages`).
3. Build the team with its factory, bind it to the run, put it on the turn runtime (`runs.start.build`), and load its
   state (`runs.start.load`). Up to here nothing is stored: whatever fails leaves the thread as it was.
4. Store: the lease (epoch + 1), the user input, the input's messages, status RUNNING (`runs.start.starter`).
5. The team runs. At every turn boundary one write, guarded by epoch and turn, appends messages and journal entry; then
   the turn's messages are shown, then the next speakers start (`runs.execution`). Inside a turn, answers that call
   tools and results of tools are recorded (`teams.replay.steps`). A write waits for a database that is away.
6. Last write: the last turn, the final status, usage, stop reason; the lease is given back. A question to a person ends
   the process's part of the run as AWAITING_INPUT (`teams.suspension`), a pause as PAUSED (`runs.commands`).
7. The state stays warm for the next run; the journal is folded into a snapshot when that is due (`state.store`). The
   next input of the queue is begun.

Leases are renewed by a heartbeat in a thread of its own (`runs.recovery.leases`); a run that lost its own ends without
writing. A sweep finds orphaned runs and resumes them after their last stored turn (`runs.recovery.recovery`). What
happens can be followed from any process (`runs.feed`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial

from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.database import Database, DatabaseManager
from drsai_backend.database.retention import delete_thread, prune
from drsai_backend.datamodel import RunStatus, Thread
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import Conflict, DrSaiError, NotFound, ShuttingDown, StaleAnswer, ThreadBusy
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs import views
from drsai_backend.runs.commands import Commands, Queued
from drsai_backend.runs.events import Answer, Logged, Position, RunRequest, new_thread_id
from drsai_backend.runs.feed.feed import Feeds, FollowedRun
from drsai_backend.runs.feed.live_run import RunHandle
from drsai_backend.runs.feed.replay import find_request, replay
from drsai_backend.runs.opening import Lifecycle
from drsai_backend.runs.recovery.leases import Heartbeat, new_worker_id
from drsai_backend.runs.recovery.recovery import Recovery, Waker
from drsai_backend.runs.running import Running
from drsai_backend.runs.start.plan import fingerprint
from drsai_backend.runs.start.read import Services
from drsai_backend.runs.start.starter import Busy, RunStarter
from drsai_backend.runs.stored_request import request_of_thread
from drsai_backend.runs.views import InputRequestPage, RunPage, RunView, StoredMessage, ThreadDetail, ThreadPage
from drsai_backend.runs.warm import WarmThreads
from drsai_backend.teams.context import TeamFactory
from drsai_backend.teams.limits import RunLimits
from drsai_backend.teams.registry import TeamRegistry
from drsai_backend.teams.resources import Resources

log = logging.getLogger("drsai.engine")

_ATTEMPTS = 20
_PRUNE_SECONDS = 3600.0
_RARELY = 10

Handle = RunHandle | FollowedRun
"""A run that was started: one of this process, or one that it follows by what is stored. Both have the same calls."""


class Engine:
    """Runs the teams of a registry on the threads of a database. One per process and event loop.

    Args:
        teams: what can be asked.
        db: the database manager, injected into every agent and group chat. Not closed by the engine.
        models: makes the model clients of `RunContext.model_client()`. Not closed by the engine.
        settings: leases, recovery, and the size of the warm cache.
    """

    def __init__(
        self, teams: TeamRegistry, db: DatabaseManager, models: ModelClientFactory, settings: Settings
    ) -> None:
        self.teams = teams
        self.db = db
        self.worker_id = new_worker_id()
        self.lifecycle = Lifecycle()
        self._settings = settings
        self._warm = WarmThreads(settings.warm_threads, settings.warm_bytes)
        lease = timedelta(seconds=settings.lease_seconds)
        self._limits = RunLimits(settings.max_turns, settings.max_run_seconds, settings.max_run_tokens)
        self._resources = Resources(lambda work: self._running.spawn(work))
        outage = settings.outage_seconds
        self._starter = RunStarter(
            Services(db, models, self._warm, self.worker_id, lease, outage, self.limits_of, self._resources)
        )
        self._feeds = Feeds(db.database, lambda name: self._running.live(name), lambda: self._running.closing)
        self._recovery: Recovery
        self._running = Running(db.database, self._warm, self._feeds.changed, lambda key: self._recovery.freed(key))
        self._recovery = Recovery(db, teams, self._starter, self._running, self.worker_id, settings)
        self._commands = Commands(db, self._starter, self._running, self._recovery, self._warm)
        self._heartbeat = Heartbeat(
            db.database,
            self.worker_id,
            interval=settings.heartbeat_seconds,
            lease=lease,
            max_stall=settings.max_stall_seconds,
            holds=self._running.held,
            lost=self._running.lost,
            asked=self._running.asked,
        )
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the heartbeat, and look for runs that nobody runs: now and every few seconds. Once only, in the event
        loop that has claimed the `lifecycle`, and with the schema as it should be."""
        self._heartbeat.start()
        for key in await self.sweep():
            await self._recovery.try_recover(key)
        self._sweeping = asyncio.create_task(self._sweep_for_ever())
        self.lifecycle.opened()

    def woken_by(self, waker: Waker) -> None:
        """Have `waker` tell other processes which threads want a look, and sweep. Without one, this process does."""
        self._recovery.waker = waker

    def check_open(self) -> None:
        """Raises NotOpened unless it is open, in this event loop. All that is asked of it below begins with this."""
        self.lifecycle.check()

    @property
    def _open_database(self) -> Database:
        self.check_open()
        return self.db.database

    async def close(self) -> None:
        """Take nothing new. Runs under way are handed over at their next turn boundary, and after
        `shutdown_grace_seconds` inside their turn, which is then repeated by whoever resumes them."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
            self._sweeping = None
        await self._running.close(self._settings.shutdown_grace_seconds)
        await self._resources.close()
        await self._heartbeat.stop()
        self._warm.clear()

    def limits_of(self, team: str) -> RunLimits:
        """What a run of that team may use. Raises UnknownModel."""
        return self.teams.get(team).limits.over(self._limits)

    # --- runs ---------------------------------------------------------------------------------------------------

    async def start(self, request: RunRequest) -> Handle:
        """Start a run, or resume the one that waits for this answer. Returns when its input is stored.

        A repeated request with the same idempotency key gets the run that the first one started.

        Raises:
            UnknownModel, InvalidRequest: the request cannot be served.
            ThreadBusy: a run is live on the thread, and the request says `on_busy="reject"`.
            IdempotencyMismatch: the key was used with another request.
            StateError: the thread's stored state cannot be used.
            TeamBuildError: the team's factory failed.
            ShuttingDown: this process takes nothing new.
            DatabaseError: the database refused or cannot be reached.
            NotOpened: it is not open here.
        In all cases nothing was stored.
        """
        self.check_open()
        if self._running.closing:
            raise ShuttingDown("this server is shut down; another one takes the request")
        factory = self.teams.get(request.team).factory
        self.limits_of(request.team).check(request.limits)
        is_new = request.thread_id is None
        if is_new:
            request = replace(request, thread_id=new_thread_id())
        if (earlier := await self._earlier(request, is_new=is_new)) is not None:
            return earlier
        try:
            return await self._start(request, factory, is_new=is_new)
        except Conflict:
            # The same request may have come twice at the same moment.
            if (earlier := await self._earlier(request, is_new=is_new)) is None:
                raise
            return earlier

    async def _earlier(self, request: RunRequest, *, is_new: bool) -> Handle | None:
        """The run that the request's idempotency key stands for, if it has one."""
        key = request.idempotency_key
        if key is None or is_new:
            return None
        found = await self.db.database.read(
            lambda session: find_request(session, request.name, key, fingerprint(request))
        )
        if found is None:
            return None
        if found.is_over:
            return RunHandle(replay(found))
        speakers = await self._starter.speakers(request, self.teams.get(request.team).factory)
        return self._followed((found.run_id, speakers, found.created), request, found.start)

    async def _start(self, request: RunRequest, factory: TeamFactory, *, is_new: bool) -> Handle:
        name = request.name
        if request.background:
            return self._followed(await self._commands.enqueue(request, factory), request)
        for _ in range(_ATTEMPTS):
            head = None
            if not self._running.is_taken(name):
                try:
                    live = await self._running.launch(
                        name, lambda: self._starter.start(request, factory, is_new=is_new)
                    )
                    return RunHandle(live, partial(self._feeds.run, name.owner, is_stored=True))
                except Busy as busy:
                    head = busy.head
            elif (beginning := self._running.beginning(name)) is not None:
                await asyncio.wait([beginning])
                continue
            elif request.answer is not None:
                raise StaleAnswer("the thread waits for no answer", param="id")
            queued = await self._commands.take(request, factory, head)
            if queued is not None:
                return self._followed(queued, request)
        raise ThreadBusy(f"thread {name.thread_id!r} is too busy; try again", param="thread_id")

    async def answer(self, who: Principal, thread_id: str, answer: Answer) -> Handle:
        """Answer what the thread's run waits for, by the id of the question, and resume it.

        Raises:
            NotFound: no such thread of this user.
            StaleAnswer: the thread does not wait for this answer (any more).
            InvalidRequest: it does not fit the question.
            StateError, TeamBuildError, ShuttingDown, DatabaseError: as `start`; nothing was stored.
        """
        self.check_open()
        head = await self._commands.head(who.owner.thread(thread_id))
        request = await request_of_thread(self.db, head.team or "", who, thread_id)
        return await self.start(replace(request, answer=answer))

    def _followed(self, queued: Queued, request: RunRequest, after: Position | None = None) -> FollowedRun:
        run_id, speakers, created = queued
        return FollowedRun(
            self._feeds.run(request.principal.owner, run_id, after, is_stored=True),
            run_id=run_id,
            name=request.name,
            team=request.team,
            speakers=speakers,
            created=created,
        )

    # --- controls -----------------------------------------------------------------------------------------------

    async def cancel(self, who: Principal, thread_id: str) -> ThreadDetail:
        """End what the thread does, or waits for, as STOPPED; see `Commands.cancel`."""
        self.check_open()
        await self._commands.cancel(who.owner.thread(thread_id))
        return await self.get_thread(who, thread_id)

    async def pause(self, who: Principal, thread_id: str) -> ThreadDetail:
        """Pause the thread's live run at its next turn boundary; see `Commands.pause`."""
        self.check_open()
        await self._commands.pause(who.owner.thread(thread_id))
        return await self.get_thread(who, thread_id)

    async def resume(self, who: Principal, thread_id: str) -> ThreadDetail:
        """Resume the thread's paused run; see `Commands.resume`."""
        self.check_open()
        await self._commands.resume(who.owner.thread(thread_id))
        return await self.get_thread(who, thread_id)

    async def cancel_run(self, who: Principal, run_id: str) -> RunView:
        """End one run, queued or live; see `Commands.cancel_run`."""
        self.check_open()
        await self._commands.cancel_run(who.owner, run_id)
        return await self.get_run(who, run_id)

    async def controls_changed(self, thread_key: int) -> None:
        """Another process has asked something of the thread's run: look what, before the next heartbeat would."""
        if any(key == thread_key for key, _ in self._running.held()):
            self._heartbeat.beat_now()

    # --- runs that nobody runs ----------------------------------------------------------------------------------

    async def sweep(self) -> list[int]:
        """The keys of threads that want a look: their worker is gone, inputs wait, or a question was not answered in
        time."""
        return await self._recovery.sweep()

    async def look_at(self, thread_key: int) -> None:
        """Do what there is to do on a thread; see `Recovery.try_recover`."""
        await self._recovery.try_recover(thread_key)

    async def prune(self) -> int:
        """Delete the threads whose retention is over. Returns how many."""
        days = self._settings.retention_days
        if days is None:
            return 0
        older, total = timedelta(days=days), 0
        while deleted := await self.db.database.write(lambda session: prune(session, older_than=older)):
            total += deleted
        return total

    async def _sweep_for_ever(self) -> None:
        pruned = -_PRUNE_SECONDS
        while True:
            # Where somebody else sweeps, this is for the case that he does not.
            await asyncio.sleep(self._settings.sweep_seconds * (1 if self._recovery.waker is None else _RARELY))
            try:
                for key in await self.sweep():
                    await self._recovery.try_recover(key)
                if self._recovery.waker is None and time.monotonic() - pruned > _PRUNE_SECONDS:
                    pruned = time.monotonic()
                    await self.prune()
            except DrSaiError as error:
                log.warning("no sweep: %s", error.message)
            except Exception:
                # Without sweeps, runs would be left lying.
                log.exception("a sweep failed")

    # --- what is there ------------------------------------------------------------------------------------------

    async def get_run(self, who: Principal, run_id: str) -> RunView:
        """One run. Raises NotFound for an unknown or foreign one."""
        found = await self._open_database.read(lambda session: views.get_run(session, who.owner, run_id))
        if found is None:
            raise NotFound(f"no run {run_id!r}", param="run_id")
        return found

    async def list_runs(
        self, who: Principal, thread_id: str | None, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> RunPage:
        """A page of a thread's runs, or of all of the user's, newest first; `after` is the `next` of the page
        before."""
        return await self._open_database.read(
            lambda session: views.list_runs(session, who.owner, thread_id, after, limit, status)
        )

    async def list_input_requests(self, who: Principal, *, after: str | None, limit: int) -> InputRequestPage:
        """A page of the questions that wait for the user, in all threads, newest first."""
        return await self._open_database.read(
            lambda session: views.list_input_requests(session, who.owner, after, limit)
        )

    def follow_run(self, who: Principal, run_id: str, after: Position | None = None) -> AsyncIterator[Logged]:
        """The log of a run from a position on; see `Feeds.run`."""
        self.check_open()
        return self._feeds.run(who.owner, run_id, after)

    def follow_thread(self, who: Principal, thread_id: str, after: Position | None = None) -> AsyncIterator[Logged]:
        """The log of a thread from a position on; see `Feeds.thread`."""
        self.check_open()
        return self._feeds.thread(who.owner.thread(thread_id), after)

    async def check_thread(self, who: Principal, thread_id: str) -> None:
        """Raises NotFound for an unknown or foreign thread."""
        await self._commands.head(who.owner.thread(thread_id))

    async def list_threads(
        self, who: Principal, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> ThreadPage:
        """A page of the user's threads, newest first; `after` is the `next` of the page before."""
        return await self._open_database.read(
            lambda session: views.list_threads(session, who.owner, after, limit, status)
        )

    async def get_thread(self, who: Principal, thread_id: str) -> ThreadDetail:
        """One thread, without its messages and state. Raises NotFound for an unknown or foreign one."""
        self.check_open()
        rows = await self.db.get(Thread, who.owner.thread(thread_id)._asdict(), load_messages=True, load_state=False)
        if not rows:
            raise NotFound(f"no thread {thread_id!r}", param="thread_id")
        return views.detail(rows[0])

    async def list_messages(self, who: Principal, thread_id: str, *, after: int, limit: int) -> list[StoredMessage]:
        """Messages with `seq > after`, in order. Raises NotFound for an unknown or foreign thread."""
        return await self._open_database.read(
            lambda session: views.list_messages(session, who.owner.thread(thread_id), after, limit)
        )

    async def delete_thread(self, who: Principal, thread_id: str) -> None:
        """Delete a thread and all that belongs to it.

        Raises:
            NotFound: an unknown or foreign thread.
            Conflict: a run is live on it.
        """
        name = who.owner.thread(thread_id)
        if self._running.is_taken(name):
            raise ThreadBusy(f"a run is live on thread {thread_id!r}; stop it first")
        self._warm.take(name)
        if not await self._open_database.write(partial(delete_thread, name=name, actor=who.actor)):
            raise NotFound(f"no thread {thread_id!r}", param="thread_id")

    def forget(self, name: ThreadName) -> None:
        """Drop what this process remembers of a thread that was deleted."""
        self._warm.take(name)
