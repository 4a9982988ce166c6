"""The process is killed while a tool of this package runs, and after it, before its agent has answered."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.crash.conftest import Serving
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall


def _worker(tool: str, after: float, answered: float) -> Any:
    def worker(request: ModelRequest) -> Reply:
        results = [each["content"] for each in request.messages if each["role"] == "tool"]
        if results:
            return Reply(" and ".join(results), chunk_delay=answered)
        return Reply("", tool_calls=[ToolCall(tool, {"token": "x", "before": 0, "after": after}, "call_0")])

    return worker


def _begin(serving: Serving) -> None:
    with serving.client() as client:
        client.chat.completions.create(
            model="bank",
            messages=[{"role": "user", "content": "Do it."}],
            extra_body={"thread_id": "t", "background": True},
        )


def _effects(serving: Serving, count: int) -> None:
    end = time.monotonic() + 30
    while not serving.effects.exists() or serving.effects.read_text().count("\n") < count:
        assert time.monotonic() < end, "the tool does not take effect"
        time.sleep(0.01)


@pytest.mark.parametrize(("tool", "calls"), [("balance", 2), ("transfer", 1)])
def test_killed_while_a_tool_runs(serving: Serving, model: ModelServer, tool: str, calls: int) -> None:
    """A call that may be repeated is repeated; of another one a person is asked, who knows its result."""
    model.script("You are worker.", _worker(tool, 60, 0))
    model.script("You are bob.", ["Done."])
    _begin(serving)
    _effects(serving, 1)
    serving.process.die()
    model.script("You are worker.", _worker(tool, 0, 0))
    serving.start()
    if tool == "balance":
        end = time.monotonic() + 30
        # What the model wrote is recorded, the minute that this call takes too: the call was made, and is made again.
        while serving.effects.read_text().count("\n") < calls:
            assert time.monotonic() < end
            time.sleep(0.05)
    else:
        thread = serving.settled("t")
        assert (thread["status"], thread["input_request"]["kind"]) == ("awaiting_input", "tool_retry")
        answer: dict[str, Any] = {"id": thread["input_request"]["id"], "decision": "result", "text": "It was paid."}
        url = f"{serving.client().base_url}threads/t/input"
        httpx.post(url, json=answer, timeout=30).raise_for_status()
        assert serving.settled("t")["status"] == "completed"
    assert serving.effects.read_text().count("\n") == calls
    assert sum("You are worker." in request.system for request in model.requests) == (1 if tool == "balance" else 2)


def test_killed_after_a_tool(serving: Serving, model: ModelServer) -> None:
    """Its result is recorded: it is not called again, and its model is not asked again for the call."""
    model.script("You are worker.", _worker("transfer", 0, 60))
    model.script("You are bob.", ["Done."])
    _begin(serving)
    end = time.monotonic() + 30
    while sum("You are worker." in request.system for request in model.requests) < 2:
        assert time.monotonic() < end, "the agent does not get its result"
        time.sleep(0.01)
    serving.process.die()
    model.script("You are worker.", _worker("transfer", 0, 0))
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    assert serving.effects.read_text().count("\n") == 1
    said = [text for _, source, text in serving.messages("t") if source == "worker"]
    assert said[-1] == "anonymous: transfer x done"
    asked = [request for request in model.requests if "You are worker." in request.system]
    assert [any(each["role"] == "tool" for each in request.messages) for request in asked] == [False, True, True]


def test_killed_after_a_tool_has_completed_the_task(serving: Serving, model: ModelServer) -> None:
    """While a call beside it is under way. It is not called again, no model is asked again, and the run ends so."""
    seconds = 60.0

    def worker(request: ModelRequest) -> Reply:
        calls = [
            ToolCall("close", {"token": "x", "before": 0, "after": 0}, "call_0"),
            ToolCall("balance", {"token": "y", "before": seconds, "after": 0}, "call_1"),
        ]
        return Reply("", tool_calls=calls)

    model.script("You are worker.", worker)
    model.script("You are bob.", ["I go on."])
    with serving.client() as client:
        client.chat.completions.create(
            model="closing",
            messages=[{"role": "user", "content": "Do it."}],
            extra_body={"thread_id": "t", "background": True},
        )
    _effects(serving, 1)
    run_id = serving.get("/runs?limit=1")["data"][0]["run_id"]
    end = time.monotonic() + 30
    while serving.get(f"/runs/{run_id}/steps")["data"][0]["observation"] is None:
        assert time.monotonic() < end, "its result is not recorded"
        time.sleep(0.05)
    assert serving.thread("t")["status"] == "running"
    serving.process.die()
    serving.environment["CHAOS_AT_ONCE"] = "1"
    serving.start()
    thread = serving.settled("t")
    assert thread["status"] == "completed"
    run = serving.get(f"/runs/{run_id}")
    assert run["stop_reason"] == "The tool close has completed the task."
    assert [text for _, source, text in serving.messages("t")][-1] == "close x done"
    tools = [json.loads(line)["tool"] for line in serving.effects.read_text().splitlines()]
    assert tools == ["close", "balance"]
    assert len(model.requests) == 1


def test_what_was_thought_before_a_call_outlives_a_kill_after_it(serving: Serving, model: ModelServer) -> None:
    """It is recorded with the call: told while the turn is under way, and of the turn that is repeated."""

    def worker(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("Paid.", reasoning="It went through.", chunk_delay=hanging)
        return Reply("", tool_calls=[ToolCall("transfer", {"token": "x", "before": 0, "after": 0})], reasoning="I pay.")

    hanging = 60.0
    model.script("You are worker.", worker)
    model.script("You are bob.", ["Done."])
    _begin(serving)
    end = time.monotonic() + 30
    while sum("You are worker." in request.system for request in model.requests) < 2:
        assert time.monotonic() < end, "the agent does not get its result"
        time.sleep(0.01)
    run_id = serving.get("/runs?limit=1")["data"][0]["run_id"]
    assert [step["thought"] for step in serving.get(f"/runs/{run_id}/steps")["data"]] == ["I pay."]
    serving.process.die()
    hanging = 0.0
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    steps = [each for each in serving.get(f"/runs/{run_id}/steps")["data"] if each["source"] == "worker"]
    assert [step["thought"] for step in steps] == ["I pay.", "It went through."]
    assert "I pay." not in str([request.body for request in model.requests])


def test_killed_while_a_person_is_asked_and_after_the_answer(serving: Serving, model: ModelServer) -> None:
    """The model's question waits without a process. Neither it nor the answer is lost, and no model is asked again."""
    question = ToolCall("ask_person", {"question": "Which account?", "choices": ["Savings", "Current"]}, "call_0")

    def worker(answered: float) -> Any:
        def reply(request: ModelRequest) -> Reply:
            results = [each["content"] for each in request.messages if each["role"] == "tool"]
            return Reply(f"Then {results[0]}.", chunk_delay=answered) if results else Reply("", tool_calls=[question])

        return reply

    model.script("You are worker.", worker(60))
    model.script("You are bob.", ["Done."])
    _begin(serving)
    end = time.monotonic() + 30
    while (asked := serving.thread("t")["input_request"]) is None:
        assert time.monotonic() < end, "the person is not asked"
        time.sleep(0.05)
    assert (asked["kind"], asked["prompt"], asked["choices"]) == ("agent", "Which account?", ["Savings", "Current"])
    serving.restart()
    assert serving.thread("t")["input_request"] == asked
    url = f"{serving.client().base_url}threads/t/input"
    wrong = httpx.post(url, json={"id": asked["id"], "text": "Both"}, timeout=30)
    assert wrong.status_code == 400
    httpx.post(url, json={"id": asked["id"], "text": "savings"}, timeout=30).raise_for_status()
    end = time.monotonic() + 30
    while sum("You are worker." in request.system for request in model.requests) < 2:
        assert time.monotonic() < end, "the agent does not get its answer"
        time.sleep(0.01)
    serving.process.die()
    model.script("You are worker.", worker(0))
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    said = [text for _, source, text in serving.messages("t") if source == "worker"]
    assert said[-1] == "Then Savings."
    asks = [request for request in model.requests if "You are worker." in request.system]
    assert [any(each["role"] == "tool" for each in request.messages) for request in asks] == [False, True, True]
