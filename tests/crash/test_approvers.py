"""The process is killed by SIGKILL between the question and the answer of somebody else than who asked."""

from __future__ import annotations

import time
from typing import Any

import httpx

from tests.crash.conftest import Serving
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall


def _pays(model: ModelServer, tool: str, *, chunk_delay: float = 0) -> None:
    def payer(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply(f"told: {request.messages[-1]['content']}", chunk_delay=chunk_delay)
        return Reply(tool_calls=[ToolCall(tool, {"to": "ada"})])

    model.script("You are payer.", payer)


def _post(serving: Serving, path: str, body: dict[str, Any], **params: str) -> httpx.Response:
    return httpx.post(f"{serving._url}{path}", json=body, params=params, timeout=30)


def _kept(serving: Serving) -> list[tuple[str, str | None]]:
    messages = [item["message"] for item in serving.get("/threads/t/messages")["data"]]
    return [(item["decision"], item["user_id"]) for item in messages if item["type"] == "UserInputReceivedEvent"]


def test_killed_between_question_and_answer(serving: Serving, model: ModelServer) -> None:
    _pays(model, "send", chunk_delay=0.1)
    asked = serving.say("t", "Pay ada.", model="paying")
    question = asked.drsai["input_request"]
    assert (question["by"], question["asker"]) == ("user:bob", "anonymous")
    serving.restart()
    [waiting] = serving.get("/input-requests?user=bob")["data"]
    assert (waiting["owner"], waiting["thread_id"], waiting["id"]) == ("anonymous", "t", question["id"])
    assert serving.get("/input-requests")["data"] == []
    body = {"id": question["id"], "decision": "approve"}
    assert _post(serving, "/threads/t/input", body).status_code == 403
    assert _post(serving, "/threads/t/input", body, user="eve", owner="anonymous").status_code == 404
    serving.restart()
    answered = _post(serving, "/threads/t/input", body, user="bob", owner="anonymous")
    assert answered.status_code == 202, answered.text
    serving.restart()  # the agent speaks, or is just about to
    thread = serving.settled("t")
    if thread["status"] == "awaiting_input":  # It was killed when it had called, perhaps: its owner is asked.
        assert thread["input_request"]["kind"] == "tool_retry"
        again = {"id": thread["input_request"]["id"], "decision": "run"}
        assert _post(serving, "/threads/t/input", again).status_code == 202
        thread = serving.settled("t")
    assert (thread["status"], thread["error_message"]) == ("completed", None)
    assert serving.messages("t")[-1][2] == "told: sent to ada"
    assert _kept(serving)[0] == ("approve", "bob")


def test_killed_before_and_after_the_deadline(serving: Serving, model: ModelServer) -> None:
    _pays(model, "send_soon", chunk_delay=0.1)
    assert serving.say("t", "Pay ada.", model="paying").drsai["status"] == "awaiting_input"
    serving.process.die()
    time.sleep(1)
    serving.start()
    end = time.monotonic() + 60
    while serving.thread("t")["status"] == "awaiting_input":
        assert time.monotonic() < end, "nobody denies it"
        time.sleep(0.05)
    serving.restart()  # while the agent is told, or says so
    thread = serving.settled("t")
    assert (thread["status"], thread["error_message"]) == ("completed", None)
    assert serving.messages("t")[-1][2].startswith("told: The call was denied: nobody of user:bob answered until 2")
    assert _kept(serving) == [("expired", None)]
