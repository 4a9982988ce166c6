"""However many answers stream, others in the event loop wait for a few of their pieces, and short answers end soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from autogen_core.models import CreateResult, RequestUsage, UserMessage

from drsai_backend.models import RunModelClient
from drsai_backend.models.endpoints.bounded import bounded_client
from drsai_backend.models.turns import AT_A_TURN, AT_ONCE, _turns, owner, turn
from tests.support.scripted import ScriptedClient

HELLO = [UserMessage(content="Hello", source="user")]


class Talking(ScriptedClient):
    """A model that has a next piece at every moment; with `waits` it waits before each all the same. `handled` counts
    those of all of its answers."""

    def __init__(self, pieces: int, *, waits: bool = True) -> None:
        super().__init__(lambda *_: "unused")
        self.pieces, self.handled, self.waits = pieces, 0, waits

    async def create_stream(self, messages: Any, **options: Any) -> AsyncGenerator[str | CreateResult, None]:
        for _ in range(self.pieces):
            if self.waits:
                await asyncio.sleep(0)
            self.handled += 1
            yield "x" * 20
        usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        yield CreateResult(content="x" * 20 * self.pieces, finish_reason="stop", usage=usage, cached=False)


async def heard(client: RunModelClient) -> None:
    async for _ in client.create_stream(HELLO):
        pass


@asynccontextmanager
async def many(count: int, *, waits: bool = True) -> AsyncIterator[Talking]:
    """So many long answers under way, some pieces into each."""
    model = Talking(100_000, waits=waits)
    tasks = [asyncio.create_task(heard(RunModelClient(model))) for _ in range(count)]
    while model.handled < 20 * count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    yield model
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize("count", [10, 100])
async def test_a_bystander_waits_for_a_few_pieces_in_each_round(count: int) -> None:
    async with many(count) as model:
        before = model.handled
        for _ in range(50):
            await asyncio.sleep(0)
        assert 50 <= model.handled - before <= 51 * 2 * AT_ONCE


@pytest.mark.parametrize("count", [10, 100])
async def test_pieces_that_come_together_have_a_turn_together(count: int) -> None:
    """Whichever client they are of: it is seen that nothing was waited for."""
    async with many(count, waits=False) as model:
        before = model.handled
        for _ in range(50):
            await asyncio.sleep(0)
        assert 50 * AT_ONCE * AT_A_TURN <= model.handled - before <= 51 * 2 * AT_ONCE * AT_A_TURN


@pytest.mark.parametrize("count", [10, 100])
async def test_a_short_answer_soon_ends_beside_long_ones(count: int) -> None:
    async with many(count) as model:
        before = model.handled
        await heard(RunModelClient(Talking(20)))
        assert model.handled - before < 20 * count / 2 + 20 * 4 * AT_ONCE, (
            "half a piece of each of the others, for each of its own"
        )


@pytest.mark.parametrize("count", [10, 100, 1000])
async def test_an_owner_who_had_little_is_served_before_one_with_many_answers(count: int) -> None:
    """However long the answers of both are, and however many those of the other."""
    handled = 0

    async def flood() -> None:
        nonlocal handled
        for number in range(1_000):
            await turn(number // 100)
            handled += 1

    owner.set("flood")
    tasks = [asyncio.create_task(flood()) for _ in range(count)]
    while handled < 2_000:  # noqa: ASYNC110
        await asyncio.sleep(0)
    owner.set("bystander")
    before = handled
    for number in range(20):
        await turn(number)
    assert handled - before <= 21 * 2 * AT_ONCE
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_what_an_owner_had_is_forgotten() -> None:
    owner.set("ada")
    for _ in range(20_000):
        await turn(1)
    owner.set("bob")
    for _ in range(20_000):
        await turn(1)
    had = _turns[asyncio.get_running_loop()]._had
    assert had["ada"] < had["bob"] / 4


async def test_a_turn_costs_nothing_where_nobody_waits() -> None:
    """No round of the event loop passes."""
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for _ in range(50):
        await asyncio.sleep(0)
        before = rounds
        await turn(1)
        assert rounds == before
    counting.cancel()


@pytest.mark.parametrize("count", [10, 100])
async def test_a_stream_is_read_in_its_turn(count: int) -> None:
    """What a few rounds of the event loop take from sockets does not grow with the number of streams that have more."""
    taken = 0

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal taken
            while True:
                taken += 1
                yield b"data: {}\n\n"

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Endless())

    async def read() -> None:
        async with bounded_client(1 << 30, kind=Client).stream("GET", "http://model") as response:
            async for _ in response.aiter_raw():
                pass

    class Client(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**dict(options, mounts=None), transport=httpx.MockTransport(answer))

    tasks = [asyncio.create_task(read()) for _ in range(count)]
    while taken < 3 * count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    before = taken
    for _ in range(50):
        await asyncio.sleep(0)
    assert 50 <= taken - before <= 51 * 2 * AT_ONCE
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_long_answers_go_on_beside_short_ones_without_end() -> None:
    rounds = 0

    async def short() -> None:
        while rounds < 20:
            await turn(1)

    tasks = [asyncio.create_task(short()) for _ in range(100)]
    for number in range(1_000, 1_020):
        await turn(number)
        rounds += 1
    await asyncio.wait(tasks)


async def test_who_is_cancelled_takes_no_turn() -> None:
    async def wait(number: int) -> int:
        await turn(number)
        return number

    tasks = [asyncio.create_task(wait(number)) for number in range(200)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    assert (await asyncio.gather(*tasks, return_exceptions=True))[1::2] == [*range(1, 200, 2)]
