"""Inputs that wait in the queue: taken up once and in order, whatever happens at that moment."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from drsai_backend import RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.database.hooks import EndedRun
from drsai_backend.database.runs.commands import drop_queued
from drsai_backend.datamodel import QueuedInput, Run
from tests.support.calls import Gate
from tests.support.teams.crew import Asker, Crew
from tests.support.threads import QUICK, Make, ended, head_of, idle, queued, reached, request, said, thread_of, until

pytestmark = pytest.mark.usefixtures("checked")


async def test_a_queued_input_that_another_process_has_run_is_not_run_again(make: Make) -> None:
    crew = Crew()
    workers = [await idle(make, crew) for _ in range(2)]
    await workers[0].run("crew", "x", thread_id="t")
    await queued(workers[0], "y")
    key = (await head_of(workers[0])).key
    gate = Gate(workers[1].engine._starter, "start")
    late = asyncio.create_task(workers[1].engine.look_at(key))
    await gate.reached.wait()
    await workers[0].engine.look_at(key)
    await ended(workers[0])
    gate.opened.set()
    await late
    await asyncio.sleep(0.1)
    thread = await ended(workers[0])
    assert (said(thread), thread.queued) == (["x", "y"], 0)


async def test_a_queued_input_that_was_cancelled_meanwhile_is_not_run(make: Make) -> None:
    crew = Crew()
    drsai = await idle(make, crew)
    await drsai.run("crew", "x", thread_id="t")
    [run_id] = await queued(drsai, "y")
    gate = Gate(drsai.engine._starter, "start")
    late = asyncio.create_task(drsai.engine.look_at((await head_of(drsai)).key))
    await gate.reached.wait()
    assert (await drsai.engine.cancel_run(Principal(), run_id)).status is RunStatus.STOPPED
    gate.opened.set()
    await late
    await asyncio.sleep(0.1)
    thread = await thread_of(drsai)
    assert (said(thread), thread.queued, thread.status) == (["x"], 0, RunStatus.COMPLETED)
    assert (await drsai.engine.get_run(Principal(), run_id)).status is RunStatus.STOPPED


async def test_a_queued_input_does_not_answer_a_question_that_was_asked_meanwhile(make: Make) -> None:
    team = Asker()
    workers = [await idle(make, team) for _ in range(2)]
    team.asks = False
    await workers[0].run("crew", "x", thread_id="t")
    await queued(workers[0], "y", "z")
    team.asks = True
    key = (await head_of(workers[0])).key
    gate = Gate(workers[1].engine._starter, "start")
    late = asyncio.create_task(workers[1].engine.look_at(key))
    await gate.reached.wait()
    await workers[0].engine.look_at(key)
    await reached(workers[0], "awaiting_input")
    gate.opened.set()
    await late
    await asyncio.sleep(0.1)
    thread = await thread_of(workers[0])
    assert (thread.status, thread.queued, said(thread)) == (RunStatus.AWAITING_INPUT, 1, ["x", "y"])


async def test_what_was_queued_first_runs_first_where_the_thread_is_warm(make: Make) -> None:
    crew = Crew()
    drsai = await idle(make, crew)
    await drsai.run("crew", "x", thread_id="t")
    await queued(drsai, "y")
    handle = await drsai.engine.start(*request("z"))
    await drsai.engine.look_at((await head_of(drsai)).key)
    assert (await handle.wait()).status is RunStatus.COMPLETED
    thread = await thread_of(drsai)
    assert (said(thread), thread.queued) == (["x", "y", "z"], 0)


async def test_an_input_that_met_a_begin_which_failed_is_begun_after_it(make: Make) -> None:
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")
    [first, _] = await queued(drsai, "y", "z")
    key = (await head_of(drsai)).key
    gate = Gate(drsai.engine._starter, "start")
    failing = asyncio.create_task(drsai.engine.look_at(key))
    await gate.reached.wait()
    await drsai.engine.cancel_run(Principal(), first)
    await drsai.engine.look_at(key)
    gate.opened.set()
    await failing

    async def is_said() -> bool:
        return said(await thread_of(drsai)) == ["x", "z"]

    await until(is_said)


async def test_a_steered_input_that_is_cancelled_at_that_moment_leaves_the_count_right(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await idle(make, crew)
    first = await drsai.engine.start(*request("x"))
    steered = await drsai.engine.start(*request("y", on_busy="steer"))
    live = drsai.engine._running.live(Principal().owner.thread("t"))
    assert live is not None
    write, key = drsai.database.write, (await head_of(drsai)).key

    async def dropping(fn: Any, **options: Any) -> Any:
        if not await drsai.db.get(Run, filters={"run_id": steered.run_id, "status": "created"}):
            return await write(fn, **options)
        thread = await thread_of(drsai)
        if thread.turn == 1:
            ended = EndedRun(live.name, key, steered.run_id, 0, RunStatus.STOPPED)
            await write(lambda session: drop_queued(session, ended, "no"))
        return await write(fn, **options)

    drsai.database.write = dropping  # type: ignore[method-assign]
    crew.ann.release()
    assert (await first.wait()).status is RunStatus.COMPLETED
    assert (await thread_of(drsai)).queued == 0
    assert await drsai.db.get(QueuedInput) == []


async def test_background_inputs_of_a_new_thread_at_the_same_moment(make: Make) -> None:
    workers = [await make({"crew": Crew()}, **QUICK) for _ in range(2)]
    starts = [workers[n % 2].engine.start(*request(str(n), background=True)) for n in range(4)]
    for handle in await asyncio.gather(*starts):
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert sorted(said(await thread_of(workers[0]))) == ["0", "1", "2", "3"]


class Notifier:
    """Writes down who is to be looked at elsewhere."""

    def __init__(self) -> None:
        self.woken: list[int] = []

    async def wake(self, thread_key: int) -> bool:
        self.woken.append(thread_key)
        return True

    async def tell(self, thread_key: int) -> None: ...


async def test_a_process_that_is_full_has_another_one_look(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had dropped the job: what waits was begun after a sweep."""
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")
    await queued(drsai, "y")
    key, notifier = (await head_of(drsai)).key, Notifier()
    recovery = drsai.engine._recovery
    monkeypatch.setattr(recovery, "waker", notifier)
    monkeypatch.setattr(recovery, "is_full", Mock(return_value=True))
    await drsai.engine.look_at(key)
    assert notifier.woken == [key]
    assert (await thread_of(drsai)).queued == 1
