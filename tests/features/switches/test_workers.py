"""A worker that is switched off begins nothing more, and ends what it runs; others take its part."""

from __future__ import annotations

import asyncio
import threading

import pytest

from drsai_backend import DrSai, RunStatus
from drsai_backend.errors import InvalidRequest, RunFailed, ShuttingDown
from tests.features.switches.conftest import GONE, Make, asking
from tests.support.model_server import ModelRequest, ModelServer
from tests.support.threads import QUICK, until

AWAY = "node-3/3afb79fa/4026531836:4711:1700000000:0a0b0c0d"


@pytest.fixture
async def both(make: Make, monkeypatch: pytest.MonkeyPatch) -> tuple[DrSai, DrSai]:
    """A worker of a machine, `4711@node-3`, and one of another."""
    with monkeypatch.context() as patched:
        patched.setattr("drsai_backend.runs.engine.new_worker_id", lambda: AWAY)
        away = await make(**QUICK | {"lease_seconds": 30, "model": "asked-by-node-3"})
    return away, await make(**QUICK | {"lease_seconds": 30})


async def test_it_takes_no_requests_and_says_so_to_balancers(both: tuple[DrSai, DrSai]) -> None:
    away, other = both
    ann, bob = asking(away), asking(other)
    await away.switches.off("worker", "4711@node-3", message=GONE)
    refused = await ann.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
    assert GONE in refused.json()["error"]["message"]
    assert refused.headers["retry-after"] == "1"
    assert "x-should-retry" not in refused.headers, "another one takes it"
    ready = await ann.http.get("/readyz")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "shutting_down")
    assert (await ann.http.get("/healthz")).status_code == 200
    await other.switches.list()
    assert await bob.status(thread="u") == 200
    assert (await bob.http.get("/readyz")).status_code == 200
    assert [each["id"] for each in (await ann.http.get("/v1/threads")).json()["data"]] == ["u"], "reads go on"
    await away.switches.on("worker", "4711@node-3")
    assert await ann.status() == 200


async def test_what_runs_there_ends_there_and_what_waits_is_for_others(
    both: tuple[DrSai, DrSai], model: ModelServer
) -> None:
    away, other = both
    asked, go = threading.Event(), threading.Event()

    def answer(request: ModelRequest) -> str:
        asked.set()
        assert go.wait(60)
        return f"To {request.last}"

    model.script(None, answer)
    ann, bob = asking(away), asking(other)
    first = asyncio.create_task(ann.chat(thread="t"))
    assert await asyncio.to_thread(asked.wait, 30)
    second = asyncio.create_task(bob.chat(thread="t", messages=[{"role": "user", "content": "And then?"}]))

    async def waits() -> bool:
        return len((await other.user("ann", tenant="acme").list_runs("t")).items) == 2

    await until(waits)
    await away.switches.off("worker", "4711@node-3", message=GONE)
    go.set()
    assert (await first).status_code == 200
    answered = await second
    assert answered.status_code == 200
    assert [each.body["model"] for each in model.requests] == ["asked-by-node-3", "gpt-4o-mini"]


async def test_what_is_retried_there_others_do(both: tuple[DrSai, DrSai], model: ModelServer) -> None:
    away, other = both
    model.script(None, lambda _: 1 / 0)
    with pytest.raises(RunFailed):
        await other.user("ann").run("research", "Hello.", thread_id="t")
    model.script(None, lambda _: "Fine.")
    await away.switches.off("worker", "4711@node-3", message=GONE)
    await away.user("ann").retry("t")

    async def is_done() -> bool:
        return (await other.user("ann").get_thread("t")).status is RunStatus.COMPLETED

    await until(is_done)
    assert model.requests[-1].body["model"] == "gpt-4o-mini"


async def test_a_program_is_refused_likewise(both: tuple[DrSai, DrSai]) -> None:
    away, _ = both
    await away.switches.off("worker", "4711@node-3", message=GONE)
    with pytest.raises(ShuttingDown, match=GONE):
        await away.user("ann").run("research", "Hello.")
    with pytest.raises(InvalidRequest, match="leave out the tenant"):
        await away.switches.off("worker", "4711@node-3", message=GONE, tenant="acme")
    with pytest.raises(InvalidRequest):
        await away.switches.off("worker", message=GONE)
