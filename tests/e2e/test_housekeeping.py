"""What chat windows ask about a chat is answered on the side: recordings replayed over HTTP, to a strict model."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from autogen_agentchat.agents import UserProxyAgent

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, RunStatus, Thread
from drsai_backend.datamodel import AutoGenMessage, Run
from tests.e2e.conftest import Serve, listening
from tests.recordings import Exchange, names, recording
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply

URL = "/v1/chat/completions"
TITLE = next(each for each in recording("openwebui/named_two_turns").exchanges if each.kind == "title")


def assistant(context: RunContext) -> AssistantAgent:
    return AssistantAgent("assistant", context.model_client(), model_client_stream=True)


def writers(context: RunContext) -> RoundRobinGroupChat:
    client = context.model_client()
    return RoundRobinGroupChat([AssistantAgent("writer", client), AssistantAgent("reviewer", client)], max_turns=2)


TEAMS = {"assistant": assistant, "writers": writers}


def headers_of(exchange: Exchange) -> dict[str, str]:
    return {name: value for name, value in exchange.headers.items() if name.startswith("x-")}


def answer_of(request: ModelRequest) -> str:
    """As the recordings have it, whose next requests send it back."""
    return '{"title": "A Test"}' if "<chat_history>" in request.last else f"Answer {len(request.messages) // 2}: yes."


async def test_a_chat_of_a_window_is_the_conversation_and_nothing_else(serve: Serve, model: ModelServer) -> None:
    """Open WebUI with the chat's id in every request, and another of our models for its tasks."""
    model.script(None, answer_of)
    service = await serve(TEAMS)
    kinds: Counter[str] = Counter()
    for exchange in recording("openwebui/named_two_turns").exchanges:
        seen = len(model.requests)
        answer = await service.http.post(URL, json=exchange.body, headers=headers_of(exchange))
        assert answer.status_code == 200, answer.text
        kinds[exchange.kind] += 1
        if exchange.is_housekeeping:
            body = answer.json()
            assert body["choices"][0]["message"]["content"] == '{"title": "A Test"}'
            assert body["usage"]["total_tokens"] == 15
            assert answer.headers["x-housekeeping"] == exchange.kind == body["drsai"]["housekeeping"]
            assert len(model.requests) == seen + 1
            assert model.requests[-1].messages[-1]["content"] == exchange.body["messages"][-1]["content"]
            assert model.requests[-1].body.get("max_tokens") == exchange.body.get("max_tokens")
    assert kinds == {"chat": 2, "title": 1, "tags": 1, "follow_ups": 2}
    [thread] = await service.drsai.db.get(Thread)
    assert (thread.team, thread.title, thread.status) == ("assistant", "Is this a test?", RunStatus.COMPLETED)
    assert [message["content"] for message in thread.messages] == [
        "Is this a test?",
        "Answer 1: yes.",
        "And this?",
        "Answer 2: yes.",
    ]
    assert len(await service.drsai.db.get(Run)) == 2


async def test_every_recorded_prompt_is_answered_and_nothing_is_stored(serve: Serve, model: ModelServer) -> None:
    """Of all windows, those that want JSON by a schema and those that are streamed among them."""
    service = await serve(TEAMS, task_model="gpt-4o")
    programs: Counter[str] = Counter()
    for name in names():
        for exchange in recording(name).exchanges:
            program = name.partition("/")[0]
            if not exchange.is_housekeeping or programs[f"{program} {exchange.kind}"] > 1:
                continue
            programs[f"{program} {exchange.kind}"] += 1
            answer = await service.http.post(URL, json=exchange.body)
            assert answer.status_code == 200, answer.text
            if exchange.body.get("stream"):
                frames = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
                assert frames[-1] == "[DONE]"
                assert json.loads(frames[0])["choices"][0]["delta"]["content"] == "ok"
                assert json.loads(frames[-2])["usage"]["total_tokens"] == 15
            else:
                assert answer.json()["choices"][0]["message"]["content"] == "ok"
            asked = model.requests[-1].body
            assert asked["model"] == "gpt-4o"
            assert asked.get("response_format") == exchange.body.get("response_format")
    assert len(programs) == 13
    assert not await service.drsai.db.get(Run)
    assert not await service.drsai.db.get(Thread)
    assert not await service.drsai.db.get(AutoGenMessage)


async def test_a_thread_that_runs_or_waits_is_left_alone(serve: Serve, model: ModelServer) -> None:
    """It neither waits for the run of its chat nor answers the question of it."""
    gate = asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        if "<chat_history>" not in request.last:
            while not gate.is_set():  # noqa: ASYNC110 - the model server is a thread of its own
                await asyncio.sleep(0.01)
        return answer_of(request)

    def asking(context: RunContext) -> RoundRobinGroupChat:
        return RoundRobinGroupChat([assistant(context), UserProxyAgent("boss")], max_turns=2)

    model.script(None, slow)
    service = await serve({"assistant": asking, "writers": writers})
    chat_id = TITLE.headers["x-openwebui-chat-id"]
    chat = {"model": "assistant", "messages": [{"role": "user", "content": "hi"}], "thread_id": chat_id}
    running = asyncio.create_task(service.http.post(URL, json=chat))
    while not model.requests:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        answer = await service.http.post(URL, json=TITLE.body, headers=headers_of(TITLE))
    assert answer.json()["choices"][0]["message"]["content"] == '{"title": "A Test"}'
    gate.set()
    assert (await running).json()["drsai"]["status"] == "awaiting_input"
    assert (await service.http.post(URL, json=TITLE.body, headers=headers_of(TITLE))).status_code == 200
    [thread] = await service.drsai.db.get(Thread)
    assert (thread.status, thread.team, thread.queued) == (RunStatus.AWAITING_INPUT, "assistant", 0)


async def test_a_request_may_say_itself_what_it_is(serve: Serve, model: ModelServer) -> None:
    service = await serve(TEAMS)
    prompt = {**TITLE.body, "thread_id": "t"}
    said = await service.http.post(URL, json={**prompt, "model": "assistant", "housekeeping": False})
    assert "x-housekeeping" not in said.headers
    assert said.headers["x-thread-id"] == "t"
    asked = {"model": "writers", "messages": [{"role": "user", "content": "Name this chat."}], "thread_id": "t"}
    answer = await service.http.post(URL, json={**asked, "housekeeping": True})
    assert answer.headers["x-housekeeping"] == "other"
    refused = await service.http.post(URL, json={**asked, "housekeeping": True, "background": True})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "housekeeping")
    off = await serve(TEAMS, housekeeping="off")
    assert "x-housekeeping" not in (await off.http.post(URL, json=TITLE.body)).headers


async def test_a_model_that_fails_or_hangs_is_told(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Failure(500, "sk-secret is broken"), Reply("late", hang=True)])
    service = await serve(TEAMS, task_seconds=0.5)
    for code in ("model_error", "timeout"):
        answer = await service.http.post(URL, json=TITLE.body)
        assert answer.json()["error"]["code"] == code
        assert answer.status_code == 424
        assert answer.headers["x-should-retry"] == "false"
        assert "secret" not in answer.text


async def test_they_are_bounded_and_end_with_their_client(serve: Serve, model: ModelServer) -> None:
    """A user who asks for many has a few answered at a time, and keeps nobody else from theirs."""
    gate, at_once, most = asyncio.Event(), 0, 0

    async def held(request: ModelRequest) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        while not (gate.is_set() or request.disconnected):  # noqa: ASYNC110 - the model server is a thread of its own
            await asyncio.sleep(0.01)
        at_once -= 1
        return "ok"

    model.script(None, lambda request: "ok" if "bob" in str(request.body) else held(request))
    service = await serve(TEAMS, tasks_at_once=8)
    async with listening(service.drsai) as url, openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
        ask: dict[str, Any] = {"model": "assistant", "messages": TITLE.body["messages"]}

        def asking(count: int) -> list[asyncio.Task[Any]]:
            return [asyncio.create_task(client.chat.completions.create(**ask, user="ann")) for _ in range(count)]

        mine = asking(2)
        while len(model.requests) < 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        mine += asking(18)
        bobs = [{**TITLE.body["messages"][0], "content": TITLE.body["messages"][0]["content"].replace("test", "bob")}]
        async with asyncio.timeout(10):
            answer = await client.chat.completions.create(**{**ask, "messages": bobs}, user="bob")
        assert answer.choices[0].message.content == "ok"
        assert (most, len(model.requests)) == (2, 3)
        for task in mine[:2]:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mine[0]
        async with asyncio.timeout(10):
            while not all(each.disconnected for each in model.requests[:2]):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        gate.set()
        assert {each.choices[0].message.content for each in await asyncio.gather(*mine[2:])} == {"ok"}
    assert most <= 4  # Two that end, and two that begin.
    assert isinstance(service.http, httpx.AsyncClient)


@pytest.mark.parametrize("streamed", [False, True])
async def test_in_the_words_of_anthropic(serve: Serve, model: ModelServer, streamed: bool) -> None:
    """LibreChat asks for a title where it talks."""
    titles = (each for name in names() for each in recording(name).exchanges if each.kind == "title")
    prompt = next(each.body["messages"][-1] for each in titles if "5-word" in str(each.body))
    model.script(None, ["A Test", Failure(500), "ok"])
    service = await serve(TEAMS)
    transport = httpx2.ASGITransport(app=service.http._transport.app)  # type: ignore[attr-defined]
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as http:
        client = anthropic.AsyncAnthropic(api_key="k", base_url="http://test", http_client=http, max_retries=0)
        asked: dict[str, Any] = {"model": "writers", "max_tokens": 100, "messages": [prompt]}
        if streamed:
            async with client.messages.stream(**asked) as stream:
                message: Any = await stream.get_final_message()
        else:
            message = await client.messages.create(**asked)
        assert [block.text for block in message.content] == ["A Test"]
        assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 5)
        assert "thread_id" not in message.model_extra
        with pytest.raises(anthropic.APIStatusError) as failed:
            await client.messages.create(**asked)
        assert (failed.value.status_code, failed.value.body["type"]) == (424, "error")  # type: ignore[index]
        assert not await service.drsai.db.get(Run)
        said: Any = await client.messages.create(**{**asked, "model": "assistant"}, extra_body={"housekeeping": False})
        assert said.model_extra["thread_id"]
