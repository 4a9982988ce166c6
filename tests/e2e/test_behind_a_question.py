"""A message that was sent before a question is asked: its client is told at once, whole and streamed, or it answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from autogen_agentchat.agents import UserProxyAgent

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, RunStatus, Thread
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelRequest, ModelServer

pytestmark = pytest.mark.both_databases

URL = "/v1/chat/completions"


def asking(context: RunContext) -> RoundRobinGroupChat:
    clerk = AssistantAgent("clerk", context.model_client(), model_client_stream=True)
    return RoundRobinGroupChat([clerk, UserProxyAgent("boss")], max_turns=2)


def ask(text: str, **values: Any) -> dict[str, Any]:
    return {"model": "asking", "messages": [{"role": "user", "content": text}], "thread_id": "t", **values}


async def queued_behind(service: Service, model: ModelServer, *bodies: dict[str, Any]) -> list[Any]:
    """Messages that are sent while the first is worked on, which then asks a person; all answers, in order."""
    gate = asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        while not gate.is_set():  # noqa: ASYNC110 - the model server is a thread of its own
            await asyncio.sleep(0.01)
        return f"said to {request.last}"

    model.script(None, slow)
    sent = [asyncio.create_task(service.http.post(URL, json=ask("first")))]
    async with asyncio.timeout(10):
        while not model.requests:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    for number, body in enumerate(bodies, 1):
        sent.append(asyncio.create_task(service.http.post(URL, json=body)))
        async with asyncio.timeout(10):
            while (await service.drsai.db.get(Thread))[0].queued < number:  # noqa: ASYNC110 - the database tells
                await asyncio.sleep(0.02)
    gate.set()
    async with asyncio.timeout(10):
        return list(await asyncio.gather(*sent))


async def test_clients_are_told_at_once(serve: Serve, model: ModelServer) -> None:
    service = await serve({"asking": asking})
    first, whole, streamed = await queued_behind(service, model, ask("whole"), ask("streamed", stream=True))
    question = first.json()["drsai"]["input_request"]
    assert question["source"] == "boss"
    body = whole.json()
    frame = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: {")][-1]
    for told in (body["drsai"], frame["drsai"]):
        assert told["status"] == "awaiting_input"
        assert told["input_request"]["id"] == question["id"]
        assert told["queued_behind"] == first.json()["drsai"]["run_id"]
    assert "waits in the queue" in body["choices"][0]["message"]["content"]
    # What is said now is the answer; the others are run in their turn, and ask again.
    answered = await service.http.post(URL, json=ask("I agree."))
    assert answered.json()["drsai"]["run_id"] == first.json()["drsai"]["run_id"]
    assert answered.json()["drsai"]["status"] == "completed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_message_is_the_answer_where_it_is_set_so(serve: Serve, model: ModelServer, *, stream: bool) -> None:
    """The first is; what waits behind it is told of the next question, unless it says that it answers that."""
    service = await serve({"asking": asking}, on_question="answer")
    first, answer = await queued_behind(service, model, ask("I agree.", stream=stream))
    assert first.json()["drsai"]["status"] == "awaiting_input"
    last = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.removeprefix("data: ")[:1] == "{"][
        -1
    ]
    assert json.loads(last)["drsai"]["status"] == "completed"
    [thread] = await service.drsai.db.get(Thread)
    assert (thread.status, thread.queued) == (RunStatus.COMPLETED, 0)
    assert thread.messages[-1]["content"] == "I agree."
