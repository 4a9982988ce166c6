"""A person in the loop, across processes: approvals, questions with choices and deadlines, answers that are late."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend import Answer, AssistantAgent, DrSai, DrSaiAgent, RunStatus, Thread, requires_approval
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import TurnStep, utcnow
from drsai_backend.errors import Conflict, InvalidRequest, NotFound, OtherModel, StaleAnswer
from drsai_backend.runs.events import MessageRead, RunEnded
from drsai_backend.teams.messages import UserInputReceivedEvent
from tests.support.scripted import ScriptedClient
from tests.support.teams.crew import Asker, Crew
from tests.support.threads import QUICK, Make, ended, request, sources, thread_of


class Office:
    """An agent whose tool, which sends mail, wants a person's approval."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.read: list[str] = []
        self.seen: list[Any] = []
        self.has_lead = False
        self.client = ScriptedClient(self._rule)

    def _rule(self, messages: Any, _: Any) -> Any:
        self.seen += messages
        last = messages[-1]
        if isinstance(last, FunctionExecutionResultMessage):
            return "told: " + "; ".join(result.content for result in last.content)
        return [FunctionCall("1", '{"to": "ada"}', "send"), FunctionCall("2", '{"name": "x"}', "look")]

    def __call__(self) -> RoundRobinGroupChat:
        @requires_approval
        async def send(to: str) -> str:
            """Send a mail."""
            self.sent.append(to)
            return f"sent to {to}"

        async def look(name: str) -> str:
            """Look a name up."""
            self.read.append(name)
            return f"{name} is there"

        clerk = AssistantAgent("clerk", self.client, tools=[send, look], reflect_on_tool_use=True)
        lead = AssistantAgent("lead", ScriptedClient(lambda *_: "go"))
        return RoundRobinGroupChat([*[lead] * self.has_lead, clerk], max_turns=1 + self.has_lead)


def chat_sources(thread: Thread) -> list[str]:
    return [message["source"] for message in thread.messages if not message["type"].endswith("Event")]


async def received(drsai: DrSai) -> list[dict[str, Any]]:
    """What the thread keeps of what became of its questions."""
    return [message for message in (await thread_of(drsai)).messages if message["type"] == "UserInputReceivedEvent"]


async def asked(drsai: DrSai) -> dict[str, Any]:
    await drsai.run("crew", "write to ada", thread_id="t")
    thread = await thread_of(drsai)
    assert thread.status is RunStatus.AWAITING_INPUT
    assert thread.input_request is not None
    return thread.input_request


@pytest.mark.parametrize(
    ("said", "sent", "told"),
    [
        ("approve", ["ada"], "sent to ada"),
        ("Yes.", ["ada"], "sent to ada"),
        ("deny: not today", [], "not today"),
        ('edit {"to": "bob"}', ["bob"], "sent to bob"),
    ],
)
async def test_approval_by_chat_in_another_process(make: Make, said: str, sent: list[str], told: str) -> None:
    office = Office()
    question = await asked(await make({"crew": office}))
    assert (question["type"], question["kind"], question["source"]) == ("approval", "approval", "clerk")
    assert question["tool"]["name"] == "send"
    assert question["choices"] == ["approve", "deny", "edit"]
    assert (office.sent, office.read) == ([], ["x"])
    other = await make({"crew": office})
    result = await other.run("crew", said, thread_id="t")
    assert result.status is RunStatus.COMPLETED
    assert told in result.text
    # The model was asked once for the calls and once for the words; the other call was not made again.
    assert (office.sent, office.read, office.client.calls) == (sent, ["x"], 2)
    assert result.usage["completion_tokens"] == 2, "what is replayed is not counted twice"
    assert await other.db.get(TurnStep) == []
    assert "user" not in chat_sources(await thread_of(other))[1:]


async def test_what_is_no_decision_is_refused_and_the_question_stays(make: Make) -> None:
    office = Office()
    drsai = await make({"crew": office})
    question = await asked(drsai)
    with pytest.raises(InvalidRequest, match="approve"):
        await drsai.run("crew", "hm", thread_id="t")
    for answer, param in (
        (Answer(question["id"], decision="maybe"), "decision"),
        (Answer(question["id"]), "decision"),
        (Answer(question["id"], decision="edit"), "arguments"),
        (Answer(question["id"], content="hm"), "text"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            await drsai.answer("t", answer)
        assert refused.value.param == param
    thread = await thread_of(drsai)
    assert (thread.status, thread.input_request) == (RunStatus.AWAITING_INPUT, question)
    assert office.sent == []


async def test_answers_by_id(make: Make) -> None:
    office = Office()
    drsai, other = await make({"crew": office}), await make({"crew": office})
    question = await asked(drsai)
    with pytest.raises(StaleAnswer):
        await other.answer("t", Answer("another", decision="approve"))
    with pytest.raises(NotFound):
        await other.user("somebody").answer("t", Answer(question["id"], decision="approve"))
    edited = Answer(question["id"], decision="edit", arguments={"to": "eve"})
    handle = await other.answer("t", edited)
    assert (await handle.wait()).status is RunStatus.COMPLETED
    with pytest.raises(Conflict) as late:
        await drsai.answer("t", edited)
    assert late.value.code == "input_request_stale"
    assert office.sent == ["eve"]


async def test_of_two_answers_at_once_one_counts(make: Make) -> None:
    office = Office()
    workers = [await make({"crew": office}) for _ in range(2)]
    question = await asked(workers[0])
    answers = [worker.answer("t", Answer(question["id"], decision="approve")) for worker in workers for _ in range(3)]
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    taken = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(taken) == 1
    assert all(isinstance(outcome, Conflict) for outcome in outcomes if outcome not in taken)
    assert (await taken[0].wait()).status is RunStatus.COMPLETED
    assert office.sent == ["ada"]


async def test_cancel_withdraws_the_question(make: Make) -> None:
    office = Office()
    drsai = await make({"crew": office})
    question = await asked(drsai)
    await drsai.stop("t")
    thread = await thread_of(drsai)
    assert (thread.status, thread.input_request, await drsai.db.get(TurnStep)) == (RunStatus.STOPPED, None, [])
    with pytest.raises(StaleAnswer):
        await drsai.answer("t", Answer(question["id"], decision="approve"))
    assert (await drsai.run("crew", "again", thread_id="t")).status is RunStatus.AWAITING_INPUT
    assert (office.sent, office.client.calls) == ([], 2)


# --- what is kept of a decision ---


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("approve", {"decision": "approve", "arguments": {"to": "ada"}, "reason": None}),
        ("deny: not today", {"decision": "deny", "arguments": None, "reason": "not today"}),
        ('edit {"to": "bob"}', {"decision": "edit", "arguments": {"to": "bob"}, "reason": None}),
    ],
)
async def test_a_decision_is_kept_and_told(make: Make, said: str, kept: dict[str, Any]) -> None:
    office = Office()
    drsai, other = await make({"crew": office}), await make({"crew": office})
    question = await asked(drsai)
    before = utcnow()
    handle = await drsai.engine.start(*request(said))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    [message] = await received(other)
    assert {name: message[name] for name in kept} == kept
    assert (message["user_id"], message["source"], message["content"]) == ("anonymous", "user", said)
    assert message["input_request"] == question
    assert datetime.fromisoformat(message["created_at"]) >= before - timedelta(seconds=1)
    # Live, followed by another process, and replayed: never as a part of the answer.
    live = [done for done in handle.transcript() if isinstance(done.message, UserInputReceivedEvent)]
    assert [done.shown for done in live] == [False]
    [again] = [
        logged.event
        async for logged in other.engine.follow_run(Principal(), handle.run_id)
        if isinstance(logged.event, MessageRead) and logged.event.config["type"] == message["type"]
    ]
    assert (again.seq, again.config) == (live[0].seq, message)
    asked_models = [str(text) for text in office.seen]
    assert not any("input_request" in text for text in asked_models), "no model sees it"
    result = await other.run("crew", "and again", thread_id="t")
    assert result.status is RunStatus.AWAITING_INPUT
    assert await received(other) == [message]


@pytest.mark.parametrize("has_lead", [False, True])
async def test_a_worker_that_dies_after_the_decision_keeps_it(make: Make, has_lead: bool) -> None:
    office = Office()
    office.has_lead = has_lead  # Then a boundary is stored before the question.
    drsai, other = await make({"crew": office}), await make({"crew": office}, **QUICK)
    question = await asked(drsai)
    office.client.delay = 30
    await drsai.answer("t", Answer(question["id"], decision="edit", arguments={"to": "eve"}))
    office.client.delay = 0
    await drsai.engine.close()
    thread = await ended(other)
    assert (thread.status, office.sent) == (RunStatus.COMPLETED, ["eve"])
    [message] = await received(other)
    assert message["arguments"] == {"to": "eve"}
    assert chat_sources(thread) == ["user", *["lead"] * has_lead, "clerk"]


async def test_a_question_that_was_withdrawn_says_so(make: Make) -> None:
    drsai = await make({"crew": Office()})
    question = await asked(drsai)
    log = drsai.engine.follow_thread(Principal(), "t")
    seen: list[Any] = []
    async with asyncio.timeout(10):
        async for logged in log:
            seen.append(logged.event)
            if isinstance(logged.event, RunEnded):
                if logged.event.status is RunStatus.STOPPED:
                    break
                await drsai.stop("t")
    assert isinstance(seen[-2], MessageRead)
    [message] = await received(drsai)
    assert seen[-2].config == message
    assert (message["decision"], message["user_id"], message["input_request"]) == ("withdrawn", "anonymous", question)
    assert (await drsai.run("crew", "once more", thread_id="t")).status is RunStatus.AWAITING_INPUT


# --- questions that agents ask --------------------------------------------------------------------------------------


class Chooser(DrSaiAgent):
    """Asks for a colour; `seconds` is the time there is to answer."""

    seconds: float | None = None

    async def on_messages_stream(self, messages: Any, cancellation_token: Any) -> Any:
        deadline = None if self.seconds is None else utcnow() + timedelta(seconds=self.seconds)
        colour = await self.request_input("Which colour?", choices=["red", "blue"], deadline=deadline)
        yield Response(chat_message=TextMessage(content=f"{colour} it is. DONE", source=self.name))


def choosing(seconds: float | None = None) -> Any:
    def team() -> RoundRobinGroupChat:
        agent = Chooser("chooser", ScriptedClient(lambda *_: "x"))
        agent.seconds = seconds
        return RoundRobinGroupChat([agent], termination_condition=TextMentionTermination("DONE"))

    return team


async def test_choices(make: Make) -> None:
    drsai = await make({"crew": choosing()})
    question = await asked(drsai)
    assert (question["type"], question["prompt"], question["choices"]) == (
        "text_input",
        "Which colour?",
        ["red", "blue"],
    )
    with pytest.raises(InvalidRequest, match="red"):
        await drsai.run("crew", "green", thread_id="t")
    result = await (await make({"crew": choosing()})).run("crew", "Blue", thread_id="t")
    [message] = await received(drsai)
    assert (message["decision"], message["content"]) == ("answer", "blue")
    assert (result.status, result.text) == (RunStatus.COMPLETED, "blue it is. DONE")


async def test_a_deadline_ends_the_wait(make: Make) -> None:
    drsai = await make({"crew": choosing(0.5)}, **QUICK)
    question = await asked(drsai)
    assert question["deadline"] is not None
    thread = await ended(drsai)
    assert (thread.status, thread.input_request) == (RunStatus.STOPPED, None)
    [run] = (await drsai.engine.list_runs(Principal(), "t", after=None, limit=5)).items
    assert "in time" in (run.stop_reason or "")
    [message] = await received(drsai)
    assert (message["decision"], message["user_id"], message["input_request"]) == ("expired", None, question)


async def test_an_answer_after_the_deadline_is_refused(make: Make) -> None:
    drsai = await make({"crew": choosing(0.1)}, sweep_seconds=60)
    if drsai._jobs is not None:
        await drsai._jobs.drain()  # No sweep is to end the wait before the answer comes.
    question = await asked(drsai)
    await asyncio.sleep(0.15)
    with pytest.raises(StaleAnswer, match="time"):
        await drsai.answer("t", Answer(question["id"], content="red"))
    with pytest.raises(StaleAnswer):
        await drsai.run("crew", "red", thread_id="t")


async def test_a_message_while_the_answer_is_worked_on_waits(make: Make) -> None:
    office = Office()
    drsai = await make({"crew": office}, **QUICK)
    await asked(drsai)
    office.client.hold()
    answered = await drsai.engine.start(*request("approve"))
    office.client.rule = lambda messages, _: "fine"
    following = await drsai.engine.start(*request("thanks"))
    office.client.release()
    assert (await answered.wait()).status is RunStatus.COMPLETED
    assert (await following.wait()).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai))[-2:] == ["user", "clerk"]


async def test_a_repeated_answer_with_an_idempotency_key_is_given_once(make: Make) -> None:
    """Of a client that did not hear whether its answer has arrived, and sends it once more, to another server."""
    office = Office()
    drsai, other = await make({"crew": office}), await make({"crew": office})
    await asked(drsai)
    answered = await drsai.engine.start(*request("approve", key="k"))
    assert (await answered.wait()).status is RunStatus.COMPLETED
    again = await other.engine.start(*request("approve", key="k"))
    end = await again.wait()
    assert end.status is RunStatus.COMPLETED
    assert [done.message.source for done in again.transcript()][-1] == "clerk"
    assert office.sent == ["ada"]
    assert chat_sources(await thread_of(drsai)).count("user") == 1
    assert len(await received(drsai)) == 1
    with pytest.raises(Conflict):
        await other.engine.start(*request("deny", key="k"))


async def test_a_question_is_not_answered_by_a_message_to_another_team(make: Make) -> None:
    drsai = await make({"crew": Asker(), "other": Crew()}, **QUICK)
    assert (await drsai.run("crew", "x", thread_id="t")).status is RunStatus.AWAITING_INPUT
    with pytest.raises(OtherModel) as refused:
        await drsai.run("other", "y", thread_id="t")
    assert refused.value.param == "model"
    assert (await thread_of(drsai)).status is RunStatus.AWAITING_INPUT
