"""The event log as server-sent events, over a real connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import DatabaseUnavailable
from drsai_backend.runs.events import MessageRead, Position, QueuedBehind, RunEnded, RunStarted, TextDelta
from drsai_backend.teams.replay.steps import ToolFinished, ToolStarted
from tests.api.conftest import FakeSettings, serving, until
from tests.api.fakes import FakeEngine
from tests.api.scripts import COMPLETED, USAGE, Step, said

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
LAST = 2**31 - 1
REQUEST = {"id": "q1", "type": "text_input", "prompt": "Which?", "source": "a"}
FAILED = RunEnded(RunStatus.ERROR, error_code="model_failed", error_message="the model gave up")


@pytest.fixture
async def http(engine: FakeEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(engine, FakeSettings(), ping_seconds=0.2) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=5) as client,
    ):
        yield client


async def begin(engine: FakeEngine, http: httpx.AsyncClient, *steps: Step, thread_id: str = "t1") -> str:
    """Start a run that plays these steps; its id."""
    body = {"model": engine.play(*steps), "messages": HELLO, "thread_id": thread_id, "background": True}
    response = await http.post("/v1/chat/completions", json=body)
    assert response.status_code == 202
    return response.headers["x-run-id"]


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream: `event`, `id` and the parsed `data`."""
    found: list[dict[str, Any]] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            found.append({**fields, "data": json.loads(fields["data"])})
    return found


async def read(http: httpx.AsyncClient, path: str, **options: Any) -> list[dict[str, Any]]:
    response = await http.get(path, **options)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    return events_of(response.text)


async def first(http: httpx.AsyncClient, path: str, count: int, **options: Any) -> list[dict[str, Any]]:
    """The first events of a stream that does not end; then the connection is cut."""
    text = ""
    async with http.stream("GET", path, **options) as response:
        assert response.status_code == 200
        async for part in response.aiter_text():
            text += part
            if len(events_of(text)) >= count:
                break
    return events_of(text)[:count]


TOOLS: list[Step] = [
    RunStarted("run-1", "scripted", 1),
    TextDelta("a", "one", "m1"),
    ToolStarted("a", "c1", "add", '{"n": 1}'),
    ToolFinished("a", "c1", "add", "2", is_error=False),
    said("a", "one two", 1, id="m1"),
    MessageRead(2, {"type": "TextMessage", "source": "b", "content": "three"}),
    MessageRead(3, {"type": "SomethingElse", "source": "b"}),
    COMPLETED,
]


async def test_what_a_run_tells(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    run_id = await begin(engine, http, *TOOLS)
    events = await read(http, f"/v1/runs/{run_id}/events")
    names = ["status", "delta", "tool_call", "tool_result", "message", "message", "message", "end"]
    assert [event["event"] for event in events] == names
    assert [event["data"]["type"] for event in events] == names
    assert {(event["data"]["thread_id"], event["data"]["run_id"]) for event in events} == {("t1", run_id)}
    ids = [event["id"] for event in events]
    assert ids == [*(f"0-1-{n}" for n in (1, 2, 3, 4)), "1-1-0", "2-1-0", "3-1-0", f"3-1-{LAST}"]
    own = [{k: v for k, v in e["data"].items() if k not in ("type", "thread_id", "run_id")} for e in events]
    assert own[0] == {"status": "running", "team": "scripted", "attempt": 1}
    assert own[1] == {"source": "a", "text": "one", "message_id": "m1"}
    assert own[2] == {"source": "a", "call_id": "c1", "name": "add", "arguments": '{"n": 1}'}
    assert own[3] == {"source": "a", "call_id": "c1", "name": "add", "result": "2", "is_error": False}
    dump = own[4].pop("message")
    assert (dump["type"], dump["id"], dump["content"]) == ("TextMessage", "m1", "one two")
    assert own[4] == {"seq": 1, "source": "a", "message_type": "TextMessage", "content": "one two", "shown": True}
    assert (own[5]["content"], own[5]["shown"], own[5]["message"]["content"]) == ("three", None, "three")
    assert (own[6]["content"], own[6]["message_type"]) == ("", "SomethingElse")
    end = {"status": "completed", "stop_reason": "done", "stop_code": None, "finish_reason": "stop"}
    assert own[7] == {**end, "usage": USAGE, "duration": 0.25}


@pytest.mark.parametrize(
    ("ended", "name", "content"),
    [
        (RunEnded(RunStatus.AWAITING_INPUT, input_request=REQUEST), "input_request", REQUEST),
        (
            FAILED,
            "error",
            {"message": "the model gave up", "type": "server_error", "param": None, "code": "model_failed"},
        ),
    ],
)
async def test_why_a_run_ended_comes_before_its_end(
    http: httpx.AsyncClient, engine: FakeEngine, ended: RunEnded, name: str, content: dict[str, Any]
) -> None:
    run_id = await begin(engine, http, said("a", "hm", 1), ended)
    path = f"/v1/runs/{run_id}/events"
    events = await read(http, path)
    assert [event["event"] for event in events] == ["message", name, "end"]
    assert events[1]["data"][name] == content
    assert [event["id"] for event in events[1:]] == [f"1-1-{LAST - 1}", f"1-1-{LAST}"]
    assert events[2]["data"]["status"] == ended.status.value
    assert await read(http, path, params={"after": events[1]["id"]}) == events[2:]


async def test_a_reader_that_comes_back_gets_what_is_left(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    run_id = await begin(engine, http, *TOOLS)
    path = f"/v1/runs/{run_id}/events"
    events = await read(http, path)
    for read_so_far, event in enumerate(events[:-1], 1):
        assert await read(http, path, params={"after": event["id"]}) == events[read_so_far:]
        assert await read(http, path, headers={"Last-Event-ID": event["id"]}) == events[read_so_far:]
    # A browser that connects again does so at the same address.
    both = {"params": {"after": events[0]["id"]}, "headers": {"Last-Event-ID": events[5]["id"]}}
    assert await read(http, path, **both) == events[6:]
    assert await read(http, path, headers={"Last-Event-ID": ""}) == events


async def test_a_reader_that_has_all_is_told_to_stop(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    """A browser goes on connecting until it gets a 204."""
    run_id = await begin(engine, http, *TOOLS)
    response = await http.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": f"3-1-{LAST}"})
    assert (response.status_code, response.content) == (204, b"")


async def test_events_arrive_one_by_one_while_the_run_goes_on(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    heard = [asyncio.Event(), asyncio.Event()]
    run_id = await begin(engine, http, TextDelta("a", "0"), heard[0], TextDelta("a", "1"), heard[1], COMPLETED)
    text = ""
    async with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        assert (response.headers["x-thread-id"], response.headers["x-run-id"]) == ("t1", run_id)
        async for part in response.aiter_text():
            text += part
            for number in range(len([e for e in events_of(text) if e["event"] == "delta"])):
                heard[number].set()
    assert [event["event"] for event in events_of(text)] == ["delta", "delta", "end"]
    assert text.startswith("retry: 1000\n\n")


async def test_a_thread_is_followed_run_after_run(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    await begin(engine, http, said("a", "one", 1), COMPLETED, thread_id="a/b")
    reading = asyncio.create_task(first(http, "/v1/threads/a/b/events", 4))
    await until(lambda: engine.followers == 1)
    await begin(engine, http, said("a", "two", 2), COMPLETED, thread_id="a/b")
    events = await reading
    assert [event["event"] for event in events] == ["message", "end"] * 2
    assert [event["data"]["run_id"] for event in events] == ["run-1", "run-1", "run-2", "run-2"]
    assert {event["data"]["thread_id"] for event in events} == {"a/b"}
    assert await first(http, "/v1/threads/a/b/events", 2, params={"after": events[1]["id"]}) == events[2:]


async def test_a_client_that_leaves_is_noticed(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    go_on = asyncio.Event()
    run_id = await begin(engine, http, TextDelta("a", "one"), go_on, COMPLETED)
    assert len(await first(http, f"/v1/runs/{run_id}/events", 1)) == 1
    await until(lambda: engine.followers == 0)
    assert not engine.handles[0].task.done()
    go_on.set()


async def test_a_silent_stream_is_kept_open(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    go_on = asyncio.Event()
    run_id = await begin(engine, http, go_on, COMPLETED)
    text = ""
    async with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        async for part in response.aiter_text():
            text += part
            if text.count(": ping\n\n") >= 2:
                go_on.set()
    assert [event["event"] for event in events_of(text)] == ["end"]


async def test_a_stream_with_something_to_say_has_no_comments(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    run_id = await begin(engine, http, *(0.05, TextDelta("a", "word")) * 14, COMPLETED)
    async with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        text = "".join([part async for part in response.aiter_text()])
    assert ": ping" not in text
    assert text.count("word") == 14


async def test_what_is_ready_is_sent_at_once(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    run_id = await begin(engine, http, *(TextDelta("a", str(number)) for number in range(50)), COMPLETED)
    await engine.handles[0].task
    async with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        writes = [part async for part in response.aiter_raw()]
    assert len(events_of(b"".join(writes).decode())) == 51
    assert len(writes) <= 3


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("/v1/runs/none/events", 404, "run_id"),
        ("/v1/threads/none/events", 404, "thread_id"),
        ("/v1/runs/run-1/events?after=x", 400, "after"),
        ("/v1/threads/t1/events?after=1-2", 400, "after"),
        ("/v1/threads/t1/events?after=1-2-3-4", 400, "after"),
        ("/v1/threads/t1/events?after=1-99999999999999999999", 400, "after"),
        ("/v1/threads/t1/events?after=1-9999999999-0", 400, "after"),
        ("/v1/threads/t1/events?after=1-1-1%0a", 400, "after"),
        ("/v1/threads/a%01b/events", 400, "thread_id"),
        ("/v1/runs/a%00b", 400, "run_id"),
    ],
)
async def test_errors_are_answers(
    http: httpx.AsyncClient, engine: FakeEngine, path: str, status: int, param: str
) -> None:
    await begin(engine, http, COMPLETED)
    response = await http.get(path)
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)
    assert engine.followers == 0


async def test_a_header_that_is_no_position(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    await begin(engine, http, COMPLETED)
    response = await http.get("/v1/threads/t1/events", headers={"Last-Event-ID": "-1"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "Last-Event-ID")


async def test_a_log_that_breaks_off_can_be_gone_on_with(
    http: httpx.AsyncClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = engine.follow_run

    async def breaking(user_id: str, run_id: str, after: Position | None) -> AsyncIterator[Any]:
        async for logged in follow(user_id, run_id, after):
            yield logged
            raise DatabaseUnavailable("the database cannot be reached")

    run_id = await begin(engine, http, said("a", "one", 1), COMPLETED)
    monkeypatch.setattr(engine, "follow_run", breaking)
    events = await read(http, f"/v1/runs/{run_id}/events")
    assert [event["event"] for event in events] == ["message", "error"]
    assert events[1]["data"]["error"]["code"] == "database_unavailable"
    assert "id" not in events[1], "or a browser would go on after what it has not read"


async def test_an_answer_is_streamed_from_where_the_question_was_put(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    await begin(engine, http, COMPLETED)
    engine.scripts["assistant"] = (1, lambda _: [*(said("a", str(seq), seq) for seq in range(1, 6)), COMPLETED])
    answer = {"id": "q1", "text": "blue", "stream": True}
    response = await http.post("/v1/threads/t1/input", json=answer)
    assert response.status_code == 200
    assert [event["data"].get("seq") for event in events_of(response.text)] == [4, 5, None], "3 messages were there"
    response = await http.post("/v1/threads/t1/input", json=answer, params={"after": "1-0-0"})
    assert [event["data"].get("seq") for event in events_of(response.text)] == [2, 3, 4, 5, None]


def cancels(engine: FakeEngine) -> Callable[[], bool]:
    return lambda: ("cancel_run", "ann", "run-1") in engine.asked


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("policy", ["cancel", "continue"])
async def test_on_disconnect(http: httpx.AsyncClient, engine: FakeEngine, streamed: bool, policy: str) -> None:
    go_on = asyncio.Event()
    model = engine.play(TextDelta("a", "one"), go_on, said("a", "one"), COMPLETED)
    body = {"model": model, "messages": HELLO, "stream": streamed, "on_disconnect": policy, "user": "ann"}
    asking = asyncio.create_task(http.post("/v1/chat/completions", json=body))
    await until(lambda: bool(engine.handles))
    asking.cancel()
    await until(lambda: engine.handles[0].closed)
    if policy == "cancel":
        await until(cancels(engine))
    await asyncio.sleep(0.05)
    assert cancels(engine)() == (policy == "cancel")
    go_on.set()


async def test_a_cancel_that_fails_is_logged(
    http: httpx.AsyncClient, engine: FakeEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise DatabaseUnavailable("the database cannot be reached")

    monkeypatch.setattr(engine, "cancel_run", broken)
    go_on = asyncio.Event()
    body = {"model": engine.play(go_on, COMPLETED), "messages": HELLO, "on_disconnect": "cancel"}
    asking = asyncio.create_task(http.post("/v1/chat/completions", json=body))
    await until(lambda: bool(engine.handles))
    asking.cancel()
    await until(lambda: "run run-1 was not cancelled" in caplog.text)
    assert (await http.get("/healthz")).status_code == 200
    go_on.set()


async def test_a_question_that_a_queued_run_waits_behind(engine: FakeEngine, http: httpx.AsyncClient) -> None:
    run_id = await begin(engine, http, QueuedBehind("run-9", REQUEST), RunStarted("run", "crew", 1), COMPLETED)
    first, *_ = await read(http, f"/v1/runs/{run_id}/events")
    assert (first["event"], "id" in first) == ("queued", False)
    assert (first["data"]["queued_behind"], first["data"]["input_request"]) == ("run-9", REQUEST)
