"""What known people say is learnt after a run, from their own words alone, and nothing is overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend import AssistantAgent, DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import AutoGenMessage, StoredMemory, WorkJob, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory.base import MemoryInfo, plain
from drsai_backend.features.memory.extension import Memory
from drsai_backend.runs import InputMessage
from drsai_backend.runs.threads.queries import text_of
from tests.features.memory.learning import ANN, current, learnt
from tests.features.memory.scripted import FIND, SURE, YEAR
from tests.support.asks import asks
from tests.support.model_server import Failure, ModelServer
from tests.support.scripted import ScriptedClient
from tests.support.threads import until

BOB = Owner("default", "bob")
TABLE = table_of(StoredMemory)


async def all_versions(drsai: DrSai) -> list[MemoryInfo]:
    rows = await drsai.database.read(
        lambda session: session.execute(sa.select(TABLE).order_by(TABLE.c.id)).mappings().all()
    )
    return [MemoryInfo.model_validate(dict(row)) for row in rows]


async def month_passes(drsai: DrSai) -> None:
    """Make all that is remembered thirty days older."""

    def older(session: Any) -> None:
        names = ("created_at", "valid_from", "valid_to", "expired_at", "used_at")
        for row in session.execute(sa.select(TABLE)).mappings().all():
            times = {name: row[name] and row[name] - timedelta(days=30) for name in names}
            session.execute(sa.update(TABLE).where(TABLE.c.id == row["id"]).values(times))

    await drsai.database.write(older)


async def test_a_year_of_a_life(make: Callable[..., DrSai], model: ModelServer) -> None:
    async with make() as drsai:
        ann = drsai.user("ann")
        for month, texts in enumerate(YEAR):
            for text in texts:
                await ann.run("assistant", text, thread_id=f"t{month}")
            await learnt(drsai)
            await month_passes(drsai)
        assert await current(drsai) == [
            "The user has a dog called Rex.",
            "The user is allergic to peanuts.",
            "The user lives in Hamburg.",
            "The user wants to learn Czech.",
            "The user works at Harbour Labs.",
        ]
        memory = drsai.extension(Memory)
        for question, answer in (
            ("Where do I live?", "The user lives in Hamburg."),
            ("Where do I work now?", "The user works at Harbour Labs."),
            ("Which allergy do I have? Is it to peanuts?", "The user is allergic to peanuts."),
            ("What is the name of my dog?", "The user has a dog called Rex."),
        ):
            found = [each.memory.text for each in (await memory.search(ANN, question)).items]
            assert found[0] == answer
            assert not any(word in " ".join(found) for word in ("Lisbon", "Porto", "Fado", "hiking"))
        home = next(each for each in (await memory.search(ANN, "live")).items)
        lived = [*reversed(await memory.history(ANN, home.memory.memory_id))]
        assert [each.text for each in lived] == [
            f"The user lives in {city}." for city in ("Lisbon", "Porto", "Hamburg")
        ]
        assert [each.ended_by for each in lived] == ["update", "update", None]
        assert all(before.valid_to == after.valid_from for before, after in pairwise(lived))
        [hiking] = [each for each in await all_versions(drsai) if "hiking" in each.text]
        assert hiking.ended_by == "invalidate"
        await held(drsai)
        asked = "\n".join(str(request.body) for request in model.requests)
        assert "The user lives in Hamburg" in asked  # It was recalled, and not learnt again:
        assert "[memory]" not in "\n".join(request.last for request in model.requests if FIND in request.system)


async def held(drsai: DrSai) -> None:
    """Each version names a message of the person's, and words in it."""
    m = table_of(AutoGenMessage).c
    for each in await all_versions(drsai):
        assert each.sources
        assert "4111" not in each.text
        for source in each.sources:
            query = sa.select(m.config).where(m.thread_id == source.thread_id, m.seq == source.seq)
            config = (await drsai.database.read(lambda s, query=query: s.execute(query))).scalar_one()
            assert config["source"] == "user"
            assert plain(source.quote) in plain(text_of(config))


@pytest.mark.parametrize(
    ("name", "off"), [("gpt-4o", "gpt-4o"), ("learns", "learns"), ("learns", "gpt-4o")], ids=["plain", "profile", "its"]
)
async def test_nothing_is_learnt_by_a_model_that_is_off(
    make: Callable[..., DrSai], model: ModelServer, tmp_path: Path, name: str, off: str
) -> None:
    """In the tenant alone. It is learnt later."""
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"profiles": {"learns": {"model": "gpt-4o"}}}))
    jobs = table_of(WorkJob)
    failed = sa.select(sa.func.count()).select_from(jobs).where(jobs.c.error.is_not(None))
    async with make(memory_model=name, models=file) as drsai:

        async def is_refused() -> bool:
            return bool(await drsai.database.read(lambda session: session.execute(failed).scalar_one()))

        await drsai.switches.off("model", off, tenant="default", message="Back at six.")
        await run_as(drsai, Principal("bob", "acme"), "I live in Lisbon.")
        await learnt(drsai)
        assert await current(drsai, Owner("acme", "bob")) == ["The user lives in Lisbon."]
        model.requests.clear()
        await run_as(drsai, Principal("ann"), "I live in Lisbon.")
        await until(is_refused)
        assert not [each for each in model.requests if FIND in each.system]


async def test_only_known_people_who_want_it(make: Callable[..., DrSai]) -> None:
    async with make() as drsai:
        memory = drsai.extension(Memory)
        await memory.set_learns(Owner("default", "bob"), learns=False)
        asking = (
            Principal("ann"),
            Principal("bob"),
            Principal(),
            Principal("gateway", key_id="key_x", for_many=True),
        )
        for who in asking:
            await run_as(drsai, who)
        await learnt(drsai)
        assert [each.text for each in await all_versions(drsai)] == ["The user lives in Lisbon."]
        assert await current(drsai) == ["The user lives in Lisbon."]
        await memory.set_learns(ANN, learns=False)
        await run_as(drsai, Principal("ann"), "I work at Harbour Labs.")
        await learnt(drsai)
        assert await current(drsai) == ["The user lives in Lisbon."]


async def test_on_a_shared_thread_everybody_teaches_what_they_say(make: Callable[..., DrSai]) -> None:
    def indeed(messages: Any, options: Any) -> str:
        return "Indeed."

    first = ScriptedClient(indeed)

    def crew() -> RoundRobinGroupChat:
        ears = [AssistantAgent(name, first) for name in ("left", "right")]
        return RoundRobinGroupChat([*ears], max_turns=2)

    async with make(teams={"crew": crew}) as drsai:
        first.hold()
        handle = await drsai.user("ann").start("crew", "I live in Lisbon.", thread_id="t")
        await drsai.user("ann").share_thread("t", with_user="bob", right="write")
        bob = drsai.user("bob", owner="ann")
        steering = await bob.start("crew", "I live in Porto.", thread_id="t", on_busy="steer")
        first.release()
        await handle.wait()
        del steering
        await learnt(drsai)
        assert await current(drsai) == ["The user lives in Lisbon."]
        assert await current(drsai, BOB) == []
        await bob.run("crew", "I work at Harbour Labs.", thread_id="t")
        await learnt(drsai)
        assert await current(drsai) == ["The user lives in Lisbon."]
        assert await current(drsai, BOB) == ["The user works at Harbour Labs."]


async def run_as(drsai: DrSai, who: Principal, text: str = "I live in Lisbon.") -> None:
    handle = await drsai.engine.start(*asks("assistant", [InputMessage("user", text)], who))
    await handle.wait()


async def test_where_scoring_or_the_model_fails_nothing_is_learnt(
    make: Callable[..., DrSai], model: ModelServer
) -> None:
    half = {
        "text": "The user lives in Lisbon.",
        "message": 1,
        "quote": "I live in Lisbon",
        "complexity": 1,
        "density": 1,
    }
    answers: list[Any] = [
        "no JSON",
        json.dumps({"facts": [{**half, "emotion": 2, "intent": 1}, {**half, "emotion": None}, "x", {**SURE}]}),
        json.dumps({"facts": [{**half, "emotion": 0, "intent": 0.4}]}),
        json.dumps({"facts": {"a": 1}}),
        Failure(500, "no"),
        json.dumps({"facts": [{**half, **SURE}]}),
    ]
    model.script(FIND, answers)
    async with make() as drsai:
        for _ in range(4):
            await run_as(drsai, Principal("ann"))
            await learnt(drsai)
            assert await current(drsai) == []
        await run_as(drsai, Principal("ann"))  # The endpoint fails, and the job is tried again.
        await learnt(drsai)
        assert await current(drsai) == ["The user lives in Lisbon."]


async def test_a_run_without_memory_has_no_job_and_asks_no_model(
    make: Callable[..., DrSai], model: ModelServer
) -> None:
    async with make(memory=False) as drsai:
        await run_as(drsai, Principal("ann"))
        assert not drsai.extension(Memory).is_on
        count = sa.select(sa.func.count()).select_from(table_of(WorkJob))
        assert await drsai.database.read(lambda session: session.execute(count).scalar_one()) == 0
    assert [request for request in model.requests if "[memory]" in request.system or FIND in request.system] == []
