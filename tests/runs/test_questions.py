"""A team that asks a person: the run waits, in whatever process, and goes through with the answer."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core import FunctionCall

from drsai_backend import RunStatus
from drsai_backend.datamodel import Run
from tests.support.scripted import Answer, user_count
from tests.support.teams.scenarios import agent
from tests.support.threads import Make, thread_of


def with_proxy() -> RoundRobinGroupChat:
    done = TextMentionTermination("approve", sources=["human"])
    return RoundRobinGroupChat([agent("ann", True), UserProxyAgent("human")], termination_condition=done)


async def test_a_user_proxy_waits_across_processes(make: Make) -> None:
    drsai = await make({"pair": with_proxy})
    result = await drsai.run("pair", "Draft it.", thread_id="t")
    assert result.status is RunStatus.AWAITING_INPUT
    assert result.input_request is not None
    assert result.input_request["source"] == "human"
    thread = await thread_of(drsai)
    assert thread.status is RunStatus.AWAITING_INPUT
    assert thread.input_request == result.input_request
    other = await make({"pair": with_proxy})
    again = await other.run("pair", "No, once more.", thread_id="t")
    assert again.run_id == result.run_id
    assert again.status is RunStatus.AWAITING_INPUT
    third = await make({"pair": with_proxy})
    last = await third.run("pair", "I approve.", thread_id="t")
    assert last.status is RunStatus.COMPLETED
    thread = await thread_of(third)
    texts = [(m["source"], m["content"]) for m in thread.messages if m["type"] == "TextMessage"]
    assert [source for source, _ in texts] == ["user", "ann", "human", "ann", "human"]
    assert [text for source, text in texts if source == "human"] == ["No, once more.", "I approve."]
    assert thread.input_request is None
    [run] = await third.db.get(Run, filters={"run_id": result.run_id})
    assert run.answers is None
    assert (run.first_seq, run.last_seq) == (1, thread.last_seq)


async def test_the_first_speaker_may_ask(make: Make) -> None:
    def team() -> RoundRobinGroupChat:
        return RoundRobinGroupChat([UserProxyAgent("human"), agent("ann", True)], max_turns=2)

    drsai = await make({"pair": team})
    assert (await drsai.run("pair", "Hi", thread_id="t")).status is RunStatus.AWAITING_INPUT
    other = await make({"pair": team})
    result = await other.run("pair", "my answer", thread_id="t")
    assert result.status is RunStatus.COMPLETED
    texts = [m["content"] for m in (await thread_of(other)).messages if m["type"] == "TextMessage"]
    assert texts[:2] == ["Hi", "my answer"]
    assert len(texts) == 3


async def test_a_nested_team_may_ask_twice_in_one_turn(make: Make) -> None:
    def team() -> RoundRobinGroupChat:
        inner = RoundRobinGroupChat([UserProxyAgent("human"), agent("ann", False)], name="inner", max_turns=4)
        return RoundRobinGroupChat([agent("bob", False), inner], max_turns=2)

    statuses: list[RunStatus | None] = []
    for text in ("Start", "first answer", "second answer"):
        drsai = await make({"pair": team})
        statuses.append((await drsai.run("pair", text, thread_id="t")).status)
    assert statuses == [RunStatus.AWAITING_INPUT, RunStatus.AWAITING_INPUT, RunStatus.COMPLETED]
    texts = [m["content"] for m in (await thread_of(drsai)).messages if m["source"] == "human" and "content" in m]
    assert [text for text in texts if "answer" in str(text)] == ["first answer", "second answer"]


async def test_a_swarm_hands_over_to_the_user_and_back(make: Make) -> None:
    def asks(messages: Any, options: Any) -> Answer:
        if user_count(messages) == 1:
            return [FunctionCall(id="h", name="transfer_to_user", arguments="{}")]
        return "Thank you. TERMINATE"

    def team() -> Swarm:
        condition = HandoffTermination("user") | TextMentionTermination("TERMINATE")
        return Swarm([agent("clerk", True, asks, handoffs=["user"])], termination_condition=condition)

    drsai = await make({"pair": team})
    result = await drsai.run("pair", "Help", thread_id="t")
    assert result.status is RunStatus.AWAITING_INPUT
    assert result.input_request is not None
    assert result.input_request["source"] == "clerk"
    other = await make({"pair": team})
    last = await other.run("pair", "My name is Ada", thread_id="t")
    assert last.status is RunStatus.COMPLETED
    handoffs = [m for m in (await thread_of(other)).messages if m["type"] == "HandoffMessage"]
    assert [(m["source"], m["target"]) for m in handoffs] == [("clerk", "user"), ("user", "clerk")]


async def test_a_swarm_member_who_asked_the_user_may_have_left(make: Make) -> None:
    def asks(messages: Any, options: Any) -> Answer:
        return [FunctionCall(id="h", name="transfer_to_user", arguments="{}")]

    def swarm(*names: str) -> Swarm:
        members = [agent(name, True, asks if name == "clerk" else None, handoffs=["user"]) for name in names]
        return Swarm([*members], termination_condition=HandoffTermination("user"), max_turns=1)

    drsai = await make({"pair": lambda: swarm("clerk")})
    assert (await drsai.run("pair", "Help", thread_id="t")).status is RunStatus.AWAITING_INPUT
    for text in ("My name is Ada", "Are you there?"):
        drsai = await make({"pair": lambda: swarm("expert")})
        last = await drsai.run("pair", text, thread_id="t")
        assert last.status is RunStatus.COMPLETED
        assert "expert sees" in last.text
        assert text[-15:] in last.text


async def test_stop_a_run_that_waits(make: Make) -> None:
    drsai = await make({"pair": with_proxy})
    await drsai.run("pair", "Draft it.", thread_id="t")
    await drsai.stop("t")
    thread = await thread_of(drsai)
    assert (thread.status, thread.input_request) == (RunStatus.STOPPED, None)
    result = await drsai.run("pair", "Another.", thread_id="t")
    assert result.status is RunStatus.AWAITING_INPUT
    assert result.task_result["messages"][0]["content"] == "Another."
