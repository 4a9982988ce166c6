"""Races and outages at awkward moments: what was queued, asked, recorded or stored then. On SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend import AssistantAgent, DrSai, DrSaiAgent, RunStatus
from drsai_backend.database.runs.commands import drop_queued
from drsai_backend.database.runs.reads import read_head
from drsai_backend.datamodel import AutoGenMessage, QueuedInput, Run, Thread, TurnStep
from drsai_backend.errors import Conflict, DatabaseUnavailable, InvalidRequest
from drsai_backend.runs import RunEnded, _leases
from drsai_backend.runs.events import MessageRead
from tests.runs.conftest import Make
from tests.support.scripted import ScriptedClient
from tests.support.teams.crew import (
    QUICK,
    Crew,
    disown,
    ended,
    reached,
    request,
    said,
    sources,
    thread_of,
    turns,
    until,
)

LATE: dict[str, Any] = {"sweep_seconds": 60, "heartbeat_seconds": 60, "lease_seconds": 120}
MANY = range(5, 505)


async def idle(make: Make, team: Any, **values: Any) -> DrSai:
    """A process that begins nothing by itself."""
    drsai = await make({"crew": team}, **LATE, **values)

    async def nothing() -> list[int]:
        return []

    drsai.engine.sweep = nothing  # type: ignore[method-assign]
    return drsai


async def head_of(drsai: DrSai) -> Any:
    head = await drsai.database.read(lambda session: read_head(session, "anonymous", "t"))
    assert head is not None
    return head


class Gate:
    """Holds calls of an object's async method back until it is opened."""

    def __init__(self, thing: Any, name: str) -> None:
        self._call = getattr(thing, name)
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        setattr(thing, name, self)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.reached.set()
        await self.opened.wait()
        return await self._call(*args, **kwargs)


async def queued(drsai: DrSai, *texts: str) -> list[str]:
    """Queue inputs on the finished thread; nobody begins them. Returns their runs."""

    async def nobody(_: int) -> None:
        pass

    wake, drsai.engine._busy._wake = drsai.engine._busy._wake, nobody
    handles = [await drsai.engine.start(request(text, background=True)) for text in texts]
    drsai.engine._busy._wake = wake
    return [handle.run_id for handle in handles]


# --- the queue ------------------------------------------------------------------------------------------------------


async def test_a_queued_input_that_another_process_has_run_is_not_run_again(make: Make) -> None:
    crew = Crew()
    workers = [await idle(make, crew) for _ in range(2)]
    await workers[0].run("crew", "x", thread_id="t")
    await queued(workers[0], "y")
    key = (await head_of(workers[0])).key
    gate = Gate(workers[1].engine._beginner, "begin")
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
    gate = Gate(drsai.engine._beginner, "begin")
    late = asyncio.create_task(drsai.engine.look_at((await head_of(drsai)).key))
    await gate.reached.wait()
    assert (await drsai.engine.cancel_run("anonymous", run_id)).status is RunStatus.STOPPED
    gate.opened.set()
    await late
    await asyncio.sleep(0.1)
    thread = await thread_of(drsai)
    assert (said(thread), thread.queued, thread.status) == (["x"], 0, RunStatus.COMPLETED)
    assert (await drsai.engine.get_run("anonymous", run_id)).status is RunStatus.STOPPED


async def test_a_queued_input_does_not_answer_a_question_that_was_asked_meanwhile(make: Make) -> None:
    team = Asker()
    workers = [await idle(make, team) for _ in range(2)]
    team.asks = False
    await workers[0].run("crew", "x", thread_id="t")
    await queued(workers[0], "y", "z")
    team.asks = True
    key = (await head_of(workers[0])).key
    gate = Gate(workers[1].engine._beginner, "begin")
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
    handle = await drsai.engine.start(request("z"))
    await drsai.engine.look_at((await head_of(drsai)).key)
    assert (await handle.wait()).status is RunStatus.COMPLETED
    thread = await thread_of(drsai)
    assert (said(thread), thread.queued) == (["x", "y", "z"], 0)


async def test_a_steered_input_that_is_cancelled_at_that_moment_leaves_the_count_right(make: Make) -> None:
    crew = Crew()
    crew.ann.delay = 0.3
    drsai = await idle(make, crew)
    first = await drsai.engine.start(request("x"))
    steered = await drsai.engine.start(request("y", on_busy="steer"))
    live = drsai.engine._running.live(("anonymous", "t"))
    assert live is not None
    write, key = drsai.database.write, (await head_of(drsai)).key

    async def dropping(fn: Any) -> Any:
        if not await drsai.db.get(Run, filters={"run_id": steered.run_id, "status": "created"}):
            return await write(fn)
        thread = await thread_of(drsai)
        if thread.turn == 1:
            await write(lambda session: drop_queued(session, key, steered.run_id, RunStatus.STOPPED, "no"))
        return await write(fn)

    drsai.database.write = dropping  # type: ignore[method-assign]
    assert (await first.wait()).status is RunStatus.COMPLETED
    assert (await thread_of(drsai)).queued == 0
    assert await drsai.db.get(QueuedInput) == []


# --- steps of a turn that was cut -----------------------------------------------------------------------------------


class Office:
    """An agent with a tool that works once, and another that hangs the first time, so that the turn can be cut."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.hangs = True
        self.client = ScriptedClient(self._rule)

    def _rule(self, messages: Any, _: Any) -> Any:
        results = sum(isinstance(message, FunctionExecutionResultMessage) for message in messages)
        if results == 0:
            return [FunctionCall("1", '{"to": "ada"}', "send")]
        return "done"

    def __call__(self) -> RoundRobinGroupChat:
        async def send(to: str) -> str:
            """Send a mail."""
            self.sent.append(to)
            return f"sent to {to}"

        first = AssistantAgent("first", ScriptedClient(lambda *_: "hello"))
        clerk = AssistantAgent("clerk", self.client, tools=[send], reflect_on_tool_use=True)
        last = AssistantAgent("last", ScriptedClient(lambda *_: "bye"))
        return RoundRobinGroupChat([first, clerk, last], max_turns=3)


async def cut_after_the_tool(drsai: DrSai, office: Office) -> None:
    """Have the run stand in the clerk's turn, with the tool's result recorded."""
    rule = office.client.rule

    def slow(messages: Any, options: Any) -> Any:
        answer = rule(messages, options)
        office.client.delay = 30
        return answer

    office.client.rule = slow
    await drsai.engine.start(request())

    async def recorded() -> bool:
        return any("!" not in step.step and ":t" in step.step for step in await drsai.db.get(TurnStep))

    await until(recorded)
    office.client.rule = rule


@pytest.mark.parametrize("control", ["steer", "pause"])
async def test_what_is_asked_of_a_cut_run_does_not_forget_the_steps_of_its_turn(make: Make, control: str) -> None:
    office = Office()
    drsai = await idle(make, office, shutdown_grace_seconds=0)
    await cut_after_the_tool(drsai, office)
    if control == "steer":
        await drsai.engine.start(request("hurry", on_busy="steer"))
    else:
        await drsai.engine.pause("anonymous", "t")
    await disown(drsai)
    office.client.delay = 0
    other = await make({"crew": office}, **QUICK)
    if control == "pause":
        await reached(other, "paused")
        await other.engine.resume("anonymous", "t")
    thread = await ended(other)
    assert (thread.status, thread.error_message) == (RunStatus.COMPLETED, None)
    assert (office.sent, office.client.calls) == (["ada"], 3)
    assert said(thread) == (["x", "hurry"] if control == "steer" else ["x"])
    assert await other.db.get(TurnStep) == []


async def test_steps_of_a_turn_that_was_given_up_by_hand_do_not_spoil_the_next_run(make: Make) -> None:
    team = Asker(tool=True)
    drsai = await idle(make, team)
    await drsai.run("crew", "x", thread_id="t")
    thread = await thread_of(drsai)
    assert thread.status is RunStatus.AWAITING_INPUT
    assert await drsai.db.get(TurnStep)
    thread.status = RunStatus.STOPPED
    await drsai.db.upsert(thread)
    team.asks = False
    result = await drsai.run("crew", "y", thread_id="t")
    assert result.status is RunStatus.COMPLETED


class Asker:
    """An agent that asks a person, after a tool call where `tool` says so."""

    def __init__(self, *, tool: bool = False) -> None:
        self.asks = True
        self.tool = tool

    def __call__(self) -> RoundRobinGroupChat:
        outer = self

        class Asking(DrSaiAgent):
            async def on_messages_stream(self, messages: Any, cancellation_token: Any) -> Any:
                from autogen_agentchat.base import Response
                from autogen_agentchat.messages import TextMessage

                text = await self.request_input("What?") if outer.asks else "nothing"
                yield Response(chat_message=TextMessage(content=text, source=self.name))

        async def look(name: str) -> str:
            """Look a name up, and ask."""
            return name

        def rule(messages: Any, _: Any) -> Any:
            if isinstance(messages[-1], FunctionExecutionResultMessage):
                return "looked"
            return [FunctionCall("1", '{"name": "x"}', "look")]

        asking = Asking("asking", ScriptedClient(lambda *_: "x"))
        if not self.tool:
            return RoundRobinGroupChat([asking], max_turns=1)
        looker = AssistantAgent("looker", ScriptedClient(rule), tools=[look], reflect_on_tool_use=True)
        inner = RoundRobinGroupChat([looker, asking], max_turns=2)
        return RoundRobinGroupChat([inner], max_turns=1)


# --- cancel ---------------------------------------------------------------------------------------------------------


async def test_a_cancel_is_not_lost_when_the_run_asks_a_person_at_that_moment(make: Make) -> None:
    team = Asker()
    workers = [await idle(make, team) for _ in range(2)]
    write = workers[0].database.write
    ending, go = asyncio.Event(), asyncio.Event()

    async def slow(fn: Any) -> Any:
        if workers[0].engine._running.live(("anonymous", "t")) is not None:
            ending.set()
            await go.wait()
        return await write(fn)

    workers[0].database.write = slow  # type: ignore[method-assign]
    await workers[0].engine.start(request())
    await ending.wait()
    cancelling = asyncio.create_task(workers[1].engine.cancel("anonymous", "t"))

    async def asked() -> bool:
        return (await head_of(workers[1])).control == "cancel"

    await until(asked)
    go.set()
    assert (await cancelling).status is RunStatus.STOPPED
    assert (await thread_of(workers[1])).input_request is None


async def test_a_cancel_beats_the_pause_that_takes_hold_at_that_moment(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 0.3
    workers = [await idle(make, crew) for _ in range(2)]
    await workers[0].engine.start(request())
    await turns(workers[0], 1)
    await workers[1].engine.pause("anonymous", "t")
    write = workers[0].database.write
    ending, go = asyncio.Event(), asyncio.Event()

    async def slow(fn: Any) -> Any:
        if (await head_of(workers[1])).turn == 2:
            ending.set()
            await go.wait()
        return await write(fn)

    workers[0].database.write = slow  # type: ignore[method-assign]
    await ending.wait()
    interrupting = await workers[1].engine.start(request("y", on_busy="interrupt"))
    go.set()
    assert (await interrupting.wait()).status is RunStatus.COMPLETED
    thread = await thread_of(workers[1])
    assert (said(thread), sources(thread)[:4]) == (["x", "y"], ["user", "ann", "bob", "user"])


async def test_a_cancel_is_not_lost_when_the_run_is_taken_over_at_that_moment(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 30
    workers = [await idle(make, crew, shutdown_grace_seconds=0) for _ in range(3)]
    await workers[0].engine.start(request())
    await turns(workers[0], 1)
    head = await head_of(workers[0])
    await disown(workers[0])
    gate = Gate(workers[1].engine._beginner, "go_on")
    taking = asyncio.create_task(workers[1].engine.look_at(head.key))
    await gate.reached.wait()
    table = Thread.__table__  # type: ignore[attr-defined]
    await workers[2].database.write(lambda session: session.execute(sa.update(table).values(control="cancel")))
    gate.opened.set()
    await taking
    now = await head_of(workers[2])
    assert now.control == "cancel" or now.status is RunStatus.STOPPED, "done already, or still to be done"
    workers[1].engine._heartbeat.beat_now()
    assert (await ended(workers[2])).status is RunStatus.STOPPED


# --- outages and errors ---------------------------------------------------------------------------------------------


async def test_readers_come_to_an_end_when_the_end_cannot_be_stored(make: Make) -> None:
    crew = Crew()
    crew.eve.delay = 0.2
    drsai = await idle(make, crew)
    handle = await drsai.engine.start(request())
    await turns(drsai, 2)
    drsai.database.write = _refusing(Conflict("a deadlock"))  # type: ignore[method-assign]
    live = handle._live  # type: ignore[union-attr]
    async with asyncio.timeout(5):
        while live.ended is None:
            await live.more()
    assert live.ended.status is RunStatus.RUNNING
    assert not drsai.engine._running.is_taken(("anonymous", "t"))


def _refusing(error: Exception) -> Any:
    async def refuse(_: Any) -> Any:
        raise error

    return refuse


async def test_the_heartbeat_and_the_sweeper_survive_a_conflict(make: Make) -> None:
    crew = Crew()
    crew.ann.delay = 0.6
    drsai = await make({"crew": crew}, **QUICK)
    read = drsai.database.read
    handle = await drsai.engine.start(request())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_leases, "renew_leases", _deadlock)
        drsai.database.read = _refusing(Conflict("a deadlock"))  # type: ignore[method-assign]
        await asyncio.sleep(0.3)
        drsai.database.read = read  # type: ignore[method-assign]
    assert (await handle.wait()).status is RunStatus.COMPLETED
    heartbeat, sweeping = drsai.engine._heartbeat._thread, drsai.engine._sweeping
    assert heartbeat is not None
    assert heartbeat.is_alive()
    assert sweeping is not None
    assert not sweeping.done()


def _deadlock(*_: object) -> None:
    raise Conflict("a deadlock")


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("known", [False, True])
async def test_a_run_whose_begin_was_cut_off_is_begun_once(make: Make, key: str | None, known: bool) -> None:
    crew = Crew()
    drsai = await idle(make, crew)
    if known:
        await drsai.run("crew", "w", thread_id="t")
    write, lost = drsai.database.write, ["lost"]

    async def cut(fn: Any) -> Any:
        result = await write(fn)
        if lost:
            lost.pop()
            raise DatabaseUnavailable("away")
        return result

    drsai.database.write = cut  # type: ignore[method-assign]
    handle = await drsai.engine.start(request("x", idempotency_key=key))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == (["w", "x"] if known else ["x"])
    assert (await drsai.engine.get_run("anonymous", handle.run_id)).attempt == 1


# --- idempotency keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{}, {"background": True}, {"on_busy": "reject"}], ids=str)
async def test_the_same_request_at_the_same_moment_is_one_run(make: Make, values: Any) -> None:
    crew = Crew()
    workers = [await make({"crew": crew}, **QUICK) for _ in range(2)]
    starts = [workers[n % 2].engine.start(request("x", idempotency_key="k", **values)) for n in range(4)]
    handles = await asyncio.gather(*starts)
    assert len({handle.run_id for handle in handles}) == 1
    for handle in handles:
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(workers[0])) == ["x"]


async def test_background_inputs_of_a_new_thread_at_the_same_moment(make: Make) -> None:
    workers = [await make({"crew": Crew()}, **QUICK) for _ in range(2)]
    starts = [workers[n % 2].engine.start(request(str(n), background=True)) for n in range(4)]
    for handle in await asyncio.gather(*starts):
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert sorted(said(await thread_of(workers[0]))) == ["0", "1", "2", "3"]


async def test_a_dropped_input_is_replayed_without_the_threads_messages(make: Make) -> None:
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")

    async def nobody(_: int) -> None:
        pass

    drsai.engine._busy._wake = nobody
    handle = await drsai.engine.start(request("y", background=True, idempotency_key="k"))
    await drsai.engine.cancel_run("anonymous", handle.run_id)
    again = await drsai.engine.start(request("y", background=True, idempotency_key="k"))
    assert (await again.wait()).status is RunStatus.STOPPED
    assert list(again.transcript()) == []


# --- paused threads -------------------------------------------------------------------------------------------------


async def test_a_message_to_a_run_that_is_ended_while_it_is_resumed_is_run(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 0.2
    drsai = await make({"crew": crew}, **QUICK)
    first = await drsai.engine.start(request("x"))
    await turns(drsai, 1)
    await drsai.engine.pause("anonymous", "t")
    await first.wait()
    controls = drsai.engine._controls
    resume = controls.resume

    async def too_late(user_id: str, thread_id: str) -> None:
        await controls.cancel(user_id, thread_id)
        await resume(user_id, thread_id)

    controls.resume = too_late  # type: ignore[method-assign]
    handle = await drsai.engine.start(request("y"))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["x", "y"]


# --- other teams ----------------------------------------------------------------------------------------------------


async def test_a_run_is_not_steered_by_a_message_to_another_team(make: Make) -> None:
    crew = Crew()
    crew.ann.delay = 0.2
    drsai = await make({"crew": crew, "other": Crew()}, **QUICK)
    first = await drsai.engine.start(request("x"))
    with pytest.raises(InvalidRequest) as refused:
        await drsai.engine.start(request("y", team="other", on_busy="steer"))
    assert refused.value.param == "model"
    assert (await first.wait()).status is RunStatus.COMPLETED
    assert (said(await thread_of(drsai)), (await thread_of(drsai)).queued) == (["x"], 0)


async def test_a_question_is_not_answered_by_a_message_to_another_team(make: Make) -> None:
    drsai = await make({"crew": Asker(), "other": Crew()}, **QUICK)
    assert (await drsai.run("crew", "x", thread_id="t")).status is RunStatus.AWAITING_INPUT
    with pytest.raises(InvalidRequest) as refused:
        await drsai.run("other", "y", thread_id="t")
    assert refused.value.param == "model"
    assert (await thread_of(drsai)).status is RunStatus.AWAITING_INPUT


# --- the event log --------------------------------------------------------------------------------------------------


async def test_the_log_of_many_runs_without_an_epoch_comes_to_its_end(make: Make) -> None:
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")
    key, table = (await head_of(drsai)).key, Run.__table__  # type: ignore[attr-defined]
    # Runs as revision 0002 finds them, without an epoch; and inputs that were dropped from the queue.
    old = [
        *(Run(run_id=f"run_{n}", thread_key=key, team="crew", status="error", first_seq=n, last_seq=n) for n in MANY),
        *(Run(run_id=f"run_d{n}", thread_key=key, team="crew", status="stopped") for n in MANY),
    ]
    names = {"user_id": "anonymous", "thread_id": "t", "thread_key": key}
    config = {"type": "TextMessage", "source": "user", "content": "y"}
    messages = [AutoGenMessage(**names, seq=n, config=config, run_id=f"run_{n}") for n in MANY]

    def add(session: Any) -> None:
        session.add_all([*old, *messages])
        session.flush()
        session.execute(sa.update(table).values(epoch=0))

    await drsai.database.write(add)
    reads, read = 0, drsai.database.read

    async def counting(fn: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(fn)

    seen: list[Any] = []

    async def follow() -> None:
        async for logged in drsai.engine.follow_thread("anonymous", "t"):
            seen.append(logged)

    drsai.database.read = counting  # type: ignore[method-assign]
    following = asyncio.create_task(follow())
    await asyncio.sleep(0.5)
    following.cancel()
    assert reads < 30
    ends = [logged for logged in seen if isinstance(logged.event, RunEnded)]
    assert [logged.run_id for logged in ends[1:]] == [f"run_{n}" for n in MANY]
    assert [logged.event.seq for logged in seen if isinstance(logged.event, MessageRead)] == [1, 2, 3, 4, *MANY]
    positions = [logged.position for logged in seen]
    assert positions == sorted(set(positions))


async def test_a_deleted_threads_reader_is_not_shown_another_thread(make: Make) -> None:
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")
    seen: list[Any] = []

    async def follow() -> None:
        async for logged in drsai.engine.follow_thread("anonymous", "t"):
            seen.append(logged)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.1)
    key = (await head_of(drsai)).key
    read = drsai.database.read
    hold = asyncio.Event()

    async def held(fn: Any) -> Any:
        if asyncio.current_task() is following:
            await hold.wait()
        return await read(fn)

    drsai.database.read = held  # type: ignore[method-assign]
    await drsai.engine.delete_thread("anonymous", "t")
    await drsai.run("crew", "secret", thread_id="u", user_id="somebody")
    [other] = await drsai.db.get(Thread)
    if other.id != key:
        return  # PostgreSQL does not use them again.
    seen.clear()
    hold.set()
    async with asyncio.timeout(5):
        await following
    assert seen == []
