"""Teams that take long, each in a place of its own, and the ways to cancel their runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.teams import (
    BaseGroupChat,
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
)
from autogen_agentchat.tools import TeamTool
from autogen_core import CancellationToken, FunctionCall

from tests.support.running import Stored, TurnRun, as_messages
from tests.support.scripted import Answer, Rule, ScriptedClient, counting

LONG = 60.0
PROMPT = LONG / 3
"""So that nothing has waited for what takes long; in the way of other processes a moment may take seconds."""


class Deaf(ScriptedClient):
    """Takes long, and takes no notice of the token."""

    async def create(self, messages: Sequence[Any], **kwargs: Any) -> Any:
        kwargs["cancellation_token"] = None
        return await super().create(messages, **kwargs)


class Hearing(ScriptedClient):
    """Takes long, and honours the token."""


Client = type[ScriptedClient]


def member(name: str, client: Client, delay: float = LONG, rule: Rule | None = None, **kwargs: Any) -> AssistantAgent:
    return AssistantAgent(
        name, client(rule or counting(name), delay=delay), model_client_stream=True, description=name, **kwargs
    )


def at_mid_turn(client: Client) -> BaseGroupChat:
    return RoundRobinGroupChat([member("ann", client, 0), member("bob", client)], max_turns=4)


def at_selection_in_start(client: Client) -> BaseGroupChat:
    members = [member("ann", client), member("bob", client)]
    return SelectorGroupChat(members, client(counting("x"), delay=LONG), max_turns=4)


def at_selection_later(client: Client) -> BaseGroupChat:
    chosen = iter(["ann"])
    members = [member("ann", client, 0), member("bob", client), member("cid", client)]
    return SelectorGroupChat(
        members, client(counting("x"), delay=LONG), selector_func=lambda thread: next(chosen, None), max_turns=4
    )


def at_planning(client: Client) -> BaseGroupChat:
    return MagenticOneGroupChat([member("ann", client)], client(counting("x"), delay=LONG))


def at_fan_out(client: Client) -> BaseGroupChat:
    members = [member("a", client, 0), *(member(name, client) for name in "bcd")]
    builder = DiGraphBuilder()
    for each in members:
        builder.add_node(each)
    for each in members[1:]:
        builder.add_edge(members[0], each)
    return GraphFlow(members, graph=builder.build())


def at_nested(client: Client) -> BaseGroupChat:
    deepest = RoundRobinGroupChat([member("deep", client)], name="deepest", max_turns=1)
    inner = RoundRobinGroupChat([member("ann", client, 0), deepest], name="inner", max_turns=2)
    return RoundRobinGroupChat([inner, member("bob", client)], max_turns=3)


def at_society(client: Client) -> BaseGroupChat:
    inner = RoundRobinGroupChat([member("ann", client)], max_turns=1)
    return RoundRobinGroupChat([SocietyOfMindAgent("mind", inner, client(counting("mind")))], max_turns=3)


def calls(*names: str) -> Rule:
    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return [FunctionCall(id=name, name=name, arguments='{"task": "x"}') for name in names]

    return rule


async def slow(task: str) -> str:
    """Takes long."""
    await asyncio.sleep(LONG)
    return task


async def slower(task: str) -> str:
    """Takes long too."""
    await asyncio.sleep(2 * LONG)
    return task


def at_tool(client: Client) -> BaseGroupChat:
    return RoundRobinGroupChat([member("ann", client, 0, calls("slow", "slower"), tools=[slow, slower])], max_turns=3)


def at_team_tool(client: Client) -> BaseGroupChat:
    inner = RoundRobinGroupChat([member("deep", client)], max_turns=1)
    tool = TeamTool(team=inner, name="team", description="a team")
    return RoundRobinGroupChat([member("ann", client, 0, calls("team"), tools=[tool])], max_turns=3)


PLACES: list[Callable[[Client], BaseGroupChat]] = [
    at_mid_turn,
    at_selection_in_start,
    at_selection_later,
    at_planning,
    at_fan_out,
    at_nested,
    at_society,
    at_tool,
    at_team_tool,
]
places = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
clients = pytest.mark.parametrize("client", [Hearing, Deaf], ids=["hearing", "deaf"])


async def start(team: BaseGroupChat, token: CancellationToken) -> tuple[TurnRun, asyncio.Task[Any]]:
    run = TurnRun(team, Stored())
    await run.prepare()
    return run, asyncio.create_task(run.run_session(as_messages("Begin."), token=token))


async def by_token(task: asyncio.Task[Any], token: CancellationToken) -> None:
    token.cancel()


async def by_token_in_thread(task: asyncio.Task[Any], token: CancellationToken) -> None:
    thread = threading.Thread(target=token.cancel)
    thread.start()
    thread.join()


async def by_task(task: asyncio.Task[Any], token: CancellationToken) -> None:
    task.cancel()


async def by_task_and_again(task: asyncio.Task[Any], token: CancellationToken) -> None:
    """Whoever is impatient cancels during the clean-up too."""
    for _ in range(4):
        task.cancel()
        await asyncio.sleep(0)


async def by_both(task: asyncio.Task[Any], token: CancellationToken) -> None:
    task.cancel()
    token.cancel()


WAYS = [by_token, by_token_in_thread, by_task, by_task_and_again, by_both]
