"""`/api/v1/agent` over HTTP: tasks, their steps, tools and memory."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage as Results

from drsai_backend import DrSai
from drsai_backend.runs import Answer as Answered
from tests.api.engine.conftest import World
from tests.support.scripted import Answer
from tests.support.threads import settings


def begun_as(told: Any) -> Any:
    """An event without what of a step's beginning is known later only."""
    left_out = ("source", "title") if isinstance(told, dict) and told["type"] == "step_start" else ()
    return {key: value for key, value in told.items() if key not in left_out} if isinstance(told, dict) else told


async def test_a_task_with_tools(world: World) -> None:
    answer = await world.execute(conversation_id="c", tenant_id="acme")
    assert answer.status_code == 200, answer.text
    task = answer.json()
    assert (task["status"], task["final_answer"], task["task"]) == ("success", "The sum is 2.", "Add.")
    assert (task["mode"], task["conversation_id"]) == ("tools", "c")
    assert (task["step_count"], task["tool_call_count"]) == (3, 2)
    first, _, last = task["steps"]
    assert first["thought"] == "Hm."
    assert (first["step"], first["action"], first["observation"]) == (1, "calculator", "1")
    assert json.loads(first["action_input"]) == {"expression": "0 + 1"}
    assert (last["final_answer"], last["action"]) == ("The sum is 2.", None)
    assert answer.headers["x-run-id"] == task["task_id"]
    assert (await world.ask("GET", f"/tasks/{task['task_id']}")).json() == task

    simple = (await world.execute(mode="simple", conversation_id="c")).json()
    assert (simple["status"], simple["final_answer"]) == ("success", "I have no tools.")
    memory = (await world.ask("GET", "/memory/c")).json()
    said = [(each["role"], each["content"]) for each in memory["short_term"]]
    assert said[:2] == [("user", "Add."), ("assistant", "The sum is 2.")]
    assert said[-1] == ("assistant", "I have no tools.")
    assert memory["long_term"] == []
    assert len((await world.ask("GET", "/memory/c", params={"limit": 1})).json()["short_term"]) == 1


async def test_a_task_as_a_stream_that_is_cut_a_hundred_times(world: World) -> None:
    body = {"task": "Add.", "mode": "tools"}
    whole = await world.events("/execute-stream", "POST", json=body)
    (_, begun), *events, (_, done) = whole
    assert done == "[DONE]"
    assert begun["type"] == "task"
    kinds = [event["type"] for _, event in events]
    assert kinds[:5] == ["step_start", "thought", "action", "observation", "step_end"]
    assert kinds[-1] == "final"
    action = events[2][1]
    assert (action["action"], action["step"]) == ("calculator", 1)
    assert events[-1][1]["content"] == "The sum is 2."
    assert events[-1][1]["status"] == "success"
    assert events[-2] == ("", {"type": "final_answer", "content": "The sum is 2."})
    assert begun_as(events[0][1]) == {"type": "step_start", "step": 1}
    assert events[0][1]["source"] == "agent"
    path = f"/tasks/{begun['task_id']}/stream"
    late = await world.events(path)
    assert [(place, begun_as(told)) for place, told in late] == [(place, begun_as(told)) for place, told in whole[1:]]
    assert late[0][1]["title"] == "calculator"  # By now it is known.
    whole = [whole[0], *late]
    for at in range(100):
        place = at % len(events)
        if not (after := events[place][0]):
            continue  # It comes with the end, which has the id of both.
        rest = whole[place + 2 :] if place < len(events) - 1 else []
        how: dict[str, Any] = {"params": {"after": after}} if at % 2 else {"headers": {"Last-Event-ID": after}}
        assert await world.events(path, **how) == rest


async def test_tools_and_modes_are_listed(world: World) -> None:
    found = (await world.ask("GET", "/tools")).json()
    assert {"simple", "tools"} <= set(found["modes"])
    assert found["total"] == len(found["tools"]) == 3
    [calculator] = [each for each in found["tools"] if each["name"] == "calculator"]
    assert calculator["parameters"]["properties"].keys() == {"expression"}
    assert calculator["description"]


async def test_tasks_are_listed(world: World) -> None:
    made = [(await world.execute(task=f"Task {number}.", mode="simple")).json() for number in range(3)]
    listed = (await world.ask("GET", "/tasks")).json()
    assert [each["task_id"] for each in listed["tasks"]] == [each["task_id"] for each in made][::-1]
    assert listed["tasks"][0]["task"] == "Task 2."
    page = (await world.ask("GET", "/tasks", params={"limit": 2})).json()
    rest = (await world.ask("GET", "/tasks", params={"limit": 2, "after": page["next"]})).json()
    assert page["tasks"] + rest["tasks"] == listed["tasks"]
    for params, count in (
        ({"status": "success"}, 3),
        ({"status": "failed"}, 0),
        ({"since": made[1]["created_at"]}, 2),
        ({"until": made[1]["created_at"]}, 1),
        ({"tenant_id": "acme"}, 3),
    ):
        answer = await world.ask("GET", "/tasks", params=params)
        assert len(answer.json()["tasks"]) == count, (params, answer.text)
    assert (await world.ask("GET", "/tasks", "bob@acme")).json()["tasks"] == []
    await world.drsai.user("ann", tenant="acme").run("assistant", "No task.")
    assert len((await world.ask("GET", "/tasks")).json()["tasks"]) == 3
    assert "engine:tools" not in world.drsai.engine.teams.names()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"task": ""}, "task"),
        ({"task": "  "}, "task"),
        ({"task": "x" * 5001}, "task"),
        ({"task": 1}, "task"),
        ({"mode": "thinking"}, "mode"),
        ({"mode": "router"}, "mode"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": 51}, "max_steps"),
        ({"max_steps": "5"}, "max_steps"),
        ({"tools": ["calculator", "code_interpreter"]}, "tools[1]"),
        ({"tools": "calculator"}, "tools"),
        ({"mode": "simple", "tools": ["calculator"]}, "tools"),
        ({"conversation_id": ""}, "conversation_id"),
        ({"conversation_id": "x" * 65}, "conversation_id"),
        ({"steps": 5}, "steps"),
    ],
)
async def test_what_is_refused_names_the_field(world: World, body: dict[str, Any], param: str) -> None:
    for path in ("/execute", "/execute-stream"):
        refused = await world.execute(path=path, **body)
        assert refused.status_code == 400, refused.text
        told = refused.json()
        assert told["error"]["param"] == param
        assert told["detail"] == told["error"]["message"]
        assert param in told["detail"]
    assert (await world.ask("GET", "/tasks")).json()["tasks"] == []


async def test_what_is_refused_says_what_would_be_right(world: World) -> None:
    missing = await world.ask("GET", "/memory/nobody")
    assert (missing.json()["detail"], missing.json()["error"]["param"]) == (
        "no conversation 'nobody'",
        "conversation_id",
    )
    when = await world.ask("GET", "/tasks", params={"since": "yesterday"})
    assert when.json()["detail"] == "`since` must be a moment such as 2026-01-31T12:00:00Z"
    misspelt = await world.execute(mode="tools", tools=["calculater"])
    assert "; did you mean 'calculator'?" in misspelt.json()["detail"]


async def test_a_task_that_failed_is_retried(world: World) -> None:
    """From the step that failed: the first sum is not made again."""
    rule, failing = world.model.rule, [True]

    def failed(messages: Any, options: Any) -> Answer:
        return RuntimeError("no") if failing and isinstance(messages[-1], Results) else rule(messages, options)

    world.model.rule = failed
    task = (await world.execute(conversation_id="c")).json()
    assert (task["status"], task["tool_call_count"]) == ("failed", 1)
    other = await world.ask("POST", f"/tasks/{task['task_id']}/retry", "bob@acme")
    assert other.status_code == 404
    failing.clear()
    calls = world.model.calls
    retried = await world.ask("POST", f"/tasks/{task['task_id']}/retry")
    assert (retried.status_code, retried.json()["task_id"]) == (200, task["task_id"])
    await world.events(f"/tasks/{task['task_id']}/stream")
    done = (await world.ask("GET", f"/tasks/{task['task_id']}")).json()
    assert (done["status"], done["final_answer"], done["tool_call_count"]) == ("success", "The sum is 2.", 2)
    assert done["error"] is None
    assert world.model.calls == calls + 2
    again = await world.ask("POST", f"/tasks/{task['task_id']}/retry")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "illegal_transition")


async def test_whose_they_are(world: World) -> None:
    task = (await world.execute(conversation_id="c")).json()["task_id"]
    for who in ("bob@acme", "ann@other"):
        for path in (f"/tasks/{task}", f"/tasks/{task}/stream", "/memory/c"):
            missing = await world.ask("GET", path, who)
            assert missing.status_code == 404, path
            assert missing.json()["detail"]
        assert (await world.ask("POST", f"/tasks/{task}/cancel", who)).status_code == 404
    refused = await world.execute(tenant_id="other")
    assert (refused.status_code, refused.json()["error"]["param"]) == (403, "tenant_id")
    assert (await world.ask("GET", "/tasks", params={"tenant_id": "other"})).status_code == 403
    # A run that is no task is none here.
    run = (await world.drsai.user("ann", tenant="acme").run("assistant", "Hello.")).run_id
    assert (await world.ask("GET", f"/tasks/{run}")).status_code == 404


async def test_a_request_that_is_repeated_is_one_task(world: World) -> None:
    keyed: dict[str, Any] = {"headers": {"Idempotency-Key": "k"}, "json": {"task": "Add.", "mode": "tools"}}
    first = (await world.ask("POST", "/execute", **keyed)).json()
    assert (await world.ask("POST", "/execute", **keyed)).json() == first
    other: dict[str, Any] = {**keyed, "json": {"task": "Add.", "mode": "tools", "max_steps": 3}}
    assert (await world.ask("POST", "/execute", **other)).status_code in (400, 409, 422)


@pytest.mark.parametrize("mode", ["tools", "react"])
async def test_max_steps_reached_ends_with_what_there_is_and_says_so(world: World, mode: str) -> None:
    def on_and_on(messages: Any, options: Any) -> Answer:
        if mode == "tools" and options["tools"]:
            return [FunctionCall(f"c{len(messages)}", '{"expression": "1 + 1"}', "calculator")]
        if mode == "react" and world.model.calls < 3:
            return 'Thought: Again.\nAction: calculator\nAction Input: {"expression": "1 + 1"}'
        return "Thought: Enough.\nFinal Answer: So far it is 2." if mode == "react" else "So far it is 2."

    world.model.rule = on_and_on
    task = (await world.execute(mode=mode, max_steps=3)).json()
    assert (task["status"], task["final_answer"], task["step_count"]) == ("max_steps_reached", "So far it is 2.", 3)
    assert [step["action"] for step in task["steps"]] == ["calculator", "calculator", None]
    assert [step["observation"] for step in task["steps"]] == ["2", "2", None]
    events = [each for _, each in await world.events(f"/tasks/{task['task_id']}/stream")]
    assert events[-2]["status"] == "max_steps_reached"


async def test_a_task_of_many_steps_stands_as_its_newest_one(world: World) -> None:
    def many(messages: Any, options: Any) -> Answer:
        if not options["tools"]:
            return "So far it is 2."
        return [FunctionCall(f"c{at}", '{"expression": "1 + 1"}', "calculator") for at in range(210)]

    world.model.rule = many
    task = (await world.execute(max_steps=2)).json()
    assert (task["status"], task["final_answer"]) == ("max_steps_reached", "So far it is 2.")
    assert (task["step_count"], task["tool_call_count"], len(task["steps"])) == (211, 210, 200)
    assert [step["step"] for step in task["steps"]] == [*range(1, 201)]


async def test_a_task_that_fails_says_so(world: World) -> None:
    def fails(messages: Any, options: Any) -> Answer:
        return RuntimeError("secret")

    world.model.rule = fails
    task = (await world.execute()).json()
    assert (task["status"], task["final_answer"]) == ("failed", "")
    assert task["error"]
    assert task["steps"][-1]["error"] == task["error"]
    assert "secret" not in str(task)
    events = [each for _, each in await world.events(f"/tasks/{task['task_id']}/stream")]
    assert [each["type"] for each in events[-3:-1]] == ["error", "final"]


async def test_a_task_that_asks_a_person(world: World) -> None:
    def asks(messages: Any, options: Any) -> Answer:
        if type(messages[-1]).__name__ == "UserMessage":
            return [FunctionCall("c0", '{"question": "Which city?"}', "ask_person")]
        return f"You said {messages[-1].content[0].content}."

    world.model.rule = asks
    task = (await world.execute(conversation_id="c", tools=["ask_person"])).json()
    assert (task["status"], task["final_answer"]) == ("awaiting_input", "")
    path = f"/tasks/{task['task_id']}/stream"
    *_, (_, asked), (last, final), (_, done) = await world.events(path)
    assert (asked["type"], final["status"], done) == ("input_request", "awaiting_input", "[DONE]")
    assert await world.events(path, params={"after": last}) == []  # until it is answered
    answer = Answered(asked["input_request"]["id"], "Rome")
    handle = await world.drsai.user("ann", tenant="acme").answer("c", answer)
    await handle.wait()
    rest = [each for _, each in await world.events(path, params={"after": last})]
    assert [each["type"] for each in rest[:3]] == ["observation", "step_end", "step_start"]
    assert (rest[-2]["status"], rest[-2]["content"]) == ("success", "You said Rome.")


async def test_every_mode_does_a_task_offline(database_url: str) -> None:
    async with DrSai(None, database_url, settings=settings()) as drsai:
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test/api/v1/agent") as http:
            modes = (await http.get("/tools")).json()["modes"]
            assert {"react", "simple", "tools"} <= set(modes)
            for mode in modes:
                task = (await http.post("/execute", json={"task": "What is 2 + 3?", "mode": mode})).json()
                assert task["status"] in ("success", "max_steps_reached"), task
                assert task["final_answer"]
                assert [step["step"] for step in task["steps"]] == [*range(1, task["step_count"] + 1)]
                assert task["steps"][-1]["final_answer"] == task["final_answer"]


async def test_an_operator_may_offer_less(database_url: str) -> None:
    none = settings(engine_modes="off", engine_tools=[])
    async with DrSai(None, database_url, settings=none) as drsai:
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test/api/v1/agent") as http:
            assert (await http.get("/tools")).json() == {"tools": [], "total": 0, "modes": []}
            refused = await http.post("/execute", json={"task": "x", "mode": "simple"})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "mode")
    chat: dict[str, Any] = {"model": "engine:simple", "messages": [{"role": "user", "content": "x"}]}
    async with DrSai(None, database_url, settings=settings()) as drsai:
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            # It is no model of a chat, whatever that says of tools, and whose thread or which repetition it is.
            await drsai.user("bob").load_history("theirs", chat["messages"], model="engine:simple")
            await drsai.user("bob").share_thread("theirs", with_user="anonymous", right="write")
            for more in ({}, {"thread_owner": "anonymous"}, {"thread_id": "theirs", "thread_owner": "bob"}):
                for key in ({}, {"Idempotency-Key": "k"}):
                    refused = await http.post("/v1/chat/completions", json={**chat, **more}, headers=key)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
            for unknown in ("engine:simple", "none-such"):
                side = {**chat, "model": unknown, "housekeeping": True}
                refused = await http.post("/v1/chat/completions", json=side, headers={"Idempotency-Key": "k"})
                assert refused.status_code == 404
            for path in ("/v1/threads/mine/history", "/v1/threads/theirs/history?owner=bob"):
                for key in ({}, {"Idempotency-Key": "h"}):
                    refused = await http.post(path, json=chat, headers=key)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
            assert "engine" not in (await http.get("/v1/models")).text
