"""A user's message while a team runs: everybody hears it at the next turn boundary."""

from __future__ import annotations

import pytest
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat

from drsai_backend.teams.recording.recorder import Turn
from tests.support.running import Stored, TurnRun
from tests.support.teams.scenarios import agent

pytestmark = pytest.mark.usefixtures("spotless")


def _talk() -> BaseGroupChat:
    inner = RoundRobinGroupChat([agent("deep", False)], name="inner", max_turns=1)
    return RoundRobinGroupChat([agent("ann", False), inner, agent("bob", False)], max_turns=3)


async def test_steering_at_a_boundary() -> None:
    """All participants and the manager hear it, the held speaker first; it is stored as a turn of its own."""
    stored = Stored()
    run = TurnRun(_talk(), stored)
    await run.prepare()
    on_turn = run.on_turn

    async def steering(turn: Turn) -> None:
        await on_turn(turn)
        if len(stored.payloads) == 2:  # ann has spoken
            await run.session.steer([TextMessage(content="Be brief.", source="user")])
            await on_turn(await run.session.capture_turn())

    run.on_turn = steering
    await run.run("Begin.")
    assert stored.pending == [["ann"], ["inner"], ["inner"], ["bob"], None]
    texts = [str(message["content"]) for message in run.emitted]
    assert texts[:3] == ["Begin.", "ann sees 2 messages, the last is 'Begin.'", "Be brief."]
    assert "the last is 'Be brief.'" in texts[3]
    assert texts[4].startswith("bob sees 5 messages")
    state = await run.session.team.save_state()
    thread = state["agent_states"][run.session.team._group_chat_manager_name]["message_thread"]
    assert [message["content"] for message in thread] == texts
    fresh = TurnRun(_talk(), Stored())
    await fresh.prepare()
    await fresh.session.load(stored.document(3), stored.configs)
    buffers = await fresh.session.team.save_state()
    assert [m["content"] for m in buffers["agent_states"]["ann"]["message_buffer"]] == ["Be brief."]


async def test_steering_where_a_run_goes_on() -> None:
    stored = Stored()
    first = TurnRun(_talk(), stored)
    await first.prepare()
    await first.run("Begin.")
    run = TurnRun(_talk(), stored)
    await run.prepare()
    await run.session.load(stored.document(2), {seq: config for seq, config in stored.configs.items() if seq <= 2})
    resumed: list[int] = []

    async def on_resumed() -> None:
        resumed.append(len(stored.payloads))
        await run.session.steer([TextMessage(content="Be brief.", source="user")])
        turn = await run.session.capture_turn()
        assert [each.message.to_text() for each in turn.messages] == ["Be brief."]  # type: ignore[union-attr]
        assert turn.entry.resume.pending == ["inner"]

    run.on_resumed = on_resumed
    await run.run(pending=["inner"])
    assert resumed == [4]
    assert "the last is 'Be brief.'" in str(run.emitted[1]["content"])


async def test_a_run_that_begins_is_not_resumed() -> None:
    run = TurnRun(_talk(), Stored(), first_boundary=False)
    await run.prepare()

    async def on_resumed() -> None:
        raise AssertionError

    run.on_resumed = on_resumed
    await run.run("Begin.")


async def test_steering_with_an_unknown_message() -> None:
    class Odd(TextMessage):
        pass

    run = TurnRun(_talk(), Stored())
    await run.prepare()
    with pytest.raises(ValueError, match="Odd"):
        await run.session.steer([TextMessage(content="x", source="user"), Odd(content="x", source="user")])
    state = await run.session.team.save_state()
    assert state["agent_states"]["ann"]["message_buffer"] == []
