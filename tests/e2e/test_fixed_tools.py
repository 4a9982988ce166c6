"""What a definition fixes of its agents' tools, and what its contexts show, as models and persons see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drsai_backend import tool
from drsai_backend.agents.contexts import EPHEMERAL_NOTE
from drsai_backend.definitions import DefinitionPolicy, load
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer, Reply, ToolCall


@tool(ephemeral=1)
async def look(place: str, number: int) -> str:
    """Look."""
    return f"{place} {number} " + "x" * 200


FILE = """
agents:
  seer:
    prompt: I look.
    tools: [{python: "tests.e2e.test_fixed_tools:look", arguments: {place: Oslo}}]
  asker:
    prompt: I ask first.
    tools:
      - {builtin: calculator, requires_approval: {by: "user:boss", deadline: 600}}
serve: [seer, asker]
"""


@pytest.fixture
async def service(serve: Serve, tmp_path: Path) -> Service:
    file = tmp_path / "team.yaml"
    file.write_text(FILE)
    return await serve(load(str(file), DefinitionPolicy(("tests.e2e",))))


async def ask(service: Service, model: str, text: str = "Go.", thread: str = "t") -> Any:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "thread_id": thread}
    return await service.http.post("/v1/chat/completions", json=body)


async def test_what_is_fixed_is_given_and_old_outputs_are_left_out(service: Service, model: ModelServer) -> None:
    def answer(request: Any) -> Any:
        results = [each for each in request.body["messages"] if each["role"] == "tool"]
        if len(results) == 2:
            return "Seen."
        return Reply(tool_calls=[ToolCall("look", {"number": len(results)}, id=f"c{len(results)}")])

    model.script(None, answer)
    for _ in range(2):
        assert (await ask(service, "seer")).status_code == 200
    last = model.requests[-1].body
    assert set(last["tools"][0]["function"]["parameters"]["properties"]) == {"number"}
    shown = [each["content"] for each in last["messages"] if each["role"] == "tool"]
    assert [each[:7] for each in shown] == [EPHEMERAL_NOTE[:7], "Oslo 1 "]


async def test_a_call_waits_for_whom_the_definition_names(service: Service, model: ModelServer) -> None:
    call = ToolCall("calculator", {"expression": "1+1"}, id="c0")
    model.script(None, lambda request: Reply(tool_calls=[call]))
    answer = await ask(service, "asker")
    assert answer.status_code == 200, answer.text
    waits = (await service.http.get("/v1/threads/t")).json()["input_request"]
    assert "user:boss" in json.dumps(waits)
    assert waits["deadline"]
