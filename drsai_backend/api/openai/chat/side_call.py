"""A housekeeping request of a chat window, answered on the side: an answer of no thread and of no run."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.json import dumps, json_response
from drsai_backend.api.http.stream import ClientLeft, EventStream, Watch
from drsai_backend.api.openai.chat.inputs import ChatCall
from drsai_backend.errors import RunFailed
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.side_calls.side_calls import SideAnswer, SideCalls

if TYPE_CHECKING:
    from drsai_backend.api.openai.chat.exchange import Exchange

_HEADER: Final = b"x-housekeeping"
"""Says in the answer what the request was taken for."""


async def answer_on_the_side(
    calls: SideCalls,
    exchange: Exchange,
    call: ChatCall,
    who: Principal,
    kind: str,
    scope: ASGIScope,
    receive: Receive,
    send: Send,
    ping: float,
    still: Callable[[], Awaitable[object]],
) -> None:
    """Answer a request that was found to be housekeeping of that `kind`, whole or streamed, in the words of its
    `exchange`. A client that leaves ends the call; so does a stream whose client may not ask any more (`still`)."""
    headers = [(_HEADER, kind.encode())]
    if call.tool_fields:
        headers.append((b"x-ignored-fields", ", ".join(call.tool_fields).encode()))
    writer = exchange.aside(call, kind)

    async def frames() -> AsyncGenerator[tuple[bytes, bool]]:
        # In one write: what a program reads is read when it is complete.
        yield writer.frames(await calls.ask(call.ask, who, kind, call.form)), False

    try:
        if call.ask.stream:
            what, failing = f"housekeeping {kind!r}", exchange.error_frame
            stream = EventStream(headers, opening=b"", failing=failing, what=what, ping=ping, still=still)
            await stream.send(frames(), receive, send)
            return
        with Watch(receive, ping):
            answer = await calls.ask(call.ask, who, kind, call.form)
        response = json_response(writer.whole(answer))
    except ClientLeft:
        return
    except RunFailed as error:
        response = exchange.error_response(error, error.run_code)
    response.raw_headers.extend(headers)
    await response(scope, receive, send)


@dataclass(frozen=True, slots=True)
class SideCompletion:
    """Writes such an answer as Chat Completions does."""

    call: ChatCall
    kind: str

    def whole(self, answer: SideAnswer) -> JsonObject:
        """The completion object."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
        details = {"housekeeping": self.kind}
        return {**self._shared("chat.completion"), "choices": [choice], "usage": answer.usage, "drsai": details}

    def frames(self, answer: SideAnswer) -> bytes:
        """All frames of a stream."""
        shared = self._shared("chat.completion.chunk")
        tail: JsonObject = {"usage": None} if self.call.include_usage else {}
        said = {"role": "assistant", "content": answer.text, "refusal": None}
        end: JsonObject = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": answer.finish_reason}
        chunks: list[JsonObject] = [
            {"choices": [{"index": 0, "delta": said, "logprobs": None, "finish_reason": None}], **tail},
            {"choices": [end], **tail, "drsai": {"housekeeping": self.kind}},
        ]
        if self.call.include_usage:
            chunks.append({"choices": [], "usage": answer.usage})
        return b"".join(b"data: " + dumps({**shared, **chunk}) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"

    def _shared(self, kind: str) -> JsonObject:
        return {
            "id": f"chatcmpl-{token_hex(12)}",
            "object": kind,
            "created": int(time.time()),
            "model": self.call.ask.team,
            "system_fingerprint": None,
        }
