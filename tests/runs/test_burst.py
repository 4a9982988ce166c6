"""Many inputs at once on one thread, in several processes: each is stored, run and answered, or refused at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend import AssistantAgent, DrSai, RunStatus
from drsai_backend.database.runs import commands
from drsai_backend.errors import Conflict, ThreadBusy
from drsai_backend.runs.feed import feed
from tests.support.postgres import Hold
from tests.support.scripted import ScriptedClient, counting
from tests.support.teams.crew import Crew
from tests.support.threads import LATE, Make, head_of, request, said, thread_of

pytestmark = pytest.mark.usefixtures("checked")
POLICIES = ["enqueue", "steer", "interrupt"]
on_postgres = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def alone() -> RoundRobinGroupChat:
    """One agent, who speaks once."""
    return RoundRobinGroupChat([AssistantAgent("ann", ScriptedClient(counting("ann")))], max_turns=1)


async def ends(drsai: DrSai, text: str, **values: Any) -> RunStatus:
    """How the run of an input ends."""
    handle = await drsai.engine.start(*request(text, **values))
    return (await handle.wait()).status


@on_postgres
async def test_a_burst_on_a_new_thread_in_four_processes(make: Make) -> None:
    """Of all policies together; only an interrupt stops anybody."""
    workers = [await make({"crew": alone}) for _ in range(4)]
    policies = [POLICIES[n // 4 % 3] for n in range(88)]
    runs = (ends(workers[n % 4], str(n), on_busy=policy) for n, policy in enumerate(policies))
    async with asyncio.timeout(60):
        ended = Counter(await asyncio.gather(*runs))
    thread = await thread_of(workers[0])
    assert sorted(map(int, said(thread))) == list(range(88))
    assert (thread.queued, ended[RunStatus.COMPLETED] + ended[RunStatus.STOPPED]) == (0, 88)


@on_postgres
@pytest.mark.parametrize("policy", POLICIES)
async def test_who_waits_for_a_run_that_begins_uses_up_no_try(make: Make, policy: str) -> None:
    """Inputs of another process come one after the other: each looks whether it may begin, while the others wait."""
    crew = Crew()
    one, other = [await make({"crew": crew}, **LATE) for _ in range(2)]
    crew.ann.hold()
    first = await one.engine.start(*request("x"))
    handles = await asyncio.gather(*(other.engine.start(*request(str(n), on_busy=policy)) for n in range(25)))
    assert len({handle.run_id for handle in handles}) == 25
    crew.ann.release()
    await first.wait()


@pytest.mark.parametrize("policy", POLICIES)
async def test_an_input_is_queued_where_others_are_always_faster(make: Make, policy: str) -> None:
    drsai = await make({"crew": alone})
    await drsai.run("crew", "x", thread_id="t")
    start, lost = drsai.engine._starter.start, 0

    async def outrun(*args: Any, **options: Any) -> Any:
        nonlocal lost
        if args[0].queued is None:
            lost += 1
            raise Conflict("the thread was changed by somebody else at the same moment", param="thread_id")
        return await start(*args, **options)

    drsai.engine._starter.start = outrun  # type: ignore[method-assign]
    assert await ends(drsai, "y", on_busy=policy, key="k") is RunStatus.COMPLETED
    assert lost > 0
    assert said(await thread_of(drsai)) == ["x", "y"]
    with pytest.raises(ThreadBusy):
        await ends(drsai, "z", on_busy="reject")


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_thread_that_each_try_finds_free_again_takes_the_input(make: Make, policy: str) -> None:
    """An interrupt ends a run that nobody runs, and another input is faster then: that uses up no input's last try."""
    drsai = await make({"crew": alone})
    await drsai.run("crew", "x", thread_id="t")
    start, take, tries = drsai.engine._starter.start, drsai.engine._commands.take, 0

    async def outrun(*args: Any, **options: Any) -> Any:
        if args[0].queued is None:
            raise Conflict("the thread was changed by somebody else at the same moment", param="thread_id")
        return await start(*args, **options)

    async def freeing(*args: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        return None if tries <= 4 else await take(*args, **options)

    drsai.engine._starter.start = outrun  # type: ignore[method-assign]
    drsai.engine._commands.take = freeing  # type: ignore[method-assign]
    assert await ends(drsai, "y", on_busy=policy) is RunStatus.COMPLETED
    assert (tries, said(await thread_of(drsai))) == (5, ["x", "y"])


@on_postgres
async def test_a_full_queue_refuses(make: Make, monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    """Counted under a lock: of two that come for the last place one is refused, and nothing of it is stored."""
    monkeypatch.setattr(commands, "MAX_QUEUED", 1)
    crew = Crew()
    workers = [await make({"crew": crew}, **LATE) for _ in range(2)]
    crew.ann.hold()
    first = await workers[0].engine.start(*request("x"))
    with Hold(database_url, "queuedinput", "SHARE") as hold:
        starts = [asyncio.create_task(each.engine.start(*request("y"))) for each in workers]
        await hold.until_wait(2)
        hold.let_go()
        results = await asyncio.gather(*starts, return_exceptions=True)
    [refused] = [each for each in results if isinstance(each, BaseException)]
    assert (type(refused), (await head_of(workers[0])).queued) == (ThreadBusy, 1)
    crew.ann.release()
    await first.wait()


async def test_who_waits_in_the_queue_does_not_read_what_the_others_do(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each of many would read the log whenever one of them gets on, and nobody would get on any more."""
    drsai, reads, read_log = await make({"crew": alone}), 0, feed.read_log

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return read_log(*args, **options)

    monkeypatch.setattr(feed, "read_log", counted)
    async with asyncio.timeout(60):
        ended = await asyncio.gather(*(ends(drsai, str(n)) for n in range(20)))
    assert set(ended) == {RunStatus.COMPLETED}
    assert reads < 20 * 6
