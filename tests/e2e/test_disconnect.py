"""The stop button: a client that leaves a stream, where its window means that the run is to stop."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, RunStatus, Thread, stop_on_disconnect
from tests.e2e.conftest import Serve, Service, listening
from tests.support.model_server import ModelRequest, ModelServer, Reply

pytestmark = pytest.mark.both_databases


def counter(context: RunContext) -> AssistantAgent:
    return AssistantAgent("counter", context.model_client(), model_client_stream=True)


def pair(context: RunContext) -> RoundRobinGroupChat:
    client = context.model_client()
    agents = [AssistantAgent(name, client, model_client_stream=True) for name in ("writer", "reviewer")]
    return RoundRobinGroupChat(agents, max_turns=2)


TEAMS = {"stops": stop_on_disconnect(counter), "counter": counter, "pair": stop_on_disconnect(pair)}
NUMBERS = [f"{number} " for number in range(1, 400)]


def counting(request: ModelRequest) -> Reply:
    """Counts for 20 seconds when it is told to; else says how much it knows."""
    if request.last.endswith("Count.") or "reviewer" in request.system:
        return Reply("".join(NUMBERS), chunks=NUMBERS, chunk_delay=0.05)
    return Reply(f"{len(request.messages)} messages")


async def read_until(http: httpx.AsyncClient, body: dict[str, Any], word: str) -> str:
    """What a client has seen of a stream when it leaves: once it has read that word."""
    text = ""
    async with http.stream("POST", "/chat/completions", json={**body, "stream": True}) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            if word in text:
                return text
    raise AssertionError(f"the stream ended with {text!r}")


def ask(model: str, text: str, **values: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], "thread_id": "t", **values}


async def thread_of(service: Service) -> Thread:
    [thread] = await service.drsai.db.get(Thread)
    return thread


@pytest.mark.parametrize(
    ("model_id", "settings", "fields"),
    [
        ("stops", {}, {}),
        ("counter", {"on_disconnect": "cancel"}, {}),
        ("counter", {}, {"on_disconnect": "cancel"}),
    ],
    ids=["team", "setting", "request"],
)
async def test_what_was_shown_is_what_is_kept(
    serve: Serve, model: ModelServer, model_id: str, settings: dict[str, Any], fields: dict[str, Any]
) -> None:
    """And the model is told of it; the next message does not wait."""
    model.script(None, counting)
    service = await serve(TEAMS, **settings)
    async with listening(service.drsai) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        shown = await read_until(http, ask(model_id, "Count.", **fields), "6")
        async with asyncio.timeout(5):
            later = await http.post("/chat/completions", json=ask(model_id, "Why did you stop?"))
    assert later.json()["choices"][0]["message"]["content"] == "4 messages"
    thread = await thread_of(service)
    asked, cut, _, _ = [message["content"] for message in thread.messages]
    assert asked == "Count."
    assert cut.startswith(shown)
    assert len(cut) < len(shown) + 60
    assert thread.messages[1]["metadata"]["drsai.unfinished"] == "stopped"
    assert [(each["role"], each["content"]) for each in model.requests[-1].messages[1:]] == [
        ("user", "Count."),
        ("assistant", cut),
        ("user", "Why did you stop?"),
    ]
    listed = (await service.http.get("/v1/threads/t/messages")).json()["data"]
    assert [each["content"] for each in listed if each["shown"]] == [cut, "4 messages"]


async def test_the_second_speaker_of_a_group_chat_is_cut_off(serve: Serve, model: ModelServer) -> None:
    """What the first has said is stored as a turn; what the second began is kept as it is, in another process too."""
    model.script(None, lambda request: counting(request) if "reviewer" in str(request.body) else Reply("A draft."))
    model.script("pair", counting)
    calls = 0

    def reply(request: ModelRequest) -> Reply:
        nonlocal calls
        calls += 1
        return Reply("A draft.") if calls != 2 else Reply("".join(NUMBERS), chunks=NUMBERS, chunk_delay=0.05)

    model.script(None, reply)
    service = await serve(TEAMS)
    async with listening(service.drsai) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        shown = await read_until(http, ask("pair", "Write."), "6")
    assert shown.startswith("**writer**\n\nA draft.\n\n**reviewer**\n\n1 2 3")

    async def is_stopped() -> bool:
        return (await thread_of(service)).status is RunStatus.STOPPED

    async with asyncio.timeout(5):
        while not await is_stopped():  # noqa: ASYNC110 - the database tells
            await asyncio.sleep(0.02)
    texts = [(message["source"], message["content"]) for message in (await thread_of(service)).messages]
    assert texts[:2] == [("user", "Write."), ("writer", "A draft.")]
    assert texts[2][0] == "reviewer"
    assert texts[2][1].startswith("1 2 3 4 5 6")
    other = await serve(TEAMS)
    later = await other.http.post("/v1/chat/completions", json=ask("pair", "And now?"))
    assert later.json()["drsai"]["status"] == "completed"
    heard = [message["content"] for message in model.requests[-1].messages]
    assert any(texts[2][1] in content for content in heard)


async def test_a_client_that_stays_is_told_the_same(serve: Serve, model: ModelServer) -> None:
    """Somebody else stops the run: the stream, the thread and a whole answer that is asked for again agree."""
    model.script(None, counting)
    service = await serve(TEAMS)
    async with listening(service.drsai) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        key = {"Idempotency-Key": "k"}
        body = ask("counter", "Count.")
        stream = asyncio.create_task(http.post("/chat/completions", json={**body, "stream": True}, headers=key))
        async with asyncio.timeout(10):
            while not model.requests:  # noqa: ASYNC110 - the model server is a thread of its own
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.4)
        await http.post("/threads/t/cancel", json={})
        frames = [json.loads(line[6:]) for line in (await stream).text.splitlines() if line.startswith("data: {")]
        shown = "".join(frame["choices"][0]["delta"].get("content") or "" for frame in frames)
        assert shown.startswith("1 2 3")
        assert frames[-1]["drsai"]["status"] == "stopped"
        assert [each["content"] for each in frames[-1]["drsai"]["messages"]] == [shown]
        again = await http.post("/chat/completions", json={**body, "stream": False}, headers=key)
        assert again.json()["choices"][0]["message"]["content"] == shown
    assert (await thread_of(service)).messages[1]["content"] == shown


async def test_a_run_continues_by_default(serve: Serve, model: ModelServer) -> None:
    model.script(None, lambda _: Reply("".join(NUMBERS[:9]), chunks=NUMBERS[:9], chunk_delay=0.05))
    service = await serve(TEAMS)
    async with listening(service.drsai) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        for thread_id, fields in (("counter", {}), ("stops", {"on_disconnect": "continue"})):
            body = {**ask(thread_id, "Count.", **fields), "thread_id": thread_id}
            await read_until(http, body, "2")
    for thread_id in ("counter", "stops"):
        async with asyncio.timeout(5):
            while True:
                [thread] = await service.drsai.db.get(Thread, filters={"thread_id": thread_id})
                if thread.status is RunStatus.COMPLETED:
                    break
                await asyncio.sleep(0.02)
        assert thread.messages[1]["content"] == "".join(NUMBERS[:9])
