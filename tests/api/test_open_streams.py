"""Event streams that are open, and answers that are waited for, when who reads them may not do so any more: they are
cut within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import ROLES, Principal
from drsai_backend.api import events
from drsai_backend.api.http import stream
from drsai_backend.datamodel.owner import Owner
from tests.api.engine.conftest import OneModel
from tests.support.model_server import Failure, ModelServer
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, settings, until

ANN, BOB = Owner("acme", "ann"), Owner("acme", "bob")
THREAD, RUN = "/v1/threads/t/events", "/v1/runs/{run_id}/events"


@dataclass
class World:
    """Ann's thread `t`, on which a run is live, and a key of hers and one of bob's."""

    drsai: DrSai
    http: httpx.AsyncClient
    crew: Crew
    names: dict[str, str]
    keys: dict[str, Any]
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    """Counts the answers that have their status: an error is then one of the stream."""

    def ask(self, who: str, path: str, body: dict[str, Any]) -> asyncio.Task[httpx.Response]:
        """The answer to a request, when it has come."""
        headers = {"Authorization": f"Bearer {self.keys[who].key.get_secret_value()}"}
        return asyncio.create_task(self.http.post(path, json=body, headers=headers))

    def read(self, who: str, path: str) -> asyncio.Task[httpx.Response]:
        """The whole of a stream, when it has ended."""
        params = {"owner": "ann"} if who != "ann" and path is THREAD else {}
        headers = {"Authorization": f"Bearer {self.keys[who].key.get_secret_value()}"}
        return asyncio.create_task(self.http.get(path.format(**self.names), headers=headers, params=params))


@asynccontextmanager
async def _world(url: str, serving: dict[str, Any] | None = None, **more: Any) -> AsyncGenerator[World]:
    crew = Crew()
    crew.ann.hold()
    models = OneModel(crew.ann)
    serves = settings(auth="required", **QUICK, **(serving or {}))
    async with DrSai({"crew": crew}, url, settings=serves, model_provider=models) as drsai:
        drsai.keys.stale_seconds = 0
        keys = {user.user_id: await drsai.keys.create(user, ["user"]) for user in (ANN, BOB)}
        handle = await drsai.user("ann", tenant="acme").start("crew", "secret", thread_id="t")
        await drsai.user("ann", tenant="acme").share_thread("t", with_user="bob")
        app = drsai.app(**more)

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    world.begun.release()
                await send(message)

            await app(scope, receive, sending)

        transport = httpx.ASGITransport(counted)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            world = World(drsai, http, crew, {"run_id": handle.run_id}, keys)
            yield world
        crew.ann.release()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.05)


async def _revoke(world: World) -> None:
    await world.drsai.keys.revoke("acme", world.keys["bob"].info.key_id)


async def _unshare(world: World) -> None:
    await world.drsai.user("ann", tenant="acme").unshare_thread("t", with_user="bob")


async def _delete(world: World) -> None:
    await world.drsai.users.delete(BOB)


@pytest.mark.parametrize("path", [THREAD, RUN])
@pytest.mark.parametrize(
    ("withdraw", "code"), [(_revoke, "invalid_api_key"), (_unshare, "not_found"), (_delete, "invalid_api_key")]
)
async def test_a_stream_is_cut(
    database_url: str, path: str, withdraw: Callable[[World], Awaitable[None]], code: str
) -> None:
    async with _world(database_url) as world, asyncio.timeout(30):
        reading, kept = world.read("bob", path), world.read("ann", path)
        for _ in range(2):
            await world.begun.acquire()
        assert not reading.done()
        await withdraw(world)
        answer = await reading
        assert answer.status_code == 200
        last = answer.text.strip().rsplit("\n\n", 1)[-1]
        assert last.startswith("event: error\n")
        assert f'"{code}"' in last
        assert not kept.done()
        world.crew.ann.release()
        if path is THREAD:
            await world.drsai.user("ann", tenant="acme").stop("t")
            await world.drsai.user("ann", tenant="acme").delete_thread("t")
        heard = (await kept).text
        assert "event: error" not in heard
        assert len(heard) > len(answer.text)


async def test_an_answer_in_a_thread_that_is_shared_no_longer(database_url: str) -> None:
    """Bob has steered ann's run, and hears it: until he may not read her thread."""
    async with _world(database_url) as world, asyncio.timeout(30):
        await world.drsai.user("ann", tenant="acme").share_thread("t", with_user="bob", right="write")
        headers = {"Authorization": f"Bearer {world.keys['bob'].key.get_secret_value()}"}
        asked = {**ASKED, "thread_id": "t", "thread_owner": "ann", "on_busy": "steer"}
        reading = asyncio.create_task(world.http.post("/v1/chat/completions", json=asked, headers=headers))
        await world.begun.acquire()
        await asyncio.sleep(0.3)
        assert not reading.done()
        await _unshare(world)
        answer = await reading
        assert answer.status_code == 200, answer.text
        assert "no thread 't'" in answer.text
        assert (await world.drsai.user("ann", tenant="acme").get_thread("t")).status == "running"


async def test_an_answer_that_is_waited_for_in_a_thread_that_is_shared_no_longer(database_url: str) -> None:
    async with _world(database_url) as world, asyncio.timeout(30):
        await world.drsai.user("ann", tenant="acme").share_thread("t", with_user="bob", right="write")
        asked = {**ASKED, "stream": False, "thread_id": "t", "thread_owner": "ann", "on_busy": "steer"}
        waiting = world.ask("bob", "/v1/chat/completions", asked)
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await _unshare(world)
        answer = await waiting
        assert answer.status_code == 404, answer.text
        assert "no thread 't'" in answer.text
        assert (await world.drsai.user("ann", tenant="acme").get_thread("t")).status == "running"


async def test_a_key_that_expires(database_url: str) -> None:
    async with _world(database_url) as world, asyncio.timeout(30):
        world.keys["ann"] = await world.drsai.keys.create(ANN, ["user"], expires_in=timedelta(seconds=2))
        assert "expired" in (await world.read("ann", THREAD)).text


async def test_a_session_that_ends(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of an application's own login, however it says so; that somebody else is logged in now counts as well."""
    reader = Principal("bob", "acme", ROLES["user"], frozenset(["clerk"]))
    now: list[Any] = [reader]

    def identify(_: Request) -> Principal | None:
        if isinstance(now[0], HTTPException):
            raise now[0]
        return now[0]

    async with _world(database_url, identify=identify) as world, asyncio.timeout(60):
        await _unshare(world)
        await world.drsai.user("ann", tenant="acme").share_thread("t", with_role="clerk")
        for then, told in (
            (None, "log in first"),
            (HTTPException(401, "your session is over"), "your session is over"),
            (Principal("eve", "acme", ROLES["user"], frozenset(["clerk"])), "another user"),
            (Principal("bob", "acme", ROLES["user"]), "no thread"),
            (Principal("bob", "acme", frozenset(), frozenset(["clerk"])), "threads:read"),
        ):
            now[0] = reader
            reading = world.read("bob", THREAD)
            await world.begun.acquire()
            assert not reading.done()
            now[0] = then
            assert told in (await reading).text
    assert "broke off" not in caplog.text


ASKED: dict[str, Any] = {"model": "crew", "messages": [{"role": "user", "content": "x"}], "stream": True}
ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": ASKED,
    "/v1/messages": {**ASKED, "max_tokens": 100},
    "/v1/completions": {"model": "crew", "prompt": "x", "stream": True},
    "/v1/responses": {"model": "crew", "input": "x", "stream": True},
}
"""By route, a request whose answer is streamed."""


def test_all_answers_that_are_streamed_are_here() -> None:
    """Each is an `EventStream`, which is told who may go on; those that are made by hand are named here."""
    source = Path(events.__file__).parent
    made = [
        path
        for path in source.rglob("*.py")
        if "EventStream(" in path.read_text() or "text/event-stream" in path.read_text()
    ]
    assert {str(path.relative_to(source)) for path in made} == {
        "events.py",
        "http/json.py",
        "http/stream.py",
        "openai/chat/endpoint.py",
        "openai/route.py",
    }


@pytest.mark.parametrize("path", ANSWERS)
async def test_a_streamed_answer_is_cut_and_its_run_goes_on(database_url: str, path: str) -> None:
    async with _world(database_url) as world, asyncio.timeout(60):
        for route in (path, f"{path}/{{}}") if path == "/v1/responses" else (path,):
            headers = {"Authorization": f"Bearer {world.keys['bob'].key.get_secret_value()}"}
            if route == path:
                asking = world.http.post(path, json=ANSWERS[path], headers=headers)
            else:
                begun = await world.http.post(
                    path, json={**ANSWERS[path], "stream": False, "background": True}, headers=headers
                )
                asking = world.http.get(route.format(begun.json()["id"]), params={"stream": True}, headers=headers)
            reading = asyncio.create_task(asking)
            await world.begun.acquire()
            await _revoke(world)
            answer = await reading
            assert answer.status_code == 200, answer.text
            assert "invalid_api_key" in answer.text.strip().rsplit("\n\n", 1)[-1]
            world.keys["bob"] = await world.drsai.keys.create(BOB, ["user"])
        headers = {"Authorization": f"Bearer {world.keys['bob'].key.get_secret_value()}"}
        assert (await world.http.get("/v1/runs", headers=headers)).json()["data"][0]["status"] == "running"
        world.crew.ann.release()
        for run in (await world.http.get("/v1/runs", headers=headers)).json()["data"]:
            status = ""
            while status in ("", "running", "queued", "created"):
                status = (await world.http.get(f"/v1/runs/{run['run_id']}", headers=headers)).json()["status"]
                await asyncio.sleep(0.02)
            assert status == "completed"


WAITED: dict[str, dict[str, Any]] = {
    **{path: {**body, "stream": False} for path, body in ANSWERS.items()},
    "/api/v1/agent/execute": {"task": "x", "mode": "react"},
}
"""By route, a request whose answer is waited for."""


@pytest.mark.parametrize("path", WAITED)
async def test_an_answer_that_is_waited_for_is_refused_and_its_run_goes_on(database_url: str, path: str) -> None:
    async with _world(database_url) as world, asyncio.timeout(60):
        bob = world.drsai.user("bob", tenant="acme")

        async def has(status: RunStatus) -> bool:
            return [run.status for run in (await bob.list_runs(None)).items] == [status]

        waiting = world.ask("bob", path, WAITED[path])
        await until(partial(has, RunStatus.RUNNING))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await _revoke(world)
        answer = await waiting
        assert answer.status_code == 401, answer.text
        assert "revoked" in answer.text
        assert await has(RunStatus.RUNNING)
        world.crew.ann.release()
        await until(partial(has, RunStatus.COMPLETED))


async def test_vectors_that_are_waited_for(migrated_sqlite: str) -> None:
    with ModelServer() as model:
        model.embedded = lambda _: Failure(500, "too late", delay=20)
        serving: dict[str, Any] = {"embeddings_model": "small", "embeddings_base_url": model.base_url}
        async with _world(migrated_sqlite, serving) as world, asyncio.timeout(15):
            waiting = world.ask("bob", "/v1/embeddings", {"model": "small", "input": "x"})
            while not model.requests:  # noqa: ASYNC110 - a thread of its own has them
                await asyncio.sleep(0.02)
            assert not waiting.done()
            await _revoke(world)
            assert (await waiting).status_code == 401


async def test_a_title_that_is_waited_for(database_url: str) -> None:
    async with _world(database_url) as world, asyncio.timeout(30):
        waiting = world.ask("bob", "/v1/chat/completions", {**ASKED, "stream": False, "housekeeping": True})
        await world.crew.ann.asked.wait()
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await _revoke(world)
        assert (await waiting).status_code == 401
