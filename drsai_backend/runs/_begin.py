"""From a request to a run that holds its lease: steps 2 to 4 of a run's life (see `runs.engine`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from autogen_agentchat.teams import BaseGroupChat

from drsai_backend import log_context
from drsai_backend.database import DatabaseManager
from drsai_backend.database.runs.reads import ThreadHead, read_head
from drsai_backend.database.runs.writes import BeginRun, Lease, NewMessage, begin_run, confirm_begin
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.datamodel.base import JsonText
from drsai_backend.errors import Conflict, DatabaseUnavailable, InvalidRequest, TeamBuildError
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs._bounds import Bounds
from drsai_backend.runs._execution import Execution
from drsai_backend.runs._identity import new_run_id
from drsai_backend.runs._inject import inject, refuse_unseen_images
from drsai_backend.runs._live import LiveRun
from drsai_backend.runs._prepare import (
    Known,
    NotMovable,
    Plan,
    fingerprint,
    load,
    needs_first_boundary,
    plan,
    plan_to_go_on,
    read_known,
    untaken,
)
from drsai_backend.runs._task import check_types, input_messages
from drsai_backend.runs._warm import WarmThreads
from drsai_backend.runs.events import MessageDone, RunRequest
from drsai_backend.state import Document
from drsai_backend.teams.context import BuiltTeam, RunContext, TeamFactory, build_team
from drsai_backend.teams.imported import import_messages, imported_role
from drsai_backend.teams.limits import RunLimits
from drsai_backend.teams.recording.recorder import Recorder, dump_message, storable
from drsai_backend.teams.resources import Held, Resources
from drsai_backend.teams.runtime.wiring import share_message_types
from drsai_backend.teams.session import TeamSession
from drsai_backend.teams.suspension import InputBroker
from drsai_backend.teams.team_tree import as_team, leaf_agents, nested_teams, parts

log = logging.getLogger("drsai.run")

_ATTEMPTS = 5
_TITLE_LENGTH = 80
_LOOKS = (0.0, 0.1, 0.4, 1.0, 1.5)
"""Seconds between the looks whether a first write whose outcome is open has happened."""


class Busy(Exception):
    """The thread cannot begin another run now."""

    def __init__(self, head: ThreadHead) -> None:
        super().__init__()
        self.head = head


@dataclass(frozen=True, slots=True)
class Going:
    """How a run is taken up: from the queue (its run_id), or `again` (1: its worker was lost), with the count of deaths
    in one turn, what it is asked to do at once, and for how many seconds it ran since it stored anything."""

    queued: str | None = None
    again: int = 0
    retries: int = 0
    retry_turn: int | None = None
    control: str | None = None
    ran: float = 0.0


@dataclass(slots=True)
class Begun:
    """A run that holds its lease, and what its end needs to keep the thread warm. `release` is to be called when the
    team is not needed any more."""

    execution: Execution
    made: Plan
    head: ThreadHead | None
    release: Callable[[], None]


class Beginner:
    """Begins runs for one engine.

    Args:
        limits: what runs of a team may use, by its name.
    """

    def __init__(
        self,
        db: DatabaseManager,
        models: ModelClientFactory,
        warm: WarmThreads,
        worker_id: str,
        lease: timedelta,
        outage: float,
        limits: Callable[[str], RunLimits],
        resources: Resources,
    ) -> None:
        self._limits = limits
        self._outage = outage
        self._resources = resources
        self._db = db
        self._models = models
        self._warm = warm
        self._worker_id = worker_id
        self._lease = lease

    async def begin(
        self,
        request: RunRequest,
        factory: TeamFactory,
        *,
        is_new: bool = False,
        queued: str | None = None,
        answers: bool = False,
    ) -> Begun:
        """Take the thread for a user input. `is_new`: its id was just made up; `queued`: the input comes from the
        queue, with this run_id, and is the next one, or `answers` what the thread's run asks. Whatever is raised,
        nothing was stored.

        Raises:
            Busy: a run is live on the thread, or paused, or others wait in the queue.
            InvalidRequest, StateError, TeamBuildError, DatabaseError: see `drsai_backend.errors`.
            Conflict: other writers were faster, again and again; or the answer's question is not waited for any more.
        """
        thread_id = request.thread_id
        assert thread_id is not None
        for attempt in range(_ATTEMPTS):
            known = None
            if not is_new:
                known = await self._known(request, thread_id, trust_warm=attempt == 0)
            if known is not None and request.answer is None:
                _refuse_busy(known.head, queued=queued is not None, answers=answers)
            made = plan(request, known)
            try:
                return await self._take(request, factory, thread_id, known, made, Going(queued=queued))
            except NotMovable:
                continue
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def speakers(self, request: RunRequest, factory: TeamFactory) -> int:
        """How many agents may speak when the request is run.

        Raises:
            InvalidRequest: the team takes no messages of a type that is among the request's.
            TeamBuildError: the team's factory failed.
        """
        values = _user_input(request, Plan([*request.messages], []))
        context = RunContext(
            request.user_id,
            request.thread_id or "",
            "",
            values,
            self._db,
            self._models,
            request.params,
            request.api_key,
        )
        team = as_team(await _build(factory, context, request.team))
        held, members = Held(), parts(team)
        self._resources.hold(held, request.team, members, fresh=isinstance(factory, Mapping))
        self._resources.release(held)
        share_message_types(members, nested_teams(team))
        check_types(team, request.messages)
        refuse_unseen_images(team, request.messages)
        return sum(1 for _ in leaf_agents(team))

    async def go_on(self, head: ThreadHead, request: RunRequest, factory: TeamFactory, going: Going) -> Begun:
        """Take a thread whose run was cut, or paused, and go on at the turn after the last one stored. `request` has
        the run's parameters, and no messages.

        Raises:
            Conflict: the thread is not what `head` says any more.
            StateError, TeamBuildError, DatabaseError: see `drsai_backend.errors`.
        """
        known = await self._known(request, head.thread_id, trust_warm=False)
        if known is None or (known.head.epoch, known.head.turn, known.head.status) != (
            head.epoch,
            head.turn,
            head.status,
        ):
            raise Conflict("the thread was changed by somebody else at the same moment", param="thread_id")
        return await self._take(request, factory, head.thread_id, known, plan_to_go_on(known), going)

    async def _known(self, request: RunRequest, thread_id: str, *, trust_warm: bool) -> Known | None:
        name = (request.user_id, thread_id)
        warm = self._warm.take(name)
        # Of a run that goes on, its row is wanted, too.
        if warm is not None and trust_warm and warm.head.status is not RunStatus.AWAITING_INPUT:
            # Believed for now: the first write is guarded by this head.
            return Known(warm.head, warm.user_texts, warm.system_text, None, warm=warm)
        # Most threads that this process does not know are new.
        if await self._db.database.read(lambda session: read_head(session, *name), short=True) is None:
            return None
        texts = len(request.messages)
        return await self._db.database.read(lambda session: read_known(session, *name, texts))

    async def _take(
        self, request: RunRequest, factory: TeamFactory, thread_id: str, known: Known | None, made: Plan, going: Going
    ) -> Begun:
        held = Held()
        try:
            return await self._take_holding(held, request, factory, thread_id, known, made, going)
        except BaseException:
            self._resources.release(held)
            raise

    async def _take_holding(
        self,
        held: Held,
        request: RunRequest,
        factory: TeamFactory,
        thread_id: str,
        known: Known | None,
        made: Plan,
        going: Going,
    ) -> Begun:
        head = None if known is None else known.head
        at = utcnow()
        run_id = made.run_id or going.queued or new_run_id()
        values = _user_input(request, made)
        context = RunContext(
            request.user_id,
            thread_id,
            run_id,
            values,
            self._db,
            self._models,
            request.params,
            request.api_key,
        )
        run = None if known is None or not made.goes_on else known.run
        limits = request.limits
        turns, seconds = 0, going.ran
        if run is not None:
            limits = _limits_of(run).lowered(limits)
            context.meter.start_from(run["usage"] or {})
            turns, seconds = run["turns"], run["seconds"] + going.ran
        bounds = Bounds(self._limits(request.team).lowered(limits), context.meter, turns, seconds)
        broker = InputBroker(list(made.answers or []))
        log_context.bind(log_context.current_request(), thread_id, run_id)
        team = as_team(await _build(factory, context, request.team))
        members = parts(team)
        self._resources.hold(held, request.team, members, fresh=isinstance(factory, Mapping))
        speakers = sum(1 for _ in leaf_agents(team))
        live = LiveRun(run_id, thread_id, request.user_id, request.team, int(at.timestamp()), speakers)
        recorded = known.steps if known is not None and made.goes_on else ()
        execution = Execution(self._db.database, context, broker, live, self._outage, bounds, recorded)
        inject(members, context, broker, execution.steps, made.system or None)
        last_seq = 0 if head is None else head.last_seq
        session = TeamSession(
            team,
            next_seq=last_seq + 1,
            on_turn=execution.on_turn,
            on_chunk=execution.on_chunk,
            on_resumed=execution.at_boundary,
            on_nested_turn=execution.on_nested_turn,
            broker=broker,
            steps=execution.steps,
            known=members,
        )
        await session.prepare()
        session.report_first_boundary = needs_first_boundary(team)
        document = await load(session, known, made)
        new = await self._task(execution, session.recorder, team, known, made, document, last_seq)
        session.recorder.next_seq = last_seq + len(new) + 1
        api_key = None if request.api_key is None else self._db.secrets.encrypt(request.api_key.get_secret_value())
        begin = BeginRun(
            head=head,
            user_id=request.user_id,
            thread_id=thread_id,
            team=request.team,
            run_id=run_id,
            owner=self._worker_id,
            lease=self._lease,
            title=_title(made),
            user_input=None if not made.raw and made.goes_on else {**values, "api_key": api_key},
            messages=new,
            answers=made.answers or None,
            progress=bounds.progress(),
            limits=limits.as_dict(),
            request_id=log_context.current_request(),
            idempotency_key=request.idempotency_key,
            fingerprint=fingerprint(request) if request.idempotency_key else None,
            answer_id=new_run_id() if request.idempotency_key and made.run_id is not None else None,
            is_new_run=made.run_id is None and going.queued is None,
            goes_on=made.run_id is not None,
            queued=going.queued,
            attempt=1 if run is None else run["attempt"] + going.again,
            retries=going.retries,
            retry_turn=going.retry_turn,
            control=going.control,
            clear_steps=known is not None and bool(known.steps) and not made.goes_on,
            at=at,
        )
        execution.keyed = made.goes_on or going.queued is not None or request.idempotency_key is not None
        if head is not None and run is not None:
            asked = head.status is RunStatus.AWAITING_INPUT
            execution.usage_before = run["usage" if asked else "usage_before"] or {}
        execution.session = session
        execution.lease = await self._first_write(begin)
        how = "taken over" if going.again else "resumed" if begin.goes_on else "started"
        level = logging.WARNING if going.retries else logging.INFO
        log.log(level, "run %s", how, extra={**execution.names, "team": request.team, "attempt": begin.attempt})
        live.begin(execution.lease.epoch, last_seq, begin.attempt)
        if made.received is not None:
            live.emit(MessageDone(last_seq + 1, made.received, shown=False))
        for message in (*execution.imported, *(execution.task or ())):
            seq = session.recorder.seq_of(message)
            if seq is not None and seq > last_seq:
                live.emit(MessageDone(seq, message, shown=False))
        return Begun(execution, made, head, partial(self._resources.release, held))

    async def _first_write(self, begin: BeginRun) -> Lease:
        database = self._db.database

        async def write() -> Lease:
            return await database.write(lambda session: begin_run(session, begin), short=begin.is_short)

        try:
            return await write()
        except DatabaseUnavailable:
            # The COMMIT may have happened. A client that is told of failure would retry, and get two answers.
            for pause in _LOOKS:
                await asyncio.sleep(pause)
                with contextlib.suppress(DatabaseUnavailable):
                    lease = await database.read(lambda session: confirm_begin(session, begin))
                    # It did not, and what it was guarded by guards the second attempt.
                    return await write() if lease is None else lease
            raise

    async def _task(
        self,
        execution: Execution,
        recorder: Recorder,
        team: BaseGroupChat,
        known: Known | None,
        made: Plan,
        document: Document | None,
        last_seq: int,
    ) -> list[NewMessage]:
        """Set the execution's task; the rows that are new with it."""
        stored = untaken(team, known, document)
        rows: list[NewMessage] = []
        if made.received is not None:
            last_seq += 1
            rows.append(NewMessage(last_seq, JsonText(storable(dump_message(made.received)))))
        goes_on = made.answers is not None
        if goes_on and document is not None and document.resume.pending is not None:
            execution.pending = document.resume.pending
            return rows
        refuse_unseen_images(team, made.new)
        new = [] if goes_on else input_messages(team, check_types(team, made.new))
        for seq, message in enumerate(new, start=last_seq + 1):
            config = dump_message(message)
            text = storable(config)
            if text is not config:
                raise InvalidRequest("a message holds NUL or a lone surrogate", param="messages")
            rows.append(NewMessage(seq, JsonText(text)))
        given = [*stored, *enumerate(new, start=last_seq + 1)]
        execution.imported = [message for _, message in given if imported_role(message) is not None]
        execution.task = await import_messages(team, execution.imported)
        execution.task += [message for _, message in given if imported_role(message) is None]
        is_task = {id(message) for message in execution.task}
        for seq, message in given:
            recorder.know(seq, message, is_task=id(message) in is_task)
        execution.imported = [message for message in execution.imported if id(message) not in is_task]
        return rows


def _refuse_busy(head: ThreadHead, *, queued: bool, answers: bool) -> None:
    if head.status is RunStatus.AWAITING_INPUT:
        is_free = answers or not queued  # A new message is the answer, one of before the question only if it says so.
    else:
        is_free = (head.status.is_final or head.status is RunStatus.CREATED) and (queued or not head.queued)
    if not is_free or (answers and head.status is not RunStatus.AWAITING_INPUT):
        raise Busy(head)


async def _build(factory: TeamFactory, context: RunContext, name: str) -> BuiltTeam:
    try:
        return await build_team(factory, context)
    except TeamBuildError as error:
        # Its client is told no more than that; what it was is for whoever wrote the factory.
        log.error("team factory failed", extra={"team": name}, exc_info=error.__cause__ or error)
        raise


def _limits_of(run: Any) -> RunLimits:
    stored: dict[str, Any] = run["limits"] or {}
    return RunLimits(**stored)


def _title(made: Plan) -> str:
    text = next((message.text for message in made.new if message.role == "user"), "")
    title = " ".join(text.split())
    return title if len(title) <= _TITLE_LENGTH else title[: _TITLE_LENGTH - 1] + "…"


def _user_input(request: RunRequest, made: Plan) -> dict[str, Any]:
    """The columns of the UserInput row, without the key."""
    return {
        "user_messages": made.raw,
        "user_last_message": made.new[-1].text if made.new else None,
        "temperature": request.params.temperature,
        "max_tokens": request.params.max_tokens,
        "top_p": request.params.top_p,
        "cache_seed": request.params.seed,
        "n": request.n,
        "stream": request.stream,
        "extra_requests": request.extra or None,
    }
