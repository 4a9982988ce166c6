"""The process is killed while two steps of a plan are under way: the plan stands as it was stored, and goes on."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.crash.conftest import Serving
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall

STEPS = [("1", "rome", []), ("2", "oslo", []), ("3", "compare", ["1", "2"])]


def _travel(request: ModelRequest) -> Reply:
    if "You make the plan" in request.system:
        return Reply({"steps": [{"id": id_, "do": do, "needs": needs} for id_, do, needs in STEPS]})
    if "You do one step" not in request.system:
        return Reply("It was compared.")
    if request.messages[-1]["role"] == "tool" or "compare" in request.last:
        return Reply(f"Done: {request.last.splitlines()[-1]}")
    city = request.last.splitlines()[-1]
    # Rome pays, which is over soon; Oslo looks something up, which takes long.
    name, after = ("transfer", 0) if city == "rome" else ("balance", 2)
    return Reply(tool_calls=[ToolCall(name, {"token": city, "before": 0, "after": after}, f"call_{city}")])


def _tasks(serving: Serving) -> dict[str, Any]:
    [tasks] = serving.thread("t")["tasks"]
    return {each["task_id"]: each["meta"]["status"] for each in tasks["tasks"]}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_killed_while_steps_are_under_way(serving: Serving, model: ModelServer) -> None:
    model.script("You are travel.", _travel)
    with serving.client() as client:
        messages: Any = [{"role": "user", "content": "Which is nearer?"}]
        extra = {"thread_id": "t", "background": True}
        client.chat.completions.create(model="travel", messages=messages, extra_body=extra)
    end = time.monotonic() + 30
    # Both have taken effect, and the answer from the one that is over was asked for.
    while sum(request.messages[-1]["role"] == "tool" for request in model.requests) < 1 or _effects(serving) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert _tasks(serving) == {"1": "running", "2": "running", "3": "waiting"}
    serving.process.die()
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    assert _tasks(serving) == {"1": "done", "2": "done", "3": "done"}
    assert [source for _, source, _ in serving.messages("t")][-1] == "travel"
    # The payment was stored and not made again; what was cut was looked up again; nobody planned anew.
    tools = [json.loads(line)["tool"] for line in serving.effects.read_text().splitlines()]
    assert (tools.count("transfer"), tools.count("balance")) == (1, 2)
    assert sum("You make the plan" in request.system for request in model.requests) == 1


def _effects(serving: Serving) -> int:
    return len(serving.effects.read_text().splitlines()) if serving.effects.exists() else 0
