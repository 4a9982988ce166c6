"""The service of responses has a verb for each thing that can be done with them, over HTTP or a WebSocket.

**store: false.** A run needs its thread while it lives. The thread that such a response made is deleted when it is
over, if all that ever ran on it were such responses (`stored.temporary`); where the process dies first, what is left
goes with `DRSAI_RETENTION_DAYS`. Nobody can ask for it, or continue it, but a WebSocket's own connection. No history is
recognised for it; where it names a stored conversation, it adds to that.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Final

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.openai.responses.events import EventWriter
from drsai_backend.api.openai.responses.request import items
from drsai_backend.api.openai.responses.request.body import ApprovalResponseItem, CompactBody, MessageItem, ResponseBody
from drsai_backend.api.openai.responses.request.compaction import seal
from drsai_backend.api.openai.responses.request.inputs import (
    check,
    check_last,
    joined_system,
    parse,
    placed,
    record_of,
    with_system,
)
from drsai_backend.api.openai.responses.request.items import ReadItems
from drsai_backend.api.openai.responses.request.parameters import extra_of, left_aside, parameters, unread_input
from drsai_backend.api.openai.responses.request.tools import output_item, read_tools
from drsai_backend.api.openai.responses.stored.places import (
    Call,
    Continued,
    PlaceMoved,
    check_unmoved,
    find_place,
)
from drsai_backend.api.openai.responses.stored.reading import ItemReader
from drsai_backend.api.openai.responses.stored.stored import DELETED, StoredResponse, find
from drsai_backend.api.openai.responses.stored.temporary import TemporaryThreads
from drsai_backend.api.openai.responses.wire import Subject
from drsai_backend.database.responses import (
    FORKED,
    forget_response,
    response_steps,
    row_of,
    take_items,
)
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import InvalidRequest, NotFound, StaleAnswer, ThreadBusy
from drsai_backend.json_types import JsonObject, as_object
from drsai_backend.models import ModelParams
from drsai_backend.runs import Ask, Engine, Handle, How, Origin, Where
from drsai_backend.runs.feed.live_run import as_done
from drsai_backend.runs.intake.request_digest import digest_of_own
from drsai_backend.runs.requests import ForkOf, InputMessage, RunLimits
from drsai_backend.state.travel import Place
from drsai_backend.teams.client_tools.definitions import ClientTools, ToolOutput, calls_of
from drsai_backend.teams.hosted_tools import HOSTED_AS

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from drsai_backend.database.backends.prepared import Step
    from drsai_backend.database.runs.values import StoredInput

_ATTEMPTS: Final = 20
_PLACES: Final = frozenset({"at", "turn", "branch"})
"""What names a place to fork at: here, a response does."""
_PREFIXES: Final = {"message": "msg", "function_call_output": "fco", "custom_tool_call_output": "fco"}


@dataclass(frozen=True, slots=True)
class Started:
    """A response under way. `handle` reads its run; `is_temporary`: its thread is to be deleted when it is over, if it
    holds nothing that was to be stored."""

    handle: Handle
    subject: Subject
    left_aside: Sequence[str]
    is_temporary: bool

    def writer(self) -> EventWriter:
        """Tells it to somebody."""
        return EventWriter(self.subject, self.handle.speakers)


@dataclass(eq=False)
class Responses:
    """The responses of one engine. `max_items`: most items of a request."""

    engine: Engine
    bodies: Bodies
    max_items: int
    items: ItemReader = field(init=False)
    temporary: TemporaryThreads = field(init=False)

    def __post_init__(self) -> None:
        self.items = ItemReader(self.engine, self.bodies, self.max_items)
        self.temporary = TemporaryThreads(self.engine)

    def read(self, body: JsonObject) -> ResponseBody:
        """The checked body of a request. Raises as `inputs.parse` and `inputs.check`."""
        asked = parse(ResponseBody, body, self.max_items)
        check(asked)
        return asked

    # --- create ---------------------------------------------------------------------------------------------------

    async def create(self, call: Call) -> Started:
        """Start the run of a response, or resume the one that waits for the approval, or the tools' results, that are
        given. What the response tells of its request is stored with it.

        Raises:
            PreviousNotFound, NotFound: what is to be continued is none of this user's.
            InvalidRequest: something cannot be used; `param` names the field.
            DrSaiError: as `Engine.start`; then nothing was stored.
        """
        made, tools = parameters(call.asked), read_tools(call.asked.tools, call.asked.tool_choice)
        if call.idempotency_key is None:
            await self.engine.check_team(call.who, call.asked.model)
        async with self.items.expand(call.who, placed(call.asked.input)) as given:
            return await self._begin(call, await self.items.read(given), made, tools)

    async def _begin(self, call: Call, read: ReadItems, made: ModelParams, tools: ClientTools | None) -> Started:
        if call.noted:
            placed_at = zip(read.messages, read.paths, strict=True)
            read.messages = [replace(each, noted=call.noted.get(path, {})) for each, path in placed_at]
        if read.approval is None:
            check_last(read, "input")
        for _ in range(_ATTEMPTS):
            place = await find_place(self.engine, call, read.approval)
            try:
                if read.approval is not None:
                    return await self._approve(call, place, read.approval, made)
                return await self._start(call, place, read, made, tools)
            except PlaceMoved:
                continue  # Somebody was faster: what follows an older response is a fork.
        raise ThreadBusy("the conversation is continued by others all the time; try again", param="input")

    async def _start(
        self, call: Call, place: Continued, read: ReadItems, made: ModelParams, tools: ClientTools | None
    ) -> Started:
        asked, engine = call.asked, self.engine
        results = read.results()
        unread = unread_input(asked)
        waiting = await self.items.waiting(place)
        known = place.record
        # Its instructions come after what the conversation's own system messages say.
        system = joined_system((known or {}).get("system"), *waiting.system, *read.system)
        prompt = joined_system(system, asked.instructions)
        if known is not None and prompt is None:
            prompt = ""  # Instructions of a request before this one do not count any more.
        given = partial(_given, read.messages, results)
        extra = extra_of(asked)
        check_tools = partial(engine.hooks.check_given, owner=call.who.owner, tools=as_object(extra.get(HOSTED_AS)))
        storing = _Storing(place, record_of(asked, place.conversation, system, read.system), given, check_tools)
        messages, raw = with_system(read.after(waiting), prompt)
        limits = RunLimits(asked.max_turns, asked.max_run_seconds, asked.max_run_tokens)
        ask = Ask(
            asked.model,
            messages,
            raw,
            made,
            asked.api_key,
            stream=bool(asked.stream),
            extra=extra,
            client_tools=tools,
            tool_results=results,
            shown=asked.shown,
            # What is not to be stored does not go into a conversation that is.
            history=(asked.history or "continue") if call.is_stored else "import",
            # The calls' ids find the run that waits for results.
            where=Where(None if place.forks_at is not None else place.thread_id, fork_of=_fork_of(call, place)),
            how=How(asked.on_busy or "enqueue", background=bool(asked.background), limits=limits),
            origin=Origin(
                call.idempotency_key,
                call.own_key,
                call.fingerprint,
                call.repeated,
                webhook_url=asked.webhook_url,
                webhook_kind="response",
                also=storing,
            ),
        )
        try:
            handle = await engine.start(ask, call.who)
        except StaleAnswer as error:
            if not results:
                raise
            raise InvalidRequest(error.message, param=error.param) from None  # As OpenAI; clients repeat a conflict.
        except InvalidRequest as error:
            if error.param not in _PLACES:
                raise
            raise InvalidRequest(error.message, param="previous_response_id") from None
        return await self._started(call, handle, storing, left_aside(asked, handle.ignored), unread)

    async def _approve(self, call: Call, place: Continued, given: ApprovalResponseItem, made: ModelParams) -> Started:
        found = items.read_approval_id(given.approval_request_id)
        if found is None or place.thread_id is None:
            text = "`approval_request_id` is none that was given out here"
            raise InvalidRequest(text, param="input")
        answer = items.answer_of(given, found[1])
        question, reason = given.approval_request_id, given.reason
        item = items.approval_answer_item(f"mcpa_{found[1]}", question, approve=given.approve, reason=reason)
        record = record_of(call.asked, place.conversation, (place.record or {}).get("system"), ())
        # What waits for the conversation is for its next message.
        storing = _Storing(replace(place, waiting=()), record, lambda _: [item])
        origin = Origin(call.key, fingerprint=call.fingerprint or "", also=storing)
        handle = await self.engine.answer(call.who, place.thread_id, answer, origin=origin)
        # The run resumes with the parameters that it has.
        return await self._started(call, handle, storing, left_aside(call.asked, list(made.create_args())))

    async def _started(self, call: Call, handle: Handle, storing: _Storing, *aside: Sequence[str]) -> Started:
        run_id = storing.row_id or await self._row_of(call, handle)
        record = {**storing.record, "speakers": handle.speakers}
        subject = Subject(run_id, handle.created, handle.team, handle.thread_id, record)
        temporary = not call.is_stored and storing.place.conversation is None
        if temporary and call.remembered is not None:
            call.remembered[subject.id] = handle.thread_id
        return Started(handle, subject, [*chain(*aside, call.unread)], temporary)

    async def _row_of(self, call: Call, handle: Handle) -> str:
        """The id of the row that another try of the request has made."""
        name = handle.name
        known_by = (call.key, digest_of_own(call.who.owner, handle.team, call.fingerprint or ""))
        read = self.engine.db.database.read
        return await read(lambda session: row_of(session, name, handle.run_id, *known_by)) or handle.run_id

    # --- afterwards -----------------------------------------------------------------------------------------------

    async def shown(self, who: Principal, response: str) -> StoredResponse:
        """A response that may be asked for. Raises NotFound."""
        stored = await find(self.engine, who, response)
        if not stored.is_shown:
            raise NotFound(f"no response {response!r}", param="response_id")
        return stored

    async def follow(self, who: Principal, stored: StoredResponse) -> AsyncGenerator[list[JsonObject]]:
        """Yield all events of a response, from its beginning to its end."""
        writer, events = stored.writer()
        if writer.ended is not None:
            yield events
            return
        # The log tells what is stored again, and what is produced now.
        writer = stored.new_writer()
        yield writer.opening(queued=stored.request.run["status"] is RunStatus.CREATED)
        log = self.engine.follow_run(who, stored.run_id, stored.start)
        async with aclosing(log) as logged:
            async for each in logged:
                yield writer.take(as_done(each.event))

    async def cancel(self, who: Principal, response: str) -> StoredResponse:
        """Stop the run of a response. Raises NotFound, and IllegalTransition where it is over."""
        stored = await self.shown(who, response)
        if stored.ended is None or stored.ended.status is not RunStatus.STOPPED:
            await self.engine.cancel_run(who, stored.request.run["run_id"])
        return await find(self.engine, who, response)

    async def delete(self, who: Principal, response: str) -> None:
        """Forget a response: with its thread, where its request has made that and nothing else was said there; else
        what it told of its request, and that it can be asked for. What was said stays in the conversation.

        Raises:
            NotFound: there is none.
            ThreadBusy: its run is live.
        """
        stored = await self.shown(who, response)
        if stored.ended is None:
            raise ThreadBusy(f"response {response!r} is not over; cancel it first", param="response_id")
        name = who.owner.thread(stored.request.head.thread_id)
        kept = {DELETED: True, "system": stored.record.get("system")}
        forget = partial(forget_response, name=name, run_id=stored.run_id, kept=kept)
        if not await self.engine.db.database.write(forget):
            # Where somebody was faster, there is more in it by now.
            await self.engine.delete_thread(who, name.thread_id, only_if=lambda session: not forget(session))

    async def compact(self, who: Principal, asked: CompactBody) -> list[JsonObject]:
        """The items that a conversation is compacted to: one, sealed for this user. No model is asked.

        Raises as `create`, of what `input` holds.
        """
        async with self.items.expand(who, placed(asked.input)) as given:
            await self.items.read(given)
            said = [item for _, item in given]
            if asked.instructions is not None:
                said.insert(0, MessageItem(role="system", content=asked.instructions))
            if not any(isinstance(item, MessageItem) for item in said):
                raise InvalidRequest("`input` has no message", param="input")
            if len(said) > self.max_items:
                text = f"`input` and `instructions` are more than the {self.max_items} items of a request"
                raise InvalidRequest(text, param="input")
            secrets, most = self.engine.db.secrets, self.bodies.limit
            return [await self.bodies.off_loop(partial(seal, secrets, who.owner, said, most))]


@dataclass(eq=False)
class _Storing:
    """What a request at that place stores besides itself: in the transaction that stores the request, so that neither
    is there without the other, whatever dies in between. `record`: what it tells again (`inputs.record_of`); `given`
    makes its items, kept where no messages of its own are stored, with the client's calls that wait for them; `check`
    refuses it by raising. `row_id` is None, too, where its run was there already."""

    place: Continued
    record: JsonObject
    given: Callable[[Sequence[JsonObject]], Sequence[JsonObject]]
    check: Callable[[Session], None] = lambda _: None
    row_id: str | None = field(default=None, init=False)

    def __call__(self, session: Session, stored: StoredInput) -> Sequence[Step]:
        """Return the statements. Raises PlaceMoved, and what `check` does."""
        self.check(session)
        check_unmoved(self.place, stored.head)
        if self.place.waiting and not take_items(session, stored.key, self.place.waiting):
            raise PlaceMoved
        record = {**self.record, "speakers": stored.speakers}
        is_placed = self.place.thread_id is not None and self.place.forks_at is None
        if not is_placed and stored.head is not None and stored.head.run_id is None:
            record[FORKED] = stored.head.last_seq  # A thread that nobody named, and is there before its first run.
        if stored.is_queued or stored.row_id != stored.run_id:
            part = stored.row_id.removeprefix(items.RUN)
            calls = [] if stored.head is None else calls_of(stored.head.input_request)
            record["given"] = [
                each if "id" in each else {"id": f"{_PREFIXES[each['type']]}_{part}_i{index}", **each}
                for index, each in enumerate(self.given(calls))
            ]
        return response_steps(stored.tenant, stored.key, stored.row_id, record)


def _given(
    messages: Sequence[InputMessage], results: Sequence[ToolOutput], calls: Sequence[JsonObject]
) -> list[JsonObject]:
    """The newest of what a client has said, as items: results of its tools, which those calls wait for, and the user's
    messages."""
    said = list(takewhile(lambda each: each.role not in ("assistant", "tool"), reversed(messages)))[::-1]
    given = [items.given_item(None, each.role, each.text) for each in said if each.role == "user"]
    custom = {call["id"] for call in calls if call["type"] == "custom"}
    told = [output_item(None, each.call_id, each.content, is_custom=each.call_id in custom) for each in results]
    return [*told, *given]


def _fork_of(call: Call, place: Continued) -> ForkOf | None:
    if place.forks_at is None or place.thread_id is None:
        return None
    return ForkOf(call.who.owner.thread(place.thread_id), Place(at=place.forks_at), place.problem)
