"""Whatever raises inside a team ends the run with that very exception, promptly, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import BaseChatAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall, SingleThreadedAgentRuntime

from tests.support.running import Stored, TurnRun, comparable, run_stock
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.failing import BOOM, CASES, Boom, Breaking, Case, Odd, Unregistered, of_agent
from tests.support.teams.scenarios import agent, tool_rule

pytestmark = pytest.mark.usefixtures("spotless")

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
