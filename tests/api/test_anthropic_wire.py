"""Anthropic's events and messages, made of the events of runs; and the names of fields, translated back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from drsai_backend.api.anthropic.body import MessagesBody
from drsai_backend.api.anthropic.translation import Translation, translate
from drsai_backend.api.anthropic.wire import EventWriter, MessageWriter
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import DatabaseUnavailable, InvalidRequest
from drsai_backend.runs import Ask, RunEnded, RunEvent, TextDelta
from tests.api.conftest import OPEN, FakeSettings
from tests.api.fakes import FakeEngine
from tests.api.scripts import USAGE, Step, said
from tests.support.apps import create_app

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


class Handle:
    run_id, thread_id, team, created = "run_1", "t", "assistant", 1_700_000_000

    def __init__(self, speakers: int) -> None:
        self.speakers = speakers


def read(frames: bytes) -> list[dict[str, Any]]:
    """The events of a stream, whose lines are as the specification of server-sent events has them."""
    told: list[dict[str, Any]] = []
    for frame in frames.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        told.append(event)
    return told


def accumulate(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that Anthropic's client makes of a stream."""
    message: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        typed = EVENT.validate_python(event)
        message = accumulate_event(event=typed, current_snapshot=message, json_bufs=buffers)
    return message.to_dict()


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
TURN = st.tuples(st.sampled_from(["writer", "reviewer"]), st.lists(TEXT, max_size=3), st.booleans())
CALL = st.tuples(st.sampled_from(["weather", "news"]), st.dictionaries(TEXT, TEXT, max_size=2))


@given(st.lists(TURN, max_size=4), st.lists(CALL, max_size=3), st.integers(1, 2), st.randoms())
def test_a_stream_adds_up_to_the_message(
    turns: list[tuple[str, list[str], bool]], calls: list[tuple[str, dict[str, str]]], speakers: int, random: Any
) -> None:
    events: list[RunEvent] = []
    for seq, (speaker, parts, streamed) in enumerate(turns, 1):
        if streamed:
            events += [TextDelta(speaker, part, str(seq)) for part in parts]
        events.append(said(speaker, "".join(parts), seq, id=str(seq)))
    asked = [
        {"id": f"call_{place}", "type": "function", "name": name, "arguments": json.dumps(arguments)}
        for place, (name, arguments) in enumerate(calls)
    ]
    status = RunStatus.AWAITING_INPUT if asked else RunStatus.COMPLETED
    question = {"kind": "client_tool", "source": "writer", "content": "", "tool_calls": asked} if asked else None
    ended = RunEnded(status, "done", USAGE, 0.25, input_request=question)

    handle: Any = Handle(speakers)
    streaming = EventWriter(handle, Translation(), thinks=False)
    frames = streaming.opening()
    while events:
        some = random.randint(1, len(events))
        frames += streaming.frames(events[:some])
        del events[:some]
    frames += streaming.frames([ended])
    whole = MessageWriter(handle, thinks=False)
    for seq, (speaker, parts, _) in enumerate(turns, 1):
        whole.take([said(speaker, "".join(parts), seq, id=str(seq))])

    told = read(frames)
    message, body = accumulate(told), whole.body(ended)
    for name in ("id", "role", "model", "type", "stop_reason", "content"):
        assert _plain(message[name]) == _plain(body[name]), name
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (7, 5)
    open_blocks: list[int] = []
    for event in told:  # one block at a time, counted from zero
        if event["type"] == "content_block_start":
            assert not open_blocks
            open_blocks.append(event["index"])
        elif event["type"] == "content_block_stop":
            assert open_blocks == [event["index"]]
            open_blocks.clear()
        elif event["type"] == "content_block_delta":
            assert open_blocks == [event["index"]]
    starts = [event["index"] for event in told if event["type"] == "content_block_start"]
    assert starts == list(range(len(starts)))
    assert [event["type"] for event in told][-2:] == ["message_delta", "message_stop"]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def test_a_run_that_fails_ends_the_stream() -> None:
    handle: Any = Handle(1)
    writer = EventWriter(handle, Translation(), thinks=False)
    ended = RunEnded(RunStatus.ERROR, error_code="model_error", error_message="The model is gone.")
    *_, last = read(writer.opening() + writer.frames([TextDelta("a", "Hel"), ended]))
    assert last["type"] == "error"
    assert (last["error"]["type"], last["error"]["code"]) == ("api_error", "model_error")
    assert last["error"]["message"] == "The model is gone."


RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
SAID = {"type": "text", "text": "Hello"}


@pytest.mark.parametrize(
    ("param", "place"),
    [
        ("messages[0].content", "system"),
        ("messages[1].content", "messages[0].content"),
        ("messages[2].tool_call_id", "messages[1].content[1].tool_use_id"),
        ("messages[3].content", "messages[1].content"),
        ("messages[3].content[0]", "messages[1].content[0]"),
        ("messages[3].role", "messages[1].role"),
        ("messages[9].content", "messages[9].content"),
        ("tools[2].function.parameters", "tools[2].input_schema"),
        ("stop", "stop_sequences"),
        ("thread_id", "thread_id"),
    ],
)
def test_errors_name_what_the_client_has_written(param: str, place: str) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "user", "content": [SAID, RESULT]}]
    body = {"model": "m", "max_tokens": 5, "system": "Be brief.", "messages": messages}
    made = translate(MessagesBody.model_validate(body))
    assert [each["role"] for each in made.body["messages"]] == ["system", "user", "tool", "user"]
    error = made.rename(InvalidRequest(f"`{param}` is wrong", param=param))
    assert (error.param, error.message) == (place, f"`{place}` is wrong")


async def test_a_silent_stream_is_kept_open_and_a_broken_one_ends_with_an_error(engine: FakeEngine) -> None:
    def script(ask: Ask) -> Iterable[Step]:
        yield TextDelta("assistant", "one")
        yield 0.4
        yield TextDelta("assistant", " two")
        yield from broken(ask)

    def broken(_: Ask) -> Iterable[Step]:
        raise DatabaseUnavailable("the database is away")
        yield

    engine.teams.scripts["assistant"] = (1, script)
    app = create_app(engine, FakeSettings(), OPEN, ping_seconds=0.1)
    transport = httpx.ASGITransport(app=app)
    body = {"model": "assistant", "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        answer = await http.post("/v1/messages", json=body)
    told = read(answer.content)
    names = [event["type"] for event in told]
    assert names.count("ping") >= 2
    assert told[-1]["error"]["type"] == "overloaded_error"
    assert told[-1]["request_id"] == answer.headers["request-id"]
