"""`/v1/responses` over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import (
    NamedUser,
    UserBody,
    access_of,
    acting_as,
    allowed,
    allowed_caller,
    asked_again,
    described,
    read_body,
)
from drsai_backend.api.http.body import headers_of as sent_headers
from drsai_backend.api.http.json import ERROR_CONTENT, EVENTS, NO_MODEL, answers, json_response
from drsai_backend.api.http.once import IdempotencyKey
from drsai_backend.api.http.parameters import Limit, ResponseId, new_router
from drsai_backend.api.http.stream import ClientLeft
from drsai_backend.api.openai.chat.inputs import repeated_of
from drsai_backend.api.openai.files.named import with_files
from drsai_backend.api.openai.responses.answers import EventsResponse, headers_of, told, whole
from drsai_backend.api.openai.responses.events import EventWriter
from drsai_backend.api.openai.responses.request.body import CompactBody, ResponseBody
from drsai_backend.api.openai.responses.request.inputs import fingerprint_of, parse
from drsai_backend.api.openai.responses.service import Responses
from drsai_backend.api.openai.responses.stored.places import Call
from drsai_backend.api.openai.responses.stored.stored import page
from drsai_backend.api.openai.responses.wire import RESPONSE_SCHEMA, usage_of
from drsai_backend.datamodel.base import utcnow
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject

Reader = Annotated[Principal, allowed(Scope.THREADS_READ)]
Deleter = Annotated[Principal, allowed(Scope.THREADS_DELETE)]
Chatter = Annotated[Principal | None, allowed_caller(Scope.CHAT)]
Canceller = Annotated[Principal | None, allowed_caller(Scope.RUNS_CANCEL)]
Include = Annotated[list[str], Query(alias="include[]", description="What else to tell; there is nothing else here.")]
Order = Annotated[Literal["asc", "desc"], Query(description="Oldest first, or newest first.")]
AfterItem = Annotated[str | None, Query(description="`last_id` of the page before.")]
_MOST: Final = 2**53
_DELETED: Final[JsonObject] = {
    "type": "object",
    "required": ["id", "object", "deleted"],
    "properties": {"id": {"type": "string"}, "object": {"const": "response"}, "deleted": {"const": True}},
}
PAGE_SCHEMA: Final[JsonObject] = {
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
_COMPACTION: Final[JsonObject] = {
    "type": "object",
    "required": ["id", "object", "created_at", "output", "usage"],
    "properties": {"object": {"const": "response.compaction"}},
}


class _ResponseName(StringConvertor):
    """A response by itself; what else has a path of its own is answered there, or is a 405."""

    regex = "(?!compact$)[^/]+"


register_url_convertor("response", _ResponseName())


def response_routes(responses: Responses, *, ping: float) -> APIRouter:
    """`ping`: seconds of silence after which a stream sends a comment."""
    router = new_router("/v1/responses", tags=["responses"])
    bodies = responses.bodies
    described_answer = answers(200, RESPONSE_SCHEMA, "The response; with `stream`, its events.")
    described_answer[200]["content"].update(EVENTS)
    failed: JsonObject = {"description": "The run ended as an error.", "content": ERROR_CONTENT}

    @router.post(
        "",
        responses={**described_answer, 404: NO_MODEL, 424: failed},
        openapi_extra=described(ResponseBody),
    )
    async def create_response(
        request: Request, caller: Chatter, user: NamedUser = None, key: IdempotencyKey = None
    ) -> Response:
        """Have a team answer: begin a conversation, or continue one."""
        async with (
            bodies.read(request.scope, request.receive) as body,
            with_files(bodies, responses.engine.files, body, (who := acting(request, caller, user, body.get("user")))),
        ):
            if key is None:
                await responses.engine.check_name(who, body)
            try:
                asked = responses.read(body)
                # As the messages of a chat, but the conversation that is continued may be elsewhere by now.
                fingerprint = await bodies.off_loop(partial(fingerprint_of, body))
                call = Call(who, asked, key, fingerprint=fingerprint, repeated=repeated_of(sent_headers(request.scope)))
                started = await responses.create(call)
            except InvalidRequest:
                await responses.engine.check_name(who, body)  # As of a chat request.
                raise
        if asked.stream:
            writer = started.writer()

            def finished() -> None:
                if started.is_temporary:
                    responses.drop(who, started.handle)

            listening = responses.engine.repeats.listening(started.handle)
            still = partial(access_of(request).check_again, request.scope, Scope.CHAT, caller)
            frames = EventsResponse(
                told(started, writer), writer, ping=ping, still=still, finished=finished, listening=listening
            )
            return headers_of(frames, started)
        if asked.background:
            return headers_of(json_response((await responses.shown(who, started.subject.id)).shown()), started)
        try:
            with responses.engine.repeats.listening(started.handle):
                answer = await whole(started, request.receive, ping)
        except ClientLeft:
            answer = Response(status_code=204)  # which nobody reads
        if started.is_temporary:
            responses.drop(who, started.handle)
        return headers_of(answer, started)

    @router.post(
        "/compact",
        responses={**answers(200, _COMPACTION, "The items to begin the next request with."), 404: NO_MODEL},
        openapi_extra=described(CompactBody),
    )
    async def compact_response(request: Request, caller: Chatter, user: NamedUser = None) -> Response:
        """Seal the messages of `input` into one item, which stands for them in later requests. No model is asked, and
        nothing is left out."""
        async with bodies.read(request.scope, request.receive) as body:
            who = acting(request, caller, user, body.get("user"))
            await responses.engine.check_name(who, body)
            asked = parse(CompactBody, body, responses.max_items)
            await responses.engine.check_team(who, asked.model)
            output = await responses.compact(who, asked)
        shown = {"id": output[0]["id"], "object": "response.compaction", "created_at": int(utcnow().timestamp())}
        return json_response({**shown, "output": output, "usage": usage_of({})})

    @router.get("/{response_id:response}", responses=described_answer)
    async def get_response(
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
        if not stream:
            return json_response(stored.shown())
        start = -1 if starting_after is None else starting_after
        writer = EventWriter(stored.subject, stored.speakers)
        still = asked_again(request, Scope.THREADS_READ, who)
        return EventsResponse(responses.follow(who, stored), writer, ping=ping, still=still, start=start)

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
        return json_response(page(stored.input_items(), after, limit, newest_first=order == "desc"))

    @router.post("/{response_id}/cancel", responses=answers(200, RESPONSE_SCHEMA), openapi_extra=described(UserBody))
    async def cancel_response(
        request: Request, response_id: ResponseId, caller: Canceller, user: NamedUser = None
    ) -> Response:
        """Stop the run of a response; its finished messages stay. 409 where it is over."""
        _, who = await read_body(bodies, request, UserBody, caller, user)
        return json_response((await responses.cancel(who, response_id)).shown())

    @router.delete("/{response_id:response}", responses=answers(200, _DELETED))
    async def delete_response(response_id: ResponseId, who: Deleter) -> Response:
        """Forget a response. What was said stays in its conversation, where there is more of that."""
        await responses.delete(who, response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    return router


def acting(request: Request, caller: Principal | None, user: str | None, in_body: object) -> Principal:
    """Who asks; see `acting_as`."""
    return acting_as(access_of(request), request.scope, caller, user, in_body)
