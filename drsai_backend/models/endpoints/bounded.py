"""Bounded answers keep no more bytes on their way, and no more text, than a model's answer may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from operator import getitem
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import orjson
from autogen_core import FunctionCall
from autogen_core.models import CreateResult
from openai import DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic_core import from_json

from drsai_backend.config import Settings
from drsai_backend.errors import EndpointFailed
from drsai_backend.models.endpoints.thoughts import ThoughtSplitter, thought_of
from drsai_backend.models.endpoints.transport import transport
from drsai_backend.models.turns import turn
from drsai_backend.net.bodies import PLAIN, body_of

if TYPE_CHECKING:
    import httpx2 as http

_WIRE: Final = 4
"""So many bytes may come for one of text: JSON in UTF-8 takes up to three, and has names around it."""
_MOST_OF_ERROR: Final = 65_536
CONNECTIONS: Final = 1000
"""Connections to an endpoint, as the packages have them."""
_KEPT: Final = 100
_OF_A_RUN: Final = 4
_LEAST: Final = 16
"""Bytes that a piece of an answer counts for at least: what is kept of each takes more."""
_TEXTS: Final = (("choices", 0, "message", "content"), ("content", 0, "text"))
_CUT: Final = "drsai_cut"
_CUT_EVENT: Final = b"event: message_delta\ndata: %b\n\n" % orjson.dumps(
    {
        "object": "chat.completion.chunk", "id": "", "created": 0, "model": "", _CUT: True,
        "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
        "type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": None,
    }
)  # fmt: skip
"""The end of a stream in which one event was too long, for OpenAI's package and Anthropic's."""


class AnswerBounds(NamedTuple):
    """Bytes that an answer may have, the arguments of its calls included, and its thought."""

    answer: int = 4 << 20
    thought: int = 256 << 10

    @property
    def wire(self) -> int:
        """Bytes that an answer, or one event of it, may have on its way."""
        return _WIRE * (self.answer + self.thought)


def bounds_of(settings: Settings) -> AnswerBounds:
    """Return the bounds that are set."""
    return AnswerBounds(settings.max_answer_bytes, settings.max_thought_bytes)


DEFAULT: Final = AnswerBounds()


@dataclass(slots=True)
class _Streamed:
    """A call of a tool that comes in pieces, and by which index AutoGen is told of it."""

    own: int
    id: str | None
    name: str | None


class AnswerLength:
    """How much of an answer has come, and what of a piece of it may still be taken.

    Attributes:
        begun: it has begun.
        over: it was too long, and is to end here, as `length`; a call of a tool that it was in is not finished.
    """

    def __init__(self, bounds: AnswerBounds) -> None:
        self.begun = self.over = self._is_cut = False
        self._left, self._thought = bounds
        self._call: object = None
        self._calls: dict[int, _Streamed] = {}
        self._again = 0
        self._mark = "<think>"
        self._blank = 0
        self._splitter = ThoughtSplitter()

    def text(self, piece: str) -> str:
        """Return what may be taken of text, which may begin with a thought between its marks."""
        if self._splitter.is_text:
            return self._taken(piece)
        parts = self._splitter.feed(piece)
        if not parts and piece.isspace():  # It waits for what begins, and may wait for ever.
            taken = _cut(piece, self._left - self._blank)
            self._blank += _size(piece)
            self.over = self.over or len(taken) < len(piece)
            return taken
        self._blank = 0
        given = "".join([text for is_thought, text in parts if is_thought])
        thought = self.thought(given)
        said = "".join([self._taken(text) for is_thought, text in parts if not is_thought])
        self._is_cut = self._is_cut or len(thought) < len(given)
        if not self._is_cut and not self.over:
            self._mark = ""
            return piece
        # Of a thought that was cut, the mark at its end may be in what was left out.
        begin, self._mark = self._mark if thought else "", ""
        return begin + thought + (f"</think>{said}" if said and self._is_cut else said)

    @property
    def is_thought_cut(self) -> bool:
        """Whether a thought was too long."""
        return self._thought < 0

    def thought(self, piece: str) -> str:
        """Return what may be taken of a thought: of a longer one the beginning, and then nothing."""
        taken = _cut(piece, self._thought)
        self._thought -= max(_size(piece), _LEAST) if piece else 0
        return taken

    def call(self, which: object, *texts: str | None) -> str:
        """Count a piece of a call of a tool. Returns what may be taken of the last of its texts."""
        if which != self._call:
            self._call = which
            self._left -= 4 * _LEAST
        taken = [self._taken(each or "") for each in texts][-1]
        self.over = self.over or self._left < 0
        return taken

    def check_begun(self) -> None:
        """Raise EndpointFailed: a stream has ended before its first piece."""
        if not self.begun:
            raise EndpointFailed("The model endpoint has answered with nothing.")

    def of_openai(self, chunk: ChatCompletionChunk) -> None:
        """Take of a piece of a stream what may be taken."""
        for choice in chunk.choices[:1]:
            self.begun = True
            delta = choice.delta
            if said := delta.content or delta.refusal:  # AutoGen reads no refusal.
                delta.content = self.text(said)
            if (thought := thought_of(delta)) is not None:
                setattr(delta, "reasoning_content", self.thought(thought))  # noqa: B010 - not OpenAI's own
            for call in delta.tool_calls or ():
                if (function := call.function) is not None:
                    function.arguments = self.call(call.index, call.id, function.name, function.arguments)
                self._tell_apart(call)
        self.over = self.over or hasattr(chunk, _CUT)

    def _tell_apart(self, call: ChoiceDeltaToolCall) -> None:
        """Have a piece of a call say which it is as AutoGen reads it, which takes pieces of one index for one call and
        adds up their ids and names. Endpoints leave the index out, or have one for all calls, or repeat id and name."""
        function = call.function
        name = function.name if function is not None else None
        known = self._calls.get(call.index)
        if known is None or (name and call.id and known.id and call.id != known.id):
            self._again += known is not None
            own = call.index if known is None else -self._again  # No index that an endpoint gives.
            self._calls[call.index] = _Streamed(own, call.id, name)
            call.index = own
            return
        if not known.id:
            known.id = call.id
        elif call.id:
            call.id = None
            if function is not None and name == known.name:
                function.name = None
        known.name = known.name or name
        call.index = known.own

    def of_anthropic(self, event: object) -> None:
        """The same of an event."""
        fields = vars(event)
        self.begun, delta = True, fields.get("delta")
        for name, take in _TAKES.items() if delta is not None else ():
            if isinstance(piece := vars(delta).get(name), str):
                setattr(delta, name, take(self, piece))
        block = fields.get("content_block")
        if isinstance(tool := getattr(block, "name", None), str):
            self.call(block, getattr(block, "id", None), tool)
        self.over = self.over or hasattr(event, _CUT)

    def _taken(self, piece: str) -> str:
        size = len(piece) if piece.isascii() else _size(piece)
        if size <= self._left or not piece:
            if piece:
                self._left -= size if size > _LEAST else _LEAST
            return piece
        taken = _cut(piece, self._left)
        self._left -= max(size, _LEAST)
        self.over = self.over or len(taken) < len(piece)
        return taken


_TAKES: Final = {"text": AnswerLength.text, "thinking": AnswerLength.thought, "partial_json": AnswerLength._taken}  # pyright: ignore[reportPrivateUsage]
"""What of Anthropic's deltas is counted, and how."""


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _cut(text: str, most: int) -> str:
    """The beginning of a text that has no more bytes."""
    if _size(text) <= most:
        return text
    return text.encode(errors="replace")[: max(most, 0)].decode(errors="ignore")


def bounded(result: CreateResult, bounds: AnswerBounds, *, over: bool = False) -> CreateResult:
    """A result with no more than it may have. `over`: it was cut before, so that its last call is not finished."""
    given = (getattr(result, "reasoning", None), result.thought)
    said = (
        [result.content]
        if isinstance(result.content, str)
        else [text for call in result.content for text in (call.id, call.name, call.arguments)]
    )
    letters = len("".join(filter(None, (*said, *given))))
    if not over and 4 * letters + 3 * _LEAST * len(said) <= min(bounds):
        return result  # It fits whatever its letters are, and needs no measuring.
    length = AnswerLength(bounds)
    reasoning, thought = (each and _cut(each, bounds.thought) for each in given)
    if isinstance(result.content, str):
        content: str | list[FunctionCall] = length.text(result.content)
    else:
        content = []
        for each in result.content[: len(result.content) - over]:
            length.call(each, each.id, each.name, each.arguments)
            if length.over:
                break
            content.append(each)
    if not (over or length.over or (reasoning, thought) != given):
        return result
    made: dict[str, object] = {
        "thought": thought,
        "content": content,
        **({"reasoning": reasoning} if reasoning else {}),
    }
    if over or length.over:
        made |= {"finish_reason": "length"}
        if not content:  # What it has said beside its calls is its text.
            made |= {"thought": reasoning, "content": thought or "", **({"reasoning": None} if reasoning else {})}
    return result.model_copy(update=made)


def bounded_client(
    most: int,
    cut: Callable[[bytes], bytes] | None = None,
    *,
    kind: type[http.AsyncClient] = DefaultAsyncHttpxClient,
    connections: int = CONNECTIONS,
    traced: bool = False,
) -> http.AsyncClient:
    """A client for openai's package, or Anthropic's, whose answers are cut while they arrive: what is beyond `most`
    bytes, or in an event with more, is never read, and `cut` says what stands for the rest; default: that the answer
    has ended as `length`. Packed ones are unpacked or refused as `unpacked` does.

    Args:
        most: bytes of a body.
        cut: makes the last that is read of a body that is too long.
        kind: the package's own class. It is httpx's, or with later releases httpx2's.
        connections: how many may be open at once; further calls wait.
        traced: requests name the span under way (W3C Trace Context).
    """
    roots = (cls.__module__.partition(".")[0] for cls in kind.__mro__)
    package = import_module(next(name for name in roots if name.startswith("httpx")))
    body = body_of(package)

    async def bound(response: http.Response) -> None:
        limit, shorter = (most, cut or _cut_answer) if response.is_success else (min(most, _MOST_OF_ERROR), bytes)

        def over(held: bytes, is_event: bool) -> bytes:
            return _CUT_EVENT if is_event else shorter(held)

        response.stream = cast("Any", body(cast("Any", response), limit, over, turn))

    limits = package.Limits(max_connections=connections, max_keepalive_connections=_KEPT)
    # Not as its transport: with one, it would leave the environment's proxies aside.
    mounts = {"all://": transport(package, connections)}
    hooks = {"request": [_name_span] if traced else [], "response": [bound]}
    return kind(event_hooks=hooks, headers=PLAIN, limits=limits, mounts=mounts)


async def _name_span(request: http.Request) -> None:
    TraceContextTextMapPropagator().inject(request.headers)


def client_of(settings: Settings, kind: type[http.AsyncClient] = DefaultAsyncHttpxClient) -> http.AsyncClient:
    """A `bounded_client` as the settings want it. Each run may ask for several answers at once."""
    connections = max(CONNECTIONS, _OF_A_RUN * settings.max_runs)
    wire, traced = bounds_of(settings).wire, settings.is_traced
    return bounded_client(wire, kind=kind, connections=connections, traced=traced)


def _cut_answer(body: bytes) -> bytes:
    """The beginning of an answer as a whole one that has ended as `length`, for OpenAI's package and Anthropic's. None
    of its calls is made."""
    text: object = ""
    for path in _TEXTS:
        try:
            text = text or reduce(getitem, path, from_json(body, allow_partial="trailing-strings"))
        except (LookupError, TypeError, ValueError):
            continue
    said = text if isinstance(text, str) else ""
    used = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens")
    message = {"role": "assistant", "content": said}
    return orjson.dumps(
        {
            "object": "chat.completion", "id": "", "created": 0, "model": "", "usage": dict.fromkeys(used, 0),
            "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
            "type": "message", "role": "assistant", "content": [{"type": "text", "text": said}],
            "stop_reason": "max_tokens",
        }
    )  # fmt: skip
