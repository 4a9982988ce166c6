"""The client's tools beside an agent's own: whatever is called together, everything is done once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.agents import idempotent, requires_approval
from drsai_backend.errors import ConfigurationError, InvalidRequest
from drsai_backend.teams.client_tools.definitions import (
    CUSTOM_INPUT,
    ClientTool,
    ClientTools,
    custom_input,
    new_call_id,
    run_of_call,
)
from drsai_backend.teams.client_tools.policy import ToolPolicy
from drsai_backend.teams.options import client_tools
from drsai_backend.teams.registry import TeamRegistry
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient

CLIENTS = ("weather", "news", "own")  # one is called as a tool of the agent's own
TOOLS = ClientTools(tuple(ClientTool(name, "Of the client.") for name in CLIENTS))
NAMES = ("own", "approved", "weather", "news", "own_of_client")
_OF_CLIENT = frozenset(NAMES[2:])

calls = st.builds(
    lambda name, number, delay: FunctionCall(
        f"call_{number}", json.dumps({"delay": delay} if name in ("own", "approved") else {"city": delay}), name
    ),
    st.sampled_from(NAMES),
    st.integers(0, 2),  # models repeat their ids
    st.integers(0, 2),
)
rounds = st.lists(st.lists(calls, min_size=1, max_size=4), max_size=4)


class _World:
    """An agent with two tools of its own, whose model calls what it is told to, round after round."""

    def __init__(self, script: Sequence[Sequence[FunctionCall]], own_rounds: int) -> None:
        self.script = script
        self.own_rounds = own_rounds
        self.called = Counter[str]()
        self.client = ScriptedClient(self._rule, thought="Hm.")

    def _rule(self, messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        done = sum(isinstance(message, FunctionExecutionResultMessage) for message in messages)
        return list(self.script[done]) if done < len(self.script) else "Done."

    def build(self) -> BaseGroupChat:
        async def work(name: str, delay: int) -> str:
            await asyncio.sleep(delay / 1000)
            self.called[name] += 1
            return f"{name} did {delay}"

        @idempotent
        async def own(delay: int) -> str:
            return await work("own", delay)

        @requires_approval
        @idempotent
        async def approved(delay: int) -> str:
            return await work("approved", delay)

        agent = AssistantAgent("sam", self.client, tools=[own, approved], max_tool_iterations=self.own_rounds)
        return RoundRobinGroupChat([agent], max_turns=1)

    def story(self, **more: Any) -> Story:
        return Story(self.build, answer=lambda _: "approve", tools=TOOLS, **more)

    @property
    def played(self) -> list[Sequence[FunctionCall]]:
        """The rounds that the agent makes: those with calls of the client's do not count."""
        played, own = list[Sequence[FunctionCall]](), 0
        for each in self.script:
            played.append(each)
            own += not any(call.name in _OF_CLIENT for call in each)
            if own == self.own_rounds:
                break
        return played


def done_once(script: list[list[FunctionCall]], own_rounds: int, place: int, durable: bool) -> None:
    async def check() -> None:
        world = _World(script, own_rounds)
        story = await world.story().run()
        played = world.played
        asked = [question for question in story.questions if question.kind == "client_tool"]
        wanted = [[call.name for call in each if call.name in _OF_CLIENT] for each in played]
        # All calls of an answer are one question, with the client's own names in it.
        assert [[call["called"] for call in each.tool_calls or ()] for each in asked] == [w for w in wanted if w]
        assert all(call["name"] in CLIENTS for each in asked for call in each.tool_calls or ())
        is_cut = len(played) < len(script) or (played and not wanted[-1] and _own_rounds(wanted) == own_rounds)
        assert world.client.calls == len(played) + (not is_cut)
        made = Counter(call.name for each in played for call in each if call.name not in _OF_CLIENT)
        assert world.called == made
        if story.writes:
            # How many writes there are, results that come at once share one, differs from try to try.
            at = 1 + place % story.writes
            cut = _World(script, own_rounds)
            again = await cut.story(crash_at=at, durable=durable).run()
            assert again.said == story.said
            assert again.state == story.state
            assert cut.client.calls <= world.client.calls + 1

    asyncio.run(check())


@settings(max_examples=8, deadline=None)
@given(rounds, st.integers(1, 3), st.integers(0, 1000), st.booleans())
def test_everything_is_done_once(script: list[list[FunctionCall]], own_rounds: int, place: int, durable: bool) -> None:
    """With more examples: test_cut_client_tools.py."""
    done_once(script, own_rounds, place, durable)


def _own_rounds(wanted: list[list[str]]) -> int:
    return sum(not each for each in wanted)


def test_ids_lead_to_their_runs() -> None:
    run_id = "run_1m81gnjzb5w1p98gvk"
    made = new_call_id(run_id, 12345, 67)
    assert len(made) <= 40
    assert run_of_call(made) == run_id
    assert [run_of_call(each) for each in ("call_0", "", "call_abc_1_1", f"{made}\n")] == [None] * 4


def test_a_teams_own_word() -> None:
    config = {"provider": "autogen_agentchat.agents.AssistantAgent", "config": {"name": "ann"}}
    registry = TeamRegistry()
    registry.add("word", {**config, "client_tools": "refuse"})
    registry.add("agent", {**config, "client_tools": {"agent": "bob"}})
    registry.add("none", config)
    policies = [registry.get(name).options.client_tools.over("ignore") for name in registry.names()]
    assert policies == [ToolPolicy("refuse"), ToolPolicy("ignore", "bob"), ToolPolicy("ignore")]
    for wrong in ("never", ["offer"], {"modus": "offer"}, {"mode": "never"}, {"agent": 1}):
        with pytest.raises(ConfigurationError, match="client_tools"):
            registry.add("wrong", {**config, "client_tools": wrong})
    with pytest.raises(ConfigurationError, match="client_tools"):
        client_tools("never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@given(
    st.sets(st.sampled_from("abc")),
    st.none() | st.lists(st.sampled_from("abc"), max_size=3),
    st.sampled_from(["auto", "none", "required"]),
)
def test_a_choice_is_of_tools_that_are_there(offered: set[str], only: list[str] | None, choice: Any) -> None:
    tools = ClientTools(tuple(map(ClientTool, sorted(offered))), choice, only)
    missing = [name for name in only or () if name not in offered]
    if not missing and (choice != "required" or (offered if only is None else only)):
        assert tools.checked("tool_choice") is tools
        return
    with pytest.raises(InvalidRequest) as refused:
        tools.checked("function_call")
    assert refused.value.param == "function_call"
    assert (repr(missing[0]) if missing else "demands a tool") in refused.value.message


@given(st.text())
def test_the_text_of_a_custom_tool_comes_back(text: str) -> None:
    assert custom_input({"arguments": json.dumps({CUSTOM_INPUT: text})}) == text


@pytest.mark.parametrize("arguments", ["[1]", '{"input": 1}', "{}", "null"])
def test_what_is_no_text_comes_back_as_it_was_written(arguments: str) -> None:
    assert custom_input({"arguments": arguments}) == arguments
