"""The starter makes of a request a run that holds its lease, as a pipeline of finished values (steps 2 to 4 of
`runs.engine`):

    read    StoredThread   the thread, warm or from the database
    plan    Plan           what the request means for it
    build   BuiltRun       a fresh team, bound to the run and on the turn runtime
    load    LoadedRun      the thread's state is in the team; its task
    store   Lease          the first write; from here on it is an `Execution`

Nothing is stored before the last step, so whatever fails leaves the thread as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from autogen_agentchat.messages import BaseChatMessage

from drsai_backend import log_context
from drsai_backend.database import Database
from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.database.runs.values import (
    FirstWrite,
    Lease,
    NewRun,
    QueuedRun,
    ResumedRun,
    StoredInput,
)
from drsai_backend.database.runs.writes import begin_run, confirm_begin
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.lifecycle import IDLE
from drsai_backend.errors import Conflict, DatabaseUnavailable, InvalidRequest, NotFound, UnknownModel
from drsai_backend.json_types import as_object
from drsai_backend.runs.audited import answered, started_as
from drsai_backend.runs.events import MessageDone
from drsai_backend.runs.execution.execution import Execution
from drsai_backend.runs.execution.writer import RunWriter
from drsai_backend.runs.feed.replay import OF_AN_ANSWER
from drsai_backend.runs.history.digest import Conversation, Histories, seed_of
from drsai_backend.runs.messages import TRACE, check_types, history_messages, title_of
from drsai_backend.runs.requests import Admitted, Placed, new_run_id
from drsai_backend.runs.start.build import BuiltRun, build, build_team_of, context_of, refuse_unseen_images
from drsai_backend.runs.start.load import LoadedRun, NotMovable, load
from drsai_backend.runs.start.parameters import ExpectedRun, allot
from drsai_backend.runs.start.plan import Plan, fingerprint, plan, plan_resumed
from drsai_backend.runs.start.read import Services, StoredThread, read
from drsai_backend.runs.threads.rights import may_answer
from drsai_backend.teams.client_tools.definitions import calls_of
from drsai_backend.teams.recording.base import unsaved
from drsai_backend.teams.resources import HeldResources
from drsai_backend.teams.runtime.wiring import share_message_types
from drsai_backend.teams.team_tree import TeamTree

if TYPE_CHECKING:
    pass

log = logging.getLogger("drsai.run")

_ATTEMPTS: Final = 5
_LOOKS: Final = (0.0, 0.1, 0.4, 1.0, 1.5)
"""Seconds between the looks whether a first write whose outcome is open has happened."""


class Moved(Exception):
    """The thread is not where it was when its history was looked up."""


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
        self._warned: set[str] = set()
        """Classes of agents of which it was said that attributes of theirs are not stored."""
        self.short_forms = False
        """Whether all workers that live read short forms of journal entries and model calls."""

    async def start(self, given: Placed) -> StartedRun:
        """Take the thread for a user input. Whatever is raised, nothing was stored.

        Raises:
            Moved: the thread was continued, or rewound, since the request's history was looked up.
            Busy: a run is live on the thread, or paused, or others wait in the queue.
            InvalidRequest, StateError, TeamBuildError, DatabaseError: see `drsai_backend.errors`.
            Conflict: other writers were faster, again and again; or the answer's question is not waited for any more.
        """
        for attempt in range(_ATTEMPTS):
            thread = None if given.is_new else await self._free_thread(given, trust_warm=attempt == 0)
            try:
                asked = given
                if given.queued is not None and thread is not None and self._services.settings.resume_by_history:
                    asked = await _recognised(given, thread)
                made = plan(asked, thread, may_move=self._services.may_move)
            except InvalidRequest:
                if thread is None or thread.warm is None:
                    raise
                continue  # Another process may have rewound the thread; then it is new to it what is old to this one.
            if made.is_moved and thread is not None and thread.warm is not None:
                continue  # The other team's state is no use; what was said is.
            try:
                return await self._take(asked, thread, made)
            except NotMovable:
                continue
            except Conflict:
                if given.known is not None and given.known.newest is not None:
                    raise Moved from None
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _free_thread(self, given: Placed, *, trust_warm: bool) -> StoredThread | None:
        """Return the thread of an input, which may begin there; None: it does not exist yet. Raises as `start`."""
        thread, known = await read(self._services, given, trust_warm=trust_warm), given.known
        if thread is None and given.author is not None:
            raise NotFound(f"no thread {given.name.thread_id!r}", param="thread_id")  # It was deleted just now.
        seen = None if known is None else known.seen
        if seen is not None and (thread is None or thread.head.seen != seen):
            raise Moved
        if known is not None and known.newest is not None and (thread is None or thread.warm is None):
            raise Moved  # It was chosen as a warm one, and is none any more: now the database is asked.
        if thread is not None and given.ask.answer is None and not given.ask.tool_results:
            _refuse_busy(given, thread)
        return thread

    async def resume(self, head: ThreadHead, given: Placed) -> StartedRun:
        """Take a thread whose run was cut, or paused, and resume it at the turn after the last one stored. `given` has
        the run's parameters, and no messages.

        Raises:
            Conflict: the thread is not what `head` says any more.
            StateError, TeamBuildError, DatabaseError: see `drsai_backend.errors`.
        """
        thread = await read(self._services, given, trust_warm=False)
        seen = (head.seen, head.turn, head.status)
        if thread is None or (thread.head.seen, thread.head.turn, thread.head.status) != seen:
            raise Conflict("the thread was changed by somebody else at the same moment", param="thread_id")
        return await self._take(given, thread, plan_resumed(thread))

    async def outlook(self, request: Admitted | Placed) -> ExpectedRun:
        """Return what can be told of a run before it begins.

        Raises:
            InvalidRequest: the team takes no messages of a type that is among the request's, sees none of its images,
                or cannot answer in its form.
            TeamBuildError: the team's factory failed.
        """
        tree = await self._team_for(Placed(request.ask, request.who, request.recipe, request.name))
        check_types(tree.team, request.ask.messages)
        refuse_unseen_images(tree.team, request.ask.messages)
        return allot(tree, request.ask, request.recipe, self._services.models.continues).outlook

    async def history(self, given: Placed) -> list[BaseChatMessage]:
        """The messages of a request as a conversation that its team has had, to be stored.

        Raises:
            InvalidRequest: they are none, or hold images that the team does not see.
            TeamBuildError: the team's factory failed.
        """
        team, messages = (await self._team_for(given)).team, given.ask.messages
        refuse_unseen_images(team, messages)
        return history_messages(team, messages)

    async def _team_for(self, given: Placed) -> TeamTree:
        """A team that is asked about itself, and runs nothing."""
        services, held = self._services, HeldResources()
        made = Plan(new=given.ask.messages, conversation=Conversation(b""))
        tree = await build_team_of(services, given.recipe, context_of(services, given, given.who, "", made), held)
        services.resources.release(held)
        share_message_types(tree)
        return tree

    def _warn(self, tree: TeamTree) -> None:
        """Say once of each class of agents which attributes seem to be a state, and are stored nowhere."""
        for agent in tree.agents:
            cls = f"{type(agent).__module__}.{type(agent).__qualname__}"
            if cls not in self._warned and (names := unsaved(agent)):
                text = "agents of %s keep %s with no thread: name it in `durable_fields`, or () there if it is no state"
                log.warning(text, cls, ", ".join(names))
            self._warned.add(cls)

    async def _as_begun(self, given: Placed, thread: StoredThread | None) -> Placed:
        """The input of a run that is resumed, with the team as it was when that began."""
        run = None if thread is None else thread.run
        if run is None or (run["definition"] is None and given.recipe.version is None):
            return given
        # Raises where this process lacks the operator's team: a stored definition of its name is another team.
        return replace(given, recipe=await self._services.catalog.of_run(run["team"], run["definition"]))

    async def _take(self, given: Placed, thread: StoredThread | None, made: Plan) -> StartedRun:
        services, database, held = self._services, self._services.db.database, HeldResources()
        if not services.is_worker:
            # Nothing prolongs its leases: workers would run the same a second time.
            text = (
                f"this process is no worker and runs nothing: have one run {given.ask.team!r}, as with background=True"
            )
            raise UnknownModel(text, param="model")
        if made.resumes:
            given = await self._as_begun(given, thread)
        try:
            built = await build(services, given, thread, made, held)
            self._warn(built.tree)
            loaded = await load(built, thread, made)
            write = _first_write(services, given, thread, made, built, loaded)
            lease = await _store(database, write)
        except BaseException:
            services.resources.release(held)
            raise
        if (also := given.ask.origin.also) is not None:
            also.row_id = write.row_id
        head, live = write.head, built.live
        live.is_suspect = given.resume.is_suspect
        usage_before, paused_by = dict[str, int](), None
        if head is not None and made.resumes and thread is not None and thread.run is not None:
            waited = head.status is RunStatus.AWAITING_INPUT
            usage_before = thread.run["usage" if waited else "usage_before"] or {}
            paused_by = thread.run["stop_code"]
        built.transcript.came_in(loaded.task or ())
        built.bounds.short_forms = self.short_forms
        writer = RunWriter(
            database,
            lease,
            live,
            outage=services.settings.outage_seconds,
            bounds=built.bounds,
            broker=built.broker,
            steps=built.steps,
            transcript=built.transcript,
            conversation=made.conversation,
            keyed=not isinstance(write, NewRun) or write.idempotency_key is not None,
            usage_before=usage_before,
            streams=given.ask.stream,
            # Webhooks are for runs of the background, which have waited in the queue.
            on_events=None if isinstance(write, NewRun) else services.on_events,
            hooks=services.hooks,
            whose=services.settings.logged(given.name.tenant, given.name.user_id),
            paused_by=paused_by,
        )
        execution = Execution(writer, built.session, task=loaded.task, pending=loaded.pending)
        attempt = write.attempt if isinstance(write, ResumedRun) else 1
        how = "taken over" if given.resume.attempt else "resumed" if isinstance(write, ResumedRun) else "started"
        level = logging.WARNING if given.resume.retries else logging.INFO
        log.log(level, "run %s", how, extra={**writer.fields, "attempt": attempt})
        last_seq = 0 if head is None else head.last_seq
        live.begin(lease.epoch, last_seq, attempt)
        if made.received is not None:
            live.emit(MessageDone(last_seq + 1, made.received, shown=False))
        for seq, message in loaded.given:
            live.emit(MessageDone(seq, message, shown=False))
        return StartedRun(execution, made, head, partial(services.resources.release, held))


async def _recognised(given: Placed, thread: StoredThread) -> Placed:
    """An input of the queue, with what of its history is new to the thread now, which others may have changed since it
    came; as it is, where the thread stands elsewhere."""
    ask, conversation = given.ask, thread.conversation
    sent = ask.messages
    if ask.history == "import" or len(sent) == 1 or any(each.message is not None for each in sent):
        return given
    if conversation is None or ask.answer is not None or ask.tool_results:
        return given
    history = await Histories(1).digested(seed_of(given.name.owner, ask.team), sent)
    new_from = history.new_to(conversation)
    return replace(given, known=None if new_from is None else history.known(new_from))


def _refuse_busy(given: Placed, thread: StoredThread) -> None:
    head, queued, answers = thread.head, given.queued is not None, given.answers
    if head.status is RunStatus.AWAITING_INPUT and calls_of(head.input_request):
        is_free = False  # No message is the answer; see `Commands.take`.
    elif head.status is RunStatus.AWAITING_INPUT:
        # A new message is the answer, one of before the question only if it says so. Of who may not answer, none is;
        # one of the queue is refused as an answer by the plan.
        mine = may_answer(given.who, head.input_request or {}, thread.steered_by)
        is_free = answers or (not queued and mine)
    else:
        is_free = head.status in IDLE and (queued or not head.queued)
    if not is_free or (answers and head.status is not RunStatus.AWAITING_INPUT):
        raise Busy(head)


def _first_write(
    services: Services, given: Placed, thread: StoredThread | None, plan: Plan, built: BuiltRun, loaded: LoadedRun
) -> NewRun | QueuedRun | ResumedRun:
    """Return what is to be stored when the run starts."""
    ask, origin, key = given.ask, given.ask.origin, None
    if ask.api_key is not None:
        key = services.db.secrets.encrypt(ask.api_key.get_secret_value())
    given_input = None if plan.resumes and not plan.raw else {**built.user_input, "api_key": key}
    if given_input is not None and (trace := log_context.trace.get()) is not None:
        given_input["extra_requests"] = {**as_object(given_input["extra_requests"]), TRACE: trace}
    common: dict[str, Any] = {
        "head": None if thread is None else thread.head,
        "name": given.name,
        "team": ask.team,
        "run_id": built.live.run_id,
        "owner": services.worker_id,
        "lease": services.lease,
        "title": title_of(plan.new),
        "user_input": given_input,
        "messages": loaded.rows,
        "limits": built.limits.as_dict(),
        "request_id": log_context.current_request(),
        "clear_steps": thread is not None and bool(thread.steps) and not plan.resumes,
        "at": built.at,
        "newest": None if given.known is None else given.known.newest,
        "definition": given.recipe.definition,
        "charges": given.charges,
    }
    keyed = origin.key or origin.own_key
    answer_id = None if plan.run_id is None or not keyed else new_run_id()
    if origin.also is not None:
        ids, speakers = (answer_id or built.live.run_id, built.live.run_id), built.live.speakers
        stored = StoredInput(given.name.tenant, 0, common["head"], *ids, is_queued=False, speakers=speakers)
        common["also"] = origin.also, stored
    unique: dict[str, Any] = {
        "idempotency_key": keyed,
        "fingerprint": fingerprint(ask, given.name) if origin.key else given.digest,
    }
    if plan.run_id is None:
        if given.queued is not None:
            return QueuedRun(**common)
        who = given.who
        acted = () if who.acted_by is None else started_as(given, built.live.run_id)
        return NewRun(**common, **unique, principal=who.dump(given.name.owner), audit=acted)
    run = None if thread is None else thread.run
    options = given.resume
    if not keyed and given.digest is not None:
        unique["fingerprint"] = given.digest + OF_AN_ANSWER
    return ResumedRun(
        **common,
        **unique,
        progress=built.bounds.progress(),
        answers=plan.answers or None,
        audit=answered(given, built.live.run_id, plan.received),
        attempt=(1 if run is None else run["attempt"]) + options.attempt,
        retries=options.retries,
        retry_turn=options.retry_turn,
        control=options.control,
        queued_answer=given.queued,
        answer_id=answer_id,
    )


async def _store(database: Database, write: FirstWrite) -> Lease:
    """Take the thread.

    Raises:
        Conflict: somebody else was faster.
        DatabaseError: nothing was stored.
    """

    async def begin() -> Lease:
        return await database.write(partial(begin_run, begin=write), short=write.is_short)

    try:
        return await begin()
    except DatabaseUnavailable:
        # The COMMIT may have happened. A client told of failure would retry and get two answers.
        for pause in _LOOKS:
            await asyncio.sleep(pause)
            with contextlib.suppress(DatabaseUnavailable):
                lease = await database.read(partial(confirm_begin, begin=write))
                break
        else:
            raise
        if lease is not None:
            return lease
        if database.dialect == "sqlite":
            raise  # It has waited for its lock already.
    # A connection was lost. What guarded the first attempt guards the second.
    return await begin()
