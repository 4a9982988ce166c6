"""One request that says something to a team, and its answer: what differs from API to API.

Completions and Anthropic's messages are read as calls of Chat Completions, and written in words of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.responses import Response

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.errors import error_response
from drsai_backend.api.http.json import ERROR_CONTENT, EVENTS, NO_MODEL, answers
from drsai_backend.api.objects import RUN_SCHEMA
from drsai_backend.api.openai.chat.inputs import ChatCall
from drsai_backend.api.openai.chat.side_call import SideCompletion
from drsai_backend.api.openai.chat.wire import ChunkWriter, CompletionWriter, error_frame
from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine, Handle, RunEnded, RunEvent
from drsai_backend.runs.side_calls.side_calls import SideAnswer
from drsai_backend.teams.client_tools.definitions import run_of_call


class StreamWriter(Protocol):
    """Writes a run as the frames of a stream."""

    def opening(self) -> bytes:
        """What the stream begins with."""
        ...

    def frames(self, events: Iterable[RunEvent]) -> bytes:
        """The frames of events, in order; empty when nothing of them can be shown yet."""
        ...


class WholeWriter(Protocol):
    """Gathers a run for an answer in one piece. `ended` is the run's end, once it was taken."""

    ended: RunEnded | None

    def take(self, events: Iterable[RunEvent]) -> None:
        """Hear events, in order."""
        ...

    def body(self, ended: RunEnded) -> JsonObject:
        """The answer, after all events were taken."""
        ...


class SideWriter(Protocol):
    """Writes an answer of no run, to what a chat window asks about a chat."""

    def whole(self, answer: SideAnswer) -> JsonObject:
        """The answer in one piece."""
        ...

    def frames(self, answer: SideAnswer) -> bytes:
        """All frames of a stream."""
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was understood, and how its answer is written: here as Chat Completions does it."""

    call: ChatCall

    @property
    def after(self) -> str:
        """The answer that is continued: its client has it, and is told the rest."""
        return self.call.ask.continues or ""

    def name(self, handle: Handle) -> str:
        """What the answer's id is made of. A run that asks for calls of the client's tools has several answers, and
        clients take two of one id for one."""
        for result in self.call.ask.tool_results:
            if run_of_call(result.call_id) == handle.run_id:
                return f"run_{result.call_id.removeprefix('call_')}"
        return handle.run_id

    async def start(self, engine: Engine, call: ChatCall, who: Principal) -> Handle:
        """Start its run, `call` being that of whoever asks. Raises as `Engine.start`."""
        return await engine.start(call.ask, who)

    def ignored(self, handle: Handle) -> Sequence[str]:
        """The fields of the request with which nothing is done."""
        return self.call.ignored(handle.ignored)

    def streamed(self, handle: Handle) -> StreamWriter:
        """What writes the answer as a stream."""
        usage = self.call.include_usage
        return ChunkWriter(handle, include_usage=usage, after=self.after, name=self.name(handle))

    def whole(self, handle: Handle) -> WholeWriter:
        """What writes the answer in one piece."""
        return CompletionWriter(handle, after=self.after, name=self.name(handle))

    def aside(self, call: ChatCall, kind: str) -> SideWriter:
        """What writes the answer of no run; `kind` is what the request was taken for."""
        return SideCompletion(call, kind)

    def error_frame(self, body: JsonObject) -> bytes:
        """The frame that ends a stream which failed. `body`: the error as OpenAI has it."""
        return error_frame(body)

    def error_response(self, error: DrSaiError, code: str | None) -> Response:
        """The answer of a run that has failed. `code` stands in for the error's own."""
        return error_response(error, code=code)


def describe_answers(body: JsonObject, stream: str) -> dict[int | str, JsonObject]:
    """What such a route answers with, for the OpenAPI document: `body` is the schema of an answer in one piece,
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
