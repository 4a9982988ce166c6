"""Beside each other: writers of one person's memories do not wait for each other for ever, an extraction is shown what
is its person's own, and whoever was deleted is taught nothing more."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import AssistantAgent, DrSai
from drsai_backend.datamodel import AutoGenMessage, MemoryPerson, SearchEntry, StoredMemory, WorkJob, table_of
from drsai_backend.datamodel.file import MessageFile, to_note
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import JobLost, NotFound
from drsai_backend.features.memory import rows
from drsai_backend.features.memory.base import KIND, NewMemory, shared_by
from drsai_backend.features.memory.extension import Memory, store
from drsai_backend.features.memory.extraction import Change
from drsai_backend.work.jobs import enqueue
from drsai_backend.work.kinds import Job, NewJob
from tests.features.memory.learning import ANN, current, learnt
from tests.features.memory.scripted import DECIDE
from tests.features.memory.test_found import longer, meaning
from tests.support.model_server import ModelServer
from tests.support.scripted import ScriptedClient
from tests.support.threads import LATE, settings, until

BOB = Owner("default", "bob")


async def job_of(drsai: DrSai, key: str) -> Job:
    """A job of ann's that this process does."""
    await drsai.database.act(lambda session: enqueue(session, ANN, NewJob(KIND, key, {}, after=600)))
    j = table_of(WorkJob).c
    query = sa.select(j.id, j.epoch).where(j.key == key)
    row = await drsai.database.read(lambda session: session.execute(query).first())
    if row is None:
        raise JobLost("somebody has it forgotten")
    number, epoch = row
    return Job(number, ANN, KIND, key, {}, 1, epoch, 1, is_last=False)


async def test_who_wants_nothing_learnt_and_what_is_learnt_do_not_wait_for_each_other(database_url: str) -> None:
    """What is learnt is stored with the end of its job, and the person's first memory changes their row; whoever wants
    nothing to be learnt changes that row, and ends the job."""
    began, goes_on = threading.Event(), threading.Event()

    class Held(list[Change]):
        def __iter__(self) -> Iterator[Change]:
            began.set()
            assert goes_on.wait(30)
            return super().__iter__()

    async with DrSai(None, database_url, settings=settings(**LATE)) as drsai:
        memory = drsai.extension(Memory)
        await memory.set_learns(ANN, learns=True)
        changes = Held([Change("add", NewMemory(text="The user likes tea."))])
        writing = partial(store, job=await job_of(drsai, "run:1"), changes=changes, vectors=None, owner=ANN)
        learning = asyncio.create_task(drsai.database.write_apart(writing))
        await asyncio.to_thread(began.wait)
        wanting = asyncio.create_task(memory.set_learns(ANN, learns=False))
        if drsai.database.dialect == "postgresql":
            waiting = sa.text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )

            async def is_waiting() -> bool:
                return bool(await drsai.database.read(lambda session: session.execute(waiting).scalar_one()))

            await until(is_waiting)
        goes_on.set()
        await asyncio.gather(learning, wanting)
        assert await current(drsai) == ["The user likes tea."]
        assert not await memory.learns(ANN)


@pytest.mark.parametrize("models", [(None, None), ("small", "large")])
async def test_many_writers_of_one_person(
    make: Callable[..., DrSai], model: ModelServer, models: tuple[str | None, str | None]
) -> None:
    """In two processes, in any order: each does what it is to, and the index has what is current, also where each of
    them embeds by another model."""
    shared = shared_by("default")
    model.embedded = lambda request: meaning(request) if request.model == "small" else longer(meaning(request))
    async with (
        make(memory=False, embeddings_model=models[0], **LATE) as one,
        make(memory=False, embeddings_model=models[1], **LATE) as two,
    ):

        async def act(number: int) -> None:
            chance = random.Random(number)
            drsai = (one, two)[number % 2]
            memory = drsai.extension(Memory)
            text = f"The user owns thing {number % 7}."
            known = [each async for each in memory.every(ANN)]
            try:
                match chance.randrange(6):
                    case 0 if known:
                        await memory.change(ANN, chance.choice(known).memory_id, text)
                    case 1 if known:
                        await memory.delete(ANN, chance.choice(known).memory_id)
                    case 2 if number % 3 == 0:
                        await memory.delete_all(ANN)
                    case 3:
                        change = Change("add", NewMemory(text=text))
                        job = await job_of(drsai, f"run:{number}")
                        await drsai.database.write(
                            partial(store, job=job, changes=[change], vectors=None, owner=(ANN, shared)[number % 2])
                        )
                    case 4 if known:
                        used = [each.version_id for each in chance.sample(known, len(known))]
                        await drsai.database.write(partial(rows.count_use, tenant="default", version_ids=used))
                    case _:
                        await memory.add(ANN, NewMemory(text=text))
            except (NotFound, JobLost):
                pass  # Another one was faster.

        for at in range(0, 120, 12):
            await asyncio.gather(*map(act, range(at, at + 12)))

        def indexed(session: Session) -> tuple[list[str], list[str]]:
            m, e, p = table_of(StoredMemory).c, table_of(SearchEntry).c, table_of(MemoryPerson).c
            joined = sa.select(e.ref).join(table_of(MemoryPerson), p.index_key == e.index_id)
            current = sa.select(m.memory_id).where(m.expired_at.is_(None))
            return sorted(session.execute(joined).scalars()), sorted(session.execute(current).scalars())

        there, wanted = await one.database.read(indexed)
        assert there == wanted
        texts = await current(one)
        assert len({*texts}) == len(texts)


async def test_an_extraction_is_shown_what_is_its_owners_and_of_its_scope(
    make: Callable[..., DrSai], model: ModelServer
) -> None:
    async with make() as drsai:
        memory = drsai.extension(Memory)
        known = {
            "ann": NewMemory(text="The user lives in Braga."),
            "bob": NewMemory(text="The user lives in Evora."),
            "": NewMemory(text="The user lives in Faro."),
        }
        for user, new in known.items():
            await memory.add(Owner("default", user), new)
        await memory.add(Owner("other", "ann"), NewMemory(text="The user lives in Guarda."))
        await memory.add(ANN, NewMemory(text="The user lives in Tomar.", scope="travel"))
        await drsai.user("ann").run("assistant", "I live in Lisbon.", thread_id="t")
        await learnt(drsai)
        [asked] = [request.last for request in model.requests if DECIDE in request.system]
        assert "Memory 1: The user lives in Braga." in asked
        assert "Memory 2" not in asked
        assert await current(drsai) == ["The user lives in Lisbon.", "The user lives in Tomar."]


async def test_whoever_was_deleted_meanwhile_is_taught_nothing(make: Callable[..., DrSai], model: ModelServer) -> None:
    """Their run on somebody else's thread goes on."""
    client = ScriptedClient(lambda messages, options: "Indeed.")
    async with make({"ear": lambda: AssistantAgent("ear", client)}) as drsai:
        await drsai.user("ann").run("ear", "Hello.", thread_id="t")
        await drsai.user("ann").share_thread("t", with_user="bob", right="write")
        client.hold()
        handle = await drsai.user("bob", owner="ann").start("ear", "I live in Lisbon.", thread_id="t")
        await client.asked.wait()
        await drsai.users.delete(BOB)
        client.release()
        await handle.wait()
        jobs = sa.select(table_of(WorkJob).c.user_id)
        assert "bob" not in await drsai.database.read(lambda session: [*session.execute(jobs).scalars()])
        await learnt(drsai)
        assert await current(drsai, BOB) == []


async def test_a_message_whose_files_may_stand_in_it_without_marks_teaches_nothing(make: Callable[..., DrSai]) -> None:
    async with make(memory=False) as drsai:
        m = table_of(AutoGenMessage)
        name = ThreadName("default", "ann", "t")
        result = await drsai.user("ann").run("assistant", "I live in Lisbon.", thread_id="t")
        read = partial(rows.said_in, name=name, run_id=str(result.run_id), author=None)
        assert [each.text for each in await drsai.database.read(read)] == ["I live in Lisbon."]

        def with_file(session: Session, kind: str, text: str) -> None:
            file = MessageFile(id="file-1", filename="a", bytes=9, media_type=kind)
            first = sa.select(m.c.config).where(m.c.thread_id == "t", m.c.seq == 1)
            config: dict[str, Any] = {**session.execute(first).scalar_one(), "metadata": to_note([file])}
            change = sa.update(m).where(m.c.thread_id == "t", m.c.seq == 1)
            session.execute(change.values(config={**json.loads(json.dumps(config)), "content": text}))

        for kind, text, is_read in (
            ("text/plain", "I live in Lisbon.", False),
            ("image/png", "I live in Lisbon.", True),
            ("text/plain", "I live here. <document>They live in Porto.</document>", True),
        ):
            await drsai.database.write(partial(with_file, kind=kind, text=text))
            assert [each.text for each in await drsai.database.read(read)] == [text] * is_read
