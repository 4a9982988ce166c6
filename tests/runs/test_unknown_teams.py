"""Inputs and runs whose team is not there: deleted, or unknown to every worker; and those that a later release has
stored. On SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall

from drsai_backend import AssistantAgent, DrSai, RunStatus, requires_approval
from drsai_backend.access.principal import Principal
from drsai_backend.database import Database
from drsai_backend.database.runs.workers import announce, look_around, unknown_for
from drsai_backend.datamodel import JournalEntry, QueuedInput, Run, StoredDefinition, Worker, table_of, utcnow
from drsai_backend.runs.recovery.announcements import FORMS
from tests.support.scripted import ScriptedClient
from tests.support.teams.crew import Crew
from tests.support.threads import LATE, QUICK, Make, disown, ended, head_of, request, said, thread_of, until

PATIENCE = {"unknown_team_seconds": 0.2}
DEFINITION = {"agents": {"helper": {"prompt": "x"}}}


async def gone(drsai: DrSai, worker_id: str, seconds: float = 60) -> None:
    """As if that worker had not lived for so long."""
    worker = table_of(Worker)
    change = sa.update(worker).where(worker.c.worker_id == worker_id)
    change = change.values(seen_at=utcnow() - timedelta(seconds=seconds))
    await drsai.database.write(lambda session: session.execute(change))


async def sweeps(drsai: DrSai, number: int) -> None:
    """Wait until that many more sweeps have looked at all that they found."""
    recovery, seen, sweep = drsai.engine._recovery, 0, drsai.engine._recovery.sweep

    async def counted() -> list[int]:
        nonlocal seen
        seen += 1
        return await sweep()

    recovery.sweep = counted  # type: ignore[method-assign]

    async def enough() -> bool:
        return seen > number

    await until(enough)
    recovery.sweep = sweep  # type: ignore[method-assign]


async def status(drsai: DrSai, run_id: str) -> tuple[RunStatus, str | None]:
    [run] = await drsai.db.get(Run, {"run_id": run_id})
    return run.status, run.error_message


async def test_an_input_whose_definition_was_deleted_ends_and_the_next_begins(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew})
    await drsai.agents.put("helper", DEFINITION)
    await drsai.engine.start(*request("one"))
    lost = await drsai.engine.start(*request("two", team="helper", key="k"))
    behind = await drsai.engine.start(*request("three"))
    await drsai.agents.delete("helper")
    crew.bob.release()
    end = await lost.wait()
    assert (end.status, end.error_code) == (RunStatus.ERROR, "model_not_found")
    assert "'helper' was deleted" in (end.error_message or "")
    assert (await behind.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["one", "three"]
    # Nothing of it was done: once there is an agent of that name, the same request is a new one.
    await drsai.agents.put("helper", DEFINITION)
    again = await drsai.engine.start(*request("two", team="helper", key="k"))
    assert again.run_id != lost.run_id
    assert (await again.wait()).status is RunStatus.COMPLETED


async def test_one_that_was_deleted_and_made_anew_answers(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew})
    await drsai.agents.put("helper", DEFINITION)
    await drsai.engine.start(*request("one"))
    waits = await drsai.engine.start(*request("two", team="helper"))
    await drsai.agents.delete("helper")
    other = await make({"crew": crew})
    await drsai.engine.catalog.all(Principal())
    with pytest.raises(Exception, match="helper"):
        await drsai.run("helper", "x")  # This process believes for a second that there is none.
    await other.agents.put("helper", DEFINITION)
    crew.bob.release()
    assert (await waits.wait()).status is RunStatus.COMPLETED


async def queued_for_others(make: Make, crew: Crew) -> tuple[DrSai, DrSai, list[Any]]:
    """A worker that knows the team `rare` and does nothing, one that does not, and a thread with an input for each of
    two teams in its queue. Returns the workers and the handles."""
    knows = await make({"crew": crew, "rare": Crew()}, **LATE)
    crew.bob.hold()
    first = await knows.engine.start(*request("one"))
    rare = await knows.engine.start(*request("two", team="rare", key="k"))
    last = await knows.engine.start(*request("three"))
    await knows.engine._sweeper.stop()
    knows.engine._running.refuse()  # It begins nothing.
    lacks = await make({"crew": crew}, **QUICK, **PATIENCE)
    crew.bob.release()
    await first.wait()
    return knows, lacks, [rare, last]


async def test_an_input_waits_for_a_worker_that_knows_its_team_and_not_for_ever(make: Make) -> None:
    knows, lacks, [rare, last] = await queued_for_others(make, Crew())
    await sweeps(lacks, 2)
    assert await status(lacks, rare.run_id) == (RunStatus.CREATED, None)
    assert len(await lacks.db.get(QueuedInput)) == 2
    await gone(lacks, knows.engine.worker_id)

    async def is_over() -> bool:
        return (await status(lacks, last.run_id))[0].is_final

    await until(is_over)
    state, error = await status(lacks, rare.run_id)
    assert state is RunStatus.ERROR
    assert "no worker has known the team 'rare' for 0.2 s" in (error or "")
    assert said(await thread_of(lacks)) == ["one", "three"]
    # The same request again, now that a worker knows the team.
    again = await make({"crew": Crew(), "rare": Crew()})
    handle = await again.engine.start(*request("two", team="rare", key="k"))
    assert (await handle.wait()).status is RunStatus.COMPLETED


async def test_it_is_run_by_a_worker_that_comes_in_time(make: Make) -> None:
    _, lacks, [rare, last] = await queued_for_others(make, Crew())
    await sweeps(lacks, 2)
    await make({"crew": Crew(), "rare": Crew()}, **QUICK)

    async def is_over() -> bool:
        return (await status(lacks, last.run_id))[0].is_final

    await until(is_over)
    assert (await status(lacks, rare.run_id))[0] is RunStatus.COMPLETED
    assert said(await thread_of(lacks)) == ["one", "two", "three"]


async def test_an_orphan_of_a_team_that_nobody_knows_ends_too(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    knows = await make({"crew": crew, "other": Crew()}, **LATE, shutdown_grace_seconds=0)
    await knows.engine.start(*request("one"))
    await crew.bob.asked.wait()
    await knows.engine.start(*request("two", team="other"))
    lacks = await make({"other": Crew()}, **QUICK, **PATIENCE)
    await disown(knows)
    await sweeps(lacks, 2)
    assert (await thread_of(lacks)).status is RunStatus.RUNNING
    await gone(lacks, knows.engine.worker_id)
    await ended(lacks)

    async def is_over() -> bool:
        return (await thread_of(lacks)).queued == 0 and (await thread_of(lacks)).status is RunStatus.COMPLETED

    await until(is_over)
    assert said(await thread_of(lacks)) == ["one", "two"]
    errors = [run.error_message for run in await lacks.db.get(Run) if run.status is RunStatus.ERROR]
    assert ["no worker has known the team 'crew'" in str(error) for error in errors] == [True]


async def test_a_run_of_a_definition_that_is_not_kept_ends(make: Make) -> None:
    drsai = await make({"crew": Crew()}, demo_delay=20, **LATE, shutdown_grace_seconds=0)
    await drsai.agents.put("helper", DEFINITION)
    await drsai.engine.start(*request("one", team="helper"))
    kept = table_of(StoredDefinition)
    await drsai.database.write(lambda session: session.execute(sa.delete(kept)))
    await disown(drsai)
    other = await make({"crew": Crew()}, **QUICK)
    thread = await ended(other)
    assert thread.status is RunStatus.ERROR
    assert "is not kept any more" in (thread.error_message or "")


async def unanswered(knows: DrSai) -> None:
    """The thread's run asks for an approval, which is not given in time, and an input waits behind it. The process that
    knows its team begins nothing any more."""
    result = await knows.run("crew", "one", thread_id="t")
    assert result.status is RunStatus.AWAITING_INPUT
    await knows.engine.start(*request("two", team="other", on_question="wait"))
    await knows.engine._sweeper.stop()
    knows.engine._running.refuse()
    await asyncio.sleep(1)


def waits_for_bob() -> RoundRobinGroupChat:
    @requires_approval(by="user:bob", deadline=timedelta(seconds=1))
    async def pay(to: str) -> str:
        """Pays."""
        return f"paid {to}"

    model = ScriptedClient(lambda *_: [FunctionCall("1", '{"to": "ada"}', "pay")])
    return RoundRobinGroupChat([AssistantAgent("clerk", model, tools=[pay])], max_turns=1)


def broken() -> RoundRobinGroupChat:
    raise ValueError("it is broken")


@pytest.mark.parametrize("is_known", [False, True])
async def test_an_approval_that_is_late_ends_where_its_team_is_gone(make: Make, is_known: bool) -> None:
    """Unknown to all workers, or it cannot be built any more."""
    knows = await make({"crew": waits_for_bob, "other": Crew()}, **LATE)
    await unanswered(knows)
    teams: dict[str, Any] = {"other": Crew(), **({"crew": broken} if is_known else {})}
    other = await make(teams, **QUICK, **PATIENCE)
    if not is_known:
        await sweeps(other, 2)
        assert (await thread_of(other)).status is RunStatus.AWAITING_INPUT
        await gone(other, knows.engine.worker_id)

    async def is_over() -> bool:
        return (await thread_of(other)).queued == 0 and (await thread_of(other)).status is RunStatus.COMPLETED

    await until(is_over)
    thread = await thread_of(other)
    assert (said(thread), thread.input_request) == (["one", "", "two"], None)
    [error] = [run.error_message for run in await other.db.get(Run) if run.status is RunStatus.ERROR]
    assert ("(team_build_failed)" if is_known else "no worker has known the team 'crew'") in str(error)
    received = [each for each in thread.messages if each["type"] == "UserInputReceivedEvent"]
    assert [(each["decision"], each["user_id"]) for each in received] == [("expired", None)]


def later(request: dict[str, Any]) -> dict[str, Any]:
    """A stored request as a release might store it that has renamed a field."""
    return {
        "version": 2,
        "said": request["messages"],
        **{k: v for k, v in request.items() if k not in ("version", "messages")},
    }


async def a_later_release(drsai: DrSai, *, lives: bool = True) -> None:
    """A worker of one announces what it reads; or it is gone."""
    values = {"worker_id": "later", "teams": [f"drsai:form-{FORMS + 1}"], "since": utcnow() - timedelta(hours=1)}
    if lives:
        seen = {**values, "seen_at": utcnow()}
        await drsai.database.write(lambda session: session.execute(sa.insert(table_of(Worker)).values(**seen)))
    else:
        await gone(drsai, "later")


async def store_later(drsai: DrSai, run_id: str) -> None:
    """Have a queued input be one that a later release has stored."""
    [waits] = await drsai.db.get(QueuedInput, {"run_id": run_id})
    queue = table_of(QueuedInput)
    change = sa.update(queue).where(queue.c.run_id == run_id).values(request=later(waits.request))
    await drsai.database.write(lambda session: session.execute(change))


async def test_an_input_of_a_later_release_waits_for_a_worker_that_reads_it(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK, **PATIENCE)
    first = await drsai.engine.start(*request("one"))
    newer = await drsai.engine.start(*request("two", key="k"))
    last = await drsai.engine.start(*request("three"))
    await store_later(drsai, newer.run_id)
    await a_later_release(drsai)
    crew.bob.release()
    assert (await first.wait()).status is RunStatus.COMPLETED
    await sweeps(drsai, 2)
    assert await status(drsai, newer.run_id) == (RunStatus.CREATED, None)
    assert len(await drsai.db.get(QueuedInput)) == 2
    await a_later_release(drsai, lives=False)
    assert (await last.wait()).status is RunStatus.COMPLETED
    state, error = await status(drsai, newer.run_id)
    assert state is RunStatus.ERROR
    assert "has format version 2; this version of drsai_backend reads 1" in (error or "")
    assert "no worker of a later one has lived for 0.2 s: start one" in (error or "")
    assert said(await thread_of(drsai)) == ["one", "three"]
    # Nothing of it was done: the same request is a new one.
    again = await drsai.engine.start(*request("two", key="k"))
    assert (await again.wait()).status is RunStatus.COMPLETED


async def test_a_stored_request_without_a_version_is_of_the_first(make: Make) -> None:
    """As releases before wrote them; and one with a field that is not known here is read, as it need not be known."""
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew})
    await drsai.engine.start(*request("one"))
    waits = [await drsai.engine.start(*request(text)) for text in ("two", "three")]
    queue = table_of(QueuedInput)
    for handle, change in zip(waits, ({"version": None}, {"more": {"a": 1}}), strict=True):
        [row] = await drsai.db.get(QueuedInput, {"run_id": handle.run_id})
        assert row.request["version"] == 1
        stored = {**row.request, **change}
        if change.get("version", 1) is None:
            del stored["version"]
        update = sa.update(queue).where(queue.c.run_id == handle.run_id).values(request=stored)
        await drsai.database.write(lambda session, update=update: session.execute(update))
    crew.bob.release()
    for handle in waits:
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["one", "two", "three"]


async def test_a_run_is_not_steered_by_what_it_cannot_read(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **LATE)
    first = await drsai.engine.start(*request("one"))
    await crew.bob.asked.wait()
    newer = await drsai.engine.start(*request("two", on_busy="steer"))
    await store_later(drsai, newer.run_id)
    await a_later_release(drsai)
    crew.bob.release()
    assert (await first.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["one"]
    assert await status(drsai, newer.run_id) == (RunStatus.CREATED, None)


async def test_an_orphan_of_a_later_release_is_left_to_a_worker_that_reads_it(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    knows = await make({"crew": crew}, **LATE, shutdown_grace_seconds=0)
    handle = await knows.engine.start(*request("one"))
    await crew.bob.asked.wait()
    journal = table_of(JournalEntry)
    [entry] = await knows.database.read(lambda session: session.execute(sa.select(journal)).mappings().all())
    raw = bytearray(base64.b64decode(entry["payload"]))
    raw[2] = 9  # The version of its form.
    change = sa.update(journal).values(payload=base64.b64encode(raw).decode())
    await knows.database.write(lambda session: session.execute(change))
    lacks = await make({"crew": crew}, **QUICK, **PATIENCE)
    await a_later_release(lacks)
    await disown(knows)
    await sweeps(lacks, 3)
    assert (await lacks.get_thread("t")).status == "running"

    async def may_be_taken() -> bool:
        return (await head_of(lacks)).lease_owner is None

    await until(may_be_taken)
    assert await status(lacks, handle.run_id) == (RunStatus.RUNNING, None)
    await a_later_release(lacks, lives=False)

    async def is_over() -> bool:
        return (await status(lacks, handle.run_id))[0].is_final

    await until(is_over)
    state, error = await status(lacks, handle.run_id)
    assert state is RunStatus.ERROR
    assert "no worker of a later one has lived for 0.2 s" in (error or "")


WORKERS: dict[str, tuple[list[tuple[float, float, list[str] | None]], float]] = {
    # (since, seen_at, teams) in seconds ago, and for how long "x" is unknown
    "one that lives knows it": ([(900, 1, ["x"]), (900, 1, [])], 0),
    "one that lives says nothing": ([(900, 1, None), (900, 1, [])], 0),
    "nobody knows it": ([(900, 1, ["y"]), (500, 1, [])], 900),
    "one that knew it is gone": ([(900, 300, ["x"]), (900, 1, [])], 300),
    "one that said nothing is gone": ([(900, 300, None), (900, 1, [])], 300),
    "it was known before the others lived": ([(900, 300, ["x"]), (200, 1, [])], 200),
    "one after the other": ([(900, 500, []), (490, 200, []), (210, 1, [])], 900),
    "nobody lived in between": ([(900, 500, []), (400, 1, [])], 400),
    "a short while in between": ([(900, 420, []), (400, 1, [])], 900),
    "nobody lives": ([], 0),
}


@pytest.mark.parametrize("name", WORKERS)
async def test_for_how_long_a_team_is_unknown(database_url: str, name: str) -> None:
    rows, expected = WORKERS[name]
    database = Database(database_url)
    try:
        for number, (since, seen, teams) in enumerate(rows):
            at = {"since": utcnow() - timedelta(seconds=since), "seen_at": utcnow() - timedelta(seconds=seen)}
            add = sa.insert(table_of(Worker)).values(worker_id=str(number), teams=teams, **at)
            await database.write(lambda session, add=add: session.execute(add))
        found = await database.read(lambda session: unknown_for(session, "x"))
        assert abs(found.total_seconds() - expected) < 15  # the rest is the machine's
    finally:
        await database.close()


async def test_a_gap_in_what_a_worker_says_is_one_in_its_life(database_url: str) -> None:
    database, lease = Database(database_url), timedelta(seconds=10)

    async def say() -> timedelta:
        await database.write(lambda session: announce(session, "w", ["y"], lease))
        return await database.read(lambda session: unknown_for(session, "x"))

    async def move(seen: float) -> None:
        at = {"since": utcnow() - timedelta(seconds=800), "seen_at": utcnow() - timedelta(seconds=seen)}
        await database.write(lambda session: session.execute(sa.update(table_of(Worker)).values(**at)))

    try:
        assert (await say()).total_seconds() < 15
        await move(5)
        assert (await say()).total_seconds() > 700
        await move(200)
        assert (await say()).total_seconds() < 15
    finally:
        await database.close()


async def test_a_worker_of_the_release_before_counts_as_knowing(migrated_postgres: str) -> None:
    database, patience = Database(migrated_postgres), timedelta(seconds=900)

    async def say() -> timedelta:
        await database.write(lambda session: announce(session, "w", ["y"], timedelta(seconds=10)))
        await database.write(lambda session: look_around(session, patience))
        at = {"since": utcnow() - timedelta(seconds=800)}
        await database.write(lambda session: session.execute(sa.update(table_of(Worker)).values(**at)))
        return await database.read(lambda session: unknown_for(session, "x"))

    try:
        assert (await say()).total_seconds() > 700
        async with await psycopg.AsyncConnection.connect(migrated_postgres, application_name="drsai jobs"):
            assert (await say()).total_seconds() == 0
    finally:
        await database.close()
