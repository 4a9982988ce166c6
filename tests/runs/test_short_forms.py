"""Short forms of journal entries and model calls: written where all workers read them, and the same to whoever asks. On
SQLite and PostgreSQL."""

from __future__ import annotations

import random
from datetime import timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend import DrSai, RunStatus
from drsai_backend.database import migrations
from drsai_backend.datamodel import JournalEntry, Run, Worker, table_of, utcnow
from drsai_backend.datamodel.run import CALL_FIELDS, CallsType, shortened
from drsai_backend.models.endpoints.answers import CallRecord
from drsai_backend.state.journal import Entry
from drsai_backend.state.store import compact
from drsai_backend.state.travel import Place, state_at
from tests.support.teams.crew import pair
from tests.support.threads import Make, head_of, request

JOURNAL, WORKER = table_of(JournalEntry), table_of(Worker)
FIELDS: dict[str, Any] = {
    **dict.fromkeys(("agent", "step", "profile", "model"), st.text()),
    **dict.fromkeys(("attempts", "prompt_tokens", "completion_tokens", "reasoning_tokens"), st.integers(0, 2**40)),
    **dict.fromkeys(("cached", "cut"), st.booleans()),
    "seconds": st.floats(0, 1e6),
    "of_a_later_release": st.integers(),
}


def test_each_field_of_a_call_has_a_place() -> None:
    assert sorted(CALL_FIELDS) == sorted(CallRecord.__annotations__)


@given(st.lists(st.fixed_dictionaries({}, optional=FIELDS)))
def test_a_short_call_says_what_the_long_one_says(calls: list[dict[str, Any]]) -> None:
    kept = [shortened(call) for call in calls]
    assert CallsType().process_result_value(kept, None) == calls  # type: ignore[arg-type]
    assert CallsType().process_result_value(calls, None) == calls  # type: ignore[arg-type]
    assert all(isinstance(each, dict) == ("of_a_later_release" in call) for each, call in zip(kept, calls, strict=True))


async def run(drsai: DrSai, text: str = "x") -> None:
    handle = await drsai.engine.start(*request(text))
    assert (await handle.wait()).status is RunStatus.COMPLETED


async def stored(drsai: DrSai) -> tuple[list[str], list[list[Any]]]:
    """The beginnings of all journal entries, and the calls of all runs as they are stored."""
    calls = sa.select(sa.type_coerce(table_of(Run).c.calls, sa.JSON)).order_by(table_of(Run).c.id)
    payloads = sa.select(JOURNAL.c.payload).order_by(JOURNAL.c.turn)
    return await drsai.database.read(
        lambda session: (
            [each[:4] for each in session.execute(payloads).scalars()],
            [*session.execute(calls).scalars()],
        )
    )


async def worker(drsai: DrSai, *teams: str | None, seen: float = 0) -> None:
    """Another worker, seen so many seconds ago, announces those; None: it announces nothing."""
    values = {"worker_id": "other", "since": utcnow(), "seen_at": utcnow() - timedelta(seconds=seen)}
    known = None if None in teams else [*teams]

    def write(session: Any) -> None:
        session.execute(sa.delete(WORKER).where(WORKER.c.worker_id == "other"))
        session.execute(sa.insert(WORKER).values(**values, teams=known))

    await drsai.database.write(write)
    drsai.engine._recovery.announcements._looked = -100
    await drsai.engine._recovery.announcements.look_around()


async def test_they_are_written_where_all_workers_read_them(make: Make) -> None:
    drsai = await make({"crew": pair})
    for teams, seen in ((("drsai:form-1",), 0), ((None,), 0), (("drsai:form-1",), 60), (("drsai:form-2",), 0)):
        await worker(drsai, *teams, seen=seen)
        await run(drsai)
    entries, calls = await stored(drsai)
    assert set(entries[:4]) == {"RFMB"}
    assert set(entries[4:]) == {"RFMC"}
    assert [{type(call) for call in each} for each in calls] == [{dict}, {dict}, {list}, {list}]
    # And to whoever asks, they are the same.
    runs = [each.calls for each in await drsai.db.get(Run)]
    assert [[call["agent"] for call in each or ()] for each in runs] == [["ann", "bob"]] * 4
    assert len({frozenset(call) for each in runs for call in each or ()}) == 1


async def test_any_turn_gone_back_to_is_the_same_before_and_after_compaction(make: Make) -> None:
    """Of a thread that has entries of both forms, is folded now and then, and rewound; each turn is looked at by
    another process, too."""
    drsai, chance = await make({"crew": pair}), random.Random(7)
    other = await make({"crew": pair})
    seen: dict[int, Any] = {}

    async def state(turn: int, where: DrSai = drsai) -> Any:
        name = (await head_of(drsai)).name
        return await where.database.read(lambda session: state_at(session, name, Place(turn=turn)))

    for number in range(24):
        drsai.engine._starter.short_forms = chance.random() < 0.6
        await run(drsai, f"{number}")
        head = await head_of(drsai)
        seen |= {turn: await state(turn) for turn in range(head.turn - 1, head.turn + 1)}
        if chance.random() < 0.3:
            await drsai.database.write(partial(compact, key=head.key))
        if chance.random() < 0.2:
            turn = chance.randrange(1, head.turn)
            await drsai.user("anonymous").rewind("t", turn=turn)
            assert await state(turn) == seen[turn]
    entries, _ = await stored(drsai)
    assert {"RFMB", "RFMC"} == set(entries)
    for turn, expected in seen.items():
        assert await state(turn) == expected == await state(turn, other), turn
    await run(other, "On.")


async def test_the_way_back_writes_them_out(make: Make, database_url: str) -> None:
    drsai = await make({"crew": pair})
    for _ in range(3):
        await run(drsai)
    query = sa.select(JOURNAL.c.turn, JOURNAL.c.payload)
    before = await drsai.database.read(lambda session: session.execute(query).all())
    shown = [each.calls for each in await drsai.db.get(Run)]
    assert set((await stored(drsai))[0][1:]) == {"RFMC"}
    await drsai.close()
    migrations.downgrade(database_url, "0026_from_0024")
    with migrations.connecting(database_url) as connection:
        after = {row.turn: row.payload for row in connection.execute(query)}
        calls = connection.execute(sa.text("SELECT cast(calls AS text) FROM run")).scalars().all()
    assert all(payload.startswith("RFMB") for payload in after.values())
    assert all(Entry.decode(after[turn]) == Entry.decode(payload) for turn, payload in before)
    assert all("[[" not in text.replace(" ", "") and "agent" in text for text in calls)
    migrations.upgrade(database_url)
    again = await make({"crew": pair})
    assert [each.calls for each in await again.db.get(Run)] == shown
    await run(again)
