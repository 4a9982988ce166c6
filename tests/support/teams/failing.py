"""Teams that fail: one for every place where something may raise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import FunctionalTermination, MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import (
    BaseGroupChat,
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult

from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.scenarios import agent


class Boom(Exception):
    """What the tests raise."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Odd(BaseException):
    """Neither an Exception nor a cancellation."""


class Breaking(BaseChatAgent):
    """Raises `error` in its turn, after having said something."""

    def __init__(self, name: str, error: BaseException | None, after: int = 0) -> None:
        super().__init__(name, "breaks")
        self.error = error
        self.left = after

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        raise NotImplementedError

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        yield TextMessage(source=self.name, content="I am about to")
        await asyncio.sleep(0)
        if self.left:
            self.left -= 1
            yield Response(chat_message=TextMessage(source=self.name, content="I did not"))
        elif self.error is not None:
            raise self.error

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


def raising(error: BaseException) -> Callable[..., Any]:
    def rule(*args: Any, **kwargs: Any) -> Any:
        raise error

    return rule


class LateClient(ScriptedClient):
    """Raises in the middle of a stream."""

    async def create_stream(self, messages: Any, **kwargs: Any) -> AsyncGenerator[str | CreateResult, None]:
        yield "one"
        yield "two"
        raise BOOM


class Unregistered(TextMessage):
    type: str = "Unregistered"  # type: ignore[assignment]


class Stranger(Breaking):
    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        yield Response(chat_message=Unregistered(source=self.name, content="hello"))


BOOM = Boom("an agent's own error")


def of_agent(error: BaseException | None) -> Callable[[bool], BaseGroupChat]:
    def build(stream: bool) -> BaseGroupChat:
        members = [agent("ann", stream), Breaking("bob", error)]
        return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(9))

    return build


def of_client(stream: bool) -> BaseGroupChat:
    return RoundRobinGroupChat([agent("ann", stream, raising(BOOM))], max_turns=3)


def of_client_late(stream: bool) -> BaseGroupChat:
    member = AssistantAgent("ann", LateClient(counting("ann")), model_client_stream=True)
    return RoundRobinGroupChat([member], max_turns=3)


def of_condition(stream: bool) -> BaseGroupChat:
    def judge(messages: Sequence[Any]) -> bool:
        if messages[-1].source == "user":
            return False
        raise BOOM

    return RoundRobinGroupChat([agent("ann", stream)], termination_condition=FunctionalTermination(judge))


def of_condition_at_start(stream: bool) -> BaseGroupChat:
    return RoundRobinGroupChat([agent("ann", stream)], termination_condition=FunctionalTermination(raising(BOOM)))


def of_selector(stream: bool) -> BaseGroupChat:
    def choose(thread: Sequence[Any]) -> str:
        if len(thread) > 2:
            raise BOOM
        return "ann"

    return SelectorGroupChat(
        [agent("ann", stream), agent("bob", stream)], ScriptedClient(counting("x")), selector_func=choose, max_turns=9
    )


def of_nonsense_selector(stream: bool) -> BaseGroupChat:
    return SelectorGroupChat(
        [agent("ann", stream), agent("bob", stream)],
        ScriptedClient(counting("x")),
        selector_func=lambda thread: "nobody",
        max_turns=9,
    )


def of_candidates(stream: bool) -> BaseGroupChat:
    return SelectorGroupChat(
        [agent("ann", stream), agent("bob", stream)],
        ScriptedClient(counting("x")),
        candidate_func=lambda thread: [],
        max_turns=9,
    )


def of_selecting_model(stream: bool) -> BaseGroupChat:
    return SelectorGroupChat([agent("ann", stream), agent("bob", stream)], ScriptedClient(raising(BOOM)), max_turns=9)


def of_edge(stream: bool) -> BaseGroupChat:
    a, b = agent("a", stream), agent("b", stream)
    builder = DiGraphBuilder().add_node(a).add_node(b)
    return GraphFlow([a, b], graph=builder.add_edge(a, b, condition=raising(BOOM)).build())


def of_fan_out(stream: bool) -> BaseGroupChat:
    a, c = agent("a", stream), AssistantAgent("c", ScriptedClient(counting("c"), delay=30), model_client_stream=stream)
    b = Breaking("b", BOOM)
    builder = DiGraphBuilder().add_node(a).add_node(b).add_node(c)
    return GraphFlow([a, b, c], graph=builder.add_edge(a, b).add_edge(a, c).build())


def of_nested(stream: bool) -> BaseGroupChat:
    inner = RoundRobinGroupChat([Breaking("deep", BOOM)], name="inner", max_turns=2)
    middle = RoundRobinGroupChat([inner], name="middle", max_turns=2)
    return RoundRobinGroupChat([agent("ann", stream), middle], max_turns=4)


def of_unprintable_nested(stream: bool) -> BaseGroupChat:
    inner = RoundRobinGroupChat([Breaking("deep", UNPRINTABLE)], name="inner", max_turns=2)
    return RoundRobinGroupChat([agent("ann", stream), inner], max_turns=4)


def of_society(stream: bool) -> BaseGroupChat:
    inner = RoundRobinGroupChat([agent("ann", stream)], max_turns=1)
    mind = SocietyOfMindAgent("mind", inner, ScriptedClient(raising(BOOM)))
    return RoundRobinGroupChat([mind], max_turns=3)


def of_society_inside(stream: bool) -> BaseGroupChat:
    inner = RoundRobinGroupChat([Breaking("deep", BOOM)], max_turns=1)
    mind = SocietyOfMindAgent("mind", inner, ScriptedClient(counting("mind")))
    return RoundRobinGroupChat([mind], max_turns=3)


class StrictManager(RoundRobinGroupChatManager):
    async def select_speaker(self, thread: Sequence[Any]) -> list[str] | str:
        if len(thread) > 2:
            raise BOOM
        return await super().select_speaker(thread)


class StrictTeam(RoundRobinGroupChat):
    def _create_group_chat_manager_factory(self, *args: Any, **kwargs: Any) -> Callable[[], RoundRobinGroupChatManager]:
        return lambda: StrictManager(*args, **kwargs, emit_team_events=False)


def of_manager(stream: bool) -> BaseGroupChat:
    return StrictTeam([agent("ann", stream), agent("bob", stream)], max_turns=5)


def of_stranger(stream: bool) -> BaseGroupChat:
    return RoundRobinGroupChat([Stranger("bob", None)], max_turns=2)


def of_swarm(stream: bool) -> BaseGroupChat:
    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return [FunctionCall(id="1", name="transfer_to_bob", arguments="{}")]

    return Swarm([agent("ann", stream, rule, handoffs=["bob"]), Breaking("bob", BOOM)], max_turns=5)


def of_magentic(stream: bool) -> BaseGroupChat:
    nonsense = ScriptedClient(lambda messages, options: "{}")
    return MagenticOneGroupChat([agent("ann", stream)], nonsense)


UNPRINTABLE = Unprintable()
SURROGATE = KeyError("lone \ud800 and \0")


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[bool], BaseGroupChat]
    error: Any
    """The very exception, or the type of what AutoGen raises by itself."""
    stock: bool = True
    """Whether AutoGen gets over it without hanging or crashing."""


CASES = [
    Case("agent", of_agent(BOOM), BOOM),
    Case("key error", of_agent(KeyError("it's \n 'odd' {x} %s")), KeyError),
    Case("surrogate", of_agent(SURROGATE), SURROGATE, stock=False),
    Case("unprintable", of_agent(UNPRINTABLE), UNPRINTABLE, stock=False),
    Case("unprintable inside", of_unprintable_nested, UNPRINTABLE, stock=False),
    Case("cancelled by itself", of_agent(asyncio.CancelledError()), RuntimeError, stock=False),
    Case("base exception", of_agent(Odd("odd")), Odd, stock=False),
    Case("stop async iteration", of_agent(StopAsyncIteration()), RuntimeError),
    Case("no response", of_agent(None), RuntimeError),
    Case("client", of_client, BOOM),
    Case("client mid-stream", of_client_late, BOOM),
    Case("condition", of_condition, BOOM),
    Case("condition at start", of_condition_at_start, BOOM),
    Case("selector", of_selector, BOOM),
    Case("nonsense selector", of_nonsense_selector, ValueError),
    Case("candidates", of_candidates, ValueError),
    Case("selecting model", of_selecting_model, BOOM),
    Case("edge", of_edge, BOOM),
    Case("fan-out", of_fan_out, BOOM, stock=False),
    Case("nested", of_nested, BOOM),
    Case("society's model", of_society, BOOM),
    Case("society's team", of_society_inside, BOOM),
    Case("manager", of_manager, BOOM),
    Case("unregistered type", of_stranger, ValueError),
    Case("swarm", of_swarm, BOOM),
    Case("magentic ledger", of_magentic, (ValueError, KeyError)),
]
