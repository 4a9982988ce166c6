"""A team that is a participant of another one continues where nothing was said since its last turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from autogen_agentchat.teams import DiGraphBuilder

from drsai_backend import GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from tests.support.scripted import ScriptedClient, counting
from tests.support.teams.scenarios import agent
from tests.support.threads import Make

Team = RoundRobinGroupChat | SelectorGroupChat | Swarm | GraphFlow


def round_robin() -> Team:
    return RoundRobinGroupChat([agent("ann", False), agent("bob", False)], name="inner", max_turns=2)


def selector() -> Team:
    members = [agent(name, False) for name in ("ann", "bob")]
    model = ScriptedClient(counting("nobody"))
    return SelectorGroupChat(
        members,
        model,
        name="inner",
        max_turns=2,
        selector_func=lambda said: "bob" if said[-1].source == "ann" else "ann",
    )


def swarm() -> Team:
    return Swarm([agent("ann", False), agent("bob", False)], name="inner", max_turns=2)


def graph() -> Team:
    ann, bob = agent("ann", False), agent("bob", False)
    order = DiGraphBuilder().add_node(ann).add_node(bob).add_edge(ann, bob).build()
    return GraphFlow([ann, bob], name="inner", graph=order)


@pytest.mark.parametrize("inner", [round_robin, selector, swarm, graph])
async def test_chosen_twice_in_a_row(make: Make, inner: Callable[[], Team]) -> None:
    drsai = await make({"crew": lambda: RoundRobinGroupChat([inner()], max_turns=2)})
    for task in ("Begin.", "Go on."):
        await drsai.run("crew", task, thread_id="t")
    said = [message.content for message in await drsai.list_messages("t")]
    # Each hears what was said in the team's turn before, and the task once.
    heard = [2, 3, 4, 5, 7, 8, 9, 10]
    assert [int(text.split()[2]) for text in said if " sees " in text] == heard
