"""Memory of a year of somebody's life: whether what is current is recalled by questions in other words, beside hundreds
of other memories, and nothing that is over."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.databases import Postgres, sqlite
from benchmarks.report import Section
from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.datamodel import StoredMemory, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory

OTHERS: Final = 400
"""Memories beside those that are asked for."""
_ANN: Final = Owner("default", "ann")
_ROW: Final = table_of(StoredMemory)


@dataclass(frozen=True)
class Subject:
    """What somebody says of one thing over a year, each in the place of the one before, and what is asked of it.

    Attributes:
        said: by month; None: it is over, and nothing is in its place.
        asked: questions for the last of it.
    """

    said: dict[int, str | None]
    asked: list[str] = field(default_factory=list[str])

    @property
    def current(self) -> str | None:
        return [*self.said.values()][-1]


YEAR: Final = (
    Subject(
        {
            0: "The user lives in Lisbon, by the river.",
            3: "The user lives in Porto, near the market.",
            8: "The user lives in Hamburg, in the harbour quarter.",
        },
        ["Where do I live now?", "In which city is the place that I live in?", "Hamburg or Porto: where do I live?"],
    ),
    Subject(
        {1: "The user works at Fado Foods as a cook.", 6: "The user works at Harbour Labs as an analyst."},
        ["Where do I work?", "What do I work as?", "Who pays for my work at the labs?"],
    ),
    Subject({0: "The user is called Ann Lee."}, ["What am I called?", "Is Lee what I am called?"]),
    Subject(
        {2: "The user is allergic to peanuts."},
        ["Am I allergic to anything?", "Which allergy to peanuts or other nuts do I have?"],
    ),
    Subject({4: "The user has a dog called Rex."}, ["What is my dog called?", "Who walks the dog today?"]),
    Subject(
        {5: "The user drives a red van.", 9: "The user drives an electric bicycle."},
        ["What do I drive?", "Which bicycle do I have?"],
    ),
    Subject({6: "The user loves hiking in the mountains.", 8: None}),
    Subject({1: "The user takes guitar lessons on Mondays.", 7: None}),
    Subject(
        {9: "The user wants to learn Czech this winter."},
        ["Which language do I want to learn?", "What are my plans to learn something this winter?"],
    ),
    Subject(
        {2: "The user prefers answers in metric units."}, ["Which units do I prefer?", "Shall it be metric answers?"]
    ),
    Subject({10: "用户下个月去北京参加会议。"}, ["我什么时候去北京", "会议在哪里"]),
)
_WHO: Final = ("a neighbour", "a colleague", "the sister", "an uncle", "a friend", "the landlord", "a teacher")
_DID: Final = (
    *("told the user a story about", "gave the user a book about", "once visited", "sent a card from", "read about"),
    *("wants to see", "has a photo of", "knows a song about", "asked the user about", "wrote a letter about"),
)
_WHAT: Final = (
    *(
        "trains in Norway",
        "an old mill",
        "bees",
        "a lighthouse",
        "Roman coins",
        "a chess club",
        "the moon",
        "wild garlic",
    ),
    *("a violin", "stone bridges", "a bakery in Madrid", "ferries", "an orchard", "winter fairs", "a museum of salt"),
    "wild garlic",
)


def others(count: int, seed: int = 1) -> list[str]:
    """Return so many memories of other things, in which many words are those of the questions."""
    chance = random.Random(seed)
    every = [f"{who.capitalize()} of the user {did} {what}." for who in _WHO for did in _DID for what in _WHAT]
    return chance.sample(every, min(count, len(every)))


async def live(drsai: DrSai, count: int) -> None:
    """Have a year remembered: each subject month by month, the others spread over it, and all of its age."""
    memory, names = drsai.extension(Memory), dict[int, str]()
    beside = others(count)
    for month in range(12):
        for at, subject in enumerate(YEAR):
            if month not in subject.said:
                continue
            text = subject.said[month]
            if text is None:
                await drsai.database.act(partial(_end, memory_id=names[at]))
            elif at in names:
                await memory.change(_ANN, names[at], text)
            else:
                names[at] = (await memory.add(_ANN, NewMemory(text=text))).memory_id
        for text in beside[month::12]:
            await memory.add(_ANN, NewMemory(text=text, kind="episode", importance=0.7))
        await drsai.database.act(partial(_age, months=11 - month))


def _end(session: Session, *, memory_id: str) -> None:
    from drsai_backend.features.memory import rows

    rows.end_memory(session, _ANN, memory_id, "invalidate")


def _age(session: Session, *, months: int) -> None:
    """Make what was stored since the last call so many months old."""
    at = utcnow() - timedelta(days=30 * months)
    fresh = _ROW.c.created_at > utcnow() - timedelta(days=15)
    session.execute(sa.update(_ROW).where(fresh).values(created_at=at, valid_from=at))


async def asked(drsai: DrSai) -> tuple[dict[int, float], list[str], int]:
    """Return the share of questions whose answer is among the first 1, 3 and 5; those that it is not among; and how
    many memories that are over were shown."""
    memory, places, missed = drsai.extension(Memory), list[int](), list[str]()
    over = {text for each in YEAR for text in each.said.values() if text is not None and text != each.current}
    shown = 0
    for subject in YEAR:
        for question in subject.asked:
            found = [each.memory.text for each in (await memory.search(_ANN, question)).items]
            places.append(found.index(subject.current) if subject.current in found else len(found) + 5)
            missed += [question] if places[-1] > 4 else []
            shown += len(over & {*found})
    return {most: sum(place < most for place in places) / len(places) for most in (1, 3, 5)}, missed, shown


async def measure(server: Postgres | None, count: int = OTHERS) -> Section:
    """Return what is recalled of a year on both databases, by keywords alone."""
    section = Section(
        "Memory of a year",
        f"{sum(len(each.said) for each in YEAR)} things that somebody says in a year, with changes of mind, and "
        f"{count} other memories; questions in other words, by keywords alone. The share of questions whose answer is "
        "among the first so many that an agent is shown.",
        ("database", "first", "first 3", "first 5", "shown that was over"),
    )
    with ExitStack() as stack:
        urls = {"SQLite": stack.enter_context(sqlite())}
        if server is not None:
            urls["PostgreSQL"] = stack.enter_context(server.database())
        for name, url in urls.items():
            async with DrSai(None, url, settings=Settings(_env_file=None)) as drsai:
                await live(drsai, count)
                shares, _, over = await asked(drsai)
            section.rows.append((name, *(f"{share:.2f}" for share in shares.values()), str(over)))
            section.at_least(f"{name}: what is current is among the five that are shown", 0.95, shares[5])
            section.at_most(f"{name}: memories that are over and shown", 0, over)
    return section
