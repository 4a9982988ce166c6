"""`GET /v1/runs/{run_id}/steps`, and a run's events as steps, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.runs.steps.views import SHOWN
from tests.support.stepping import looker
from tests.support.threads import settings


class World:
    """A server with one run of ann's, of 31 steps."""

    def __init__(self, http: httpx.AsyncClient, drsai: DrSai, run_id: str) -> None:
        self.http = http
        self.drsai = drsai
        self.run_id = run_id

    async def get(self, path: str = "/steps", who: str = "ann", **params: Any) -> httpx.Response:
        return await self.http.get(f"/v1/runs/{self.run_id}{path}", params=params, headers={"x-who": who})

    async def events(self, **params: Any) -> list[tuple[str, str, Any]]:
        answer = await self.get("/steps/events", **params)
        assert answer.status_code in (200, 204), answer.text
        found: list[tuple[str, str, Any]] = []
        for frame in answer.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
            if "event" in lines:
                found.append((lines.get("id", ""), lines["event"], json.loads(lines["data"])))
        return found


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    def identify(request: Request) -> Principal:
        return Principal(request.headers["x-who"])

    async with DrSai({"crew": looker(30, thought="t" * (SHOWN + 7))}, database_url, settings=settings()) as drsai:
        run_id = str((await drsai.user("ann").run("crew", "Look.", thread_id="t")).run_id)
        transport = httpx.ASGITransport(drsai.app(identify))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield World(http, drsai, run_id)


async def test_steps_are_listed_in_pages(world: World) -> None:
    page = (await world.get()).json()
    assert (page["object"], len(page["data"]), page["has_more"]) == ("list", 20, True)
    first = page["data"][0]
    assert (first["id"], first["object"]) == (f"{world.run_id}.1", "thread.run.step")
    assert isinstance(first["started_at"], int)
    assert first["thought"] == "t" * SHOWN + "\n[7 more characters]"
    rest = (await world.get(after=page["next"])).json()
    assert [each["position"] for each in page["data"] + rest["data"]] == list(range(1, 32))
    assert (rest["data"][-1]["tool"], rest["data"][-1]["text"]) == (None, "done after 30")
    newest = (await world.get(order="desc", limit=2)).json()
    assert [each["position"] for each in newest["data"]] == [31, 30]
    older = (await world.get(order="desc", after=newest["next"])).json()
    assert older["data"][0]["position"] == 29


async def test_whose_they_are_and_what_is_refused(world: World) -> None:
    assert (await world.get(who="bob")).status_code == 404
    assert (await world.get("/steps/events", who="bob")).status_code == 404
    await world.drsai.user("ann").share_thread("t", with_user="bob")
    assert (await world.get(who="bob")).status_code == 200
    for path, params in (
        ("/steps", {"after": "1"}),
        ("/steps", {"order": "up"}),
        ("/steps", {"limit": "0"}),
        ("/steps/events", {"after": "1-1-1"}),
    ):
        refused = await world.get(path, **params)
        assert refused.status_code == 400, params
        assert refused.json()["error"]["param"] in params


async def test_events_as_steps_and_a_reader_that_is_cut_a_hundred_times(world: World) -> None:
    whole = await world.events()
    kinds = [kind for _, kind, _ in whole]
    assert kinds[:5] == ["step_start", "thought", "tool_call", "tool_result", "step_end"]
    assert kinds[-1] == "end"
    assert whole[2][2] == {
        "type": "tool_call",
        "thread_id": "t",
        "run_id": world.run_id,
        "position": 1,
        "source": "ann",
        "call_id": "c0.0",
        "name": "look",
        "arguments": '{"at": "0.0"}',
    }
    assert [data["step"]["position"] for _, kind, data in whole if kind == "step_end"] == list(range(1, 32))
    ids = [place for place, _, _ in whole]
    assert len(set(ids)) == len(ids) == 30 * 5 + 3 + 1
    for at in range(0, len(whole), 1 + len(whole) // 100):
        assert await world.events(after=ids[at]) == whole[at + 1 :]
    assert (await world.get("/steps/events", after=ids[-1])).status_code == 204
