"""The process is killed while an agent works that writes its calls as text, and one that has to say that it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.conftest import Serving
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall

sqlite_only = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
GIVEN = {"token": "x", "before": 0, "after": 0}
WRITTEN = f"Thought: I pay.\nAction: transfer\nAction Input: {json.dumps(GIVEN)}"


def _begin(serving: Serving, team: str) -> None:
    with serving.client() as client:
        messages: Any = [{"role": "user", "content": "Do it."}]
        client.chat.completions.create(model=team, messages=messages, extra_body={"thread_id": "t", "background": True})


def _until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def _effects(serving: Serving) -> int:
    return serving.effects.read_text().count("\n") if serving.effects.exists() else 0


def _scribe(request: ModelRequest) -> str:
    """Which step of its work a request is about."""
    last = str(request.messages[-1]["content"])
    if last.startswith("Observation:"):
        return "answer"
    return "repair" if "That has no Action" in last else "call"


@sqlite_only
@pytest.mark.parametrize("at", ["repair", "answer"])
def test_killed_in_a_step_as_text(serving: Serving, model: ModelServer, at: str) -> None:
    """A repair is a part of its step, which is asked for from its beginning; a step that is recorded is not."""
    asked: list[str] = []
    hangs = True

    def scribe(request: ModelRequest) -> Reply:
        step = _scribe(request)
        asked.append(step)
        if step == at and hangs:
            return Reply("never", hang=True)
        texts = {"call": "Thought: I think.", "repair": WRITTEN, "answer": "Thought: So.\nFinal Answer: It is paid."}
        return Reply(texts[step])

    model.script("You are scribe.", scribe)
    _begin(serving, "scribe")
    _until(lambda: at in asked)
    serving.process.die()
    hangs = False
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    before = ["call", "repair"]
    assert asked == [*before, *(before if at == "repair" else ["answer"]), "answer"]
    assert _effects(serving) == 1
    assert [text for _, source, text in serving.messages("t") if source == "scribe"][-1] == "It is paid."


@sqlite_only
def test_killed_while_it_is_reminded(serving: Serving, model: ModelServer) -> None:
    """What it did is recorded, and it is reminded as often as without the kill."""
    asked: list[str] = []
    hangs = True

    def finisher(request: ModelRequest) -> Reply:
        roles = [each["role"] for each in request.messages]
        is_reminded = "have not called the tool" in str(request.messages[-1]["content"])
        asked.append("reminded" if is_reminded else "stops" if "tool" in roles else "call")
        match asked[-1]:
            case "call":
                return Reply("", tool_calls=[ToolCall("transfer", GIVEN, "call_0")])
            case "stops":
                return Reply("I stop.")
            case _:
                done = ToolCall("done", {"answer": "It is paid."}, "call_1")
                return Reply("never", hang=True) if hangs else Reply("", tool_calls=[done])

    model.script("You are finisher.", finisher)
    _begin(serving, "finisher")
    _until(lambda: "reminded" in asked)
    serving.process.die()
    hangs = False
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    # An answer of plain text is recorded with the next one that calls tools.
    assert asked == ["call", "stops", "reminded", "stops", "reminded"]
    assert _effects(serving) == 1
    assert [text for _, source, text in serving.messages("t") if source == "finisher"][-1] == "It is paid."
