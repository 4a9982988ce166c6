"""The routes of `/v1/responses` are those over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import Scope as ASGIScope

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import (
    NamedUser,
    UserBody,
    access_of,
    allowed,
    allowed_caller,
    asked_again,
    described,
    read_body,
    user_of,
)
from drsai_backend.api.events import LogResponse, log_stream
from drsai_backend.api.http.body import headers_of
from drsai_backend.api.http.errors import error_response
from drsai_backend.api.http.json import ERROR_CONTENT, EVENTS, NO_MODEL, answers, deleted, deletion, json_response
from drsai_backend.api.http.once import IdempotencyKey
from drsai_backend.api.http.parameters import Limit, ResponseId, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.openai.files.request_files import with_files
from drsai_backend.api.openai.messages import ignored_header, unread_names, unread_options
from drsai_backend.api.openai.responses.events import EventWriter, after, frames
from drsai_backend.api.openai.responses.request.body import CompactBody, ResponseBody
from drsai_backend.api.openai.responses.request.inputs import fingerprint_of, parse
from drsai_backend.api.openai.responses.request.parameters import (
    SEARCH_RESULTS,
    not_included,
    unread_input,
)
from drsai_backend.api.openai.responses.service import Responses, Started
from drsai_backend.api.openai.responses.stored.places import Call
from drsai_backend.api.openai.responses.stored.stored import page
from drsai_backend.api.openai.responses.wire import RESPONSE_SCHEMA, usage_of
from drsai_backend.api.openai.route import DONE, Exchange, RunRoute, Sender, StreamWriter, WholeWriter
from drsai_backend.datamodel.base import utcnow
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import DrSaiError, InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine, Handle, MessageDone, RunEnded, RunEvent

Reader = Annotated[Principal, allowed(Scope.THREADS_READ)]
Deleter = Annotated[Principal, allowed(Scope.THREADS_DELETE)]
Chatter = Annotated[Principal | None, allowed_caller(Scope.CHAT)]
Canceller = Annotated[Principal | None, allowed_caller(Scope.RUNS_CANCEL)]
Include = Annotated[
    list[str], Query(alias="include[]", description="What else to tell: `file_search_call.results` of a response.")
]
Order = Annotated[Literal["asc", "desc"], Query(description="Oldest first, or newest first.")]
AfterItem = Annotated[str | None, Query(description="`last_id` of the page before.")]
_MOST: Final = 2**53
PAGE_SCHEMA: Final = {
    "type": "object",
    "required": ["object", "data", "first_id", "last_id", "has_more"],
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"type": "object"}},
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
    },
}
_ANSWER: Final = {"application/json": {"schema": RESPONSE_SCHEMA}, **EVENTS}
_ANSWERS: Final[dict[int | str, JsonObject]] = {
    200: {"description": "The response; with `stream`, its events.", "content": _ANSWER}
}
_COMPACTION: Final = {
    "type": "object",
    "required": ["id", "object", "created_at", "output", "usage"],
    "properties": {"object": {"const": "response.compaction"}},
}


class _ResponseName(StringConvertor):
    """A response by itself; what else has a path of its own is answered there, or is a 405."""

    regex = "(?!compact$)[^/]+"


register_url_convertor("response", _ResponseName())


class _Writer(StreamWriter, WholeWriter):
    """Writes a response that has just been started, streamed or whole. The text of a whole one is made of what is
    stored, so it is the same whenever it is asked for."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self.ended: RunEnded | None = None

    def opening(self) -> bytes:
        return frames(self._writer.opening())

    def frames(self, events: Sequence[RunEvent]) -> bytes:
        told = frames(each for event in events for each in self._writer.take(event))
        return told + DONE if isinstance(events[-1], RunEnded) else told

    def failing(self, body: JsonObject) -> bytes:
        return frames([self._writer.failure(body)])

    def take(self, events: Iterable[RunEvent]) -> None:
        for event in events:
            if isinstance(event, MessageDone | RunEnded):
                self._writer.take(event)
                self.ended = event if isinstance(event, RunEnded) else None

    def body(self, ended: RunEnded) -> JsonObject:
        return self._writer.snapshot()


@dataclass
class _Exchange(Exchange):
    """A request for a response. `given` is its body."""

    responses: Responses
    given: JsonObject
    call: Call
    started: Started = field(init=False)

    @property
    def stream(self) -> bool:
        return bool(self.call.asked.stream)

    async def start(self, engine: Engine, who: Principal) -> Handle:
        # As the messages of a chat, but the conversation that is continued may be elsewhere by now.
        fingerprint = await self.responses.bodies.off_loop(partial(fingerprint_of, self.given))
        self.started = await self.responses.create(replace(self.call, fingerprint=fingerprint))
        self.given.clear()  # the answer may take long
        return self.started.handle

    def ignored(self, handle: Handle) -> Sequence[str]:
        return self.started.left_aside

    def streamed(self, handle: Handle) -> _Writer:
        return _Writer(self.started.writer())

    whole = streamed

    async def accepted(self, engine: Engine, who: Principal, handle: Handle, scope: ASGIScope) -> Response | None:
        if not self.call.asked.background:
            return None
        return json_response((await self.responses.shown(who, self.started.subject.id)).shown())

    def error_response(self, error: DrSaiError, code: str | None) -> Response:
        response = error_response(error, code=code)
        response.headers["x-should-retry"] = "false"  # The input is stored.
        return response

    @contextmanager
    def listening(self, engine: Engine, handle: Handle) -> Generator[None]:
        try:
            with engine.repeats.listening(handle):
                yield
        finally:
            if self.started.is_temporary:
                self.responses.temporary.drop(self.call.who, handle)


class ResponsesRoute(RunRoute):
    """`POST /v1/responses`: what is new in a conversation, answered by a team."""

    query = ("user",)

    def __init__(self, responses: Responses, web: Web) -> None:
        super().__init__(web)
        self._responses = responses

    def describe(self) -> JsonObject:
        """See `RunRoute`."""
        failed = {"description": "The run ended as an error.", "content": ERROR_CONTENT}
        return {
            "path": "/v1/responses",
            "endpoint": create_response,
            "methods": ["POST"],
            "tags": ["responses"],
            "response_model": None,
            "responses": {**_ANSWERS, 404: NO_MODEL, 424: failed},
            "openapi_extra": described(ResponseBody),
        }

    def sender(self, caller: Principal | None, body: JsonObject, scope: ASGIScope) -> Sender:
        """See `RunRoute`. The query may name the user, too."""
        named = user_of(QueryParams(scope["query_string"]).get("user"))
        who = self._access.acting(caller, scope, named, body.get("user"))
        return Sender(who, None, None, headers_of(scope))

    def read(self, body: JsonObject, sender: Sender) -> Exchange:
        """See `RunRoute`."""
        given = sender.headers.get(b"idempotency-key")
        key = None if given is None else check_name(given.decode("latin-1"), "Idempotency-Key")
        asked = self._responses.read(body)
        unread = unread_options(asked, body)
        call = Call(sender.who, asked, key, repeated=sender.repeated, noted=sender.noted, unread=unread)
        return _Exchange(self._responses, body, call)


async def create_response(user: NamedUser = None, key: IdempotencyKey = None) -> None:
    """Have a team answer: begin a conversation, or continue one."""


def response_routes(responses: Responses, web: Web) -> APIRouter:
    """The routes of responses that there are."""
    router = new_router("/v1/responses", tags=["responses"])
    bodies = web.bodies

    @router.post(
        "/compact",
        responses={**answers(200, _COMPACTION, "The items to begin the next request with."), 404: NO_MODEL},
        openapi_extra=described(CompactBody),
    )
    async def compact_response(request: Request, caller: Chatter, user: NamedUser = None) -> Response:
        """Seal the items of `input` into one, which stands for them in later requests. No model is asked, and
        nothing is left out."""
        async with (
            bodies.read(request.scope, request.receive) as body,
            with_files(bodies, responses.engine, body, who := acting(request, caller, user, body.get("user"))),
        ):
            await responses.engine.check_name(who, body)
            asked = parse(CompactBody, body, responses.max_items)
            await responses.engine.check_team(who, asked.model)
            unread = [*unread_names(asked), *unread_input(asked)]
            output = await responses.compact(who, asked)
        shown = {"id": output[0]["id"], "object": "response.compaction", "created_at": int(utcnow().timestamp())}
        return json_response({**shown, "output": output, "usage": usage_of({})}, headers=ignored_header(unread))

    @router.get("/{response_id:response}", responses=_ANSWERS)
    async def get_response(  # noqa: PLR0913 - the parameters of a route
        request: Request,
        response_id: ResponseId,
        who: Reader,
        stream: Annotated[bool, Query(description="Send its events instead, from the beginning.")] = False,
        starting_after: Annotated[
            int | None, Query(ge=0, le=_MOST, description="The `sequence_number` that was read last.")
        ] = None,
        include: Include = [],  # noqa: B006 - FastAPI copies it
        include_obfuscation: Annotated[bool, Query(description="There is none.")] = False,
    ) -> Response:
        """A response, as it is now; or its events, those that were told and those to come."""
        if starting_after is not None and not stream:
            raise InvalidRequest("`starting_after` needs `stream`", param="starting_after")
        stored = await responses.shown(who, response_id)
        if SEARCH_RESULTS in include:
            stored = replace(stored, record={**stored.record, "search_results": True})
        headers = not_included(include)
        if not stream:
            return json_response(stored.shown(), headers=headers)
        log = _followed(responses.follow(who, stored), -1 if starting_after is None else starting_after)
        still, failing = asked_again(request, Scope.THREADS_READ, who), _Writer(stored.new_writer()).failing
        sent = log_stream(
            web.access.streaming(who), Headers(headers).raw, still, web.ping, opening=b"", failing=failing
        )
        return LogResponse(log, lambda told: (told,), sent)

    @router.get("/{response_id}/input_items", responses=answers(200, PAGE_SCHEMA))
    async def list_input_items(
        response_id: ResponseId,
        who: Reader,
        limit: Limit = 20,
        order: Order = "desc",
        after: AfterItem = None,
        include: Include = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        """What came in with the request of a response."""
        stored = await responses.shown(who, response_id)
        listed = page(stored.input_items(), after, limit, newest_first=order == "desc")
        return json_response(listed, headers=not_included(include))

    @router.post("/{response_id}/cancel", responses=answers(200, RESPONSE_SCHEMA), openapi_extra=described(UserBody))
    async def cancel_response(
        request: Request, response_id: ResponseId, caller: Canceller, user: NamedUser = None
    ) -> Response:
        """Stop the run of a response; its finished messages stay. 409 where it is over."""
        _, who = await read_body(bodies, request, UserBody, caller, user)
        return json_response((await responses.cancel(who, response_id)).shown())

    @router.delete("/{response_id:response}", responses=answers(200, deletion("response")))
    async def delete_response(response_id: ResponseId, who: Deleter) -> Response:
        """Forget a response. What was said stays in its conversation, where there is more of that."""
        await responses.delete(who, response_id)
        return deleted(response_id, "response")

    return router


async def _followed(log: AsyncGenerator[list[JsonObject]], start: int) -> AsyncGenerator[bytes]:
    """The frames of a response's events after number `start`."""
    async with aclosing(log) as batches:
        async for events in batches:
            yield frames(after(events, start))
    yield DONE


def acting(request: Request, caller: Principal | None, user: str | None, in_body: object) -> Principal:
    """Return who asks; see `Access.acting`."""
    return access_of(request).acting(caller, request.scope, user, in_body)
