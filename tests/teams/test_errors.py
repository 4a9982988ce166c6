"""Whatever raises inside a team ends the run with that very exception, promptly, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
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
from autogen_core import CancellationToken, FunctionCall, SingleThreadedAgentRuntime
from autogen_core.models import CreateResult

from tests.support.running import Stored, TurnRun, comparable, run_stock
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.scenarios import agent, tool_rule

pytestmark = pytest.mark.usefixtures("spotless")


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
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@each_case
@streaming
async def test_the_original_error_ends_the_run(case: Case, stream: bool) -> None:
    stored = Stored()
    run = TurnRun(case.build(stream), stored)
    await run.prepare()
    async with asyncio.timeout(30):
        with pytest.raises(BaseException) as caught:
            await run.run("Begin.")
    if isinstance(case.error, BaseException):
        assert caught.value is case.error
    else:
        assert isinstance(caught.value, case.error)
        assert "Traceback" not in str(caught.value)


async def stock_until_error(team: BaseGroupChat, *, embedded: bool) -> list[Any]:
    stock: SingleThreadedAgentRuntime | None = None
    if not embedded:
        stock = SingleThreadedAgentRuntime()
        team._runtime, team._embedded_runtime = stock, False
        stock.start()
    seen: list[Any] = []
    async with asyncio.timeout(30):
        with pytest.raises((RuntimeError, ValueError, KeyError, Boom)):  # noqa: PT012
            async for item in team.run_stream(task="Begin."):
                seen.append(comparable(item))
    if stock is not None:
        await stock.stop()
    return seen


@pytest.mark.parametrize("case", [case for case in CASES if case.stock], ids=lambda case: case.name)
@pytest.mark.parametrize("embedded", [True, False], ids=["embedded", "own-runtime"])
async def test_the_same_messages_come_before_it_as_on_stock(case: Case, embedded: bool) -> None:
    """AutoGen ends these runs too, with a text for an error, after the same messages."""
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: None)  # What stock leaves behind is not ours.
    expected = await stock_until_error(case.build(False), embedded=embedded)
    await asyncio.sleep(0.01)
    gc.collect()
    loop.set_exception_handler(handler)
    run = TurnRun(case.build(False), Stored())
    await run.prepare()
    with pytest.raises(BaseException):  # noqa: B017 - what is raised is the other test's business
        await run.run("Begin.")
    if expected:
        assert run.emitted == expected
    else:  # Stock loses what it had when its first step fails.
        assert {event["source"] for event in run.emitted}.isdisjoint(run.session.team._participant_names)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tools_error_is_a_result(stream: bool) -> None:
    def build() -> BaseGroupChat:
        from tests.support.teams.scenarios import add, fail

        return RoundRobinGroupChat([agent("ann", stream, tool_rule, tools=[add, fail])], max_turns=2)

    run = TurnRun(build(), Stored())
    await run.prepare()
    expected, reason = await run_stock(build(), "Begin.")
    assert await run.run("Begin.") == reason
    assert run.emitted == expected


@pytest.mark.parametrize("error", [asyncio.CancelledError(), Odd("odd")], ids=["CancelledError", "BaseException"])
async def test_a_tool_that_raises_no_exception_does_not_hang(error: BaseException) -> None:
    """AutoGen's agent waits for ever for a tool that ends like this."""

    async def tool(text: str) -> str:
        """A tool."""
        await asyncio.sleep(0)
        raise error

    def calls(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return [
            FunctionCall(id=str(n), name=name, arguments='{"text": "x"}') for n, name in enumerate(["tool", "slow"])
        ]

    async def slow(text: str) -> str:
        """A tool that runs on beside it."""
        await asyncio.sleep(30)
        return text

    run = TurnRun(RoundRobinGroupChat([agent("ann", False, calls, tools=[tool, slow])], max_turns=2), Stored())
    await run.prepare()
    async with asyncio.timeout(30):
        with pytest.raises((RuntimeError, Odd)):
            await run.run("Begin.")


async def test_what_a_turn_callback_raises_ends_the_run() -> None:
    for at in range(3):
        run = TurnRun(of_agent(BOOM)(False), Stored())
        await run.prepare()
        calls = 0

        async def refuse(turn: Any, at: int = at) -> None:
            nonlocal calls
            calls += 1
            if calls > at:
                raise LookupError(at)

        run.on_turn = refuse
        async with asyncio.timeout(30):
            with pytest.raises((LookupError, Boom)) as caught:
                await run.run("Begin.")
        assert caught.value is BOOM if at == 2 else caught.value.args == (at,)


async def test_what_a_chunk_callback_raises_ends_the_run() -> None:
    run = TurnRun(RoundRobinGroupChat([agent("ann", True)], max_turns=2), Stored())
    await run.prepare()

    def refuse(chunk: Any) -> None:
        raise BOOM

    run.on_chunk = refuse
    with pytest.raises(Boom):
        await run.run("Begin.")


class Survivor(BaseChatAgent):
    """Runs an inner team and gets over its error."""

    def __init__(self, name: str, team: BaseGroupChat) -> None:
        super().__init__(name, "survives")
        self._team = team

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        try:
            await self._team.run(task=list(messages), cancellation_token=cancellation_token)
        except RuntimeError as error:
            return Response(chat_message=TextMessage(source=self.name, content=str(error).splitlines()[0]))
        raise AssertionError

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


class SurvivorsMind(SocietyOfMindAgent):
    """The same, with a team that the runtime knows."""

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        try:
            async for _ in self._team.run_stream(task=list(messages), cancellation_token=cancellation_token):
                pass
        except RuntimeError as error:
            yield Response(chat_message=TextMessage(source=self.name, content=str(error).splitlines()[0]))


@pytest.mark.parametrize("kind", ["foreign", "known"])
async def test_an_inner_error_that_is_survived_does_not_fail_the_run(kind: str) -> None:
    inner = RoundRobinGroupChat([Breaking("deep", BOOM)], max_turns=1)
    survivor: Any = Survivor("sam", inner)
    if kind == "known":
        survivor = SurvivorsMind("sam", inner, ScriptedClient(counting("sam")))
    run = TurnRun(RoundRobinGroupChat([survivor, agent("ann", False)], max_turns=3), Stored())
    await run.prepare()
    async with asyncio.timeout(30):
        assert await run.run("Begin.") == "Maximum number of turns 3 reached."
    assert [event["content"] for event in run.emitted if event["source"] == "sam"] == [f"Boom: {BOOM}"] * 2


async def test_a_later_error_is_not_mistaken_for_a_survived_one() -> None:
    inner = RoundRobinGroupChat([Breaking("deep", ValueError("first"))], max_turns=1)
    survivor = SurvivorsMind("sam", inner, ScriptedClient(counting("sam")))
    run = TurnRun(RoundRobinGroupChat([survivor, Breaking("bob", BOOM)], max_turns=3), Stored())
    await run.prepare()
    with pytest.raises(Boom) as caught:
        await run.run("Begin.")
    assert caught.value is BOOM


async def test_an_errors_own_cause_is_kept() -> None:
    cause = ValueError("why")
    try:
        raise Boom("with a cause") from cause
    except Boom as error:
        raised = error
    run = TurnRun(of_agent(raised)(False), Stored())
    await run.prepare()
    with pytest.raises(Boom) as caught:
        await run.run("Begin.")
    assert caught.value is raised
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("keep_run", [True, False])
async def test_a_fresh_team_goes_on_after_an_error(keep_run: bool) -> None:
    """From the last stored turn, the turn that failed is repeated; or the thread gets a new task."""

    def build(after: int) -> BaseGroupChat:
        members = [agent("ann", False), Breaking("bob", BOOM, after), agent("cid", False)]
        return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(7))

    stored = Stored()
    run = TurnRun(build(0), stored)
    await run.prepare()
    with pytest.raises(Boom):
        await run.run("Begin.")
    assert stored.pending == [["ann"], ["bob"]]
    again = TurnRun(build(9), stored)
    await again.prepare()
    await again.session.load(stored.document(), stored.configs, keep_run=keep_run)
    if keep_run:
        whole = TurnRun(build(9), Stored())
        await whole.prepare()
        reason = await whole.run("Begin.")
        assert await again.run(pending=stored.pending[-1]) == reason
        assert again.emitted == whole.emitted[2:]
        assert comparable(await again.session.team.save_state()) == comparable(await whole.session.team.save_state())
    else:
        assert await again.run("Another task.") == "Maximum number of messages 7 reached, current message count: 7"
        # The manager had moved on to cid when the run was cut.
        assert [event["source"] for event in again.emitted][:2] == ["user", "cid"]


async def test_a_task_of_an_unknown_type_is_refused_and_the_team_still_runs() -> None:
    run = TurnRun(RoundRobinGroupChat([agent("ann", False)], max_turns=1), Stored())
    await run.prepare()
    with pytest.raises(ValueError, match="not registered"):
        await run.run(Unregistered(source="user", content="x"))
    assert await run.run("Begin.") == "Maximum number of turns 1 reached."


async def test_the_second_run_of_a_session_does_not_raise_the_first_ones_error() -> None:
    run = TurnRun(of_agent(BOOM)(False), Stored())
    await run.prepare()
    with pytest.raises(Boom):
        await run.run("Begin.")
    with pytest.raises(ValueError, match="not registered"):
        await run.run(Unregistered(source="user", content="x"))
