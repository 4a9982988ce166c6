"""`POST /v1/chat/completions`: a user input for a thread, answered by a team.

1. `body.read_object` reads the JSON, `inputs.parse_call` makes a `RunRequest` of it.
2. The engine starts the run; from here on it is the engine's, whatever the client does.
3. `stream` sends what happens (or waits for the end), in the words of `wire`.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from drsai_backend.api._backend import Engine, RunHandle
from drsai_backend.api._json import dumps
from drsai_backend.api.body import read_object
from drsai_backend.api.errors import error_response
from drsai_backend.api.openai.inputs import ChatBody, parse_call
from drsai_backend.api.openai.stream import ClientLeft, EventStream, gather
from drsai_backend.api.openai.wire import ChunkWriter, failure
from drsai_backend.datamodel import RunStatus

PATH: Final = "/v1/chat/completions"


class ChatCompletions:
    """The endpoint, as a plain ASGI application: FastAPI's own way costs more than all the rest of a short answer."""

    def __init__(self, engine: Engine, *, max_body_bytes: int, ping: float) -> None:
        self._engine = engine
        self._limit = max_body_bytes
        self._ping = ping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_object(scope, receive, limit=self._limit)
        call = await parse_call(body, scope)
        handle = await self._engine.start(call.request)
        headers = _headers(handle)
        try:
            if call.request.stream:
                writer = ChunkWriter(handle, include_usage=call.include_usage)
                await EventStream(handle, writer, headers, ping=self._ping).send(receive, send)
                return
            response = await self._whole(handle, receive)
        except ClientLeft:
            return
        response.raw_headers.extend(headers)
        await response(scope, receive, send)

    async def _whole(self, handle: RunHandle, receive: Receive) -> Response:
        writer, ended = await gather(handle, receive, ping=self._ping)
        if ended.status is RunStatus.ERROR:
            return error_response(failure(ended), code=ended.error_code)
        return Response(dumps(writer.body(ended)), media_type="application/json")


def _headers(handle: RunHandle) -> list[tuple[bytes, bytes]]:
    return [(b"x-thread-id", handle.thread_id.encode()), (b"x-run-id", handle.run_id.encode())]


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
                    {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
                    for name in ("X-Thread-Id", "X-OpenWebUI-Chat-Id", "Idempotency-Key", "X-Request-Id")
                ],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ChatBody"}}},
                },
                "responses": {
                    "200": {
                        "description": "The answer; with `stream`, server-sent events that end with `[DONE]`.",
                        "content": {"application/json": {}, "text/event-stream": {}},
                    },
                    "4XX": {"description": 'An error: `{"error": {"message", "type", "param", "code"}}`.'},
                    "5XX": {"description": "The same, for what is not the client's fault."},
                },
            }
        },
        "schemas": {"ChatBody": schema, **definitions},
    }
