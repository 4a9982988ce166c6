"""The path of a stored run, counted in calls of Python and C over all threads: it does not grow with the thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend import DrSai, RunContext, RunStatus
from drsai_backend.runs import InputMessage
from tests.support.asks import asks
from tests.support.scripted import ScriptedClient
from tests.support.threads import settings

FEW, MANY = 10, 100
"""Runs of a thread; each has a user's message and two answers of a model."""
BUDGET = {False: 4_400, True: 5_600}
"""Calls of a run of two turns on SQLite, with whole answers and with answers in some ten pieces; they were 4,210 and
5,310 when this was written, on CPython 3.11."""


class Calls:
    """Counts calls in all threads that begin while it stands, between `begin` and the end of the block."""

    def __init__(self) -> None:
        self.count = 0
        self._counts = False

    def __call__(self, _: Any, event: str, __: Any) -> None:
        if self._counts and event in ("call", "c_call"):
            self.count += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.count, self._counts = 0, True
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._counts = False


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    calls = Calls()
    threading.setprofile(calls)
    yield calls
    threading.setprofile(None)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_long_thread_costs_no_more_calls_than_a_short_one(
    migrated_sqlite: str, calls: Calls, stream: bool
) -> None:
    """Of every model call of a model that sees, too: what a context holds of images is asked in C."""
    answer = "The answer to a question, in some words that come piece by piece, ten of them."
    client = ScriptedClient(lambda *_: answer, vision=True, piece=8)

    def pair(context: RunContext) -> RoundRobinGroupChat:
        agents = [AssistantAgent(name, client, model_client_stream=stream) for name in ("ann", "bob")]
        return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))

    counts: list[int] = []
    async with AsyncExitStack() as stack:
        drsai = await stack.enter_async_context(DrSai({"pair": pair}, migrated_sqlite, settings=settings()))

        async def run() -> None:
            handle = await drsai.engine.start(
                *asks("pair", [InputMessage("user", "Next.")], thread_id="t", stream=stream)
            )
            assert (await handle.wait()).status is RunStatus.COMPLETED

        for size in (FEW, MANY - FEW):
            for _ in range(size):
                await run()
            tries: list[int] = []
            for _ in range(5):  # Some runs write a snapshot, or meet the heartbeat.
                with calls.counted():
                    await run()
                tries.append(calls.count)
            counts.append(min(tries))
    few, many = counts
    assert many <= few * 1.05
    assert few < BUDGET[stream]
