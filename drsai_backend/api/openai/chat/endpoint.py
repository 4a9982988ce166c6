"""The endpoint `POST /v1/chat/completions` takes a user input for a thread, and a team answers it.

1. `http.body.Bodies` reads the JSON, `inputs.parse_call` makes an `Ask` of it.
2. The engine starts the run, or queues it; from here on it is the engine's, whatever the client does.
3. What happens is sent as it comes (or when it is over), in the words of `wire`.

1 and 2 are `openai.route`'s, as those of all APIs that say something to a team.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Header
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import user_of
from drsai_backend.api.http.body import headers_of
from drsai_backend.api.http.errors import error_response
from drsai_backend.api.http.json import ERROR_CONTENT, EVENTS, NO_MODEL, answers, json_response
from drsai_backend.api.http.stream import ClientLeft, EventStream, Still, Watch
from drsai_backend.api.objects import RUN_SCHEMA, run_object
from drsai_backend.api.openai.chat.inputs import MODEL_KEY, ChatBody, ChatCall, parse_call
from drsai_backend.api.openai.chat.wire import (
    COMPLETION_SCHEMA,
    ChunkWriter,
    CompletionWriter,
    SideCompletion,
    TextWriter,
)
from drsai_backend.api.openai.route import Exchange, RunRoute, Sender
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.errors import DrSaiError, InvalidRequest, RunFailed
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine, Handle
from drsai_backend.runs.messages import USER_LAST
from drsai_backend.runs.side_calls.side_calls import SideAnswer
from drsai_backend.teams.client_tools.definitions import run_of_call

_HEADER = b"x-housekeeping"
"""Says in an answer what the request was taken for."""


@dataclass
class ChatExchange(Exchange):
    """A chat. `kind`: what it was taken for, where it asks about a chat (housekeeping): an answer of no thread and of
    no run."""

    call: ChatCall
    kind: str | None = field(default=None, init=False)
    _ask: Callable[[], Awaitable[SideAnswer]] = field(init=False, repr=False)

    @property
    def stream(self) -> bool:
        return self.call.ask.stream

    @property
    def after(self) -> str:
        """The answer that is continued: its client has it, and is told the rest."""
        return self.call.ask.continues or ""

    def name(self, handle: Handle) -> str:
        """Return what the answer's id is made of. A run that asks for calls of the client's tools has several answers,
        and clients take two of one id for one."""
        for result in self.call.ask.tool_results:
            if run_of_call(result.call_id) == handle.run_id:
                return f"run_{result.call_id.removeprefix('call_')}"
        return handle.run_id

    async def start(self, engine: Engine, who: Principal) -> Handle | None:
        ask = self.call.ask
        if ask.continues is None:
            self.kind = engine.side_calls.kind_of(ask.messages, self.call.housekeeping)
        if self.kind is None:
            if ask.messages[-1].role == "system":
                raise InvalidRequest(USER_LAST, param="messages[0].role")
            return await engine.start(ask, who)
        await engine.check_team(who, ask.team, ask.where)
        self._ask = partial(engine.side_calls.ask, ask, who, self.kind, self.call.form)
        return None

    async def aside(self, scope: ASGIScope, receive: Receive, send: Send, ping: float, still: Still) -> None:
        call, kind, writer = self.call, self.kind or "", self.side_writer()
        headers = [(_HEADER, kind.encode())]
        if aside := [*call.tool_fields, *call.aside]:
            headers.append((b"x-ignored-fields", ", ".join(aside).encode()))

        async def frames() -> AsyncGenerator[tuple[bytes, bool]]:
            # In one write: what a program reads is read when it is complete.
            yield writer.frames(await self._ask()), False

        try:
            if call.ask.stream:
                what = f"housekeeping {kind!r}"
                stream = EventStream(headers, opening=b"", failing=writer.failing, what=what, ping=ping, still=still)
                await stream.send(frames(), receive, send)
                return
            with Watch(receive, ping, still=still):
                response = json_response(writer.whole(await self._ask()))
        except ClientLeft:
            return
        except RunFailed as error:
            response = self.error_response(error, error.run_code)
        response.raw_headers.extend(headers)
        await response(scope, receive, send)

    def ignored(self, handle: Handle) -> Sequence[str]:
        return self.call.ignored(handle.ignored)

    def streamed(self, handle: Handle) -> TextWriter:
        usage = self.call.include_usage
        return ChunkWriter(handle, include_usage=usage, after=self.after, name=self.name(handle))

    def whole(self, handle: Handle) -> CompletionWriter:
        return CompletionWriter(handle, after=self.after, name=self.name(handle))

    def side_writer(self) -> SideCompletion:
        """Return what writes the answer of no run."""
        return SideCompletion(self.call, self.kind or "")

    async def accepted(self, engine: Engine, who: Principal, handle: Handle, scope: ASGIScope) -> Response | None:
        if not self.call.ask.how.background:
            return None
        # Where the application is mounted, or what a proxy in front has taken away.
        path = quote(scope.get("root_path", "").rstrip("/"))
        named = self.call.user is not None and who.user_id == self.call.user
        whose = f"?user={quote(who.user_id, safe='')}" if named else ""
        location = f"{path}/v1/runs/{quote(handle.run_id, safe='')}{whose}"
        run = await engine.get_run(who, handle.run_id)
        return json_response(run_object(run), 202, {"location": location})

    def error_response(self, error: DrSaiError, code: str | None) -> Response:
        return error_response(error, code=code)

    def stops(self, engine: Engine) -> bool:
        said = self.call.cancel_on_disconnect
        return engine.stops_on_disconnect(self.call.ask.team) if said is None else said


def describe_answers(body: Mapping[str, object], stream: str) -> dict[int | str, JsonObject]:
    """Return what such a route answers with, for the OpenAPI document: `body` is the schema of an answer in one piece,
    `stream` says how a streamed one ends."""
    return {
        200: {
            "description": f"The answer; with `stream`, server-sent events that end with {stream}.",
            "content": {"application/json": {"schema": body}, **EVENTS},
        },
        **answers(202, RUN_SCHEMA, "The run, with `background`; the header `Location` is where to ask for it."),
        404: NO_MODEL,
        424: {"description": "The run ended as an error.", "content": ERROR_CONTENT},
    }


class ChatRoute(RunRoute):
    """The endpoint."""

    def describe(self) -> JsonObject:
        """See `RunRoute`."""
        return {
            "path": "/v1/chat/completions",
            "endpoint": _described,
            "methods": ["POST"],
            "tags": ["chat"],
            "summary": "Continue a thread, or begin one",
            "description": "Say something to a team. Its run belongs to the thread and not to this request: it is "
            "stored turn by turn, and continues when the client leaves.",
            "operation_id": "create_chat_completion",
            "response_model": None,
            "responses": describe_answers(COMPLETION_SCHEMA, "`[DONE]`"),
        }

    def read(self, body: JsonObject, sender: Sender) -> ChatExchange:
        """See `RunRoute`."""
        return ChatExchange(parse_call(body, sender, max_messages=self._max_messages))

    def sender(self, caller: Principal | None, body: JsonObject, scope: ASGIScope) -> Sender:
        """Return who has sent a body. What its `user` says to a key that may not act as others is OpenAI's tag of an
        end user: kept with the request, and nobody's identity."""
        user = user_of(body.get("user"))
        who = self._access.acting(caller, scope, None, user)
        is_named = caller is None or caller.may(Scope.ACT_AS)
        return Sender(who, user if is_named else None, None if is_named else user, headers_of(scope))


def _header(name: str) -> object:
    return Header(alias=name, json_schema_extra=NAME_SCHEMA)


_KEY_SCHEMA: Final = {"format": "password", "pattern": "^[!-~]*$"}


async def _described(
    body: ChatBody,
    thread_id: Annotated[str | None, _header("X-Thread-Id")] = None,
    chat_id: Annotated[str | None, _header("X-OpenWebUI-Chat-Id")] = None,
    key: Annotated[str | None, _header("Idempotency-Key")] = None,
    model_key: Annotated[
        str | None, Header(alias=MODEL_KEY, description="The same as `api_key`.", json_schema_extra=_KEY_SCHEMA)
    ] = None,
) -> None:
    """Stand for what the OpenAPI document says of the endpoint; never called."""
