"""A thread that was rewound, or is a fork of an earlier place, is shown what was known there, and what was said since
then; nothing of what lies between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from drsai_backend import DrSai
from drsai_backend.caller import Caller
from drsai_backend.database import Database
from drsai_backend.database.runs.paths import Span
from drsai_backend.datamodel import Thread
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.features.memory import rows
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from drsai_backend.features.memory.recall import known_in
from tests.features.memory.learning import ANN, current, learnt
from tests.features.memory.test_recall import Listener
from tests.support.threads import LATE, settings

WHERE = "Where do I live?"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close_sync()


async def first_seq(ann: Caller, run_id: str | None) -> int:
    """The number of a run's input: to rewind there is to go to the place before it."""
    return (await ann.get_run(str(run_id))).first_seq


async def test_a_rewound_thread_and_a_fork_are_shown_what_was_known_then(make: Callable[..., DrSai]) -> None:
    ear = Listener()
    async with make({"ear": ear}) as drsai:
        ann = drsai.user("ann")

        async def say(text: str, thread_id: str = "t") -> int:
            result = await ann.run("ear", text, thread_id=thread_id)
            await learnt(drsai)
            return await first_seq(ann, result.run_id)

        async def lives(thread_id: str) -> str:
            await say(WHERE, thread_id)
            return ear.shown[-1]

        await say("I work at Fado Foods.", "other")
        await say("I live in Lisbon.")
        moved = await say("I have moved, now I live in Porto.")
        await say("I love hiking in the mountains.", "other")
        await ann.fork("t", at=moved, new_thread_id="fork")
        await ann.fork("t", new_thread_id="copy")
        assert "Porto" in await lives("copy")
        await ann.rewind("t", at=moved)
        for thread_id in ("t", "fork"):
            shown = await lives(thread_id)
            assert "lives in Lisbon" in shown
            assert "Porto" not in shown
            assert ", without what was said from " in shown
            await say("What do I love? Hiking?", thread_id)
            assert "hiking" not in ear.shown[-1]
            await say("Where do I work?", thread_id)
            assert "Fado Foods" in ear.shown[-1]
        shown = await lives("other")
        assert "Porto" in shown
        assert "without" not in shown
        # A fork of the fork leaves out the same, and a thread that goes on learns.
        await say("Good news: I moved again, now I live in Hamburg.", "fork")
        await ann.fork("fork", new_thread_id="again")
        for thread_id in ("fork", "again", "other"):
            shown = await lives(thread_id)
            assert "Hamburg" in shown
            assert "Lisbon" not in shown
        await say("What do I love? Hiking?", "again")
        assert "hiking" not in ear.shown[-1]
        # Back on the line that was left.
        await ann.rewind("t", branch=0)
        shown = await lives("t")
        assert "Porto" in shown
        assert "Hamburg" not in shown
        assert await current(drsai) == [
            "The user lives in Hamburg.",
            "The user loves hiking in the mountains.",
            "The user works at Fado Foods.",
        ]


async def test_what_was_ended_in_the_time_that_is_left_out_is_known(make: Callable[..., DrSai]) -> None:
    ear = Listener()
    async with make({"ear": ear}) as drsai:
        ann = drsai.user("ann")
        await ann.run("ear", "I love hiking in the mountains.", thread_id="t")
        await learnt(drsai)
        over = await ann.run("ear", "I do not love hiking in the mountains any more.", thread_id="t")
        await learnt(drsai)
        assert await current(drsai) == []
        await ann.rewind("t", at=await first_seq(ann, over.run_id))
        await ann.run("ear", "Do I love hiking?", thread_id="t")
        assert "loves hiking in the mountains" in ear.shown[-1]
        # What was forgotten is forgotten for all time.
        await drsai.extension(Memory).delete_all(ANN)
        await ann.run("ear", "Do I love hiking?", thread_id="t")
        assert ear.shown[-1] == ""


async def test_a_thread_that_was_never_rewound_leaves_nothing_out(database_url: str) -> None:
    ear = Listener()
    async with DrSai({"ear": ear}, database_url, settings=settings(**LATE)) as drsai:
        ann = drsai.user("ann")
        await ann.run("ear", "One.", thread_id="t")
        await ann.run("ear", "Two.", thread_id="t")

        async def left_out(thread_id: str) -> list[Span]:
            name = ThreadName("default", "ann", thread_id)
            return await drsai.database.read(partial(rows.left_out_of, name=name))

        assert await left_out("t") == await left_out("missing") == []
        messages = await ann.list_messages("t")
        await ann.rewind("t", at=0)
        await ann.run("ear", "Three.", thread_id="t")
        [thread] = await drsai.db.get(Thread, {"user_id": "ann", "thread_id": "t"})
        [(since, to)] = await left_out("t")
        assert since == thread.created_at
        assert messages[-1].created_at <= to
        await ann.rewind("t", turn=1)
        [(since, later)] = await left_out("t")
        assert since == messages[1].created_at
        assert later > to
        made = await ann.fork("t", at=0, new_thread_id="fork")
        assert made.forked_from is not None
        assert [each for each, _ in await left_out("fork")] == [thread.created_at]
        assert made.forked_from["left_out"] == [[each.isoformat() for each in (await left_out("fork"))[0]]]


EVENTS = st.lists(st.tuples(st.sampled_from(["say", "say", "rewind"]), st.integers(0, 20)), max_size=16)
"""What is said of one of three subjects, each time something new; and to which place the thread goes back."""
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Told:
    """What is said of three subjects, and what a thread that is rewound now and then knows of them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._names: dict[int, str] = {}
        self._path: list[tuple[datetime, int]] = []
        self.spans: list[Span] = []

    def say(self, now: datetime, subject: int) -> None:
        self._path.append((now, subject))
        new = NewMemory(text=said(now, subject), valid_from=now)
        made = rows.add_memory(self._session, ANN, new, None, replaces=self._names.get(subject))
        self._names[subject] = made.memory_id

    def rewind(self, now: datetime, place: int) -> None:
        self._path = self._path[: place % (len(self._path) + 1)]
        kept = self._path[-1][0] if self._path else BEGAN
        self.spans = [*(each for each in self.spans if each[1] <= kept), (kept, now)]

    @property
    def known(self) -> set[str]:
        newest = {subject: at for at, subject in self._path}
        return {said(at, subject) for subject, at in newest.items()}


def said(at: datetime, subject: int) -> str:
    return f"Subject{subject} is as of {at:%Y-%m-%d}."


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS)
def test_what_is_known_is_what_was_said_on_the_path(database: Database, events: list[tuple[str, int]]) -> None:
    def check(session: Session) -> None:
        rows.delete_all(session, ANN)
        told = Told(session)
        for day, (what, number) in enumerate(events, 1):
            now = BEGAN + timedelta(days=day)
            told.say(now, number % 3) if what == "say" else told.rewind(now, number)
        current = [each.memory_id for each in rows.list_memories(session, ANN, rows.Listed(), None, 100).items]
        assert {each.text for each in known_in(session, {ANN: None}, current, told.spans).values()} == told.known

    database.write_sync(check)
