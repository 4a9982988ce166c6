"""What warm threads are taken for, divided by what they take: `python -m tests.support.warm_estimates TEXT`.

A program of its own, for tracemalloc counts what all of a process does: threads that earlier tests have left, too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat

from drsai_backend import DrSai
from drsai_backend.config import Settings
from tests.support.scripted import ScriptedClient, counting, user_count

TEXTS = {"short": "short", "long": "long " * 400, "wide": "lång 😀 " * 100}


def _kinds(text: str) -> dict[str, Callable[[], Any]]:
    def agent(name: str) -> AssistantAgent:
        # Another string each time, as from an endpoint.
        client = ScriptedClient(lambda messages, _: f"{name} {user_count(messages)} {text}")
        return AssistantAgent(name, client, description=f"{name} talks")

    def nested() -> RoundRobinGroupChat:
        inner = RoundRobinGroupChat([agent("bob"), agent("eve")], name="inner", max_turns=2)
        return RoundRobinGroupChat([agent("ann"), inner], max_turns=2)

    def selector() -> SelectorGroupChat:
        pair = [agent("ann"), agent("bob")]
        client = ScriptedClient(counting("ann"))
        return SelectorGroupChat(
            [*pair],
            client,
            max_turns=2,
            selector_func=lambda messages: ("ann", "bob")[len(messages) % 2],
        )

    return {
        "lone": lambda: agent("ann"),
        "pair": lambda: RoundRobinGroupChat([agent("ann"), agent("bob")], max_turns=2),
        "five": lambda: RoundRobinGroupChat([agent(f"a{number}") for number in range(5)], max_turns=5),
        "selector": selector,
        "nested": nested,
    }


async def _estimate_to_traced(drsai: DrSai, kind: str, runs: int, text: str) -> float:
    """What three warm threads are taken for, divided by what they take."""
    warm = drsai.engine._warm
    for _ in range(3):
        thread_id = uuid4().hex
        for number in range(runs):
            await drsai.run(kind, f"{number} {text}", thread_id=thread_id)
    estimate = warm.currsize
    assert len(warm) == 3
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    warm.clear()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return estimate / (before - after)


async def main(name: str) -> None:
    """Print the ratios by kind of team and number of runs, tried up to three times."""
    tracemalloc.start()
    settings = Settings(_env_file=None, warm_threads=10)  # pyright: ignore[reportCallIssue]
    found: dict[str, list[float]] = {}
    text = TEXTS[name]
    kinds = _kinds(text)
    async with DrSai(kinds, "sqlite://", settings=settings) as drsai:
        for kind in kinds:
            for runs in (1, 6) if name == "short" else (6,):
                ratios = found[f"{kind}, {runs} runs"] = []
                # First calls of other threads take memory meanwhile, too: once.
                while len(ratios) < 3 and not (ratios and 0.8 < ratios[-1] < 1.3):
                    ratios.append(await _estimate_to_traced(drsai, kind, runs, text))
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
