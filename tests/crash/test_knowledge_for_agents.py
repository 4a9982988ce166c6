"""The process is killed while an agent answers with what was found for it: the repeated turn is shown the same, though
the store has nothing of it any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drsai_backend import DrSai
from drsai_backend.datamodel.citations import DATA, passages_in
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.extension import Knowledge
from tests.crash.conftest import Serving
from tests.crash.test_sigkill import cut_in_the_middle
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import settings

LEAVE = "# Leave\n\nEverybody has thirty days of paid leave a year.\n"


def shown(request: ModelRequest) -> list[str]:
    """The texts of the passages that a model was shown."""
    told = "\n".join(str(each.get("content")) for each in request.messages)
    assert told.count(DATA) == 1
    return [each["text"] for each in passages_in(told)]


def detach(database_url: str, store: str, file: str) -> None:
    async def detached() -> None:
        async with DrSai(database_url=database_url, settings=settings(), worker=False) as drsai:
            await drsai.extension(Knowledge).detach(Owner("default", "anonymous"), store, file)

    asyncio.run(detached())


@pytest.mark.parametrize("mode", ["context", "tool"])
def test_a_resumed_turn_is_shown_the_same(serving: Serving, model: ModelServer, mode: str) -> None:
    with serving.client() as client:
        file = client.files.create(file=("handbook.md", LEAVE.encode()), purpose="assistants").id
        store = client.vector_stores.create(name="handbook").id
        client.vector_stores.files.create_and_poll(file, vector_store_id=store, poll_interval_ms=50)
    agent: dict[str, Any] = {"prompt": "You are ann.", "knowledge": {"stores": ["handbook"], "mode": mode}}
    with serving.http() as http:
        made = http.post("/v1/agents", json={"name": "ann", "definition": {"agents": {"ann": agent}}})
        assert made.status_code == 201, made.text
    call = Reply(tool_calls=[ToolCall("knowledge_search", {"query": "paid leave"})])
    cut = Reply(content="ann was cut off here" + ", and here" * 100, chunk_delay=0.15)
    model.script("You are ann.", [*([call] if mode == "tool" else []), cut, "Thirty days."])
    cut_in_the_middle(serving, "t", "How much paid leave is there?", at="ann was", model="ann")
    before = model.requests[-1]
    assert len(shown(before)) == 1
    assert "thirty days" in shown(before)[0]
    detach(serving.database_url, store, file)
    count = len(model.requests)
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    [again] = model.requests[count:]
    assert shown(again) == shown(before)
    # In the next turn, nothing is found.
    model.script("You are ann.", ["I do not know."])
    serving.say("t", "And how much paid leave was that?", model="ann")
    last = str(model.requests[-1].messages[-1]["content"])
    assert DATA not in last
