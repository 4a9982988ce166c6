"""Agents that join the team of a thread later, or have another name now, know what was said on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_core.models import AssistantMessage, UserMessage

from drsai_backend import AssistantAgent, DrSai, RoundRobinGroupChat
from drsai_backend.datamodel import AutoGenMessage
from tests.support.scripted import ScriptedClient
from tests.support.threads import Make, settings

Heard = list[tuple[str, str, str]]


class Team:
    """Agents of these names, each in a group of its own where a list stands; what their models are shown is kept."""

    def __init__(self, *names: str | list[str], lone: bool = False) -> None:
        self.names, self.lone = names, lone
        self.heard: dict[str, Heard] = {}

    def _agent(self, name: str) -> AssistantAgent:
        def rule(messages: Sequence[Any], options: Any) -> str:
            said = [each for each in messages if isinstance(each, UserMessage | AssistantMessage)]
            self.heard[name] = [(type(each).__name__[:4], each.source, str(each.content)) for each in said]
            return f"{name} {len(said)}"

        return AssistantAgent(name, ScriptedClient(rule))

    def __call__(self) -> Any:
        made = [
            self._agent(each)
            if isinstance(each, str)
            else RoundRobinGroupChat([self._agent(name) for name in each], name="inner", max_turns=len(each))
            for each in self.names
        ]
        return made[0] if self.lone else RoundRobinGroupChat(made, max_turns=len(made))


async def asked(url: str, *teams: Callable[[], Any]) -> None:
    """Ask each team after the other on one thread, each in a process of its own."""
    for number, team in enumerate(teams):
        async with DrSai({"crew": team}, url, settings=settings()) as drsai:
            await drsai.run("crew", f"question {number}", thread_id="t")


async def test_who_joins_knows_who_has_said_what(database_url: str) -> None:
    later = Team("ann", "bob", "cat")
    await asked(database_url, Team("ann", "bob"), later)
    assert later.heard["cat"] == [
        ("User", "user", "question 0"),
        ("User", "ann", "ann 1"),
        ("User", "bob", "bob 2"),
        ("User", "user", "question 1"),
        ("User", "ann", "ann 4"),
        ("User", "bob", "bob 5"),
    ]
    # The others know it once.
    assert [text for _, _, text in later.heard["ann"]] == ["question 0", "ann 1", "bob 2", "question 1"]


async def test_who_is_renamed_knows_it(database_url: str) -> None:
    later = Team("ann", "bert")
    await asked(database_url, Team("ann", "bob"), later)
    assert [each[1:] for each in later.heard["bert"]][:3] == [
        ("user", "question 0"),
        ("ann", "ann 1"),
        ("bob", "bob 2"),
    ]


async def test_a_lone_agent_that_is_renamed_has_said_what_it_said(database_url: str) -> None:
    later = Team("anna", lone=True)
    await asked(database_url, Team("ann", lone=True), later)
    assert later.heard["anna"] == [
        ("User", "user", "question 0"),
        ("Assi", "anna", "ann 1"),
        ("User", "user", "question 1"),
    ]


@pytest.mark.parametrize("before", [["ann"], ["ann", ["bob"]]], ids=["a team that is new", "a team that was there"])
async def test_who_joins_inside_a_team_knows_it(migrated_sqlite: str, before: list[Any]) -> None:
    later = Team("ann", ["bob", "cat"])
    await asked(migrated_sqlite, Team(*before), later)
    assert later.heard["cat"][:2] == [("User", "user", "question 0"), ("User", "ann", "ann 1")]


async def test_it_knows_it_in_the_turns_after_that(make: Make) -> None:
    team = Team("ann", "bob")
    drsai = await make({"crew": team}, warm_threads=0)
    await drsai.run("crew", "question 0", thread_id="t")
    team.names = ("ann", "bob", "cat")
    for number in (1, 2):
        await drsai.run("crew", f"question {number}", thread_id="t")
    texts = [text for _, _, text in team.heard["cat"]]
    assert [text for text in texts if "question" in text] == ["question 0", "question 1", "question 2"]
    assert len(texts) == len(set(texts)) == 10  # two of each turn, and its own of the second, with each question


class Old(BaseChatAgent):
    """Another kind of agent, without a model."""

    produced_message_types = (TextMessage,)

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        return Response(chat_message=TextMessage(content="old", source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None: ...


async def test_who_takes_the_place_of_another_kind_of_agent_knows_it(
    migrated_sqlite: str, caplog: pytest.LogCaptureFixture
) -> None:
    later = Team("ann", "bob")
    with caplog.at_level(logging.WARNING, "drsai.run"):
        await asked(migrated_sqlite, lambda: RoundRobinGroupChat([Old("ann", ""), Old("bob", "")], max_turns=2), later)
    assert "ann is another kind of agent" in caplog.text
    assert [text for _, _, text in later.heard["bob"]] == ["question 0", "old", "old", "question 1", "ann 4"]
    async with DrSai({"crew": later}, migrated_sqlite, settings=settings()) as drsai:
        rows = await drsai.db.get(AutoGenMessage, {"thread_id": "t"})
    assert not [row for row in rows if (row.config.get("metadata") or {}).get("drsai.imported")]
