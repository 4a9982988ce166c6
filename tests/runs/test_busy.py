"""A user input while a run is live: it waits, is refused, interrupts or steers; background runs; from any process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai, RunStatus, Thread
from drsai_backend.access.principal import Principal
from drsai_backend.database.runs.commands import revive
from drsai_backend.datamodel import QueuedInput, Run
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import InvalidRequest, TeamBuildError, ThreadBusy
from tests.support.calls import Gate
from tests.support.teams.crew import Crew
from tests.support.threads import (
    LATE,
    QUICK,
    WHERE,
    Make,
    ended,
    head_of,
    request,
    said,
    sources,
    thread_of,
    turns,
    two,
    until,
)

ROUND = ["user", "ann", "bob", "eve"]

pytestmark = pytest.mark.usefixtures("checked")


async def test_inputs_wait_in_the_order_of_their_arrival(make: Make, where: int) -> None:
    crew = Crew()
    crew.ann.hold()
    workers = await two(make, crew)
    handles = [await workers[0].engine.start(*request("0"))]
    for number in range(1, 4):
        handles.append(await workers[where].engine.start(*request(str(number))))
    crew.ann.release()
    ends = await asyncio.gather(*(handle.wait() for handle in handles))
    assert [end.status for end in ends] == [RunStatus.COMPLETED] * 4
    thread = await thread_of(workers[0])
    assert said(thread) == ["0", "1", "2", "3"]
    assert sources(thread) == ROUND * 4
    for number, handle in enumerate(handles):
        texts = [done.message.to_text() for done in handle.transcript()]
        assert texts[0] == str(number)
        assert len(texts) == 4
    assert (thread.queued, await workers[0].db.get(QueuedInput)) == (0, [])
    assert len(await workers[0].db.get(Run)) == 4


async def test_reject(make: Make, where: int) -> None:
    crew = Crew()
    crew.ann.hold()
    workers = await two(make, crew)
    handle = await workers[0].engine.start(*request("x"))
    with pytest.raises(ThreadBusy):
        await workers[where].engine.start(*request("y", on_busy="reject"))
    crew.ann.release()
    await handle.wait()
    assert said(await thread_of(workers[0])) == ["x"]


async def test_interrupt_keeps_finished_turns_and_goes_first(make: Make, where: int) -> None:
    crew = Crew()
    crew.bob.delay = 30
    workers = await two(make, crew)
    first = await workers[0].engine.start(*request("x"))
    await turns(workers[0], 1)
    waiting = await workers[0].engine.start(*request("y"))
    urgent = await workers[where].engine.start(*request("z", on_busy="interrupt"))
    crew.bob.delay = 0
    assert (await first.wait()).status is RunStatus.STOPPED
    assert (await urgent.wait()).status is RunStatus.COMPLETED
    assert (await waiting.wait()).status is RunStatus.COMPLETED
    thread = await thread_of(workers[0])
    assert said(thread) == ["x", "z", "y"]
    assert sources(thread)[:3] == ["user", "ann", "user"]


async def test_steer_hands_the_message_to_everybody_at_the_next_boundary(make: Make, where: int) -> None:
    crew = Crew()
    crew.bob.hold()
    workers = await two(make, crew)
    first = await workers[0].engine.start(*request("x"))
    await crew.bob.asked.wait()  # So the boundary before him is over.
    steered = await workers[where].engine.start(*request("and y", on_busy="steer"))
    crew.bob.release()
    end = await steered.wait()
    assert (await first.wait()).status is end.status is RunStatus.COMPLETED
    thread = await thread_of(workers[0])
    assert sources(thread) == ["user", "ann", "bob", "user", "eve"]
    # What eve is asked: her system message, x, ann, bob, and y.
    assert thread.messages[-1]["content"] == "eve sees 5 messages, the last is 'and y'"
    assert [done.message.source for done in steered.transcript()] == ["eve"]
    runs = {run.run_id: run for run in await workers[0].db.get(Run)}
    assert runs[steered.run_id].joined == first.run_id
    await workers[0].run("crew", "z", thread_id="t")
    assert sources(await thread_of(workers[0])) == ["user", "ann", "bob", "user", "eve", *ROUND]


async def test_steer_while_another_is_taken_up_waits_for_the_boundary_after_it(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **LATE)
    first = await drsai.engine.start(*request("x"))
    await crew.ann.asked.wait()
    await drsai.engine.start(*request("and y", on_busy="steer"))
    read, later = drsai.database.read, [request("and z", on_busy="steer")]

    async def then_another(fn: Any, **options: Any) -> Any:
        found = await read(fn, **options)
        if later and isinstance(found, list) and any("policy" in row for row in found):
            await drsai.engine.start(*later.pop())
        return found

    drsai.database.read = then_another  # type: ignore[method-assign]
    crew.ann.release()
    assert (await first.wait()).status is RunStatus.COMPLETED
    thread = await thread_of(drsai)
    assert sources(thread) == ["user", "ann", "user", "bob", "user", "eve"]
    assert (said(thread), thread.queued) == (["x", "and y", "and z"], 0)


async def test_steer_too_late_is_the_next_input(make: Make) -> None:
    crew = Crew()
    crew.eve.hold()
    drsai = await make({"crew": crew}, **QUICK)
    await drsai.engine.start(*request("x"))
    await turns(drsai, 2)
    late = await drsai.engine.start(*request("y", on_busy="steer"))
    crew.eve.release()
    assert (await late.wait()).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai)) == ROUND * 2


async def test_inputs_that_wait_survive_the_process(make: Make, database_url: str) -> None:
    from tests.support.threads import settings

    crew = Crew()
    crew.ann.delay = 30
    drsai = DrSai({"crew": crew}, database_url, settings=settings(**QUICK, shutdown_grace_seconds=0))
    await drsai.open()
    await drsai.engine.start(*request("x"))
    await drsai.engine.start(*request("y"))
    await drsai.close()
    crew.ann.delay = 0
    other = await make({"crew": crew}, **QUICK)

    async def all_done() -> bool:
        return len((await thread_of(other)).messages) == 8 and (await thread_of(other)).queued == 0

    await until(all_done)
    assert said(await ended(other)) == ["x", "y"]


async def test_a_queued_input_that_cannot_run_does_not_hold_up_the_others(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew, "other": crew}, **QUICK, other_model="refuse")
    await drsai.engine.start(*request("x"))
    stranger = await drsai.engine.start(*request("y", team="other"))
    after = await drsai.engine.start(*request("z"))
    crew.ann.release()
    end = await stranger.wait()
    assert end.status is RunStatus.ERROR
    assert "crew" in (end.error_message or "")
    assert (await after.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["x", "z"]


async def test_a_team_that_cannot_be_built_is_refused_at_once(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    broken = False

    def factory() -> object:
        if broken:
            raise OSError
        return crew()

    drsai = await make({"crew": factory}, **QUICK)
    handle = await drsai.engine.start(*request("x"))
    broken = True
    with pytest.raises(TeamBuildError):
        await drsai.engine.start(*request("y"))
    crew.ann.release()
    await handle.wait()
    assert await drsai.db.get(QueuedInput) == []


async def test_a_queued_input_can_be_withdrawn(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **QUICK)
    first = await drsai.engine.start(*request("x"))
    second = await drsai.engine.start(*request("y"))
    view = await drsai.engine.cancel_run(Principal(), second.run_id)
    assert view.status is RunStatus.STOPPED
    assert (await second.wait()).status is RunStatus.STOPPED
    crew.ann.release()
    assert (await first.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["x"]


# --- background -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thread_id", ["t", None])
async def test_a_background_run_begins_by_itself(make: Make, thread_id: str | None) -> None:
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK)
    handle = await drsai.engine.start(*request("x", background=True, thread_id=thread_id))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    view = await drsai.engine.get_run(Principal(), handle.run_id)
    assert (view.status, view.background, view.first_seq, view.last_seq) == (RunStatus.COMPLETED, True, 1, 4)
    assert [done.message.source for done in handle.transcript()] == ROUND


async def test_an_unknown_thread_takes_a_background_inputs_history(make: Make) -> None:
    from drsai_backend.runs import InputMessage

    drsai = await make({"crew": Crew()}, **QUICK)
    history = [InputMessage("user", "a"), InputMessage("assistant", "b"), InputMessage("user", "c")]
    handle = await drsai.engine.start(*request("x", messages=history, background=True))
    await handle.wait()
    assert sources(await thread_of(drsai))[:3] == ["user", "ann", "user"]


async def test_runs_are_listed(make: Make) -> None:
    drsai = await make({"crew": Crew()}, **QUICK)
    for text in "abc":
        await drsai.run("crew", text, thread_id="t")
    page = await drsai.engine.list_runs(Principal(), "t", after=None, limit=2)
    rest = await drsai.engine.list_runs(Principal(), "t", after=page.next, limit=2)
    assert [run.first_seq for run in (*page.items, *rest.items)] == [9, 5, 1]
    assert rest.next is None


# --- pause, resume, cancel ------------------------------------------------------------------------------------------


async def paused(drsai: DrSai, crew: Crew) -> None:
    """Start a run and pause it: ann and bob have spoken, eve has not."""
    crew.bob.hold()
    handle = await drsai.engine.start(*request("x"))
    await turns(drsai, 1)
    await drsai.engine.pause(Principal(), "t")
    crew.bob.release()
    assert (await handle.wait()).status is RunStatus.PAUSED


async def test_a_pause_takes_hold_at_the_boundary_and_survives_restarts(make: Make, where: int) -> None:
    crew = Crew()
    crew.bob.hold()
    workers = await two(make, crew)
    first = await workers[0].engine.start(*request("x"))
    await turns(workers[0], 1)
    await workers[where].engine.pause(Principal(), "t")
    crew.bob.release()
    assert (await first.wait()).status is RunStatus.PAUSED
    thread = await thread_of(workers[0])
    assert (thread.status, sources(thread)) == (RunStatus.PAUSED, ["user", "ann", "bob"])
    third = await make({"crew": crew}, **QUICK)
    await asyncio.sleep(0.3)
    assert (await thread_of(third)).status is RunStatus.PAUSED
    await third.engine.resume(Principal(), "t")
    thread = await ended(third)
    assert (thread.status, sources(thread)) == (RunStatus.COMPLETED, ROUND)
    assert crew.calls == (1, 1, 1)


async def test_a_pause_can_be_taken_back(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK)
    handle = await drsai.engine.start(*request("x"))
    await turns(drsai, 1)
    await drsai.engine.pause(Principal(), "t")
    await drsai.engine.resume(Principal(), "t")
    crew.bob.release()
    assert (await handle.wait()).status is RunStatus.COMPLETED


async def test_a_pause_that_is_taken_back_leaves_the_message_that_steers(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK)
    await drsai.engine.start(*request("x"))
    await turns(drsai, 1)
    steered = await drsai.engine.start(*request("rather y", on_busy="steer"))
    await drsai.engine.pause(Principal(), "t")
    await drsai.engine.resume(Principal(), "t")
    crew.bob.release()
    assert (await steered.wait()).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai)) == ["user", "ann", "bob", "user", "eve"]


async def test_a_message_to_a_paused_run_goes_on_with_it(make: Make, where: int) -> None:
    crew = Crew()
    workers = await two(make, crew)
    await paused(workers[0], crew)
    handle = await workers[where].engine.start(*request("and y"))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert sources(await thread_of(workers[0])) == ["user", "ann", "bob", "user", "eve"]


async def test_a_message_that_comes_while_the_run_pauses_resumes_it(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK)
    first = await drsai.engine.start(*request("x"))
    await turns(drsai, 1)
    await drsai.engine.pause(Principal(), "t")
    outlook = Gate(drsai.engine._starter, "outlook")
    asked = asyncio.create_task(drsai.engine.start(*request("and y")))
    await outlook.reached.wait()
    crew.bob.release()
    assert (await first.wait()).status is RunStatus.PAUSED
    outlook.opened.set()
    async with asyncio.timeout(30):
        assert (await (await asked).wait()).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai)) == ["user", "ann", "bob", "user", "eve"]


async def test_interrupt_a_paused_run(make: Make) -> None:
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK)
    await paused(drsai, crew)
    with pytest.raises(ThreadBusy):
        await drsai.engine.start(*request("y", on_busy="reject"))
    handle = await drsai.engine.start(*request("y", on_busy="interrupt"))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai)) == ["user", "ann", "bob", *ROUND]


async def test_cancel_ends_the_model_call_in_flight(make: Make, where: int) -> None:
    crew = Crew()
    crew.bob.delay = 30
    workers = await two(make, crew)
    handle = await workers[0].engine.start(*request("x"))
    await turns(workers[0], 1)
    detail = await workers[where].engine.cancel(Principal(), "t")
    assert detail.status is RunStatus.STOPPED
    assert (await handle.wait()).status is RunStatus.STOPPED
    assert sources(await thread_of(workers[0])) == ["user", "ann"]
    crew.bob.delay = 0
    assert (await workers[1].run("crew", "y", thread_id="t")).status is RunStatus.COMPLETED


async def test_cancel_a_paused_run(make: Make) -> None:
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK)
    await paused(drsai, crew)
    assert (await drsai.engine.cancel(Principal(), "t")).status is RunStatus.STOPPED
    [thread] = await drsai.db.get(type(await thread_of(drsai)), filters=WHERE)
    assert thread.control is None


async def test_what_a_paused_run_is_asked_for_while_another_process_resumes_it_is_done(make: Make) -> None:
    """The other one has read the thread before, and takes no part in the run itself."""
    crew = Crew()
    drsai = await make({"crew": crew}, **LATE)
    await paused(drsai, crew)
    head = await head_of(drsai)
    asked = sa.update(table_of(Thread)).values(control="cancel")
    await drsai.database.write(lambda session: session.connection().execute(asked))
    assert await drsai.database.write(lambda session: revive(session, head))
    assert (await head_of(drsai)).control == "cancel"
    await drsai.engine.look_at(head.key)
    assert (await thread_of(drsai)).status is RunStatus.STOPPED


async def test_a_process_takes_up_only_so_many_runs_by_itself(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **QUICK, max_runs=2)
    handles = [await drsai.engine.start(*request("x", background=True, thread_id=f"t{number}")) for number in range(5)]
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(drsai.engine._running.held()))
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())

    async def full() -> bool:
        return crew.ann.calls == 2

    await until(full)
    most = max(most, len(drsai.engine._running.held()))
    crew.ann.release()
    ends = await asyncio.gather(*(handle.wait() for handle in handles))
    watching.cancel()
    assert {end.status for end in ends} == {RunStatus.COMPLETED}
    assert most == 2


async def test_a_message_to_a_run_that_is_ended_while_it_is_resumed_is_run(make: Make) -> None:
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK)
    await paused(drsai, crew)
    controls = drsai.engine._commands
    resume = controls.resume

    async def too_late(name: ThreadName) -> None:
        await controls.cancel(name, by="anonymous")
        await resume(name)

    controls.resume = too_late  # type: ignore[method-assign]
    handle = await drsai.engine.start(*request("y"))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["x", "y"]


async def test_a_run_is_not_steered_by_a_message_to_another_team(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew, "other": Crew()}, **QUICK)
    first = await drsai.engine.start(*request("x"))
    with pytest.raises(InvalidRequest) as refused:
        await drsai.engine.start(*request("y", team="other", on_busy="steer"))
    assert refused.value.param == "model"
    crew.ann.release()
    assert (await first.wait()).status is RunStatus.COMPLETED
    assert (said(await thread_of(drsai)), (await thread_of(drsai)).queued) == (["x"], 0)
