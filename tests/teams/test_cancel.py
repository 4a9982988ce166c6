"""A run may be cancelled in any way, at any moment: it ends at once, and nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import anyio
import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat
from autogen_core import CancellationToken

from drsai_backend.teams.runtime import lane as _lane
from drsai_backend.teams.runtime import turn_runtime as _runtime
from tests.support.running import Stored, TurnRun, as_messages, comparable
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.slow import (
    LONG,
    PLACES,
    PROMPT,
    WAYS,
    Client,
    Deaf,
    Hearing,
    by_task,
    by_token,
    calls,
    clients,
    member,
    places,
    start,
)

pytestmark = pytest.mark.usefixtures("spotless")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end by itself would be given up late."""
    for module in (_lane, _runtime):
        monkeypatch.setattr(module, "PATIENCE", LONG)


@places
@clients
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_cancelled_in_any_way(place: Callable[[Client], BaseGroupChat], client: Client, way: Any) -> None:
    token = CancellationToken()
    _, task = await start(place(client), token)
    await asyncio.sleep(0.02)
    assert not task.done()
    began = time.perf_counter()
    await way(task, token)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.perf_counter() - began < PROMPT


@places
@clients
@pytest.mark.parametrize("scope", ["anyio", "asyncio"])
async def test_a_deadline_around_the_run(place: Callable[[Client], BaseGroupChat], client: Client, scope: str) -> None:
    run = TurnRun(place(client), Stored())
    await run.prepare()
    began = time.perf_counter()
    if scope == "anyio":
        with anyio.move_on_after(0.02) as around:
            await run.run("Begin.")
        assert around.cancelled_caught
    else:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await run.run("Begin.")
    assert time.perf_counter() - began < PROMPT
    await asyncio.sleep(0)


@places
async def test_a_token_cancelled_before_the_start(place: Callable[[Client], BaseGroupChat]) -> None:
    token = CancellationToken()
    token.cancel()
    _, task = await start(place(Hearing), token)
    async with asyncio.timeout(PROMPT):
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("way", [by_token, by_task], ids=lambda way: way.__name__)
async def test_cancelled_in_the_very_first_steps(steps: int, way: Any) -> None:
    for place in PLACES:
        token = CancellationToken()
        _, task = await start(place(Hearing), token)
        for _ in range(steps):
            await asyncio.sleep(0)
        await way(task, token)
        async with asyncio.timeout(PROMPT):
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.mark.parametrize("way", [by_token, by_task], ids=lambda way: way.__name__)
@pytest.mark.parametrize("inside", [True, False], ids=["from-inside", "from-outside"])
async def test_cancelled_while_a_turn_is_stored(way: Any, inside: bool) -> None:
    token = CancellationToken()
    run = TurnRun(RoundRobinGroupChat([member("ann", Hearing, 0)], max_turns=9), Stored())
    await run.prepare()
    storing = asyncio.Event()

    async def store(turn: Any) -> None:
        if inside:
            await way(task, token)
        storing.set()
        await asyncio.sleep(LONG)

    run.on_turn = store
    task = asyncio.create_task(run.run_session(as_messages("Begin."), token=token))
    await storing.wait()
    if not inside:
        await way(task, token)
    async with asyncio.timeout(PROMPT):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_agent_may_cancel_its_own_run() -> None:
    token = CancellationToken()

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        token.cancel()
        return "I stop this."

    run, task = await start(RoundRobinGroupChat([member("ann", Deaf, 0, rule)], max_turns=9), token)
    async with asyncio.timeout(PROMPT):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert run.session


def random_team(chance: random.Random) -> BaseGroupChat:
    client: Client = chance.choice([Hearing, Deaf])

    def some(name: str, **kwargs: Any) -> AssistantAgent:
        return member(name, client, chance.choice([0, 0, 0.001, 0.003]), **kwargs)

    kind = chance.randrange(5)
    if kind == 0:
        return RoundRobinGroupChat([some("ann"), some("bob")], max_turns=50)
    if kind == 1:
        return SelectorGroupChat([some("ann"), some("bob")], client(counting("x"), delay=0.001), max_turns=50)
    if kind == 2:
        members = [some(name) for name in "abcde"]
        builder = DiGraphBuilder()
        for each in members:
            builder.add_node(each)
        for each in members[1:4]:
            builder.add_edge(members[0], each)
            builder.add_edge(each, members[0], condition=lambda _: True, activation_group=each.name)
            builder.add_edge(each, members[4], condition=lambda _: False)
        builder.set_entry_point(members[0])
        return GraphFlow(members, graph=builder.build(), termination_condition=MaxMessageTermination(60))
    if kind == 3:
        inner = RoundRobinGroupChat([some("deep"), some("deeper")], name="inner", max_turns=3)
        return RoundRobinGroupChat([inner, some("ann")], max_turns=50)

    async def tool(task: str) -> str:
        """A tool."""
        await asyncio.sleep(0.001)
        return task

    ann = member("ann", client, 0, calls("tool", "tool"), tools=[tool], max_tool_iterations=2)
    return RoundRobinGroupChat([ann, some("bob")], max_turns=50)


@pytest.mark.parametrize("seed", range(100))
async def test_cancelled_at_any_moment(seed: int) -> None:
    """The run ends at once; and from what was stored a fresh team goes on."""
    team_of = f"team {seed}"
    chance = random.Random(seed)
    token = CancellationToken()
    run = TurnRun(random_team(random.Random(team_of)), Stored())
    await run.prepare()
    task = asyncio.create_task(run.run_session(as_messages("Begin."), token=token))
    await asyncio.sleep(chance.random() * 0.03)
    began = time.perf_counter()
    await chance.choice(WAYS)(task, token)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert time.perf_counter() - began < PROMPT
    if not run.stored.payloads or run.stored.pending[-1] is None:
        return
    again = TurnRun(random_team(random.Random(team_of)), run.stored)
    await again.prepare()
    await again.session.load(run.stored.document(), run.stored.configs)
    boundary = len(run.stored.payloads)
    with anyio.move_on_after(30):
        await again.run(pending=run.stored.pending[-1])
    assert len(run.stored.payloads) > boundary


class Stubborn(BaseChatAgent):
    """Takes no notice of being cancelled, `times` times."""

    def __init__(self, name: str, times: int) -> None:
        super().__init__(name, "stays")
        self.times = times
        self.release = asyncio.Event()

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        while self.times and not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.times -= 1
        return Response(chat_message=TextMessage(source=self.name, content="Never mind."))

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        yield await self.on_messages(messages, cancellation_token)

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


async def test_an_agent_that_swallows_its_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lane, "PATIENCE", 0.01)
    run, task = await start(RoundRobinGroupChat([Stubborn("mule", 2)], max_turns=9), CancellationToken())
    await asyncio.sleep(0.01)
    task.cancel()
    async with asyncio.timeout(PROMPT):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert run.session


async def test_an_agent_that_cannot_be_cancelled_does_not_hold_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_lane, "PATIENCE", 0.01)
    mule = Stubborn("mule", 1_000)
    run, task = await start(RoundRobinGroupChat([mule], max_turns=9), CancellationToken())
    await asyncio.sleep(0.01)
    task.cancel()
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(PROMPT):
            with pytest.raises(asyncio.CancelledError):
                await task
    assert "cannot be cancelled" in caplog.text
    assert len(run.boundaries) == 1
    mule.release.set()
    await asyncio.sleep(0.01)


async def test_an_inner_run_given_up_by_its_agent_does_not_run_on() -> None:
    """The agent stops waiting for its team; when the outer run is over, so is the inner one."""

    class Hasty(SocietyOfMindAgent):
        async def on_messages_stream(
            self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
        ) -> AsyncGenerator[Any, None]:
            with anyio.move_on_after(0.01):
                await self._team.run(task=list(messages), cancellation_token=cancellation_token)
            yield Response(chat_message=TextMessage(source=self.name, content="Too slow."))

    inner = RoundRobinGroupChat([member("deep", Deaf)], max_turns=1)
    hasty = Hasty("hasty", inner, ScriptedClient(counting("hasty")))
    run = TurnRun(RoundRobinGroupChat([hasty, member("ann", Deaf, 0)], max_turns=3), Stored())
    await run.prepare()
    async with asyncio.timeout(PROMPT):
        await run.run("Begin.")
    assert [event["content"] for event in map(comparable, run.seen) if event["source"] == "hasty"] == ["Too slow."] * 2
