"""`/api/v1/agent/ws`: tasks over a WebSocket, resumed by position after each break."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from drsai_backend.api.engine import socket as endpoint
from drsai_backend.api.http import stream
from tests.api.engine.conftest import World
from tests.api.engine.test_tasks import begun_as
from tests.support.websocket import Refused, Socket, connected

ADD = {"type": "execute", "task": "Add.", "mode": "tools"}


@asynccontextmanager
async def opened(world: World, who: str = "ann@acme", **headers: str) -> AsyncGenerator[Socket]:
    async with connected(world.app, "/api/v1/agent/ws", {"x-who": who, **headers}) as socket:
        yield socket


async def heard(socket: Socket, until: str = "final") -> list[Any]:
    events = [await socket.hear()]
    while events[-1]["type"] != until:
        events.append(await socket.hear())
    return events


async def test_a_task(world: World) -> None:
    async with opened(world) as socket:
        await socket.say(ADD)
        begun, *events = await heard(socket)
    assert begun["type"] == "task"
    assert [each["type"] for each in events][:5] == ["step_start", "thought", "action", "observation", "step_end"]
    assert {each["task_id"] for each in events} == {begun["task_id"]}
    assert (events[-1]["content"], events[-1]["status"]) == ("The sum is 2.", "success")
    over_http = [each for _, each in await world.events(f"/tasks/{begun['task_id']}/stream")][:-1]
    without = ("id", "task_id")
    told = [begun_as({k: v for k, v in each.items() if k not in without}) for each in events]
    assert told == [begun_as(each) for each in over_http]


async def test_a_step_is_told_before_its_model_has_answered(world: World) -> None:
    world.model.hold()
    async with opened(world) as socket:
        await socket.say(ADD)
        begun = (await heard(socket, "step_start"))[-1]
        assert (begun["step"], begun["source"], begun["title"]) == (1, "agent", "agent")
        await socket.say({**ADD, "mode": "plan_execute"})
        begun = (await heard(socket, "step_start"))[-1]
        assert (begun["step"], begun["source"], begun["title"]) == (1, None, "Step 1")
        world.model.release()
        *_, answer, end = await heard(socket)
    assert (answer["type"], answer["content"]) == ("final_answer", end["content"])


async def test_a_reader_is_cut_a_hundred_times(world: World) -> None:
    chance = random.Random(2)
    world.model.hold()
    async with opened(world) as socket:
        await socket.say(ADD)
        task = (await socket.hear())["task_id"]
    found: list[Any] = []
    cuts = 0
    world.model.release()
    while cuts < 100:
        async with opened(world) as socket:
            after = {"after": found[-1]["id"]} if found else {}
            await socket.say({"type": "resume", "task_id": task, **after})
            assert (await socket.hear())["type"] == "task"
            for _ in range(chance.randint(0, 2)):
                if found and found[-1]["type"] == "final":
                    break
                found.append(await socket.hear())
        cuts += 1
    assert [each["type"] for each in found].count("final") == 1
    async with opened(world) as socket:
        await socket.say({"type": "resume", "task_id": task})
        assert (await heard(socket))[1:] == found
        await socket.say({"type": "resume", "task_id": task, "after": found[-1]["id"]})
        assert [(await socket.hear())["type"], await socket.hear()] == [
            "task",
            {"type": "all_read", "task_id": task, "status": "success"},
        ]


async def test_cancel_ping_and_several_tasks_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MOST", 2)
    world.model.hold()
    async with opened(world) as socket:
        for _ in range(2):
            await socket.say(ADD)
        first, second = [(await heard(socket, "task"))[-1] for _ in range(2)]
        await socket.say(ADD)
        full = (await heard(socket, "error"))[-1]
        assert (full["type"], full["status"], full["error"]["code"]) == ("error", 503, "overloaded")
        await socket.say({"type": "cancel", "task_id": first["task_id"]})
        events = await heard(socket)
        assert {each["task_id"] for each in events if each["type"] != "step_start"} == {first["task_id"]}
        assert events[-1]["status"] == "cancelled"
        await socket.say({"type": "ping"})
        assert (await heard(socket, "pong"))[-1] == {"type": "pong"}
        world.model.release()
        [*_, last] = await heard(socket)
        assert (last["task_id"], last["status"]) == (second["task_id"], "success")


async def test_what_is_refused_leaves_the_connection_open(world: World) -> None:
    task = (await world.execute()).json()["task_id"]
    async with opened(world, "bob@acme") as socket:
        for message, status, param in (
            ({**ADD, "max_steps": 0}, 400, "max_steps"),
            ({**ADD, "mode": "x"}, 400, "mode"),
            ({**ADD, "tenant_id": "other"}, 403, "tenant_id"),
            ({"type": "resume", "task_id": task}, 404, "task_id"),
            ({"type": "cancel", "task_id": task}, 404, "task_id"),
            ({"type": "resume", "task_id": task, "after": "1"}, 400, "after"),
            ({"type": "sing"}, 400, "type"),
            ({}, 400, "type"),
        ):
            await socket.say(message)
            told = await socket.hear()
            assert (told["type"], told["status"], told["error"]["param"]) == ("error", status, param), message
        await socket.say("no JSON")
        assert (await socket.hear())["status"] == 400
        await socket.say({"type": "ping"})
        assert (await socket.hear())["type"] == "pong"


async def test_a_page_of_another_origin_may_not_connect(world: World) -> None:
    with pytest.raises(Refused) as refused:
        async with opened(world, origin="https://evil.example"):
            pass
    assert refused.value.status == 403


def test_heartbeats_are_thirty_seconds_apart_at_most(world: World) -> None:
    [route] = [each for each in world.app.routes if getattr(each, "path", "") == "/api/v1/agent/ws"]
    assert route.endpoint.heartbeat < 30  # type: ignore[attr-defined]


async def test_a_heartbeat_while_there_is_nothing_to_say(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    [route] = [each for each in world.app.routes if getattr(each, "path", "") == "/api/v1/agent/ws"]
    monkeypatch.setattr(route.endpoint, "heartbeat", 0.02)  # type: ignore[attr-defined]
    async with opened(world) as socket:
        assert [(await socket.hear())["type"] for _ in range(2)] == ["heartbeat", "heartbeat"]


async def test_a_task_that_is_shared_no_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told of no more; the connection is for other tasks still."""
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.05)
    world.model.hold()
    ann = world.drsai.user("ann", tenant="acme")
    async with opened(world) as hers, opened(world, "bob@acme") as socket:
        await hers.say(ADD)
        begun = await hers.hear()
        for _ in range(2):  # A share that is given again is looked after again.
            await ann.share_thread(begun["conversation_id"], with_user="bob")
            await socket.say({"type": "resume", "task_id": begun["task_id"]})
            await heard(socket, "step_start")
            await ann.unshare_thread(begun["conversation_id"], with_user="bob")
            error = await socket.hear()
            assert (error["type"], error["status"], error["task_id"]) == ("error", 404, begun["task_id"])
        world.model.release()
        assert (await heard(hers))[-1]["status"] == "success"
        await socket.say({"type": "ping"})
        assert (await socket.hear())["type"] == "pong"
