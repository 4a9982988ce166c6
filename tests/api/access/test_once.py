"""What a request makes, it makes once for its Idempotency-Key: every POST of the application, a new one by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from sqlmodel import SQLModel

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.api.http import once
from drsai_backend.database import answered
from drsai_backend.database.schemas import own_tables
from tests.api.access.conftest import APP, BODIES, OPERATIONS, World
from tests.support.teams.crew import Asker
from tests.support.threads import ended, settings

MAKES_NOTHING = {
    "/v1/messages/count_tokens": "counts",
    "/v1/embeddings": "stores nothing",
    "/v1/responses/compact": "stores nothing",
    "/v1/responses/{response_id}/cancel": "ends what it names",
    **{
        f"/v1/admin/runs{of}/{verb}": "ends what it names, asks it to wait, or resumes it"
        for of in ("", "/{run_id}")
        for verb in ("cancel", "pause", "resume", "retry")
    },
    "/v1/runs/{run_id}/cancel": "ends what it names",
    "/v1/threads/{thread_id}/cancel": "ends what it names",
    "/v1/threads/{thread_id}/pause": "asks what it names to wait",
    "/v1/threads/{thread_id}/resume": "resumes what it names",
    "/v1/threads/{thread_id}/retry": "resumes what it names, where it has failed",
    "/api/v1/agent/tasks/{task_id}/retry": "resumes what it names, where it has failed",
    "/api/v1/agent/tasks/{task_id}/cancel": "ends what it names",
    "/v1/conversations/{conversation_id}": "sets what it names",
    "/v1/vector_stores/{vector_store_id}": "sets what it names",
    "/v1/vector_stores/{vector_store_id}/files/{file_id}": "sets what it names",
    "/v1/vector_stores/{vector_store_id}/search": "stores nothing",
    "/v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/cancel": "ends what it names",
    "/v1/tools/{name}/invoke": "calls a tool, to try it, and stores nothing",
    "/v1/mcp/servers/{server}/check": "asks a server, and stores nothing",
    "/mcp": "has the key among the arguments of a call",
}
ANSWERS = "/v1/threads/{thread_id}/input"
"""Needs a thread that asks."""
RUNS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/api/v1/agent/execute")
POSTS = sorted(path for method, path, _ in OPERATIONS if method == "post")
MAKING = [path for path in POSTS if path not in MAKES_NOTHING and path != ANSWERS]
MAKING_BESIDE_RUNS = [path for path in MAKING if not path.startswith(RUNS)]
KEY = {"Idempotency-Key": "4f0c6c0e-0b5e-4d0a-8a55-6d3f6a1f6c11"}


async def counts(drsai: DrSai) -> dict[str, int]:
    """How many rows each table has."""
    tables = [SQLModel.metadata.tables[name] for name in sorted(own_tables())]

    def count(session: Any) -> dict[str, int]:
        return {each.name: session.scalar(sa.select(sa.func.count()).select_from(each)) for each in tables}

    return await drsai.database.read(count)


def test_the_document_names_the_key_of_what_makes_something() -> None:
    paths = APP.openapi()["paths"]
    named = {
        path
        for path in POSTS
        if any(
            each["name"].lower() == "idempotency-key"
            for each in paths.get(path, {}).get("post", {}).get("parameters", ())
        )
    }
    assert named == {*MAKING, ANSWERS}


@pytest.mark.parametrize("path", MAKING)
async def test_a_request_that_comes_again_makes_nothing(world: World, path: str) -> None:
    first = await world.ask("ann", "post", path, headers=KEY)
    assert first.status_code < 300, first.text
    made = await counts(world.drsai)
    again = await world.ask("ann", "post", path, headers=KEY)
    assert again.status_code == first.status_code, again.text
    if "stream" not in path:
        # A response says when it was told to be complete.
        told = [{**each.json(), "completed_at": None} for each in (again, first)]
        assert told[0] == told[1]
    assert await counts(world.drsai) == made
    other = await world.ask("ann", "post", path, headers={"Idempotency-Key": "another"})
    assert other.status_code in (200, 201, 202, 409), other.text  # Another request: 409 where a name is taken.


@pytest.mark.parametrize("path", MAKING_BESIDE_RUNS)
async def test_two_of_one_key_at_the_same_moment_make_one(world: World, path: str) -> None:
    answers = await asyncio.gather(*(world.ask("ann", "post", path, headers=KEY) for _ in range(2)))
    assert answers[0].status_code == answers[1].status_code < 300, answers[1].text
    assert answers[0].json() == answers[1].json()
    assert (await counts(world.drsai))["answeredrequest"] == 1


@pytest.mark.parametrize("path", MAKING_BESIDE_RUNS)
async def test_what_is_made_and_its_answer_are_stored_together(
    world: World, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process that is killed at that moment, both are there, or neither."""

    def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    before = await counts(world.drsai)
    monkeypatch.setattr(once, "store_answer", killed)
    assert (await world.ask("ann", "post", path, headers=KEY)).status_code == 500
    left = {name: count for name, count in (await counts(world.drsai)).items() if count != before[name]}
    assert left == {}


async def test_a_key_is_of_one_request_and_of_one_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/v1/threads/{thread_id}/fork"
    first = await world.ask("ann", "post", path, headers=KEY)
    monkeypatch.setitem(BODIES, ("post", path), {"at": 1})
    other = await world.ask("ann", "post", path, headers=KEY)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_mismatch")
    secret = await world.ask("bob", "post", "/v1/webhooks/secret", headers=KEY)
    assert secret.status_code == 201
    await world.drsai.user("ann", tenant="acme").delete_thread(first.json()["id"])
    monkeypatch.delitem(BODIES, ("post", path))
    assert (await world.ask("ann", "post", path, headers=KEY)).json() == first.json()


async def test_answers_are_let_go_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By how much they are, and by time; the newest is kept."""
    path = "/v1/threads/{thread_id}/fork"
    monkeypatch.setattr(answered, "MOST", 1)
    for number in range(3):
        await world.ask("ann", "post", path, headers={"Idempotency-Key": f"k{number}"})
    assert (await counts(world.drsai))["answeredrequest"] == 1
    first = await world.ask("ann", "post", path, headers={"Idempotency-Key": "k2"})
    monkeypatch.setattr(answered, "KEPT", -answered.KEPT)
    assert (await world.ask("ann", "post", path, headers={"Idempotency-Key": "k2"})).json() != first.json()


async def test_a_stored_answer_shows_no_key(world: World) -> None:
    made = await world.ask("ann", "post", "/v1/keys", headers=KEY)
    table = SQLModel.metadata.tables["answeredrequest"]
    rows = await world.drsai.database.read(lambda session: session.execute(sa.select(table)).all())
    assert made.json()["key"] not in str(rows)
    assert KEY["Idempotency-Key"] not in str(rows)


@pytest.mark.parametrize("path", [path for path in RUNS if not path.startswith("/api")])
async def test_the_answer_outlives_the_definition(world: World, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BODIES, ("post", path), {**BODIES["post", path], "model": "ask"})
    first = await world.ask("ann", "post", path, headers=KEY)
    assert first.status_code == 200, first.text
    ann = Principal("ann", tenant="acme")
    await world.drsai.engine.agents.delete(ann, "ask")
    again = await world.ask("ann", "post", path, headers=KEY)
    assert (again.status_code, again.json()) == (200, first.json())
    other = await world.ask("ann", "post", path, headers={"Idempotency-Key": "another"})
    assert other.status_code == 404
    changed = {**BODIES["post", path], "temperature": 0.5}
    monkeypatch.setitem(BODIES, ("post", path), changed)
    assert (await world.ask("ann", "post", path, headers=KEY)).status_code == 409


async def test_an_answer_to_a_question_is_given_once(migrated_sqlite: str) -> None:
    async with DrSai({"crew": Asker()}, migrated_sqlite, settings=settings()) as drsai:
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test/v1", headers=KEY) as http:
            asked = await drsai.run("crew", "x", thread_id="t")
            assert asked.input_request is not None
            body = {"id": asked.input_request["id"], "text": "yes"}
            first = await http.post("/threads/t/input", json=body)
            assert first.status_code == 202, first.text
            await ended(drsai)
            again = await http.post("/threads/t/input", json=body)
            assert (again.status_code, again.json()["id"]) == (202, first.json()["id"]), again.text
            other = await http.post("/threads/t/input", json={**body, "text": "no"})
            assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_mismatch")
            late = await http.post("/threads/t/input", json=body, headers={"Idempotency-Key": "another"})
            assert (late.status_code, late.json()["error"]["code"]) == (409, "input_request_stale")
