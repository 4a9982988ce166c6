"""`POST /v1/chat/completions`: a user input for a thread, answered by a team.

1. `body.Bodies` reads the JSON, `inputs.parse_call` makes a `RunRequest` of it.
2. The engine starts the run, or queues it; from here on it is the engine's, whatever the client does.
3. `stream` sends what happens (or waits for the end), in the words of `wire`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from drsai_backend.api._backend import Engine, RunHandle
from drsai_backend.api._connection import ClientLeft
from drsai_backend.api._json import dumps
from drsai_backend.api._objects import RUN_SCHEMA, json_response, run_headers, run_object
from drsai_backend.api.auth import ANONYMOUS, NAME_SCHEMA
from drsai_backend.api.body import Bodies
from drsai_backend.api.errors import RunMoved, error_response
from drsai_backend.api.openai.inputs import ChatBody, ChatCall, parse_call
from drsai_backend.api.openai.stream import gather, send_chunks
from drsai_backend.api.openai.wire import BROKEN, COMPLETION_SCHEMA, ChunkWriter, failure
from drsai_backend.api.query import check_query
from drsai_backend.errors import DrSaiError, IllegalTransition, NotFound

_log = logging.getLogger(__name__)
PATH: Final = "/v1/chat/completions"


class ChatCompletions:
    """The endpoint, as a plain ASGI application: FastAPI's own way costs more than all the rest of a short answer."""

    def __init__(self, engine: Engine, bodies: Bodies, *, max_messages: int, ping: float) -> None:
        self._engine = engine
        self._bodies = bodies
        self._max_messages = max_messages
        self._ping = ping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_query(scope, ())
        async with self._bodies.read(scope, receive) as body:
            models = self._engine.teams.names()
            call = await parse_call(body, scope, self._bodies, models=models, max_messages=self._max_messages)
            del body
            handle = await self._engine.start(call.request)
        headers = run_headers(handle.thread_id, handle.run_id)
        if call.left_aside:
            headers.append((b"x-ignored-fields", ", ".join(call.left_aside).encode()))
        try:
            if call.request.stream:
                writer = ChunkWriter(handle, include_usage=call.include_usage)
                await send_chunks(handle, writer, headers, receive, send, ping=self._ping)
                return
            response = await (
                self._accepted(call, handle, scope) if call.request.background else self._whole(call, handle, receive)
            )
        except ClientLeft:
            if call.cancel_on_disconnect:
                await self._cancel(call, handle)
            return
        response.raw_headers.extend(headers)
        await response(scope, receive, send)

    async def _whole(self, call: ChatCall, handle: RunHandle, receive: Receive) -> Response:
        writer, ended = await gather(handle, receive, ping=self._ping)
        if ended.status not in BROKEN:
            return Response(dumps(writer.body(ended)), media_type="application/json")
        error = failure(ended)
        response = error_response(error, code=ended.error_code)
        if isinstance(error, RunMoved) and call.request.idempotency_key is None:
            # The input is stored: to send it again by itself, as OpenAI's clients do, would say it twice.
            response.headers["x-should-retry"] = "false"
        return response

    async def _accepted(self, call: ChatCall, handle: RunHandle, scope: Scope) -> Response:
        user_id = call.request.user_id
        response = json_response(run_object(await self._engine.get_run(user_id, handle.run_id)), 202)
        # Where the application is mounted, or what a proxy in front has taken away.
        path = quote(scope.get("root_path", "").rstrip("/"))
        whose = "" if user_id == ANONYMOUS else f"?user={quote(user_id, safe='')}"
        response.headers["location"] = f"{path}/v1/runs/{quote(handle.run_id, safe='')}{whose}"
        return response

    async def _cancel(self, call: ChatCall, handle: RunHandle) -> None:
        try:
            with suppress(IllegalTransition, NotFound):  # it has just ended
                await self._engine.cancel_run(call.request.user_id, handle.run_id)
        except DrSaiError as error:
            _log.warning("run %s was not cancelled when its client left: %s", handle.run_id, error.message)
        except Exception:  # noqa: BLE001 - nobody is left to be told
            _log.exception("run %s was not cancelled when its client left", handle.run_id)


def operation() -> dict[str, Any]:
    """The endpoint's entry in the OpenAPI document."""
    schema = ChatBody.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    return {
        "path": {
            "post": {
                "tags": ["chat"],
                "summary": "Go on with a thread, or begin one",
                "operationId": "create_chat_completion",
                "parameters": [
                    {"name": name, "in": "header", "required": False, "schema": NAME_SCHEMA}
                    for name in ("X-Thread-Id", "X-OpenWebUI-Chat-Id", "Idempotency-Key")
                ],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ChatBody"}}},
                },
                "responses": {
                    "200": {
                        "description": "The answer; with `stream`, server-sent events that end with `[DONE]`.",
                        "content": {
                            "application/json": {"schema": COMPLETION_SCHEMA},
                            "text/event-stream": {"schema": {"type": "string"}},
                        },
                    },
                    "202": {
                        "description": "The run, with `background`; the header `Location` is where to ask for it.",
                        "content": {"application/json": {"schema": RUN_SCHEMA}},
                    },
                },
            }
        },
        "schemas": {"ChatBody": schema, **definitions},
    }
