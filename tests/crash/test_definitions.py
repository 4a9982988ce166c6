"""The process is killed while it works on what is stored definitions and single tasks; meanwhile the definitions are
changed and deleted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.crash.conftest import Serving
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall

sqlite_only = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
TRANSFER = {"python": "tests.support.teams.equipped:transfer"}


def _definition(name: str, prompt: str, *tools: Any) -> dict[str, Any]:
    return {"name": name, "definition": {"agents": {name: {"prompt": prompt, "tools": [*tools]}}}}


def _background(serving: Serving, team: str, thread_id: str) -> None:
    with serving.client() as client:
        messages: Any = [{"role": "user", "content": "Do it."}]
        body = {"thread_id": thread_id, "background": True}
        client.chat.completions.create(model=team, messages=messages, extra_body=body)


def _until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def _events(answer: httpx.Response, until: str) -> list[tuple[str, dict[str, Any]]]:
    """Ids and objects of a stream, to the first of a type."""
    found: list[tuple[str, dict[str, Any]]] = []
    last = ""
    for line in answer.iter_lines():
        if line.startswith("id: "):
            last = line.removeprefix("id: ")
        if line.startswith("data: {"):
            found.append((last, json.loads(line.removeprefix("data: "))))
            if found[-1][1]["type"] == until:
                break
    return found


@sqlite_only
def test_killed_while_definitions_change(serving: Serving, model: ModelServer) -> None:
    """Runs end with the version that they began with, in the process that comes after; a task is told without a gap."""
    asked: list[str] = []
    hangs = True
    paid = ToolCall("transfer", {"token": "x", "before": 0, "after": 0}, "call_0")
    question = ToolCall("ask_person", {"question": "Which account?"}, "call_0")
    sums = ToolCall("calculator", {"expression": "20 + 3"}, "call_0")

    def plays(name: str, call: ToolCall) -> Callable[[ModelRequest], Reply]:
        def play(request: ModelRequest) -> Reply:
            is_told = request.messages[-1]["role"] == "tool"
            asked.append(f"{name} {'answers' if is_told else 'calls'} {request.tools}")
            if not is_told:
                return Reply("", tool_calls=[call])
            return Reply("never", hang=True) if hangs and name != "asker" else Reply(f"{name}: done.")

        return play

    for prompt, name, call in (
        ("You are one.", "one", paid),
        ("You are asker.", "asker", question),
        (None, "task", sums),
    ):
        model.script(prompt, plays(name, call))
    model.script("You are two.", lambda request: "two: done.")

    serving.environment["DRSAI_DEFINITION_PACKAGES"] = '["tests"]'
    serving.restart()
    with serving.http() as http:
        stored = (_definition("payer", "You are one.", TRANSFER), _definition("asker", "You are asker.", "ask_person"))
        for body in stored:
            assert http.post("/v1/agents", json=body).status_code == 201
        for name in ("payer", "asker"):
            _background(serving, name, name)
        task = {"task": "What is 20 + 3?", "mode": "tools", "tools": ["calculator"]}
        with http.stream("POST", "/api/v1/agent/execute-stream", json=task) as answer:
            read = _events(answer, "step_end")
        _until(lambda: {each.split()[0] for each in asked if "answers" in each} == {"one", "task"})
        assert serving.settled("asker")["status"] == "awaiting_input"
        changed = _definition("payer", "You are two.")
        assert http.put("/v1/agents/payer", json={"definition": changed["definition"]}).status_code == 200
        assert http.delete("/v1/agents/asker").status_code == 200
    before = list(asked)
    serving.process.die()
    hangs = False
    serving.start()

    assert serving.settled("payer")["status"] == "completed"
    assert serving.effects.read_text().count("\n") == 1
    serving.say("asker", "Savings", "asker")
    assert serving.messages("asker")[-1][2] == "asker: done."
    assert serving.messages("payer")[-1][2] == "one: done."
    task_id = read[0][1]["task_id"]
    with serving.http() as http:
        path = f"/api/v1/agent/tasks/{task_id}/stream"
        with http.stream("GET", path, params={"after": read[-1][0]}) as answer:
            read += _events(answer, "final")
        whole = http.get(f"/api/v1/agent/tasks/{task_id}").json()
    assert [each["step"] for _, each in read if each["type"] == "step_end"] == [1, 2]
    assert (read[-1][1]["content"], whole["status"], whole["step_count"]) == ("task: done.", "success", 2)
    # Each is asked once more what it was asked when the process died, with the tools that it had.
    assert sorted(asked[len(before) :]) == [
        "asker answers ['ask_person']",
        "one answers ['transfer']",
        "task answers ['calculator']",
    ]
    assert serving.say("payer", "Again.", "payer").choices[0].message.content == "two: done."
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        serving.get("/agents/asker")
