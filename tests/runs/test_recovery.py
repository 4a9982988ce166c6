"""Runs that lose their worker: who goes on with them, from where, and how often. On SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from sqlalchemy.orm import Session

from drsai_backend import AssistantAgent, DrSai, RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import Run, Thread, TurnStep, table_of, utcnow
from drsai_backend.runs import RunStarted
from drsai_backend.runs.engine import Engine
from tests.support.scripted import ScriptedClient
from tests.support.teams.crew import Asker, Crew
from tests.support.threads import (
    QUICK,
    Make,
    disown,
    ended,
    idle,
    reached,
    request,
    run_of,
    said,
    settings,
    sources,
    thread_of,
    turns,
    until,
)


@pytest.fixture
def first(database_url: str) -> Callable[..., Awaitable[DrSai]]:
    """A DrSai that the test itself closes."""

    async def made(crew: Crew, **values: Any) -> DrSai:
        drsai = DrSai({"crew": crew}, database_url, settings=settings(**values))
        await drsai.open()
        return drsai

    return made


async def attempt(drsai: DrSai, number: int) -> None:
    """Wait until the newest run has been taken up that often."""

    async def taken_over() -> bool:
        return (await drsai.engine.list_runs(Principal(), "t", after=None, limit=1)).items[0].attempt == number

    await until(taken_over)


async def test_a_process_that_closes_hands_its_runs_over(make: Make, first: Any) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await first(crew)
    handle = await drsai.engine.start(*request())
    await turns(drsai, 1)
    await drsai.close()
    end = await handle.wait()
    assert (end.status, end.error_code) == (RunStatus.RUNNING, "shutting_down")
    crew.bob.delay = 0
    other = await make({"crew": crew})
    thread = await ended(other)
    assert (thread.status, sources(thread)) == (RunStatus.COMPLETED, ["user", "ann", "bob", "eve"])
    assert crew.calls == (1, 2, 1)
    run = await run_of(other)
    assert (run.attempt, run.retries, run.status) == (2, 0, RunStatus.COMPLETED)


async def test_it_waits_for_the_turn_boundary(make: Make, first: Any) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await first(crew, shutdown_grace_seconds=10)
    await drsai.engine.start(*request())
    await turns(drsai, 1)
    closing = asyncio.create_task(drsai.close())
    await asyncio.sleep(0.1)
    assert not closing.done()
    crew.bob.release()
    await closing
    other = await make({"crew": crew})
    thread = await ended(other)
    assert sources(thread) == ["user", "ann", "bob", "eve"]
    assert crew.calls == (1, 1, 1)


async def test_a_run_whose_worker_died_goes_on_elsewhere_and_its_reader_follows(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK)
    handle = await drsai.engine.start(*request())
    await turns(drsai, 1)
    other = await make({"crew": crew}, **QUICK)
    await disown(drsai)
    await attempt(other, 2)
    crew.bob.release()
    said = [event async for event in handle.events()]
    assert said[-1].status is RunStatus.COMPLETED  # type: ignore[union-attr]
    assert [done.message.source for done in handle.transcript()] == ["user", "ann", "bob", "eve"]
    thread = await thread_of(other)
    assert sources(thread) == ["user", "ann", "bob", "eve"]
    assert crew.ann.calls == 1
    run = await run_of(other)
    assert (run.attempt, run.retries) == (2, 1)


async def test_who_follows_a_run_elsewhere_is_told_so_when_the_process_closes(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK)
    handle = await drsai.engine.start(*request())
    await turns(drsai, 1)
    other = await make({"crew": crew}, **QUICK)
    await disown(drsai)
    await attempt(other, 2)
    followed = asyncio.Event()

    async def follow() -> None:
        async for event in handle.events():
            if isinstance(event, RunStarted) and event.attempt == 2:
                followed.set()

    async with asyncio.timeout(20):
        following = asyncio.create_task(follow())
        await followed.wait()
        await drsai.close()
        await following
        end = await handle.wait()
    assert (end.status, end.error_code) == (RunStatus.RUNNING, "lease_lost")
    crew.bob.release()
    assert (await ended(other)).status is RunStatus.COMPLETED


async def test_before_its_first_turn_was_stored(make: Make) -> None:
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK)
    await drsai.run("crew", "x", thread_id="t")
    crew.ann.hold()
    await drsai.engine.start(*request("y"))
    await crew.ann.asked.wait()
    await disown(drsai)
    other = await make({"crew": crew}, **QUICK)
    await attempt(other, 2)
    crew.ann.release()
    thread = await ended(other)
    assert thread.status is RunStatus.COMPLETED
    assert sources(thread) == ["user", "ann", "bob", "eve"] * 2


async def test_recovery_fail_ends_it(make: Make, first: Any) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await first(crew)
    await drsai.engine.start(*request())
    await turns(drsai, 1)
    await drsai.close()
    other = await make({"crew": crew}, recovery="fail")
    thread = await ended(other)
    assert thread.status is RunStatus.ERROR
    assert "interrupted" in (thread.error_message or "")
    crew.bob.delay = 0
    assert (await other.run("crew", "y", thread_id="t")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("verb", ["resume", "retry"])
async def test_what_another_process_makes_ready_was_not_cut(make: Make, verb: str) -> None:
    """One that does not know the team itself."""
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK, recovery="fail")
    other = await make({"other": Crew()}, **QUICK, recovery="fail")
    crew.bob.hold()
    await drsai.engine.start(*request())
    await turns(drsai, 1)
    if verb == "resume":
        await drsai.pause("t")
        crew.bob.release()
        await reached(drsai, "paused")
        await other.resume("t")
    else:
        rule, crew.bob.rule = crew.bob.rule, lambda *_: RuntimeError("no")
        crew.bob.release()
        await ended(drsai)
        crew.bob.rule = rule
        await other.retry("t")
    thread = await ended(drsai)
    assert (thread.status, sources(thread)) == (RunStatus.COMPLETED, ["user", "ann", "bob", "eve"])


async def test_a_run_that_kills_every_worker_is_given_up(make: Make) -> None:
    """Two deaths make it suspect; from then on it is resumed while other suspects wait."""
    crew = Crew()
    crew.bob.delay = 30
    drsai = await make({"crew": crew}, **QUICK, max_attempts=2, shutdown_grace_seconds=0)
    await drsai.engine.start(*request())
    await turns(drsai, 1)
    for number in (2, 3, 4):
        await disown(drsai)
        await attempt(drsai, number)
    await disown(drsai)
    thread = await ended(drsai)
    assert thread.status is RunStatus.ERROR
    assert "given up" in (thread.error_message or "")
    assert sources(thread) == ["user", "ann"]


async def test_suspects_are_resumed_one_at_a_time_where_no_process_can_be_made_for_them(make: Make) -> None:
    """Those that wait for their turn are not resumed."""
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK, max_attempts=2, shutdown_grace_seconds=0)

    async def attempts() -> list[int]:
        return [run.attempt for run in await drsai.db.get(Run)]

    async def are(*numbers: int) -> None:
        async def there() -> bool:
            return await attempts() == [*numbers]

        await until(there)

    for name in ("t", "t1", "t2"):
        await drsai.engine.start(*request(thread_id=name))
        await turns(drsai, 1)
    await are(1, 1, 1)
    for numbers in ((2, 2, 2), (3, 2, 2)):
        await crew.bob.asked.wait()
        await disown(drsai)
        await are(*numbers)
    await asyncio.sleep(0.5)
    assert await attempts() == [3, 2, 2]
    crew.bob.release()

    async def are_over() -> bool:
        return all(run.status is RunStatus.COMPLETED for run in await drsai.db.get(Run))

    await until(are_over)
    # Each came through its turn as a suspect, and was resumed once more.
    assert await attempts() == [4, 4, 4]


async def test_a_sweep_takes_half_of_what_is_free_in_the_order_of_the_threads(make: Make) -> None:
    drsai = await idle(make, Crew(), max_runs=40)
    dead = drsai.engine.worker_id.rsplit(":", 3)[0] + ":999999:t1:00"

    def leave_behind(session: Session) -> None:
        fixed = {"tenant": "default", "user_id": "u", "created_at": utcnow(), "updated_at": utcnow(), "version": 1}
        fixed |= {"status": RunStatus.RUNNING, "revision": 1, "last_seq": 1, "turn": 0, "journal_debt": 0, "epoch": 1}
        for number in range(50):
            row = {"thread_id": str(number), "run_id": f"run_{number}", "team": "crew", "lease_owner": dead}
            session.add(Thread(**fixed, **row))
            session.flush()
            key = session.execute(sa.select(sa.func.max(table_of(Thread).c.id))).scalar_one()
            session.add(Run(run_id=f"run_{number}", thread_key=key, team="crew"))

    await drsai.database.write(leave_behind)
    engine = drsai.engine
    sweeps = [await engine._recovery.sweep() for _ in range(4)]
    first = sweeps[0][0]
    assert [[key - first for key in keys] for keys in sweeps] == [
        [*range(20)],
        [*range(20, 40)],
        [*range(40, 50), *range(10)],
        [*range(10, 30)],
    ]


async def test_progress_counts_as_a_new_beginning(make: Make) -> None:
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK, max_attempts=1)
    crew.bob.hold()
    crew.eve.hold()
    await drsai.engine.start(*request())
    for turn, speaker in ((1, crew.bob), (2, crew.eve)):
        await turns(drsai, turn)
        await disown(drsai)
        await attempt(drsai, turn + 1)
        speaker.release()
    thread = await ended(drsai)
    assert (thread.status, sources(thread)) == (RunStatus.COMPLETED, ["user", "ann", "bob", "eve"])


async def test_a_lease_that_ran_out_is_taken_by_another_and_the_late_worker_writes_nothing(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 1.5
    drsai = await make({"crew": crew}, **QUICK)
    await drsai.engine.start(*request())
    await turns(drsai, 1)
    # As if it had been stopped: no heartbeat.
    await drsai.engine._heartbeat.stop()
    await drsai.engine._sweeper.stop()
    crew.bob.delay = 0
    other = await make({"crew": crew}, **QUICK)
    thread = await ended(other)
    assert sources(thread) == ["user", "ann", "bob", "eve"]
    await asyncio.sleep(1.5)
    later = await thread_of(other)
    assert (later.turn, later.last_seq, later.epoch, sources(later)) == (
        thread.turn,
        thread.last_seq,
        thread.epoch,
        sources(thread),
    )


async def test_a_team_that_this_process_does_not_know_is_left_to_others(make: Make, first: Any) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await first(crew)
    await drsai.engine.start(*request())
    await turns(drsai, 1)
    await drsai.close()
    crew.bob.delay = 0
    stranger = await make({"another": crew}, **QUICK)
    await asyncio.sleep(0.3)
    assert (await thread_of(stranger)).status is RunStatus.RUNNING
    assert (await ended(await make({"crew": crew}))).status is RunStatus.COMPLETED


# --- steps of a turn that was cut -------------------------------------------------------------------------------------


class Mailroom:
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


async def cut_after_the_tool(drsai: DrSai, mailroom: Mailroom) -> None:
    """Have the run stand in the clerk's turn, with the tool's result recorded."""
    rule = mailroom.client.rule

    def slow(messages: Any, options: Any) -> Any:
        answer = rule(messages, options)
        mailroom.client.delay = 30
        return answer

    mailroom.client.rule = slow
    await drsai.engine.start(*request())

    async def recorded() -> bool:
        return any("!" not in step.step and ":t" in step.step for step in await drsai.db.get(TurnStep))

    await until(recorded)
    mailroom.client.rule = rule


@pytest.mark.parametrize("control", ["steer", "pause"])
async def test_what_is_asked_of_a_cut_run_does_not_forget_the_steps_of_its_turn(make: Make, control: str) -> None:
    mailroom = Mailroom()
    drsai = await idle(make, mailroom, shutdown_grace_seconds=0)
    await cut_after_the_tool(drsai, mailroom)
    if control == "steer":
        await drsai.engine.start(*request("hurry", on_busy="steer"))
    else:
        await drsai.engine.pause(Principal(), "t")
    await disown(drsai)
    mailroom.client.delay = 0
    other = await make({"crew": mailroom}, **QUICK)
    if control == "pause":
        await reached(other, "paused")
        await other.engine.resume(Principal(), "t")
    thread = await ended(other)
    assert (thread.status, thread.error_message) == (RunStatus.COMPLETED, None)
    assert (mailroom.sent, mailroom.client.calls) == (["ada"], 3)
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


async def test_a_long_deletion_of_what_is_over_holds_up_no_sweep(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ends, is_begun = list[Engine](), list[Engine](), asyncio.Event()

    async def prune(engine: Engine) -> int:
        begun.append(engine)
        is_begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(engine)
        return 0

    monkeypatch.setattr(Engine, "prune", prune)
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK)
    async with asyncio.timeout(30):
        await is_begun.wait()
    crew.bob.hold()
    await drsai.engine.start(*request())
    await turns(drsai, 1)
    await disown(drsai)
    await attempt(drsai, 2)
    crew.bob.release()
    assert (await ended(drsai)).status is RunStatus.COMPLETED
    assert (len(begun), ends) == (1, [])
    await drsai.close()
    assert ends == begun


async def test_steps_that_a_turn_has_left_behind_are_swept(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    team = Asker(tool=True)
    drsai = await idle(make, team)
    await drsai.run("crew", "x", thread_id="t")
    await drsai.engine.prune()
    assert await drsai.db.get(TurnStep), "those of a run that waits are needed"
    thread = await thread_of(drsai)
    thread.status = RunStatus.STOPPED
    await drsai.db.upsert(thread)
    await drsai.engine.prune()
    assert await drsai.db.get(TurnStep) == []
    assert "steps were left behind" in caplog.text
