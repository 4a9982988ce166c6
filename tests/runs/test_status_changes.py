"""Whatever is asked of a thread, and whatever dies meanwhile: each stored change of a status is in the table."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import RunStatus, Thread
from drsai_backend.datamodel.lifecycle import DROP, JOIN, TRANSITIONS
from drsai_backend.errors import DrSaiError
from drsai_backend.runs import Answer
from tests.support.scripted import ScriptedClient, counting
from tests.support.threads import QUICK, WHERE, disown, request, settings, thread_of

NOTE = """
CREATE TRIGGER note_{table} AFTER UPDATE OF status ON {table} WHEN OLD.status <> NEW.status
BEGIN INSERT INTO changes VALUES (OLD.status, NEW.status); END
"""


def team() -> RoundRobinGroupChat:
    def ann(messages: Any, options: Any) -> Any:
        return RuntimeError("no") if "fail" in str(messages[-1].content) else counting("ann")(messages, options)

    agents = [AssistantAgent("ann", ScriptedClient(ann, delay=0.03)), UserProxyAgent("person")]
    return RoundRobinGroupChat([*agents, AssistantAgent("bob", ScriptedClient(counting("bob")))], max_turns=3)


async def say(drsai: DrSai, **values: Any) -> None:
    await drsai.engine.start(*request(values.pop("text", "hello"), **values))


async def answer(drsai: DrSai) -> None:
    question = (await thread_of(drsai)).input_request or {"id": "none"}
    await drsai.engine.answer(Principal(), "t", Answer(question["id"], "yes"))


async def cancel_newest_run(drsai: DrSai) -> None:
    runs = await drsai.engine.list_runs(Principal(), "t", after=None, limit=1)
    await drsai.engine.cancel_run(Principal(), runs.items[0].run_id)


async def set_by_hand(drsai: DrSai, status: RunStatus) -> None:
    thread = await thread_of(drsai)
    thread.status = status
    await drsai.db.upsert(thread)


async def settle(drsai: DrSai) -> None:
    """Wait until nothing happens by itself, or a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            while (await thread_of(drsai)).status is RunStatus.RUNNING:  # noqa: ASYNC110 - the database tells
                await asyncio.sleep(0.02)


VERBS: dict[str, Any] = {
    "say": say,
    "fail": lambda drsai: say(drsai, text="fail"),
    "interrupt": lambda drsai: say(drsai, on_busy="interrupt"),
    "steer": lambda drsai: say(drsai, on_busy="steer"),
    "queue": lambda drsai: say(drsai, background=True),
    "queue an answer": lambda drsai: say(drsai, background=True, on_question="answer"),
    "answer": answer,
    "cancel": lambda drsai: drsai.engine.cancel(Principal(), "t"),
    "cancel run": cancel_newest_run,
    "pause": lambda drsai: drsai.engine.pause(Principal(), "t"),
    "resume": lambda drsai: drsai.engine.resume(Principal(), "t"),
    "crash": disown,
    "settle": settle,
    "stop by hand": lambda drsai: set_by_hand(drsai, RunStatus.STOPPED),
    "create by hand": lambda drsai: set_by_hand(drsai, RunStatus.CREATED),
}


async def play(verbs: list[str], url: str) -> set[tuple[RunStatus, RunStatus]]:
    """The changes of statuses that were stored."""
    options = {**QUICK, "shutdown_grace_seconds": 0}
    async with DrSai({"crew": team}, url, settings=settings(**options)) as drsai:
        execute = drsai.database.write
        await execute(lambda session: session.execute(sa.text("CREATE TABLE changes (before TEXT, later TEXT)")))
        for table in ("thread", "run"):
            await execute(lambda session, table=table: session.execute(sa.text(NOTE.format(table=table))))
        await say(drsai)
        for verb in verbs:
            with contextlib.suppress(DrSaiError):
                await VERBS[verb](drsai)
        await settle(drsai)
        rows = await drsai.database.read(lambda session: list(session.execute(sa.text("SELECT * FROM changes"))))
        assert await drsai.db.get(Thread, filters=WHERE)
    return {(RunStatus(before), RunStatus(later)) for before, later in rows}


@given(st.lists(st.sampled_from(sorted(VERBS)), max_size=8))
@hypothesis_settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_stored_change_of_a_status_is_in_the_table(tmp_path: Any, verbs: list[str]) -> None:
    changes = asyncio.run(play(verbs, f"sqlite:///{tmp_path}/{uuid4().hex}.db"))
    assert all(later in TRANSITIONS[before] for before, later in changes)


@pytest.mark.parametrize(
    ("verbs", "change"),
    [
        (["steer", "settle"], (JOIN, RunStatus.COMPLETED)),
        (["queue", "cancel run"], (DROP, RunStatus.STOPPED)),
    ],
)
async def test_queued_inputs_are_joined_and_dropped(verbs: list[str], change: Any, tmp_path: Any) -> None:
    verb, later = change
    assert (RunStatus.CREATED, later) in await play(verbs, f"sqlite:///{tmp_path}/changes.db")
    assert verb.allows(RunStatus.CREATED, later)
