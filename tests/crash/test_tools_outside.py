"""The process is killed while a tool acts outside of it, over HTTP or in a server that it has started, and while a
model of a list hangs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import psutil
import pytest

from tests.crash.conftest import Serving
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.processes import is_gone

sqlite_only = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def _keeper(tool: str, after: float) -> Any:
    def keeper(request: ModelRequest) -> Reply:
        results = [each["content"] for each in request.messages if each["role"] == "tool"]
        if results:
            return Reply(" and ".join(results))
        return Reply("", tool_calls=[ToolCall(tool, {"token": "x", "before": 0, "after": after}, "call_0")])

    return keeper


def _begin(serving: Serving, team: str) -> None:
    with serving.client() as client:
        messages: Any = [{"role": "user", "content": "Do it."}]
        client.chat.completions.create(model=team, messages=messages, extra_body={"thread_id": "t", "background": True})


def _soon(true: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def _effects(serving: Serving) -> list[dict[str, Any]]:
    text = serving.effects.read_text() if serving.effects.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def _answer(serving: Serving, text: str) -> None:
    """Of the call that was cut, a person is asked, who knows its result."""
    thread = serving.settled("t")
    assert (thread["status"], thread["input_request"]["kind"]) == ("awaiting_input", "tool_retry")
    answer: dict[str, Any] = {"id": thread["input_request"]["id"], "decision": "result", "text": text}
    httpx.post(f"{serving.client().base_url}threads/t/input", json=answer, timeout=30).raise_for_status()


@sqlite_only
@pytest.mark.parametrize(("team", "tool", "calls"), [("office", "fetch", 2), ("office", "order", 1)])
def test_killed_in_a_call_over_http(serving: Serving, model: ModelServer, team: str, tool: str, calls: int) -> None:
    """A GET is sent again; of a POST a person is asked."""
    model.script("You are keeper.", _keeper(tool, 1))
    model.script("You are bob.", ["Done."])
    _begin(serving, team)
    _soon(lambda: _effects(serving), "the request is not sent")
    serving.process.die()
    serving.start()
    if calls == 1:
        _answer(serving, "It was ordered.")
    assert serving.settled("t")["status"] == "completed"
    assert [each["tool"] for each in _effects(serving)] == [tool] * calls
    assert sum("You are keeper." in request.system for request in model.requests) == 2
    said = [text for _, source, text in serving.messages("t") if source == "keeper"]
    assert said[-1] == ("It was ordered." if calls == 1 else "fetch x done")


def test_killed_in_a_call_of_an_mcp_server(serving: Serving, model: ModelServer) -> None:
    """The server, which is busy for a minute, goes with the process that has started it."""
    model.script("You are keeper.", _keeper("n__mark", 60))
    _begin(serving, "marking")
    _soon(lambda: _effects(serving), "the tool is not called")
    [effect] = _effects(serving)
    child = psutil.Process(effect["pid"])
    assert child.ppid() == serving.process.pid
    serving.process.die()
    _soon(lambda: is_gone(child.pid), "the MCP server is left behind")
    serving.start()
    _answer(serving, "It was marked.")
    assert serving.settled("t")["status"] == "completed"
    assert len(_effects(serving)) == 1
    assert [text for _, source, text in serving.messages("t") if source == "keeper"][-1] == "It was marked."
    assert len(model.requests) == 2
    # Another run, in this process, starts another server.
    model.script("You are keeper.", _keeper("n__mark", 0))
    serving.say("u", "Do it.", model="marking")
    again = _effects(serving)[-1]["pid"]
    assert again != effect["pid"]
    serving.process.die()
    _soon(lambda: is_gone(again), "an MCP server is left behind")


@sqlite_only
def test_killed_while_the_first_model_of_a_list_hangs(serving: Serving, model: ModelServer) -> None:
    """The run that is continued asks the list again, and is answered once, by the model that answers."""
    model.script("flaky", lambda _: Reply("never", hang=True))
    model.script("steady", _keeper("balance", 0))
    _begin(serving, "spare")
    _soon(lambda: model.requests, "no model is asked")
    serving.process.die()
    assert [request.model for request in model.requests] == ["flaky"]
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    assert [request.model for request in model.requests] == ["flaky", "flaky", "steady", "flaky", "steady"]
    assert len(_effects(serving)) == 1
    assert [text for _, source, text in serving.messages("t") if source == "keeper"][-1] == "keeper: balance x done"


@sqlite_only
def test_killed_between_the_questions_of_a_flow_and_in_its_tool(serving: Serving, model: ModelServer) -> None:
    """Another process continues the flow, and asks a person about the call that was cut. No model is asked."""
    serving.say("t", "Slowly", "front")
    serving.restart()
    with serving.client() as client:
        messages: Any = [{"role": "user", "content": "30"}]
        client.chat.completions.create(
            model="front", messages=messages, extra_body={"thread_id": "t", "background": True}
        )
    _soon(lambda: _effects(serving), "the tool is not called")
    serving.process.die()
    serving.start()
    _answer(serving, "it was paid")
    assert serving.settled("t")["status"] == "completed"
    assert len(_effects(serving)) == 1
    said = [text for _, source, text in serving.messages("t") if source == "slowly"]
    assert [said[0], said[-1]] == ["How long?", "Paid: it was paid"]
    assert not model.requests


@sqlite_only
def test_killed_while_an_attempt_is_judged(serving: Serving, model: ModelServer) -> None:
    """The attempt is stored: it is judged by the next process, and not made again."""
    hangs = [True, False]

    def judge(request: ModelRequest) -> Reply:
        if hangs.pop(0) if hangs else False:
            return Reply("never", hang=True)
        score = 0.9 if len(model.requests) > 5 else 0.2
        return Reply({"score": score, "reasons": "", "reflection": "Better."})

    model.script("You are keeper.", _keeper("transfer", 0))
    model.script("You are judge.", judge)
    _begin(serving, "judged")
    _soon(lambda: len(model.requests) == 3, "the judge is not asked")
    serving.process.die()
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    whom = ["judge" if "You are judge." in each.system else "keeper" for each in model.requests]
    assert whom == ["keeper", "keeper", "judge", "judge", "keeper", "judge"]
    assert len(_effects(serving)) == 1
    assert [text for _, source, text in serving.messages("t") if source == "keeper"][-1] == "anonymous: transfer x done"
