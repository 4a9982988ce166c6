"""Answers as the real openai client reads them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest

from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import ThreadBusy
from drsai_backend.runs.events import MessageDone, RunEnded, TextDelta
from tests.api.fakes import FakeEngine
from tests.api.scripts import COMPLETED, FULL_USAGE, said, spoken

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


async def stream(client: openai.AsyncOpenAI, model: str = "assistant", **options: Any) -> list[Any]:
    answer = await client.chat.completions.create(model=model, messages=HELLO, stream=True, **options)
    return [chunk async for chunk in answer]


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_whole_answer(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    answer = await client.chat.completions.create(model="assistant", messages=HELLO, extra_body={"thread_id": "t1"})
    assert answer.choices[0].message.content == "You said: hello"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_none=True) == FULL_USAGE
    assert (answer.id, answer.object, answer.model) == ("chatcmpl-run-1", "chat.completion", "assistant")
    assert answer.created == 1_700_000_000
    assert answer.model_extra is not None
    assert answer.model_extra["thread_id"] == "t1"
    assert answer.model_extra["drsai"] == {
        "run_id": "run-1",
        "status": "completed",
        "stop_reason": "done",
        "stop_code": None,
        "duration": 0.25,
        "input_request": None,
        "queued_behind": None,
        "messages": [{"seq": 2, "source": "assistant", "type": "TextMessage", "content": "You said: hello"}],
    }
    assert engine.requests[0].stream is False


async def test_stream_is_framed_as_openai_does_it(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/chat/completions", json={"model": "assistant", "messages": HELLO, "stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.text.endswith("data: [DONE]\n\n")
    assert all(block.startswith("data: ") for block in response.text.split("\n\n")[:-1])


async def test_stream(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    chunks = await stream(client)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [delta.role for delta in deltas] == ["assistant", None, None, None]
    assert [delta.content for delta in deltas] == ["", "You said: ", "hello", None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]
    assert {(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks} == {
        ("chatcmpl-run-1", 1_700_000_000, "assistant", "chat.completion.chunk")
    }
    assert {chunk.thread_id for chunk in chunks} == {"thread-1"}
    assert [chunk.usage for chunk in chunks] == [None] * 4
    assert chunks[-1].drsai["status"] == "completed"
    assert engine.requests[0].stream is True


async def test_usage_comes_last_and_only_when_asked_for(client: openai.AsyncOpenAI, http: httpx.AsyncClient) -> None:
    chunks = await stream(client, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage.model_dump(exclude_none=True) == FULL_USAGE
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert all("usage" in chunk.model_fields_set for chunk in chunks)
    assert chunks[-2].choices[0].finish_reason == "stop"
    body = {"model": "assistant", "messages": HELLO, "stream": True}
    assert '"usage"' not in (await http.post("/v1/chat/completions", json=body)).text


async def test_the_clients_own_accumulator_takes_the_stream(client: openai.AsyncOpenAI) -> None:
    sources: list[str] = []
    async with client.chat.completions.stream(model="writers", messages=HELLO) as events:
        async for event in events:
            if event.type == "chunk" and event.chunk.choices[0].delta.content:
                sources.append((event.chunk.model_extra or {})["drsai"]["source"])
                assert event.chunk.choices[0].delta.to_dict().keys() == {"content"}
        answer = await events.get_final_completion()
    message = answer.choices[0].message
    assert message.content == "**writer**\n\nA draft of it.\n\n**reviewer**\n\nAPPROVE"
    assert "name" not in message.to_dict()
    assert sources == ["writer", "writer", "reviewer"]


async def test_a_group_chat_marks_its_speakers(client: openai.AsyncOpenAI) -> None:
    chunks = await stream(client, "writers")
    assert text_of(chunks) == "**writer**\n\nA draft of it.\n\n**reviewer**\n\nAPPROVE"
    named = [(chunk.drsai["source"], chunk.choices[0].delta.content) for chunk in chunks[1:-1]]
    assert named == [
        ("writer", "**writer**\n\nA draft"),
        ("writer", " of it."),
        ("reviewer", "\n\n**reviewer**\n\nAPPROVE"),
    ]
    assert [(entry["seq"], entry["source"], entry["content"]) for entry in chunks[-1].drsai["messages"]] == [
        (2, "writer", "A draft of it."),
        (3, "reviewer", "APPROVE"),
    ]
    answer = await client.chat.completions.create(model="writers", messages=HELLO)
    assert answer.choices[0].message.content == text_of(chunks)


async def test_a_question_to_the_user_is_in_the_text(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    request = {"id": "q", "type": "text_input", "prompt": "Which colour?", "source": "user_proxy"}
    ended = RunEnded(RunStatus.AWAITING_INPUT, input_request=request)
    model = engine.play(*spoken("painter", "I can paint."), ended, speakers=2)
    chunks = await stream(client, model)
    assert text_of(chunks) == "**painter**\n\nI can paint.\n\n**user_proxy**\n\nWhich colour?"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].drsai["status"] == "awaiting_input"
    assert chunks[-1].drsai["input_request"] == request
    answer = await client.chat.completions.create(model=model, messages=HELLO)
    assert answer.choices[0].message.content == text_of(chunks)


async def test_a_message_that_waits_behind_a_question(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    request = {"id": "q", "type": "text_input", "prompt": "Which colour?", "source": "painter"}
    ended = RunEnded(RunStatus.AWAITING_INPUT, "waits", input_request=request, queued_behind="run-9")
    model = engine.play(ended)
    chunks = await stream(client, model, extra_body={"on_question": "answer"})
    assert engine.requests[-1].how.on_question == "answer"
    assert text_of(chunks).startswith("This message waits")
    assert text_of(chunks).endswith("\n\nWhich colour?")
    assert [chunks[-1].drsai[key] for key in ("status", "queued_behind")] == ["awaiting_input", "run-9"]
    answer = await client.chat.completions.create(model=model, messages=HELLO)
    assert answer.choices[0].message.content == text_of(chunks)
    assert answer.model_extra is not None
    assert answer.model_extra["drsai"]["input_request"] == request


async def test_a_question_that_was_said_is_not_repeated(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    request = {"prompt": "Which colour?", "source": "painter"}
    ended = RunEnded(RunStatus.AWAITING_INPUT, input_request=request)
    chunks = await stream(client, engine.play(said("painter", "I can. Which colour?"), ended))
    assert text_of(chunks) == "I can. Which colour?"


async def test_a_stopped_run_ends_the_answer(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    chunks = await stream(client, engine.play(TextDelta("a", "half"), RunEnded(RunStatus.STOPPED, "cancelled")))
    assert text_of(chunks) == "half"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].drsai["status"] == "stopped"


FAILED = RunEnded(RunStatus.ERROR, error_code="model_failed", error_message="the model gave up")


async def test_a_failed_run_breaks_the_stream(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    model = engine.play(TextDelta("a", "half"), FAILED)
    seen: list[Any] = []

    async def read() -> None:
        answer = await client.chat.completions.create(model=model, messages=HELLO, stream=True)
        async for chunk in answer:
            seen.append(chunk)

    with pytest.raises(openai.APIError, match="the model gave up") as caught:
        await read()
    assert text_of(seen) == "half"
    assert (caught.value.code, caught.value.type, caught.value.param) == ("model_failed", "server_error", None)


async def test_a_failed_run_is_a_424_that_is_not_repeated(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await client.chat.completions.create(model=engine.play(FAILED), messages=HELLO)
    assert caught.value.status_code == 424
    assert caught.value.body == {
        "message": "the model gave up",
        "type": "server_error",
        "param": None,
        "code": "model_failed",
    }
    assert caught.value.response.headers["x-run-id"] == "run-1"
    assert len(engine.requests) == 1


async def test_a_busy_thread_is_not_asked_again(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    engine.refusal = ThreadBusy("a run is live on thread 't'")
    with pytest.raises(openai.ConflictError) as caught:
        await client.chat.completions.create(model="assistant", messages=HELLO)
    assert caught.value.code == "thread_busy"
    assert caught.value.response.headers["x-should-retry"] == "false"


async def test_an_engine_that_breaks_ends_the_stream_with_an_error(
    client: openai.AsyncOpenAI, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def breaking(_: Any) -> Any:
        yield TextDelta("a", "half")
        yield 0.15
        raise OSError("secret detail")

    engine.scripts["breaking"] = (1, breaking)
    answer = await client.chat.completions.create(model="breaking", messages=HELLO, stream=True)
    with pytest.raises(openai.APIError) as caught:
        [_ async for _ in answer]
    assert "secret" not in str(caught.value.body)
    assert caught.value.code == "internal_error"
    assert "secret detail" in caplog.text


async def test_every_answer_names_thread_run_and_request(http: httpx.AsyncClient) -> None:
    for streamed in (False, True):
        body = {"model": "assistant", "messages": HELLO, "stream": streamed, "thread_id": "grüße-1"}
        response = await http.post("/v1/chat/completions", json=body, headers={"X-Request-Id": "abc-1"})
        assert response.status_code == 200
        assert response.headers["x-request-id"] == "abc-1"
        assert response.headers["x-run-id"].startswith("run-")
        assert dict(response.headers.raw)[b"x-thread-id"].decode() == "grüße-1"
        assert response.headers.get_list("x-request-id") == ["abc-1"]


async def test_silence_is_filled_with_comments(engine: FakeEngine) -> None:
    from tests.api.conftest import OPEN, FakeSettings
    from tests.support.apps import create_app

    app = create_app(engine, FakeSettings(), OPEN, ping_seconds=0.1)
    model = engine.play(TextDelta("a", "one"), 0.45, TextDelta("a", " two"), said("a", "one two"), COMPLETED)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as http:
        response = await http.post("/v1/chat/completions", json={"model": model, "messages": HELLO, "stream": True})
    assert response.text.count(": ping\n\n") >= 2
    assert response.text.index("one") < response.text.index(": ping") < response.text.index(" two")
    assert response.text.endswith("data: [DONE]\n\n")


async def test_broken_unicode_of_a_model_is_sent_readable(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    model = engine.play(*spoken("a", "x\ud800y"), COMPLETED)
    assert text_of(await stream(client, model)) == "x?y"
    assert (await client.chat.completions.create(model=model, messages=HELLO)).choices[0].message.content == "x?y"


async def test_many_answers_at_once_stay_apart(client: openai.AsyncOpenAI) -> None:
    async def ask(number: int) -> str:
        messages: list[Any] = [{"role": "user", "content": f"n{number}"}]
        answer = await client.chat.completions.create(model="assistant", messages=messages, stream=True)
        return text_of([chunk async for chunk in answer])

    assert await asyncio.gather(*(ask(number) for number in range(50))) == [f"You said: n{n}" for n in range(50)]


async def test_hidden_messages_are_left_out(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    hidden: MessageDone = said("a", "a tool's result", 2, shown=False)
    chunks = await stream(client, engine.play(hidden, said("a", "the answer", 3), COMPLETED))
    assert text_of(chunks) == "the answer"
    assert [entry["seq"] for entry in chunks[-1].drsai["messages"]] == [3]
