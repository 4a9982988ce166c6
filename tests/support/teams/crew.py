"""Teams whose models belong to the test, whatever process asks them."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend import AssistantAgent, DrSaiAgent
from tests.support.scripted import ScriptedClient, counting
from tests.support.teams.scenarios import agent


def pair() -> RoundRobinGroupChat:
    """Ann and bob, who stream."""
    return RoundRobinGroupChat([agent("ann", True), agent("bob", True)], termination_condition=MaxMessageTermination(3))


class Crew:
    """Makes the team: ann, bob and eve speak once each."""

    def __init__(self) -> None:
        self.ann, self.bob, self.eve = (ScriptedClient(counting(name)) for name in ("ann", "bob", "eve"))

    def __call__(self) -> RoundRobinGroupChat:
        agents = [AssistantAgent(name, getattr(self, name)) for name in ("ann", "bob", "eve")]
        return RoundRobinGroupChat([*agents], max_turns=3)

    @property
    def calls(self) -> tuple[int, int, int]:
        return self.ann.calls, self.bob.calls, self.eve.calls


class Asker:
    """An agent that asks a person, after a tool call where `tool` says so."""

    def __init__(self, *, tool: bool = False) -> None:
        self.asks = True
        self.tool = tool

    def __call__(self) -> RoundRobinGroupChat:
        outer = self

        class Asking(DrSaiAgent):
            async def on_messages_stream(self, messages: Any, cancellation_token: Any) -> Any:
                text = await self.request_input("What?") if outer.asks else "nothing"
                yield Response(chat_message=TextMessage(content=text, source=self.name))

        async def look(name: str) -> str:
            """Look a name up, and ask."""
            return name

        def rule(messages: Any, _: Any) -> Any:
            if isinstance(messages[-1], FunctionExecutionResultMessage):
                return "looked"
            return [FunctionCall("1", '{"name": "x"}', "look")]

        asking = Asking("asking", ScriptedClient(lambda *_: "x"))
        if not self.tool:
            return RoundRobinGroupChat([asking], max_turns=1)
        looker = AssistantAgent("looker", ScriptedClient(rule), tools=[look], reflect_on_tool_use=True)
        inner = RoundRobinGroupChat([looker, asking], max_turns=2)
        return RoundRobinGroupChat([inner], max_turns=1)
