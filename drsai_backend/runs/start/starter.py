"""From a request to a run that holds its lease, as a pipeline of finished values (steps 2 to 4 of `runs.engine`):

    read    StoredThread   the thread, warm or from the database
    plan    Plan           what the request means for it
    build   BuiltRun       a fresh team, bound to the run and on the turn runtime
    load    LoadedRun      the thread's state is in the team; its task
    store   Lease          the first write; from here on it is an `Execution`

Nothing is stored before the last step, so whatever fails leaves the thread as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.database.runs.values import NewRun, ResumedRun
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.lifecycle import IDLE
from drsai_backend.errors import Conflict
from drsai_backend.runs.events import MessageDone, RunRequest
from drsai_backend.runs.execution.execution import Execution
from drsai_backend.runs.execution.writer import RunWriter
from drsai_backend.runs.start.build import build, count_speakers
from drsai_backend.runs.start.load import NotMovable, load
from drsai_backend.runs.start.plan import Plan, plan, plan_resumed
from drsai_backend.runs.start.read import Input, ResumeOptions, Services, StoredThread, read
from drsai_backend.runs.start.store import first_write, store
from drsai_backend.runs.transcript import Transcript
from drsai_backend.teams.context import TeamFactory
from drsai_backend.teams.resources import Held

log = logging.getLogger("drsai.run")

_ATTEMPTS: Final = 5


class Busy(Exception):
    """The thread cannot begin another run now."""

    def __init__(self, head: ThreadHead) -> None:
        super().__init__()
        self.head = head


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that holds its lease, and what its end needs to keep the thread warm. `release` is to be called when the
    team is not needed any more."""

    execution: Execution
    plan: Plan
    head: ThreadHead | None
    release: Callable[[], None]


class RunStarter:
    """Starts and resumes runs for one engine."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def start(
        self,
        request: RunRequest,
        factory: TeamFactory,
        *,
        is_new: bool = False,
        queued: str | None = None,
        answers: bool = False,
    ) -> StartedRun:
        """Take the thread for a user input. `is_new`: its id was just made up; `queued`: the input comes from the
        queue, with this run_id, and is the next one, or `answers` what the thread's run asks. Whatever is raised,
        nothing was stored.

        Raises:
            Busy: a run is live on the thread, or paused, or others wait in the queue.
            InvalidRequest, StateError, TeamBuildError, DatabaseError: see `drsai_backend.errors`.
            Conflict: other writers were faster, again and again; or the answer's question is not waited for any more.
        """
        assert request.thread_id is not None
        given = Input(request, factory, request.thread_id, queued)
        for attempt in range(_ATTEMPTS):
            thread = None
            if not is_new:
                thread = await read(self._services, request, given.thread_id, trust_warm=attempt == 0)
            if thread is not None and request.answer is None:
                _refuse_busy(thread.head, queued=queued is not None, answers=answers)
            made = plan(request, thread)
            try:
                return await self._take(given, thread, made)
            except NotMovable:
                continue
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def resume(
        self, head: ThreadHead, request: RunRequest, factory: TeamFactory, options: ResumeOptions
    ) -> StartedRun:
        """Take a thread whose run was cut, or paused, and resume it at the turn after the last one stored. `request`
        has the run's parameters, and no messages.

        Raises:
            Conflict: the thread is not what `head` says any more.
            StateError, TeamBuildError, DatabaseError: see `drsai_backend.errors`.
        """
        thread = await read(self._services, request, head.thread_id, trust_warm=False)
        seen = (head.epoch, head.turn, head.status)
        if thread is None or (thread.head.epoch, thread.head.turn, thread.head.status) != seen:
            raise Conflict("the thread was changed by somebody else at the same moment", param="thread_id")
        given = Input(request, factory, head.thread_id, resume=options)
        return await self._take(given, thread, plan_resumed(thread))

    async def speakers(self, request: RunRequest, factory: TeamFactory) -> int:
        """How many agents may speak when the request is run; see `count_speakers`."""
        return await count_speakers(self._services, request, factory)

    async def _take(self, given: Input, thread: StoredThread | None, made: Plan) -> StartedRun:
        services, database, held = self._services, self._services.db.database, Held()
        try:
            built = await build(services, given, thread, made, held)
            loaded = await load(built, thread, made)
            write = first_write(services, given, thread, made, built, loaded)
            lease = await store(database, write)
        except BaseException:
            services.resources.release(held)
            raise
        head, live = write.head, built.live
        usage_before: dict[str, int] = {}
        if head is not None and made.resumes and thread is not None and thread.run is not None:
            waited = head.status is RunStatus.AWAITING_INPUT
            usage_before = thread.run["usage" if waited else "usage_before"] or {}
        writer = RunWriter(
            database,
            lease,
            live,
            outage=services.outage,
            bounds=built.bounds,
            broker=built.broker,
            steps=built.steps,
            transcript=Transcript(built.team),
            keyed=not isinstance(write, NewRun) or write.idempotency_key is not None,
            usage_before=usage_before,
        )
        execution = Execution(writer, built.session, task=loaded.task, pending=loaded.pending)
        attempt = write.attempt if isinstance(write, ResumedRun) else 1
        how = "taken over" if given.resume.attempt else "resumed" if isinstance(write, ResumedRun) else "started"
        level = logging.WARNING if given.resume.retries else logging.INFO
        log.log(level, "run %s", how, extra={**writer.names, "team": write.team, "attempt": attempt})
        last_seq = 0 if head is None else head.last_seq
        live.begin(lease.epoch, last_seq, attempt)
        if made.received is not None:
            live.emit(MessageDone(last_seq + 1, made.received, shown=False))
        for seq, message in loaded.given:
            live.emit(MessageDone(seq, message, shown=False))
        return StartedRun(execution, made, head, partial(services.resources.release, held))


def _refuse_busy(head: ThreadHead, *, queued: bool, answers: bool) -> None:
    if head.status is RunStatus.AWAITING_INPUT:
        is_free = answers or not queued  # A new message is the answer, one of before the question only if it says so.
    else:
        is_free = head.status in IDLE and (queued or not head.queued)
    if not is_free or (answers and head.status is not RunStatus.AWAITING_INPUT):
        raise Busy(head)
