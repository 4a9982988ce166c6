"""What an agent sets in a context variable is seen by nobody else, as on stock, where each delivery is a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token

import pytest
from autogen_agentchat.agents import BaseChatAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat
from autogen_core import CancellationToken

from tests.support.running import same_as_stock
from tests.support.scripted import ScriptedClient

pytestmark = pytest.mark.usefixtures("spotless")
_speaker: ContextVar[str] = ContextVar("speaker", default="nobody")


class Marked(BaseChatAgent):
    """Says whose mark it finds, and leaves its own; resets it in its next turn if it can."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name} helps.")
        self._token: Token[str] | None = None

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        found = _speaker.get()
        _speaker.set(self.name)
        return Response(chat_message=TextMessage(content=f"found {found}", source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...


def round_robin() -> BaseGroupChat:
    return RoundRobinGroupChat([Marked("ann"), Marked("ben")], max_turns=4)


def selector() -> BaseGroupChat:
    def choose(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
        found = _speaker.get()
        _speaker.set("the selector")
        assert found == "the caller"
        return "ben" if messages[-1].source == "ann" else "ann"

    client = ScriptedClient(lambda messages, options: "unused")
    return SelectorGroupChat([Marked("ann"), Marked("ben")], client, selector_func=choose, max_turns=3)


def graph() -> BaseGroupChat:
    first, left, right, last = (Marked(name) for name in ("first", "left", "right", "last"))
    builder = DiGraphBuilder()
    for node in (first, left, right, last):
        builder.add_node(node)
    builder.add_edge(first, left).add_edge(first, right).add_edge(left, last).add_edge(right, last)
    return GraphFlow([first, left, right, last], builder.build())


def nested() -> BaseGroupChat:
    inner = SocietyOfMindAgent("inner", round_robin(), ScriptedClient(lambda messages, options: "done"))
    return RoundRobinGroupChat([Marked("out"), inner, Marked("end")], max_turns=3)


@pytest.mark.parametrize("build", [round_robin, selector, graph, nested])
async def test_every_turn_has_a_context_of_its_own(build: Callable[[], BaseGroupChat]) -> None:
    token = _speaker.set("the caller")
    try:
        run = await same_as_stock(build)
        assert _speaker.get() == "the caller"
    finally:
        _speaker.reset(token)
    assert "found the caller" in str(run.emitted)
