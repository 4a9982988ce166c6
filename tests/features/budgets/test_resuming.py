"""Runs that are paused for a budget are resumed once there is more of it: some at a time, and no others."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.orm import Session

from drsai_backend import AssistantAgent, DrSai, RunContext, RunStatus
from drsai_backend.database.moving import refuse_runs
from drsai_backend.datamodel import Run, WebhookDelivery, table_of, utcnow
from drsai_backend.datamodel.audit import Actor, By
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Forbidden
from drsai_backend.features.budgets import extension
from drsai_backend.features.budgets.base import periods
from drsai_backend.features.budgets.extension import BATCH, Resuming
from drsai_backend.features.budgets.rows import PausedRun
from drsai_backend.models import ModelParams
from tests.features.budgets.conftest import CALL, STATE, Make, asking, used
from tests.features.budgets.test_budgets import pair
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.teams.crew import Crew
from tests.support.threads import LATE, settings, until

_run, _delivery = table_of(Run), table_of(WebhookDelivery)
MANY = 20
FEW = {"model": "pair", "max_tokens": 30}


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process looks when the test does."""
    monkeypatch.setattr(extension, "EVERY", 3_600)


def looking(drsai: DrSai) -> Resuming:
    assert drsai.budgets.resuming is not None
    return drsai.budgets.resuming


async def statuses(drsai: DrSai) -> Counter[RunStatus]:
    query = sa.select(_run.c.status)
    return Counter(await drsai.database.read(lambda session: [*session.connection().execute(query).scalars()]))


async def rest(drsai: DrSai) -> None:
    """Wait until nothing is under way."""

    async def is_over() -> bool:
        return not (await statuses(drsai))[RunStatus.RUNNING]

    await until(is_over)


@pytest.mark.usefixtures("never")
async def test_it_needs_a_change_and_room(make: Make, model: ModelServer) -> None:
    """A budget that is set is a change, and a day that begins."""
    drsai = await make({"pair": pair}, budget_user={"tokens_day": CALL + 20})
    assert (await asking(drsai).chat(**FEW)).json()["drsai"]["status"] == "paused"
    assert await looking(drsai).look() == 0
    assert (await statuses(drsai)) == {RunStatus.PAUSED: 1}
    # Another budget, of which no twentieth is left.
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=CALL + 5)
    assert await looking(drsai).look() == 0
    # The day is over, and what was used is that of yesterday.
    yesterday = utcnow() - timedelta(days=1)

    def go_back(session: Session) -> None:
        session.connection().execute(sa.update(STATE).values(period=periods(yesterday)["day"]))
        session.connection().execute(sa.update(_run).values(updated_at=yesterday))

    await drsai.database.write(go_back)
    assert await looking(drsai).look() == 1
    await rest(drsai)
    assert (await statuses(drsai)) == {RunStatus.COMPLETED: 1}
    assert len(model.requests) == 2


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("recovery", ["continue", "fail"])
async def test_a_setting_is_a_change(make: Make, recovery: str) -> None:
    """What is resumed so was not cut."""
    drsai = await make({"pair": pair}, recovery=recovery)
    await drsai.config.set({"budget_user": f"tokens_day={CALL + 20}"})
    assert (await asking(drsai).chat(**FEW)).json()["drsai"]["status"] == "paused"
    assert await looking(drsai).look() == 0
    await drsai.config.set({"budget_user": "tokens_day=100000"})
    assert await looking(drsai).look() == 1
    await rest(drsai)
    assert (await statuses(drsai)) == {RunStatus.COMPLETED: 1}


@pytest.mark.usefixtures("never")
async def test_those_of_a_tenant_that_is_moved_are_left_alone(make: Make, database_url: str) -> None:
    """Also where an operator had switched it off before, and lifts that."""
    drsai = await make({"pair": pair}, budget_user={"tokens_day": CALL + 20})
    assert (await asking(drsai).chat(**FEW)).json()["drsai"]["status"] == "paused"
    olga = Actor(By.USER, "olga", "key_1")
    await drsai.switches.off("tenant", "acme", message="Not paid.", actor=olga)
    await asyncio.to_thread(refuse_runs, database_url, "acme")
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=100_000)
    assert await looking(drsai).look() == 0
    with pytest.raises(Forbidden, match="is being moved"):
        await drsai.switches.on("tenant", "acme", actor=olga)
    assert await looking(drsai).look() == 0
    await drsai.switches.on("tenant", "acme")
    assert await looking(drsai).look() == 1
    await rest(drsai)


@pytest.mark.usefixtures("never")
async def test_what_a_person_has_paused_stays_paused(make: Make) -> None:
    crew = Crew()
    drsai = await make({"crew": crew, "pair": pair})
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=CALL + 20)
    ann, bob = drsai.user("ann", tenant="acme"), drsai.user("bob", tenant="acme")
    crew.ann.hold()
    await bob.start("crew", "x", thread_id="b")
    await crew.ann.asked.wait()
    await bob.pause("b")
    crew.ann.release()
    await rest(drsai)
    assert (await asking(drsai).chat("t", **FEW)).json()["drsai"]["status"] == "paused"
    assert (await statuses(drsai)) == {RunStatus.PAUSED: 2}
    for user in ("ann", "bob"):
        await drsai.budgets.set("user", user, tenant="acme", tokens_day=100_000)
    assert await looking(drsai).look() == 1
    await rest(drsai)
    assert (await ann.get_thread("t")).status is RunStatus.COMPLETED
    assert (await bob.get_thread("b")).status is RunStatus.PAUSED


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_a_person_has_paused_as_well_stays_paused(make: Make, model: ModelServer, when: str) -> None:
    """In the turn in which its run comes to its budget, or once that has paused it."""

    async def look(name: str) -> str:
        """Look a name up."""
        return name

    def tooled(context: RunContext) -> AssistantAgent:
        return AssistantAgent("ann", context.model_client(), tools=[look], reflect_on_tool_use=True)

    def answer(request: ModelRequest) -> Reply:
        is_told = request.messages[-1]["role"] == "tool"
        calls = [] if is_told else [ToolCall("look", {"name": "x"})]
        return Reply("Found." if is_told else "", tool_calls=calls, prompt_tokens=100, completion_tokens=10, delay=0.5)

    async def is_asked() -> bool:
        return len(model.requests) == 1

    model.script(None, answer)
    drsai = await make({"tooled": tooled}, budget_user={"tokens_day": 200})
    ann = drsai.user("ann", tenant="acme")
    handle = await ann.start("tooled", "x", thread_id="t", params=ModelParams(max_tokens=100))
    if when == "before":
        await until(is_asked)
        await ann.pause("t")
    assert (await handle.wait()).status is RunStatus.PAUSED
    if when == "after":
        await ann.pause("t")
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=100_000)
    assert await looking(drsai).look() == 0
    await ann.resume("t")
    await rest(drsai)
    assert (await ann.get_thread("t")).status is RunStatus.COMPLETED


@pytest.mark.usefixtures("never")
async def test_many_do_not_use_a_small_rest_up_together(
    database_url: str, make: Make, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = {"openai_base_url": model.base_url, "openai_api_key": SecretStr("k"), "model": "gpt-4o-mini"}
    given = settings(**LATE, **endpoint, budget_thread={"tokens_day": 200})
    async with DrSai({"pair": pair}, database_url, settings=given) as drsai:
        asked = asking(drsai)
        told = await asyncio.gather(*(asked.chat(f"t{number}", model="pair", max_tokens=100) for number in range(MANY)))
        assert {each.json()["drsai"]["status"] for each in told} == {"paused"}
    most = 9 * CALL + 50
    drsai = await make({"pair": pair}, budget_user={"tokens_day": most})
    assert await looking(drsai).look() == BATCH
    await rest(drsai)
    # A few have had what there was; the others are paused again, and not tried again.
    assert await looking(drsai).look() == 0
    found = await statuses(drsai)
    assert found[RunStatus.COMPLETED] >= 5
    assert found[RunStatus.PAUSED] == MANY - found[RunStatus.COMPLETED]
    assert (await used(drsai))[0] == found[RunStatus.COMPLETED] * CALL <= most
    assert len(model.requests) == MANY + found[RunStatus.COMPLETED]
    # With more, all of them go on, whoever looks.
    monkeypatch.setattr(extension, "EVERY", 0.1)
    other = await make({"pair": pair}, budget_user={"tokens_day": most})
    await other.budgets.set("user", "ann", tenant="acme", tokens_day=100_000)

    async def are_done() -> bool:
        return (await statuses(drsai)) == {RunStatus.COMPLETED: MANY}

    await until(are_done)
    assert len(model.requests) == 2 * MANY


@pytest.mark.usefixtures("never")
async def test_a_run_that_needs_more_than_there_is_is_told_of_once(make: Make) -> None:
    """However often it is tried again, which is ever more seldom; and again once it has done something."""
    drsai = await make({"pair": pair}, budget_user={"tokens_day": 2 * CALL}, allowed_addresses=["127.0.0.1"])
    ann, params = drsai.user("ann", tenant="acme"), ModelParams(max_tokens=CALL)
    await drsai.webhooks.make_secret(Owner("acme", "ann"))
    await ann.start("pair", "x", thread_id="t", params=params, background=True, webhook_url="https://127.0.0.1:9/")

    async def is_paused() -> bool:
        return (await statuses(drsai)) == {RunStatus.PAUSED: 1}

    async def told() -> int:
        paused = sa.select(sa.func.count()).where(_delivery.c.type == "run.paused")
        return await drsai.database.read(lambda session: session.execute(paused).scalar_one())

    def later(session: Session) -> None:
        """It is as if it had been paused for half an hour."""
        before = utcnow() - timedelta(minutes=30)
        session.connection().execute(sa.update(_run).values(started_at=before, updated_at=before))

    await until(is_paused)
    assert await told() == 1
    for _ in range(2):
        await drsai.database.write(later)
        assert await looking(drsai).look() == 1
        await until(is_paused)
        assert await looking(drsai).look() == 0
    assert await told() == 1
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=100_000)
    assert await looking(drsai).look() == 1
    await rest(drsai)
    assert (await statuses(drsai)) == {RunStatus.COMPLETED: 1}


def test_it_is_tried_again_ever_more_seldom() -> None:
    began = utcnow()
    run = PausedRun(Owner("acme", "ann").thread("t"), 1, "run_1", 1, None, began, began - timedelta(hours=3), 10_800)
    waits: list[float] = []
    for _ in range(5):
        waits.append((run.again_at - run.at).total_seconds() / 60)
        run = run._replace(at=run.again_at)
    assert waits == [10, 10, 20, 40, 80]
