"""Pieces of a streamed answer pass by agents that would hand each on as it is; whoever reads the run sees the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend import DrSai, RunContext, RunStatus
from drsai_backend.runs import InputMessage, MessageDone, TextDelta
from drsai_backend.runs.events import ThoughtDelta
from tests.support.asks import asks
from tests.support.running import comparable
from tests.support.scripted import ScriptedClient
from tests.support.threads import settings as quick_settings

Agent = Callable[..., AssistantAgent]
Told = list[tuple[object, ...]]


class HandsOn(AssistantAgent):
    """Does what its class does, in a method of its own: so each piece goes through it."""

    async def on_messages_stream(self, *args: Any) -> AsyncGenerator[Any, None]:
        async for item in super().on_messages_stream(*args):
            yield item


class Shouts(AssistantAgent):
    """Changes what it is given piece by piece."""

    async def on_messages_stream(self, *args: Any) -> AsyncGenerator[Any, None]:
        async for item in super().on_messages_stream(*args):
            if isinstance(item, ModelClientStreamingChunkEvent):
                item.content = item.content.upper()
            elif isinstance(item, Response):
                item.chat_message.content = item.chat_message.to_text().upper()  # type: ignore[attr-defined]
            yield item


def lone(agent: Agent, client: ScriptedClient) -> Any:
    return agent("ann", client, model_client_stream=True)


def pair(agent: Agent, client: ScriptedClient) -> Any:
    agents = [agent(name, client, model_client_stream=True) for name in ("ann", "bob")]
    return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))  # type: ignore[arg-type]


def with_tool(agent: Agent, client: ScriptedClient) -> Any:
    def look(word: str) -> str:
        """Look a word up."""
        return f"{word} is a word"

    return agent("ann", client, tools=[look], reflect_on_tool_use=True, model_client_stream=True)


def nested(agent: Agent, client: ScriptedClient) -> Any:
    inner = RoundRobinGroupChat([agent("ann", client, model_client_stream=True)], max_turns=1)
    mind = SocietyOfMindAgent("mind", inner, client)
    return RoundRobinGroupChat([mind, agent("ann", client, model_client_stream=True)], max_turns=2)


TEAMS = (lone, pair, with_tool, nested)


async def told(build: Callable[..., Any], agent: Agent, answers: Sequence[str], piece: int) -> Told:
    """What a reader of a run is told, with ids by the order in which they come."""
    calls = 0

    def rule(_: object, options: dict[str, Any]) -> Any:
        nonlocal calls
        calls += 1
        if options["tools"] and calls == 1:
            return [FunctionCall("c1", '{"word": "tea"}', "look")]
        return answers[calls % len(answers)]

    client = ScriptedClient(rule, piece=piece)

    def team(context: RunContext) -> Any:
        return build(agent, client)

    found: Told = []
    async with AsyncExitStack() as stack:
        drsai = await stack.enter_async_context(DrSai({"team": team}, "sqlite://", settings=quick_settings()))
        handle = await drsai.engine.start(*asks("team", [InputMessage("user", "Next.")], thread_id="t", stream=True))
        ids: dict[str | None, int] = {None: -1}
        async for event in handle.events():
            if isinstance(event, TextDelta | ThoughtDelta):
                number = ids.setdefault(event.message_id, len(ids))
                found.append((type(event).__name__, event.source, event.text, number, event.shown))
            elif isinstance(event, MessageDone):
                number = ids.get(event.message.id, -2)
                found.append(("done", event.message.source, comparable(event.message), number, event.shown))
        assert (await handle.wait()).status is RunStatus.COMPLETED
    return found


TEXTS = st.lists(
    st.sampled_from(["Tea.", "<think>Leaves.</think>Tea.", " ", "<think>", "a<b", "äöü", "0123456789" * 3]),
    min_size=1,
    max_size=3,
).map(lambda parts: "".join(parts) + ".")


@pytest.mark.parametrize("build", TEAMS)
@settings(max_examples=12, deadline=None)
@given(answers=st.lists(TEXTS, min_size=1, max_size=3), piece=st.integers(1, 9))
def test_readers_are_told_what_they_are_told_where_an_agent_hands_each_piece_on(
    build: Callable[..., Any], answers: list[str], piece: int
) -> None:
    ways = [asyncio.run(told(build, agent, answers, piece)) for agent in (AssistantAgent, HandsOn)]
    assert ways[0] == ways[1]


def one_that_was_changed(*args: Any, **options: Any) -> AssistantAgent:
    agent = AssistantAgent(*args, **options)
    setattr(agent, "on_messages_stream", Shouts(*args, **options).on_messages_stream)  # noqa: B010 - a method
    return agent


@pytest.mark.parametrize("agent", [Shouts, one_that_was_changed])
async def test_an_agent_that_changes_pieces_gets_each(agent: Agent) -> None:
    events = await told(lone, agent, ["some tea"], 3)
    assert [event[2] for event in events if event[0] == "TextDelta"] == ["SOM", "E T", "EA"]
