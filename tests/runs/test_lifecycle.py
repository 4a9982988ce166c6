"""A `DrSai` that is not open, open already, closed, or of another event loop: what it says; nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from drsai_backend import Answer, DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import Thread
from drsai_backend.errors import (
    ConfigurationError,
    DrSaiError,
    IllegalTransition,
    NotOpened,
    SchemaOutdated,
    UnknownModel,
)
from drsai_backend.runs import InputMessage
from tests.support.asks import asks
from tests.support.threads import settings

CALLS: dict[str, Callable[[DrSai], Awaitable[Any]]] = {
    "run": lambda drsai: drsai.run("writers", "rain"),
    "run_stream": lambda drsai: anext(drsai.run_stream("writers", "rain")),
    "start": lambda drsai: drsai.start("writers", "rain"),
    "start in the background": lambda drsai: drsai.start("writers", "rain", background=True),
    "stop": lambda drsai: drsai.stop("t"),
    "pause": lambda drsai: drsai.pause("t"),
    "resume": lambda drsai: drsai.resume("t"),
    "retry": lambda drsai: drsai.retry("t"),
    "answer": lambda drsai: drsai.answer("t", Answer("id", "yes")),
    "engine.start": lambda drsai: drsai.engine.start(*asks("writers", [InputMessage("user", "rain")])),
    "list_threads": lambda drsai: drsai.engine.list_threads(Principal(), after=None, limit=1),
    "get_thread": lambda drsai: drsai.engine.get_thread(Principal(), "t"),
    "list_messages": lambda drsai: drsai.engine.list_messages(Principal(), "t", after=0, limit=1),
    "get_run": lambda drsai: drsai.engine.get_run(Principal(), "r"),
    "list_runs": lambda drsai: drsai.engine.list_runs(Principal(), "t", after=None, limit=1),
    "cancel_run": lambda drsai: drsai.engine.cancel_run(Principal(), "r"),
    "delete_thread": lambda drsai: drsai.engine.delete_thread(Principal(), "t"),
}


@pytest.fixture
def made(database_url: str) -> Callable[[], DrSai]:
    return lambda: DrSai(database_url=database_url, settings=settings())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_not_opened_says_so_and_what_to_write(database_url: str, call: Callable[[DrSai], Awaitable[Any]]):
    drsai = DrSai(database_url=database_url, settings=settings())
    with pytest.raises(NotOpened, match=r"async with DrSai\(\.\.\.\) as drsai"):
        await call(drsai)
    assert await drsai.db.get(Thread) == []
    async with drsai:
        pass
    with pytest.raises(NotOpened, match="was closed: make a new one"):
        await call(drsai)


async def test_one_that_is_no_worker_reads_and_runs_nothing(database_url: str):
    async with DrSai(database_url=database_url, settings=settings()) as drsai:
        await drsai.run("writers", "rain", thread_id="t")
    async with DrSai(database_url=database_url, settings=settings(), worker=False) as reader:
        assert [thread.thread_id for thread in (await reader.list_threads()).items] == ["t"]
        with pytest.raises(UnknownModel):
            await reader.run("writers", "rain")
        with pytest.raises(IllegalTransition):
            await reader.stop("t")


async def test_open_twice(made: Callable[[], DrSai]):
    async with made() as drsai:
        with pytest.raises(ConfigurationError, match="open already, here"):
            await drsai.open()
        with pytest.raises(ConfigurationError, match="open already, here"):
            async with drsai:
                pytest.fail("it was opened")
        # Whoever failed to open it has not closed it.
        assert (await drsai.run("writers", "rain")).text
    with pytest.raises(ConfigurationError, match="was closed, with its database: make a new one"):
        await drsai.open()
    await drsai.close()


async def test_open_twice_at_once(made: Callable[[], DrSai]):
    drsai = made()
    outcomes = await asyncio.gather(drsai.open(), drsai.open(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), ConfigurationError]
    assert (await drsai.run("writers", "rain")).text
    await drsai.close()


async def test_another_event_loop(made: Callable[[], DrSai]):
    """As with an `asyncio.run` for opening it and another one for using it, and as from a thread of one's own."""

    def elsewhere(call: Callable[[], Awaitable[Any]]) -> DrSaiError:
        async def there() -> None:
            await call()

        with pytest.raises(DrSaiError) as caught:
            asyncio.run(there())
        return caught.value

    async with made() as drsai:
        for call in CALLS.values():
            error = await asyncio.to_thread(elsewhere, lambda call=call: call(drsai))
            assert isinstance(error, NotOpened)
            assert "the event loop that opened it" in error.message
        error = await asyncio.to_thread(elsewhere, drsai.open)
        assert isinstance(error, ConfigurationError)
        assert "open already, in another event loop" in error.message
        assert isinstance(await asyncio.to_thread(elsewhere, drsai.close), NotOpened)
        assert (await drsai.run("writers", "rain")).text


async def test_what_could_not_be_opened_is_closed(empty_postgres: str):
    drsai = DrSai(database_url=empty_postgres, settings=settings())
    with pytest.raises(SchemaOutdated):
        await drsai.open()
    with pytest.raises(NotOpened, match="closed"):
        await drsai.run("writers", "rain")
