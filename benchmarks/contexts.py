"""A long thread whose prompts are compacted: they stay under their limit, and what a turn stores stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from benchmarks.databases import sqlite
from benchmarks.report import Section
from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.agents.contexts import CompactionContext
from drsai_backend.agents.contexts.growing import estimate_message
from drsai_backend.config import Settings
from drsai_backend.datamodel import AutoGenMessage, JournalEntry, ThreadSnapshot, table_of
from tests.support.scripted import ScriptedClient

TURNS, LIMIT = 2_000, 2_000
_TEXT = "a line of text, " * 8


class _Watched:
    """The model of the agent and of its context: the longest prompt, and how often a summary was asked for."""

    def __init__(self) -> None:
        self.longest = self.summaries = self.turns = 0

    def answer(self, messages: Sequence[Any], _: object) -> str:
        self.turns += 1
        self.longest = max(self.longest, sum(map(estimate_message, messages[1:])))
        return f"Answer {self.turns}: {_TEXT}"

    def summarise(self, messages: Sequence[Any], _: object) -> str:
        self.summaries += 1
        return f"Summary {self.summaries}: {_TEXT}"


async def _stored(drsai: DrSai) -> int:
    """Bytes of all messages, journal entries and snapshots."""
    columns = [
        table_of(AutoGenMessage).c.config,
        table_of(JournalEntry).c.payload,
        table_of(ThreadSnapshot).c.payload,
    ]
    sums = [sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(sa.cast(each, sa.Text))), 0)) for each in columns]
    return await drsai.database.read(lambda session: sum(session.scalar(each) or 0 for each in sums))


async def measure(turns: int = TURNS) -> Section:
    section = Section(
        "Contexts",
        f"{turns:,} runs of one agent on one thread, with a CompactionContext of {LIMIT:,} tokens, on SQLite. "
        "Bytes are those of messages, journal and snapshots that are kept.",
        ("runs", "bytes per turn", "summaries"),
    )
    watched = _Watched()

    def team(_: RunContext) -> AssistantAgent:
        shown = CompactionContext(LIMIT, ScriptedClient(watched.summarise))
        return AssistantAgent("ann", ScriptedClient(watched.answer), model_context=shown)

    per_turn: list[float] = []
    part = turns // 5
    with sqlite() as url:
        async with DrSai({"ann": team}, url, settings=Settings(database_url=url)) as drsai:
            before = 0
            for end in range(part, turns + 1, part):
                for number in range(part):
                    await drsai.run("ann", f"Question {end + number}: {_TEXT}", thread_id="thread")
                now = await _stored(drsai)
                per_turn.append((now - before) / part)
                section.rows.append((f"to {end:,}", f"{per_turn[-1]:,.0f}", str(watched.summaries)))
                before = now
    section.at_most(f"bytes per turn of the last {part:,} runs ÷ the first", 1.1, per_turn[-1] / per_turn[0])
    section.at_most(f"longest of {watched.turns:,} prompts ÷ its limit", 1.0, watched.longest / LIMIT)
    return section
