"""The endpoints `POST /v1/messages` and `/v1/messages/count_tokens` serve the same teams in the words of Anthropic's
API.

1. The body is checked (`body`) and translated into one of Chat Completions (`translation`), which is read as such.
2. The engine starts the run, as for every other API.
3. What happens is sent in the words of `wire`, and errors in those of `errors`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

from fastapi import Header
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from drsai_backend import log_context
from drsai_backend.access.principal import Principal
from drsai_backend.api.anthropic.body import TEXTS, MessagesBody, Prompt
from drsai_backend.api.anthropic.errors import ERROR_SCHEMA, anthropic_error, login_response
from drsai_backend.api.anthropic.translation import Translation, translate, translate_prompt
from drsai_backend.api.anthropic.wire import (
    KEEP_ALIVE,
    MESSAGE_SCHEMA,
    EventWriter,
    MessageWriter,
    SideMessage,
)
from drsai_backend.api.http.checking import checked
from drsai_backend.api.http.errors import error_response
from drsai_backend.api.http.json import answers, json_response
from drsai_backend.api.http.parameters import check_query
from drsai_backend.api.openai.chat.endpoint import ChatExchange, ChatRoute, describe_answers
from drsai_backend.api.openai.chat.inputs import parse_call
from drsai_backend.api.openai.files.request_files import with_files
from drsai_backend.api.openai.messages import ignored_header, is_heavy, unread_names, unread_options
from drsai_backend.api.openai.route import Sender
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.errors import DrSaiError, InvalidRequest
from drsai_backend.estimates import estimate_text
from drsai_backend.json_types import JsonObject
from drsai_backend.models.tokens import TOKENS_PER_IMAGE, TOKENS_PER_MESSAGE
from drsai_backend.runs import Engine, Handle

_STATUSES: Final = {
    400: "Something in the request cannot be used; `param` names it.",
    401: "A key is needed here, and there is none, or none that is valid.",
    403: "The key does not allow this.",
    404: "There is no such model.",
    409: "What is stored is not what the request goes by.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    422: "The thread's stored state cannot be read; it is left as it is.",
    424: "The run ended as an error.",
    429: "A limit is reached; `Retry-After` says in how many seconds to ask again.",
    503: "Nothing new is taken now; `Retry-After` says in how many seconds to ask again.",
}
_FAILURES: Final = {
    status: {"description": text, "content": {"application/json": {"schema": ERROR_SCHEMA}}}
    for status, text in _STATUSES.items()
}
_QUERY: Final = ("beta",)
"""Anthropic's clients say so where they ask for what is in trial; it makes no difference here."""
_COUNT_SCHEMA: Final = {
    "type": "object",
    "required": ["input_tokens"],
    "properties": {"input_tokens": {"type": "integer"}},
}
_OF_CHAT: Final = ("max_completion_tokens", "functions", "function_call", "stop", "response_format", "stream_options")
"""Fields of Chat Completions that have another name here, or none."""
_ASIDE: Final = ("context_management", "fallbacks", "billing_policy", "fallback_credit_token")
"""Fields about Anthropic's own models: agents keep a context of their own, and profiles name the models to fall back
on."""


@dataclass
class _MessagesExchange(ChatExchange):
    """`thinks`: what the models think is told."""

    translation: Translation
    thinks: bool

    async def start(self, engine: Engine, who: Principal) -> Handle | None:
        try:
            return await super().start(engine, who)
        except DrSaiError as error:
            self.translation.rename(error)
            raise

    def ignored(self, handle: Handle) -> Sequence[str]:
        return [self.translation.place_of(name) for name in super().ignored(handle)]

    def streamed(self, handle: Handle) -> EventWriter:
        name = self.name(handle)
        return EventWriter(handle, self.translation, thinks=self.thinks, after=self.after, name=name)

    def whole(self, handle: Handle) -> MessageWriter:
        return MessageWriter(handle, thinks=self.thinks, after=self.after, name=self.name(handle))

    def side_writer(self) -> SideMessage:
        return SideMessage(self.call, self.kind or "")

    def error_response(self, error: DrSaiError, code: str | None) -> Response:
        return error_response(self.translation.rename(error), code, anthropic_error)


class MessagesRoute(ChatRoute):
    """The endpoint."""

    keep_alive = KEEP_ALIVE
    query = _QUERY

    def describe(self) -> JsonObject:
        responses = {**describe_answers(MESSAGE_SCHEMA, "`message_stop`, or `error`"), **_FAILURES}
        return {
            "path": "/v1/messages",
            "endpoint": _described,
            "methods": ["POST"],
            "tags": ["messages"],
            "summary": "Continue a thread, or begin one, in the words of Anthropic's API",
            "description": "Anthropic's Messages. Threads, runs and what else is said of "
            "`POST /v1/chat/completions` are the same.",
            "operation_id": "create_message",
            "response_model": None,
            "responses": responses,
        }

    def read(self, body: JsonObject, sender: Sender) -> ChatExchange:
        for name in _OF_CHAT:
            if body.get(name) is not None:
                raise InvalidRequest(f"`{name}` is no field of this API", param=name)
        asked = checked(MessagesBody.model_validate, body, TEXTS)
        made, rest = translate(asked), dict(asked.model_extra or {})
        made.aside += [name for name in _ASIDE if rest.pop(name, None)]
        made.aside += unread_options(asked, body)
        try:
            noted = {f"messages[{at}]": sender.noted.get(place, {}) for at, place in enumerate(made.places)}
            sender = sender._replace(noted=noted if sender.noted else {})
            call = parse_call({**rest, **made.body}, sender, max_messages=self._max_messages)
        except DrSaiError as error:
            made.rename(error)
            raise
        call = call._replace(aside=[*call.aside, *made.aside])
        made.body.clear()  # the call has it
        if made.failed:
            results = [replace(each, is_error=each.call_id in made.failed) for each in call.ask.tool_results]
            call = call._replace(ask=replace(call.ask, tool_results=results))
        thinks = asked.thinking is not None and asked.thinking.is_told
        return _MessagesExchange(call, made, thinks)

    async def _answer(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        await _spoken(super()._answer, scope, receive, send)


class CountTokensRoute(ChatRoute):
    """How many tokens a request has, estimated: of what the client sends. What agents add is not counted."""

    def describe(self) -> JsonObject:
        return {
            "path": "/v1/messages/count_tokens",
            "endpoint": _described_count,
            "methods": ["POST"],
            "tags": ["messages"],
            "summary": "Estimate the tokens of a message request",
            "description": "Of what the client sends. What a team's agents add is not counted.",
            "operation_id": "count_message_tokens",
            "response_model": None,
            "responses": {**answers(200, _COUNT_SCHEMA, "The estimate."), **_FAILURES},
        }

    async def _answer(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        await _spoken(self._count, scope, receive, send)

    async def _count(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        caller = await self._access.authenticate(scope, self.scope)
        check_query(scope, _QUERY)
        who = self._access.principal(caller, scope, self.scope, None)
        async with (
            self._bodies.read(scope, receive) as body,
            with_files(self._bodies, self._engine, body, self.sender(caller, body, scope).who),
        ):
            await self._engine.check_name(who, body)
            counting = partial(_count, body)
            model, count, unread = await self._bodies.off_loop(counting) if is_heavy(body) else counting()
            await self._engine.check_team(who, model)
        await json_response({"input_tokens": count}, headers=ignored_header(unread))(scope, receive, send)


def _count(body: JsonObject) -> tuple[str, int, list[str]]:
    """The model that is asked, the estimate, and the fields with which nothing is done."""
    asked = checked(Prompt.model_validate, body, TEXTS)
    made = translate_prompt(asked)
    unread = [*unread_names(asked), *made.aside, *unread_options(asked, body)]
    said = made.body
    messages: list[JsonObject] = said.get("messages", [])
    tools: list[JsonObject] = said.get("tools", [])
    tokens = TOKENS_PER_MESSAGE
    for message in messages:
        content: str | list[JsonObject] = message["content"]
        parts: list[JsonObject] = [{"text": content}] if isinstance(content, str) else content
        tokens += TOKENS_PER_MESSAGE
        tokens += sum(estimate_text(part["text"]) if "text" in part else TOKENS_PER_IMAGE for part in parts)
        calls: list[JsonObject] = [call["function"] for call in message.get("tool_calls", ())]
        tokens += sum(estimate_text(call["name"]) + estimate_text(call["arguments"]) for call in calls)
    tokens += sum(estimate_text(json.dumps(tool["function"], ensure_ascii=False)) for tool in tools)
    return asked.model, tokens, unread


_Name = Annotated[str | None, Header(alias="X-Thread-Id", json_schema_extra=NAME_SCHEMA)]
_Again = Annotated[str | None, Header(alias="Idempotency-Key", json_schema_extra=NAME_SCHEMA)]
_Version = Annotated[str | None, Header(alias="anthropic-version", description="Any; they are answered alike.")]


async def _described(body: MessagesBody, thread_id: _Name = None, key: _Again = None, version: _Version = None) -> None:
    """Stand for what the OpenAPI document says of the endpoint; never called."""


async def _described_count(body: Prompt, version: _Version = None) -> None:
    """Likewise."""


async def _spoken(answer: ASGIApp, scope: ASGIScope, receive: Receive, send: Send) -> None:
    """An application whose errors are told as Anthropic's, and whose answers have its header `request-id`."""
    request_id = log_context.current_request()

    async def send_named(message: Message) -> None:
        if message["type"] == "http.response.start" and request_id is not None:
            message["headers"] = [*message["headers"], (b"request-id", request_id.encode())]
        await send(message)

    try:
        await answer(scope, receive, send_named)
    except DrSaiError as error:
        await error_response(error, shape=anthropic_error)(scope, receive, send_named)
    except HTTPException as error:
        await login_response(error)(scope, receive, send_named)
