"""`POST /v1/chat/completions`: a user input for a thread, answered by a team.

1. `http.body.Bodies` reads the JSON, `inputs.parse_call` makes an `Ask` of it.
2. The engine starts the run, or queues it; from here on it is the engine's, whatever the client does.
3. What happens is sent as it comes (or when it is over), in the words of `wire`.
"""

from __future__ import annotations

import logging
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Header
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Access, user_of
from drsai_backend.api.http.body import Bodies, headers_of
from drsai_backend.api.http.errors import InternalError, RunMoved
from drsai_backend.api.http.json import json_response
from drsai_backend.api.http.parameters import check_query
from drsai_backend.api.http.stream import PING, ClientLeft, EventStream, Frames, Watch
from drsai_backend.api.objects import headers_of_answer, run_object
from drsai_backend.api.openai.chat.exchange import Exchange, StreamWriter, describe_answers
from drsai_backend.api.openai.chat.inputs import MODEL_KEY, ChatBody, ChatCall, Sender, parse_call
from drsai_backend.api.openai.chat.side_call import answer_on_the_side
from drsai_backend.api.openai.chat.wire import BROKEN, COMPLETION_SCHEMA, failure
from drsai_backend.api.openai.files.named import with_files
from drsai_backend.api.openai.messages import is_heavy
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.errors import DrSaiError, IllegalTransition, InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine, Handle, RunEnded

_log = logging.getLogger(__name__)


class ChatRoute(APIRoute):
    """The endpoint. FastAPI describes it, and a plain ASGI application answers: FastAPI's own way costs more than all
    the rest of a short answer. Other APIs that say something to a team are routes of this kind, too: `describe` and
    `read` are theirs."""

    scope = Scope.CHAT

    query: tuple[str, ...] = ()
    """The query parameters that it takes."""
    takes_housekeeping = True
    """Whether requests that ask about a chat are answered on the side."""
    keep_alive = PING
    """What a stream says when there is nothing to say."""

    def __init__(self, engine: Engine, access: Access, bodies: Bodies, *, max_messages: int, ping: float) -> None:
        super().__init__(**self.describe())
        self.app = self._answer
        self._engine = engine
        self._access = access
        self._bodies = bodies
        self._max_messages = max_messages
        self._ping = ping

    def describe(self) -> JsonObject:
        """The arguments of `APIRoute`."""
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

    def read(self, body: JsonObject, sender: Sender) -> Exchange:
        """The request, understood; called in a thread where that takes long. Raises InvalidRequest."""
        return Exchange(parse_call(body, sender, max_messages=self._max_messages))

    async def _answer(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        caller = await self._access.authenticate(scope, self.scope)
        check_query(scope, self.query)
        async with (
            self._bodies.read(scope, receive) as body,
            with_files(self._bodies, self._engine.files, body, (sender := self.sender(caller, body, scope)).who),
        ):
            named = partial(self._engine.check_name, sender.who, body)
            if b"idempotency-key" not in sender.headers:
                await named()
            try:
                reading = partial(self.read, body, sender)
                exchange = await self._bodies.off_loop(reading) if is_heavy(body) else reading()
            except InvalidRequest:
                await named()  # One with a key may have been served before its model was deleted; this one was not.
                raise
            call, who = exchange.call, sender.who
            ask, handle, kind = call.ask, None, None
            if self.takes_housekeeping and ask.continues is None:
                kind = self._engine.side_calls.kind_of(ask.messages, call.housekeeping)
            if kind is None:
                handle = await exchange.start(self._engine, call, who)
            elif ask.origin.key is None:
                await self._engine.check_team(who, ask.team, ask.where)
        still = partial(self._access.check_again, scope, self.scope, caller)
        if handle is None:
            calls = self._engine.side_calls
            await answer_on_the_side(calls, exchange, call, who, kind or "", scope, receive, send, self._ping, still)
            return
        headers = headers_of_answer(handle)
        if ignored := exchange.ignored(handle):
            headers.append((b"x-ignored-fields", ", ".join(ignored).encode()))
        try:
            with self._engine.repeats.listening(handle):
                if ask.stream:
                    writer = exchange.streamed(handle)
                    stream = EventStream(
                        headers,
                        opening=writer.opening(),
                        failing=exchange.error_frame,
                        what=f"the answer of run {handle.run_id}",
                        ping=self._ping,
                        still=still,
                        keep_alive=self.keep_alive,
                    )
                    await stream.send(_frames(handle, writer), receive, send)
                    return
                if ask.how.background:
                    response = await self._accepted(call, who, handle, scope)
                else:
                    response = await self._whole(exchange, handle, receive)
        except ClientLeft:
            stops = call.cancel_on_disconnect
            if stops is None:
                stops = self._engine.stops_on_disconnect(ask.team)
            if stops and self._engine.repeats.withdraw(handle):
                await self._cancel(who, handle)
            return
        response.raw_headers.extend(headers)
        await response(scope, receive, send)

    def sender(self, caller: Principal | None, body: JsonObject, scope: ASGIScope) -> Sender:
        """Who has sent a body. What its `user` says to a key that may not act as others is OpenAI's tag of an end user:
        kept with the request, and nobody's identity."""
        user = user_of(body.get("user"))
        who = self._access.acting(caller, scope, user, as_tag=True)
        is_named = caller is None or caller.may(Scope.ACT_AS)
        return Sender(who, user if is_named else None, None if is_named else user, headers_of(scope))

    async def _whole(self, exchange: Exchange, handle: Handle, receive: Receive) -> Response:
        writer = exchange.whole(handle)
        with Watch(receive, self._ping):
            async with aclosing(handle.events()) as events:
                async for event in events:
                    writer.take((event, *handle.poll()))
                    if writer.ended is not None:
                        break
        ended = writer.ended
        if ended is None:
            raise InternalError("the run ended without a result")
        if ended.status not in BROKEN:
            return json_response(writer.body(ended))
        error = failure(ended)
        response = exchange.error_response(error, ended.error_code)
        if isinstance(error, RunMoved) and exchange.call.ask.origin.key is None:
            # The input is stored: to send it again by itself, as OpenAI's clients do, would say it twice.
            response.headers["x-should-retry"] = "false"
        return response

    async def _accepted(self, call: ChatCall, who: Principal, handle: Handle, scope: ASGIScope) -> Response:
        # Where the application is mounted, or what a proxy in front has taken away.
        path = quote(scope.get("root_path", "").rstrip("/"))
        named = call.user is not None and who.user_id == call.user
        whose = f"?user={quote(who.user_id, safe='')}" if named else ""
        location = f"{path}/v1/runs/{quote(handle.run_id, safe='')}{whose}"
        run = await self._engine.get_run(who, handle.run_id)
        return json_response(run_object(run), 202, {"location": location})

    async def _cancel(self, who: Principal, handle: Handle) -> None:
        try:
            with suppress(IllegalTransition, NotFound):  # it has just ended
                await self._engine.cancel_run(who, handle.run_id)
        except DrSaiError as error:
            _log.warning("run %s was not cancelled when its client left: %s", handle.run_id, error.message)
        except Exception:  # noqa: BLE001 - nobody is left to be told
            _log.exception("run %s was not cancelled when its client left", handle.run_id)


def _header(name: str) -> object:
    return Header(alias=name, json_schema_extra=NAME_SCHEMA)


_KEY_SCHEMA: Final[JsonObject] = {"format": "password", "pattern": "^[!-~]*$"}


async def _described(
    body: ChatBody,
    thread_id: Annotated[str | None, _header("X-Thread-Id")] = None,
    chat_id: Annotated[str | None, _header("X-OpenWebUI-Chat-Id")] = None,
    key: Annotated[str | None, _header("Idempotency-Key")] = None,
    model_key: Annotated[
        str | None, Header(alias=MODEL_KEY, description="The same as `api_key`.", json_schema_extra=_KEY_SCHEMA)
    ] = None,
) -> None:
    """What the OpenAPI document says of the endpoint; never called."""


async def _frames(handle: Handle, writer: StreamWriter) -> Frames:
    """One write for all events that are ready."""
    async with aclosing(handle.events()) as events:
        async for event in events:
            batch = [event, *handle.poll()]
            last = isinstance(batch[-1], RunEnded)
            if (frames := writer.frames(batch)) or last:
                yield frames, not last
            if last:
                return
    raise InternalError("the run ended without a result")
