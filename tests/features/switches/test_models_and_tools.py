"""A model that is off is not asked, and a tool that is off neither offered nor called, also in runs under way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from drsai_backend import DrSai, DrSaiAgent, RunContext, RunStatus
from drsai_backend.datamodel.audit import PROGRAM
from drsai_backend.errors import RunFailed, SwitchedOff
from tests.features.switches.conftest import GONE, Make, asking
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import until

CALLED: list[str] = []


def look(place: str) -> str:
    """Look somewhere."""
    CALLED.append(place)
    return "a tree"


def add(a: int, b: int) -> str:
    """Add two numbers."""
    CALLED.append("sum")
    return str(a + b)


def looking(context: RunContext) -> DrSaiAgent:
    return DrSaiAgent("ann", context.model_client(), tools=[look, add], reflect_on_tool_use=True)


@pytest.fixture(autouse=True)
def none_called() -> None:
    CALLED.clear()


def calls_first(request: ModelRequest) -> Reply:
    """Looks, whatever it is offered, and then says what it was told."""
    if request.messages[-1]["role"] == "tool":
        return Reply(f"I was told: {request.last}")
    return Reply(tool_calls=[ToolCall("look", {"place": "there"})])


async def test_a_model_that_is_off_fails_as_a_refusal(make: Make, model: ModelServer) -> None:
    drsai = await make()
    await drsai.switches.off("model", "gpt-4o-mini", tenant="acme", message=GONE)
    ann = asking(drsai)
    failed = await ann.chat()
    assert failed.status_code == 424
    error = failed.json()["error"]
    assert error["code"] == "switched_off"
    assert error["message"].endswith(f"failed (switched_off): {GONE}")
    assert model.requests == []
    titled = await ann.chat(housekeeping=True)
    assert (titled.status_code, titled.json()["error"]["code"]) == (503, "switched_off")
    assert await asking(drsai, tenant="other").status() == 200
    assert [each.error_code for each in await drsai.all_runs.errors()] == ["switched_off"]
    await drsai.switches.on("model", "gpt-4o-mini", tenant="acme")
    await drsai.user("ann", tenant="acme").retry("t")

    async def is_answered() -> bool:
        return (await drsai.user("ann", tenant="acme").get_thread("t")).status is RunStatus.COMPLETED

    await until(is_answered)


async def test_a_profile_goes_on_to_its_next_model(make: Make, model: ModelServer, tmp_path: Path) -> None:
    """Which is found by the name of its profile, or by its own."""
    profiles = {"fast": {"model": "quick-1", "fallback": ["spare"]}, "spare": {"model": "slow-1"}}
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"default": "fast", "profiles": profiles}))
    drsai = await make(models=file)
    user = drsai.user("ann")
    for name, asked in (("fast", "slow-1"), ("quick-1", "slow-1"), ("spare", "quick-1"), ("slow-1", "quick-1")):
        model.requests.clear()
        await drsai.switches.off("model", name, message=GONE)
        assert (await user.run("research", "Hello")).status is RunStatus.COMPLETED
        assert [each.model for each in model.requests] == [asked], name
        await drsai.switches.on("model", name)
    for name in ("fast", "spare"):
        await drsai.switches.off("model", name, message=f"{name}: {GONE}")
    with pytest.raises(RunFailed, match=rf"failed \(switched_off\): fast: {GONE}") as failed:
        await user.run("research", "Hello")
    assert failed.value.run_code == "switched_off"


async def test_titles_go_by_what_is_off_in_the_tenant(make: Make, model: ModelServer, tmp_path: Path) -> None:
    """Of a profile, too, by the name of its model."""
    profiles = {"fast": {"model": "quick-1"}, "both": {"model": "quick-1", "fallback": ["spare"]}}
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"profiles": {**profiles, "spare": {"model": "slow-1"}}}))
    drsai = await make(models=file, task_model="fast")
    await drsai.switches.off("model", "quick-1", tenant="acme", message=GONE)
    titled = await asking(drsai).chat(housekeeping=True)
    assert (titled.status_code, titled.json()["error"]["message"]) == (503, GONE)
    assert (await asking(drsai, tenant="other").chat(housekeeping=True)).status_code == 200
    both = await make(models=file, task_model="both")
    assert (await asking(both).chat(housekeeping=True)).status_code == 200
    assert [each.model for each in model.requests] == ["quick-1", "slow-1"]
    await both.switches.off("model", "both", message=GONE)
    assert (await asking(both).chat(housekeeping=True)).status_code == 200
    assert [each.model for each in model.requests][2:] == ["slow-1"]


async def test_a_tool_that_is_off_is_neither_offered_nor_called(make: Make, model: ModelServer) -> None:
    drsai = await make({"looking": looking})
    await drsai.switches.off("tool", "look", tenant="acme", message=GONE)
    model.script(None, calls_first)
    ann = asking(drsai)
    told = (await ann.chat("looking")).json()["choices"][0]["message"]["content"]
    assert told == f"I was told: {GONE}"
    assert [each.tools for each in model.requests] == [["add"], []], "the answer after a call is offered none"
    assert CALLED == []
    # In another tenant it is there.
    model.requests.clear()
    told = (await asking(drsai, tenant="other").chat("looking")).json()["choices"][0]["message"]["content"]
    assert told == "I was told: a tree"
    assert model.requests[0].tools == ["look", "add"]
    assert CALLED == ["there"]
    # Without any tool, none are offered.
    model.requests.clear()
    await drsai.switches.off("tool", "add", message=GONE)
    assert await ann.status("looking", "u") == 200
    assert [each.tools for each in model.requests] == [[], []]
    assert not any("tool_choice" in each.body for each in model.requests)


async def test_a_run_under_way_calls_it_no_more(make: Make, model: ModelServer) -> None:
    drsai = await make({"looking": looking})
    asked, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def answer(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply(f"I was told: {request.last}")
        loop.call_soon_threadsafe(asked.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go.wait(), loop))
        return Reply(tool_calls=[ToolCall("look", {"place": "there"})])

    model.script(None, answer)
    running = asyncio.create_task(drsai.user("ann").run("looking", "Look."))
    await asked.wait()
    await drsai.switches.off("tool", "look", message=GONE)
    go.set()
    assert GONE in str((await running).task_result)
    assert CALLED == []


async def test_what_has_to_be_called_and_is_off_is_not_demanded(make: Make, model: ModelServer) -> None:
    def demanding(context: RunContext) -> DrSaiAgent:
        return DrSaiAgent("ann", context.model_client(), tools=[look], tool_choice="look")

    drsai = await make({"demanding": demanding})
    await drsai.switches.off("tool", "look", message=GONE)
    assert await asking(drsai).status("demanding") == 200
    assert not any({"tool_choice", "tools"} & each.body.keys() for each in model.requests)


async def test_a_refused_embedding_is_charged_nothing(make: Make, model: ModelServer) -> None:
    drsai = await make(embeddings_model="small", limit_user={"requests": 1})
    ann, body = asking(drsai), {"model": "small", "input": "Hello"}
    await drsai.switches.off("model", "small", tenant="acme", message=GONE, actor=PROGRAM)
    for _ in range(3):
        refused = await ann.http.post("/v1/embeddings", json=body)
        assert (refused.status_code, refused.json()["error"]["message"]) == (503, GONE)
    await drsai.switches.on("model", "small", tenant="acme")
    assert (await ann.http.post("/v1/embeddings", json=body)).status_code == 200
    assert len(model.requests) == 1


async def test_a_process_that_is_not_opened_learns_it_when_asked(make: Make, database_url: str) -> None:
    """As one does that resumes runs which may kill it: a tool that kills is not called there any more."""
    drsai = await make()
    await drsai.switches.off("tool", "look", message=GONE)
    apart = DrSai({}, database_url, settings=drsai.settings)
    try:
        assert not apart.models.switches.off
        await apart.switches.refresh()
        assert isinstance(apart.models.switches.find("tool", "look", "acme"), SwitchedOff)
        found: Any = apart.models.switches.find("tool", "add", "acme")
        assert found is None
    finally:
        await apart.models.close()
        await apart.database.close()
