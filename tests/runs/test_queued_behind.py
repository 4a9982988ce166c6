"""A message that waits in the queue when the run in front of it asks a person: told at once, run in its turn, or the
answer, where it says so. In the process that runs the thread and in another one."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend import Answer, DrSai, DrSaiAgent, RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import QueuedInput, Run, utcnow
from drsai_backend.runs import Handle, QueuedBehind
from tests.support.scripted import ScriptedClient
from tests.support.threads import QUICK, Make, disown, request, run_of, thread_of, until


class Desk:
    """One agent that asks for a colour when it is told to, once the test lets it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.choices: list[str] | None = ["red", "blue"]
        self.seconds: float | None = None

    def __call__(self) -> RoundRobinGroupChat:
        desk = self

        class Clerk(DrSaiAgent):
            async def on_messages_stream(self, messages: Any, cancellation_token: Any) -> Any:
                await desk.gate.wait()
                text = messages[-1].to_text()
                if text.startswith("ask"):
                    deadline = None if desk.seconds is None else utcnow() + timedelta(seconds=desk.seconds)
                    text = await self.request_input("Which colour?", choices=desk.choices, deadline=deadline)
                yield Response(chat_message=TextMessage(content=f"did {text}", source=self.name))

        return RoundRobinGroupChat([Clerk("clerk", ScriptedClient(lambda *_: "x"))], max_turns=1)


@pytest.fixture(params=["here", "elsewhere"])
async def desk(make: Make, request: pytest.FixtureRequest) -> tuple[Desk, DrSai, DrSai]:
    """The team, the process that runs the first message, and the one that gets the others."""
    desk = Desk()
    first = await make({"crew": desk}, **QUICK)
    return desk, first, first if request.param == "here" else await make({"crew": desk}, **QUICK)


async def told(handle: Handle) -> Any:
    async with asyncio.timeout(10):
        return await handle.wait()


async def conversation(drsai: DrSai) -> list[str]:
    """Who said what, chat messages only."""
    thread = await thread_of(drsai)
    return [message["content"] for message in thread.messages if message["type"] == "TextMessage"]


async def all_done(drsai: DrSai) -> None:
    async def done() -> bool:
        thread = await thread_of(drsai)
        return thread.status.is_final and thread.queued == 0

    await until(done)


async def status_of(drsai: DrSai, run_id: str) -> RunStatus:
    return (await drsai.engine.get_run(Principal(), run_id)).status


async def test_those_who_wait_are_told_and_keep_their_places(desk: tuple[Desk, DrSai, DrSai]) -> None:
    team, first, other = desk
    asking = await first.engine.start(*request("ask"))
    waiting = [await other.engine.start(*request(text)) for text in ("one", "two")]
    team.gate.set()
    question = (await told(asking)).input_request
    for handle in waiting:
        end = await told(handle)
        assert (end.status, end.queued_behind, end.input_request) == (
            RunStatus.AWAITING_INPUT,
            asking.run_id,
            question,
        )
        view = await other.engine.get_run(Principal(), handle.run_id)
        assert (view.status, view.queued_behind, view.input_request) == (RunStatus.CREATED, asking.run_id, question)
    assert (await thread_of(first)).queued == 2
    # What is sent now was written after the question.
    third = await other.engine.start(*request("blue"))
    assert third.run_id == asking.run_id
    assert (await told(third)).status is RunStatus.COMPLETED
    await all_done(first)
    assert await conversation(first) == ["ask", "did blue", "one", "did one", "two", "did two"]
    assert [await status_of(first, handle.run_id) for handle in waiting] == [RunStatus.COMPLETED] * 2


async def test_the_message_that_says_so_is_the_answer(desk: tuple[Desk, DrSai, DrSai]) -> None:
    team, first, other = desk
    asking = await first.engine.start(*request("ask"))
    waits = await other.engine.start(*request("one"))
    answers = await other.engine.start(*request("blue", on_question="answer"))
    team.gate.set()
    assert (await told(asking)).status is RunStatus.AWAITING_INPUT
    assert (await told(answers)).status is RunStatus.COMPLETED
    assert [done.message.to_text() for done in answers.transcript() if done.shown] == ["did blue"]
    assert (await told(waits)).status is RunStatus.COMPLETED, "it was never told of a question that had its answer"
    await all_done(first)
    assert await conversation(first) == ["ask", "did blue", "one", "did one"]
    runs = {run.run_id: run for run in await first.db.get(Run)}
    assert runs[answers.run_id].joined == asking.run_id
    assert await first.db.get(QueuedInput) == []


async def test_what_is_no_answer_waits(desk: tuple[Desk, DrSai, DrSai]) -> None:
    team, first, other = desk
    await first.engine.start(*request("ask"))
    green = await other.engine.start(*request("green", on_question="answer"))
    red = await other.engine.start(*request("red", on_question="answer", key="k"))
    again = await other.engine.start(*request("red", on_question="answer", key="k"))
    assert again.run_id == red.run_id
    team.gate.set()
    assert (await told(red)).status is (await told(again)).status is RunStatus.COMPLETED
    await told(green)
    await all_done(first)
    assert await conversation(first) == ["ask", "did red", "green", "did green"]
    late = await other.engine.start(*request("red", on_question="answer", key="k"))
    assert (await told(late)).status is RunStatus.COMPLETED
    assert len((await thread_of(first)).messages) == len((await thread_of(other)).messages)


async def test_nothing_but_a_wrong_answer(desk: tuple[Desk, DrSai, DrSai]) -> None:
    team, first, other = desk
    asking = await first.engine.start(*request("ask"))
    green = await other.engine.start(*request("green", on_question="answer"))
    team.gate.set()
    end = await told(green)
    assert (end.status, end.queued_behind) == (RunStatus.AWAITING_INPUT, asking.run_id)
    [row] = await first.db.get(QueuedInput)
    assert row.on_question == "wait"


@pytest.mark.parametrize("how", ["cancelled", "too late"])
async def test_a_question_that_is_never_answered(desk: tuple[Desk, DrSai, DrSai], how: str) -> None:
    team, first, other = desk
    team.seconds = 0.4 if how == "too late" else None
    asking = await first.engine.start(*request("ask"))
    waiting = await other.engine.start(*request("one"))
    withdrawn = await other.engine.start(*request("two"))
    team.gate.set()
    await told(asking)
    assert (await other.engine.cancel_run(Principal(), withdrawn.run_id)).status is RunStatus.STOPPED
    if how == "cancelled":
        await told(waiting)
        await other.engine.cancel_run(Principal(), asking.run_id)
    await all_done(first)
    assert await status_of(first, asking.run_id) is RunStatus.STOPPED
    assert await conversation(first) == ["ask", "one", "did one"]


async def test_the_same_key_tells_the_same(desk: tuple[Desk, DrSai, DrSai]) -> None:
    team, first, other = desk
    await first.engine.start(*request("ask"))
    once = await other.engine.start(*request("one", key="k"))
    team.gate.set()
    told_once = await told(once)
    again = await first.engine.start(*request("one", key="k"))
    assert (again.run_id, await told(again)) == (once.run_id, told_once)
    assert (await thread_of(first)).queued == 1
    await first.run("crew", "red", thread_id="t")
    await all_done(first)
    assert (await told(await other.engine.start(*request("one", key="k")))).status is RunStatus.COMPLETED
    assert await conversation(first) == ["ask", "did red", "one", "did one"]


async def test_a_background_message_after_the_question_is_the_answer(desk: tuple[Desk, DrSai, DrSai]) -> None:
    team, first, other = desk
    team.gate.set()
    asking = await first.engine.start(*request("ask"))
    await told(asking)
    answer = await other.engine.start(*request("blue", background=True))
    assert (await told(answer)).status is RunStatus.COMPLETED
    assert await conversation(first) == ["ask", "did blue"]


async def test_a_background_message_before_the_question_waits(desk: tuple[Desk, DrSai, DrSai]) -> None:
    team, first, other = desk
    asking = await first.engine.start(*request("ask"))
    early = await other.engine.start(*request("one", background=True))
    log = other.engine.follow_run(Principal(), early.run_id)
    team.gate.set()
    question = (await told(asking)).input_request
    async with asyncio.timeout(10):
        logged = await anext(log)
    assert question is not None
    assert logged.event == QueuedBehind(asking.run_id, question)
    await other.answer("t", Answer(question["id"], content="red"))
    rest = [logged.event async for logged in log]
    assert type(rest[-1]).__name__ == "RunEnded"
    assert await conversation(first) == ["ask", "did red", "one", "did one"]


async def test_a_second_question_is_told_too(desk: tuple[Desk, DrSai, DrSai]) -> None:
    team, first, other = desk
    await first.engine.start(*request("ask"))
    waiting = [await other.engine.start(*request(text)) for text in ("ask again", "one")]
    team.gate.set()
    for handle in waiting:
        await told(handle)
    log = other.engine.follow_run(Principal(), waiting[1].run_id)
    async with asyncio.timeout(10):
        before = await anext(log)
        await first.run("crew", "red", thread_id="t")
        after = await anext(log)
    assert isinstance(before.event, QueuedBehind)
    assert isinstance(after.event, QueuedBehind)
    assert after.event.run_id == waiting[0].run_id != before.event.run_id
    await first.run("crew", "blue", thread_id="t")
    await all_done(first)
    assert await conversation(first) == ["ask", "did red", "ask again", "did blue", "one", "did one"]


async def test_a_worker_that_dies_before_it_gives_the_queued_answer(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows alone say that there is an answer: any sweep finds it, also where the run was being answered."""
    desk = Desk()
    first, other = await make({"crew": desk}, **QUICK), await make({"crew": desk}, **QUICK)
    await first.engine.start(*request("ask"))
    answer = await first.engine.start(*request("blue", on_question="answer"))
    # As if it were killed: it asks, and does nothing more.
    monkeypatch.setattr(first.engine._recovery, "look_at", AsyncMock())
    desk.gate.set()
    assert (await told(answer)).status is RunStatus.COMPLETED
    assert await conversation(other) == ["ask", "did blue"]


async def test_a_worker_that_dies_while_the_answer_is_worked_on(make: Make, database_url: str) -> None:
    from tests.support.threads import settings

    desk = Desk()
    dying = DrSai({"crew": desk}, database_url, settings=settings(**QUICK, shutdown_grace_seconds=0))
    await dying.open()
    desk.gate.set()
    await dying.run("crew", "ask", thread_id="t")
    desk.gate.clear()
    await dying.engine.start(*request("blue"))
    await dying.close()
    await disown(dying_reader := await make({"crew": desk}, **QUICK))
    desk.gate.set()
    await all_done(dying_reader)
    assert (await run_of(dying_reader)).status is RunStatus.COMPLETED
    assert await conversation(dying_reader) == ["ask", "did blue"]
