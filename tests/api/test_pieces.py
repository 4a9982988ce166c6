"""A piece of an answer is encoded once where it is told, with the same bytes as if its frame were made anew."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.api.anthropic.body import MessagesBody
from drsai_backend.api.anthropic.translation import translate
from drsai_backend.api.anthropic.wire import EventWriter
from drsai_backend.api.events import RunFrames
from drsai_backend.api.http.json import TEXT, dumps
from drsai_backend.api.openai.chat.wire import ChunkWriter
from drsai_backend.runs import Logged, Position, RunEvent, TextDelta, ThoughtDelta
from tests.api.test_anthropic_wire import Handle

WORDS = st.text(st.characters(), min_size=1, max_size=8) | st.sampled_from(['"', "\\", "\ud83d", "\0", TEXT[:-1]])
NAMES = st.sampled_from(["ada", "bob", 'a "b"', "\u2028", ""])
PIECES = st.lists(
    st.builds(TextDelta, NAMES, WORDS, st.none() | NAMES, st.booleans())
    | st.builds(ThoughtDelta, NAMES, WORDS, st.none() | NAMES, st.booleans()),
    max_size=12,
)


def log() -> RunFrames:
    return RunFrames("thread", None)


def anthropic() -> EventWriter:
    asked = MessagesBody.model_validate(
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    )
    return EventWriter(Handle(1), translate(asked), thinks=True)  # pyright: ignore[reportArgumentType]


def chunks() -> ChunkWriter:
    return ChunkWriter(Handle(1), include_usage=True)  # pyright: ignore[reportArgumentType]


@given(PIECES)
def test_the_event_log(pieces: list[TextDelta | ThoughtDelta]) -> None:
    response = log()
    for n, piece in enumerate(pieces):
        fields: dict[str, Any] = {"source": piece.source, "text": piece.text, "message_id": piece.message_id}
        fields |= {} if piece.shown else {"shown": False}
        name = "delta" if isinstance(piece, TextDelta) else "thought"
        data = dumps({"type": name, "thread_id": "thread", "run_id": f"run_{n // 5}", **fields})
        told = b"".join(response.told(Logged(Position(1, 2, n), f"run_{n // 5}", piece)))
        assert told == b"event: %b\nid: 1-2-%d\ndata: %b\n\n" % (name.encode(), n, data)


@given(st.lists(st.tuples(WORDS, st.booleans()), max_size=12))
def test_anthropics_events(said: list[tuple[str, bool]]) -> None:
    writer, told, blocks = anthropic(), b"", 0
    kinds = [("thinking" if thought else "text") for _, thought in said]
    for (text, thought), kind, before in zip(said, kinds, [None, *kinds], strict=False):
        told = writer.frames([(ThoughtDelta if thought else TextDelta)("ada", text)])
        blocks += kind != before
        event = {"type": "content_block_delta", "index": blocks - 1, "delta": {"type": f"{kind}_delta", kind: text}}
        assert told.endswith(b"event: content_block_delta\ndata: %b\n\n" % dumps(event))


@given(st.lists(st.tuples(WORDS, st.booleans()), max_size=12))
def test_chunks(said: list[tuple[str, bool]]) -> None:
    writer = chunks()
    shared = {"id": "chatcmpl-run_1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "assistant"}
    for text, thought in said:
        delta = {"reasoning_content" if thought else "content": text}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        more = {"system_fingerprint": None, "thread_id": "t", "choices": [choice], "usage": None}
        told = writer.frames([(ThoughtDelta if thought else TextDelta)("ada", text)])
        assert told == b"data: %b\n\n" % dumps({**shared, **more})


def told_in_the_log() -> Callable[[RunEvent], object]:
    response = log()
    return lambda event: b"".join(response.told(Logged(Position(1, 1, 2), "run", event)))


def told_by(writer: EventWriter | ChunkWriter) -> Callable[[RunEvent], object]:
    return lambda event: writer.frames([event])


@pytest.mark.parametrize("dialect", ["event log", "anthropic", "chat"])
def test_a_piece_is_encoded_once(dialect: str) -> None:
    tell = told_in_the_log() if dialect == "event log" else told_by(anthropic() if dialect == "anthropic" else chunks())
    encoded = 0
    events = [TextDelta("ada", f"{number} ", "m") for number in range(101)]
    tell(events[0])

    def count(_: object, event: str, called: object) -> None:
        nonlocal encoded
        encoded += event == "c_call" and called is orjson.dumps

    sys.setprofile(count)
    try:
        for each in events[1:]:
            tell(each)
    finally:
        sys.setprofile(None)
    assert encoded == 100
