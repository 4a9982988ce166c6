"""`/api/v1/agent` over HTTP: tasks, their steps, tools and memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, FunctionExecutionResultMessage
from pydantic import SecretStr
from starlette.requests import Request

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.models import ModelProvider
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import settings


def adding(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    """A model that adds twice, and says what came of it; without tools it says so at once."""
    if not options["tools"]:
        return "I have no tools."
    since = [type(each).__name__ for each in messages][::-1].index("UserMessage")
    results = [each for each in messages[len(messages) - since :] if isinstance(each, FunctionExecutionResultMessage)]
    if len(results) == 2:
        return f"The sum is {results[-1].content[0].content}."
    return [FunctionCall(f"c{len(results)}", json.dumps({"expression": f"{len(results)} + 1"}), "calculator")]


class OneModel(ModelProvider):
    """Every agent asks the same scripted model."""

    def __init__(self, model: ScriptedClient) -> None:
        self._model = model

    def client(self, model: str | None, api_key: SecretStr | None) -> ChatCompletionClient:
        return self._model


class World:
    """A server that ann and bob ask, and eve of another tenant."""

    def __init__(self, http: httpx.AsyncClient, drsai: DrSai) -> None:
        self.http = http
        self.drsai = drsai

    async def ask(self, method: str, path: str, who: str = "ann@acme", **more: Any) -> httpx.Response:
        headers = {"x-who": who, **more.pop("headers", {})}
        return await self.http.request(method, f"/api/v1/agent{path}", headers=headers, **more)

    async def execute(self, who: str = "ann@acme", path: str = "/execute", **body: Any) -> httpx.Response:
        return await self.ask("POST", path, who, json={"task": "Add.", "mode": "tools", **body})

    async def events(self, path: str, method: str = "GET", **more: Any) -> list[tuple[str, Any]]:
        """Ids and objects."""
        answer = await self.ask(method, path, **more)
        assert answer.status_code in (200, 204), answer.text
        found: list[tuple[str, Any]] = []
        for frame in answer.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
            if "data" in lines:
                data = lines["data"]
                found.append((lines.get("id", ""), data if data == "[DONE]" else json.loads(data)))
        return found


def identify(request: Request) -> Principal:
    user, _, tenant = request.headers["x-who"].partition("@")
    return Principal(user, tenant)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    model = ScriptedClient(adding, thought="Hm.")
    drsai = DrSai(None, database_url, settings=settings(), model_provider=OneModel(model))
    async with drsai:
        transport = httpx.ASGITransport(drsai.app(identify))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield World(http, drsai)


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
    path = f"/tasks/{begun['task_id']}/stream"
    assert await world.events(path) == whole[1:]
    for at in range(100):
        place = at % len(events)
        after = events[place][0]
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
    await world.drsai.run("assistant", "No task.", user_id="ann", tenant="acme")
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
    run = (await world.drsai.run("assistant", "Hello.", user_id="ann", tenant="acme")).run_id
    assert (await world.ask("GET", f"/tasks/{run}")).status_code == 404


async def test_a_request_that_is_repeated_is_one_task(world: World) -> None:
    keyed: dict[str, Any] = {"headers": {"Idempotency-Key": "k"}, "json": {"task": "Add.", "mode": "tools"}}
    first = (await world.ask("POST", "/execute", **keyed)).json()
    assert (await world.ask("POST", "/execute", **keyed)).json() == first
    other: dict[str, Any] = {**keyed, "json": {"task": "Add.", "mode": "tools", "max_steps": 3}}
    assert (await world.ask("POST", "/execute", **other)).status_code in (400, 409, 422)
