"""The turn runtime against AutoGen's, both in memory, with teams that are kept warm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_agentchat.teams import BaseGroupChat

from benchmarks.measure import Block, Paired, Spent, alternate, rounds_at, timed
from benchmarks.report import Section
from benchmarks.teams import InstantClient, Texts, our_team, run_stock, stock_team, user_message
from drsai_backend.teams.runtime.turn_runtime import TurnRuntime
from drsai_backend.teams.runtime.wiring import wire
from drsai_backend.teams.session import TeamSession, Watcher


class Warm:
    """A warm team on the turn runtime, what it says handed to a sink as in a served run; nothing is recorded."""

    def __init__(self, client: InstantClient, *, stream: bool) -> None:
        self.team = our_team(client, stream=stream)
        self._runtime = TurnRuntime()
        self._texts = Texts()
        self._said: list[Any] = []

    async def prepare(self) -> None:
        await wire(self.team, self._runtime, self._said.append)

    async def run(self) -> None:
        self._said.clear()
        async for _ in self.team.run_stream(task=[user_message(self._texts)]):
            pass
        await self._runtime.settle()


class Recorded:
    """The same with every turn recorded and encoded for the journal, which is then dropped."""

    def __init__(self, client: InstantClient, *, stream: bool) -> None:
        self._session = TeamSession(our_team(client, stream=stream))
        self._texts = Texts()

    async def prepare(self) -> None:
        await self._session.prepare()

    async def _turn(self, turn: Any) -> None:
        turn.entry.encode()

    async def run(self) -> None:
        _, last = await self._session.run([user_message(self._texts)], watcher=Watcher(self._turn))
        await self._turn(last)


async def filled(runs: int, client: InstantClient, *, stream: bool) -> dict[str, Any]:
    """The state of a team after that many runs."""
    warm = Warm(client, stream=stream)
    await warm.prepare()
    for _ in range(runs):
        await warm.run()
    return dict(await warm.team.save_state())


async def warm_stock(runs: int, *, stream: bool, vision: bool = True) -> BaseGroupChat:
    """A stock team after that many runs. They were run on the turn runtime, which leaves the same state sooner."""
    client = InstantClient(vision=vision)
    team = stock_team(client, stream=stream)
    await run_stock(team, Texts())
    await team.load_state(await filled(runs, client, stream=stream))
    return team


def stock_block(size: int, times: int, *, stream: bool, vision: bool = True) -> Block:
    """Blocks of `times` runs of stock teams. Small ones are new in every block, a large one goes on."""
    kept: list[BaseGroupChat] = []
    texts = Texts()

    async def block() -> Spent:
        if not kept or size <= 10:
            kept[:] = [await warm_stock(size, stream=stream, vision=vision)]
        return await timed(lambda: run_stock(kept[0], texts), times)

    return block


def our_block(kind: type[Warm] | type[Recorded], size: int, times: int, *, stream: bool, vision: bool) -> Block:
    kept: list[Warm | Recorded] = []

    async def block() -> Spent:
        if not kept or size <= 10:
            kept[:] = [kind(InstantClient(vision=vision), stream=stream)]
            await kept[0].prepare()
            for _ in range(size):
                await kept[0].run()
        return await timed(kept[0].run, times)

    return block


async def measure(sizes: Sequence[int], rounds: int) -> Section:
    """Time per run on the turn runtime ÷ stock, at threads of `sizes` runs."""
    section = Section(
        "Turn runtime, in memory",
        "Both teams are kept warm and nothing is stored. *CPU*: the ratio of processor times, of all threads of this\n"
        "process. *Recorded*: every turn's journal entry is made and encoded.\n"
        "`vision=False` lets AutoGen's agents copy their whole context for every model call, on both sides.",
        ("runs before", "answers", "vision", "÷ stock", "CPU", "ms: ours / stock", "recorded ÷ stock", "CPU"),
    )
    for size in sizes:
        count = rounds_at(size, rounds)
        for stream in (False, True):
            for vision in (True, False) if size in (10, 1000) else (True,):
                times = 10 if size <= 100 else 5
                start = size if size <= 10 else size - times * count // 2
                stock = stock_block(start, times, stream=stream, vision=vision)
                pairs: dict[Any, Paired] = {}
                for kind in (Warm, Recorded):
                    pairs[kind] = await alternate(
                        our_block(kind, start, times, stream=stream, vision=vision), stock, count
                    )
                plain, recorded = pairs[Warm], pairs[Recorded]
                answers = "streamed" if stream else "whole"
                section.rows.append(
                    (
                        f"{size:,}",
                        answers,
                        "yes" if vision else "no",
                        str(plain),
                        plain.cpu,
                        plain.times,
                        str(recorded),
                        recorded.cpu,
                    )
                )
                if vision and size in (10, 1000):
                    limit = 0.25 if size == 10 else 0.4
                    section.at_most(
                        f"turn runtime ÷ stock, {answers}, {size:,} runs, vision", limit, plain.ratio, plain.shown
                    )
    return section
