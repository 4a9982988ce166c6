"""However many runs want to begin or end at once, few do, owners take turns, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from autogen_agentchat.agents import AssistantAgent
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend import RunContext
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel.owner import Owner
from drsai_backend.runs.gate import AT_ONCE, Gate
from tests.support.scripted import ScriptedClient, counting
from tests.support.threads import Make, request

MANY = 100
ADA, BOB = Owner("default", "ada"), Owner("default", "bob")


class Work:
    """What goes through a gate: whose has begun, and how many were at it at the most."""

    def __init__(self) -> None:
        self.begun: list[Owner] = []
        self.now = self.most = 0

    def of(self, owner: Owner, rounds: int = 3) -> Callable[[], Awaitable[Owner]]:
        async def work() -> Owner:
            self.begun.append(owner)
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                for _ in range(rounds):
                    await asyncio.sleep(0)
            finally:
                self.now -= 1
            return owner

        return work


@given(
    floods=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    rounds=st.integers(0, 10),
    cancelled=st.sets(st.integers(0, 59)),
)
def test_who_comes_anew_waits_for_a_few_however_many_others_wait(
    floods: list[int], rounds: int, cancelled: set[int]
) -> None:
    async def run() -> None:
        gate, work = Gate(patience=60), Work()
        tasks: list[asyncio.Task[Owner]] = []
        for number, count in enumerate(floods):
            owner = Owner("default", f"flood-{number}")
            tasks += [asyncio.create_task(gate.through(owner, work.of(owner))) for _ in range(count)]
        for _ in range(rounds):
            await asyncio.sleep(0)
        for number, task in enumerate(tasks):
            if number in cancelled:
                task.cancel()
        before = len(work.begun)
        assert await gate.through(ADA, work.of(ADA)) == ADA
        assert work.begun[before:].index(ADA) <= 3 * AT_ONCE
        await asyncio.wait(tasks)
        assert [task.cancelled() or task.result() for task in tasks]
        assert work.most <= AT_ONCE
        assert work.now == 0

    asyncio.run(run())


async def test_who_waits_longest_is_let_in_although_others_come_without_end() -> None:
    gate, work, done = Gate(patience=60), Work(), asyncio.Event()
    comers: set[asyncio.Task[Owner]] = set()

    async def come(number: int) -> Owner:
        owner = Owner("default", str(number))
        if not done.is_set():
            comers.add(asyncio.create_task(come(number + MANY)))
        return await gate.through(owner, work.of(owner))

    first = [asyncio.create_task(gate.through(BOB, work.of(BOB))) for _ in range(MANY)]
    await asyncio.sleep(0)
    for number in range(MANY):
        comers.add(asyncio.create_task(come(number)))
    async with asyncio.timeout(30):
        await asyncio.gather(*first)
    done.set()
    await asyncio.wait(comers)


async def test_work_that_hangs_holds_nobody_up() -> None:
    gate, work, never = Gate(patience=0.01), Work(), asyncio.Event()
    hanging = [asyncio.create_task(gate.through(ADA, never.wait)) for _ in range(3 * AT_ONCE)]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        assert await gate.through(BOB, work.of(BOB)) == BOB
        await asyncio.gather(*(gate.through(ADA, work.of(ADA)) for _ in range(MANY)))
        never.set()
        await asyncio.gather(*hanging)


@pytest.mark.parametrize("rounds", [0, 1, 5, 20])
async def test_who_is_cancelled_or_fails_keeps_no_place(rounds: int) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    gate, work = Gate(patience=60), Work()
    tasks = [asyncio.create_task(gate.through(ADA, work.of(ADA))) for _ in range(MANY)]
    failing = [asyncio.create_task(gate.through(BOB, fail)) for _ in range(MANY)]
    for _ in range(rounds):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    for error in await asyncio.gather(*failing, return_exceptions=True):
        assert isinstance(error, ValueError)
    await asyncio.wait(tasks)
    again = Work()
    async with asyncio.timeout(30):
        await asyncio.gather(*(gate.through(ADA, again.of(ADA)) for _ in range(MANY)))
    assert again.most == AT_ONCE, "all places are free, and no more"


async def test_a_run_begins_before_most_of_those_that_another_user_has_asked_for(make: Make) -> None:
    begun: list[str] = []
    is_under_way = asyncio.Event()

    def crew(context: RunContext) -> AssistantAgent:
        begun.append(context.thread_id)
        is_under_way.set()
        return AssistantAgent("ann", ScriptedClient(counting("ann")))

    drsai = await make({"crew": crew})

    async def answered(name: str, user: str) -> None:
        await (await drsai.engine.start(*request(thread_id=name, principal=Principal(user)))).wait()

    tasks = [asyncio.create_task(answered(str(number), "ada")) for number in range(MANY)]
    await is_under_way.wait()
    await answered("bystander", "bob")
    assert begun.index("bystander") < MANY / 4
    await asyncio.gather(*tasks)
    assert len(begun) == MANY + 1
