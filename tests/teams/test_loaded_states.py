"""What a fresh team makes of a stored state: after a cut, with other members, warm, damaged."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import (
    BaseGroupChat,
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    Swarm,
)
from autogen_core import AgentId, FunctionCall

from drsai_backend.errors import DamagedState, StateError
from drsai_backend.state import expand
from tests.support.running import Build, Stored, TurnRun, prepared
from tests.support.scripted import Answer, ScriptedClient
from tests.support.teams.foreign import Tally
from tests.support.teams.scenarios import agent, ledger_rule

pytestmark = pytest.mark.usefixtures("spotless")


async def cut_after(build: Build, turns: int) -> Stored:
    """A thread whose run was cut at that boundary."""
    run = await prepared(build())

    async def cut(turn: Any) -> None:
        await run._turn(turn)
        if len(run.stored.payloads) == turns:
            raise InterruptedError

    run.on_turn = cut
    with pytest.raises(InterruptedError):
        await run.run("Begin.")
    return run.stored


async def new_task(build: Build, stored: Stored, task: Any = "Another task.") -> TurnRun:
    run = await prepared(build(), stored)
    await run.session.load(stored.document(), stored.configs, keep_run=False)
    async with asyncio.timeout(30):
        await run.run(task)
    return run


def sources(run: TurnRun) -> list[str]:
    return [event["source"] for event in run.emitted]


def graph() -> BaseGroupChat:
    a, b, c = agent("a", False), agent("b", False), agent("c", False)
    builder = DiGraphBuilder().add_node(a).add_node(b).add_node(c).add_edge(a, b).add_edge(b, c)
    return GraphFlow([a, b, c], graph=builder.build())


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_graph_takes_a_new_task_after_a_cut(turns: int) -> None:
    run = await new_task(graph, await cut_after(graph, turns))
    assert sources(run) == ["user", "a", "b", "c"]


async def test_a_swarm_takes_a_new_task_after_a_cut() -> None:
    def hands_off(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return [FunctionCall(id="1", name="transfer_to_bob", arguments="{}")]

    def build() -> BaseGroupChat:
        return Swarm([agent("ann", False, hands_off, handoffs=["bob"]), agent("bob", False)], max_turns=3)

    run = await new_task(build, await cut_after(build, 2))
    assert sources(run) == ["user", "bob", "bob", "bob"]


async def test_magentic_takes_a_new_task_after_a_cut() -> None:
    def build() -> BaseGroupChat:
        return MagenticOneGroupChat(
            [agent("ann", False), agent("bob", False)], ScriptedClient(ledger_rule), max_turns=9
        )

    stored = await cut_after(build, 2)
    run = await new_task(build, stored)
    assert (
        "Another task."
        in run.session.team._runtime._agents[  # type: ignore[attr-defined]
            AgentId(run.session.team._group_chat_manager_topic_type, run.session.team._team_id)
        ]._task
    )
    assert sources(run)[0] == "user"


async def test_counters_of_a_cut_run_are_forgotten_for_a_new_task() -> None:
    def build() -> BaseGroupChat:
        inner = RoundRobinGroupChat([agent("bob", False)], name="inner", max_turns=2)
        return RoundRobinGroupChat(
            [agent("ann", False), inner], termination_condition=MaxMessageTermination(5), max_turns=9
        )

    run = await new_task(build, await cut_after(build, 3))
    # It was to be bob's team's turn when the run was cut.
    assert sources(run) == ["user", "bob", "bob", "ann", "bob", "bob"]


async def test_held_speakers_who_have_left_are_named() -> None:
    stored = await cut_after(graph, 2)
    run = await prepared(RoundRobinGroupChat([agent("x", False)], max_turns=1), stored)
    with pytest.raises(StateError, match="'b' was to speak"):
        await run.run(pending=stored.pending[-1])


# --- teams that have been changed since -----------------------------------------------------------------------------


def three() -> BaseGroupChat:
    return RoundRobinGroupChat([agent("ann", False), agent("bob", False), agent("cid", False)], max_turns=2)


CHANGED: dict[str, Build] = {
    "fewer": lambda: RoundRobinGroupChat([agent("ann", False), agent("bob", False)], max_turns=2),
    "more": lambda: RoundRobinGroupChat([*three()._participants, agent("dee", False)], max_turns=2),
    "other kind": lambda: RoundRobinGroupChat([agent("ann", False), Tally("bob"), agent("cid", False)], max_turns=2),
    "a team instead": lambda: RoundRobinGroupChat(
        [agent("ann", False), RoundRobinGroupChat([agent("x", False)], name="bob", max_turns=1), agent("cid", False)],
        max_turns=2,
    ),
    "other order": lambda: RoundRobinGroupChat(three()._participants[::-1], max_turns=2),
    "other team": lambda: Swarm([agent("ann", False), agent("bob", False), agent("cid", False)], max_turns=2),
    "a graph": graph,
    "nobody stayed": lambda: RoundRobinGroupChat([agent("x", False)], max_turns=2),
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("keep_run", [True, False])
async def test_a_changed_team_keeps_what_fits(name: str, keep_run: bool) -> None:
    first = await prepared(three())
    await first.run("Begin.")
    run = await prepared(CHANGED[name](), first.stored, check_state=True)
    await run.session.load(first.stored.document(), first.stored.configs, keep_run=keep_run)
    await run.run("Go on.")
    assert sources(run)[0] == "user"
    assert len(run.emitted) >= 2
    assert expand(run.stored.document(), run.stored.configs)[0] == run.stored.states[-1]
    if name in ("fewer", "more", "other order"):
        ann = run.stored.states[-1]["agent_states"]["ann"]
        assert "Begin." in str(ann)


async def test_a_document_without_its_messages_is_refused() -> None:
    first = await prepared(three())
    await first.run("Begin.")
    run = await prepared(three())
    with pytest.raises(DamagedState):
        await run.session.load(first.stored.document(), {})


@pytest.mark.parametrize(
    "item", [["z", 1], ["u", 99], ["u"], [], 99, None, "text", 1.5, ["a", 1, 2], {"type": "Nothing"}, {}]
)
@pytest.mark.parametrize("in_context", [True, False])
async def test_a_damaged_document_is_refused(item: Any, in_context: bool) -> None:
    first = await prepared(three())
    await first.run("Begin.")
    document = first.stored.document()
    name = "messages" if in_context else "message_thread"
    cell = next(number for number in document.lists if document.cells[number][-1] == name)
    document.lists[cell].append(item)
    run = await prepared(three())
    with pytest.raises((DamagedState, ValueError)):
        await run.session.load(document, first.stored.configs)


# --- warm states ----------------------------------------------------------------------------------------------------


async def test_a_warm_state_keeps_no_team_alive() -> None:
    """Model clients hold connections and keys; what waits in memory for the next run holds messages only."""
    run = await prepared(three())
    await run.run("Begin.")
    client = weakref.ref(run.session.team._participants[0]._model_client)  # type: ignore[union-attr]
    warm = run.session.release(run.stored.document().resume)
    del run
    gc.collect()
    assert client() is None
    again = await prepared(three())
    assert await again.session.adopt(warm)


async def test_a_warm_state_of_another_shape_is_not_taken() -> None:
    run = await prepared(three())
    await run.run("Begin.")
    warm = run.session.release(run.stored.document().resume)
    for build in CHANGED.values():
        other = await prepared(build())
        assert not await other.session.adopt(warm)
