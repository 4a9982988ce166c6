"""What a run has used is what its models have counted, whatever becomes of its processes. On SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.agents import idempotent
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, Make, disown, ended, reached, request, run_of, settings, turns


class Counted(ScriptedClient):
    """Counts on the model's side: what it has answered, and what of it was asked for a second time."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        self.counted = self.repeated = 0
        self._seen: set[str] = set()

    async def create(self, messages: Sequence[Any], **values: Any) -> CreateResult:
        result = await super().create(messages, **values)
        used = result.usage.prompt_tokens + result.usage.completion_tokens
        asked = str([message.model_dump() for message in messages])
        self.counted += used
        self.repeated += used if asked in self._seen else 0
        self._seen.add(asked)
        return result


def looks_twice(messages: Sequence[Any], options: Mapping[str, Any]) -> Answer:
    """Calls its tool twice in every turn, then says so."""
    last = max(number for number, message in enumerate(messages) if type(message).__name__ == "UserMessage")
    rounds = sum(type(message).__name__ == "AssistantMessage" for message in messages[last:])
    if rounds < 2:
        return [FunctionCall(id=f"c{len(messages)}", name="look", arguments="{}")]
    return f"seen {len(messages)}"


class Lookers:
    """A team of two that call tools and one that talks; its models belong to the test."""

    def __init__(self) -> None:
        self.clients = [Counted(looks_twice), Counted(counting("bob")), Counted(looks_twice)]
        self.asked = 0

    def __call__(self) -> RoundRobinGroupChat:
        @idempotent
        async def look() -> str:
            """Look."""
            self.asked += 1
            return "nothing"

        names = ("ann", "bob", "eve")
        agents = [
            AssistantAgent(name, client, tools=[look], max_tool_iterations=3)
            for name, client in zip(names, self.clients, strict=True)
        ]
        return RoundRobinGroupChat([*agents], termination_condition=MaxMessageTermination(24))

    @property
    def counted(self) -> int:
        return sum(client.counted for client in self.clients)

    @property
    def repeated(self) -> int:
        return sum(client.repeated for client in self.clients)

    def delay(self, seconds: float) -> None:
        for client in self.clients:
            client.delay = seconds


@pytest.mark.parametrize("seed", range(3))
async def test_usage_is_what_the_models_counted_whatever_the_kills(make: Make, database_url: str, seed: int) -> None:
    chance = Random(seed)
    team = Lookers()
    team.delay(0.5)  # Long enough to look before the first answer.
    values = {**QUICK, "sweep_seconds": 0.05, "shutdown_grace_seconds": 0}
    drsai = DrSai({"crew": team}, database_url, settings=settings(**values))
    await drsai.open()
    await drsai.engine.start(*request())
    assert (await run_of(drsai)).usage == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    team.delay(0.02)
    for turn in (1, 3, 4):
        await turns(drsai, turn)
        # Somewhere in the turn that follows.
        wanted = team.counted + chance.randrange(12)
        for client in team.clients:
            client.delay = 0.02 + chance.random() / 50
        while team.counted < wanted and not (await run_of(drsai)).status.is_final:
            await turns(drsai, turn)
        if chance.random() < 0.5:
            other = DrSai({"crew": team}, database_url, settings=settings(**values))
            await other.open()
            await disown(drsai)  # Its worker has died, as far as anybody can see.
            await drsai.close()
        else:
            await drsai.close()
            other = DrSai({"crew": team}, database_url, settings=settings(**values))
            await other.open()
        drsai = other
        usage = (await run_of(drsai)).usage
        assert usage is not None, "never null while a run lives"
    thread = await ended(drsai)
    run = await run_of(drsai)
    await drsai.close()
    assert thread.status is RunStatus.COMPLETED
    assert run.usage is not None
    assert run.attempt > 1
    assert team.counted - team.repeated <= run.usage["total_tokens"] <= team.counted
    if not team.repeated:
        assert run.usage["total_tokens"] == team.counted
    assert run.turns == sum(message["type"] == "TextMessage" for message in thread.messages) - 1


async def test_a_handed_over_run_and_one_that_was_killed_count_once(make: Make, database_url: str) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = DrSai({"crew": crew}, database_url, settings=settings(shutdown_grace_seconds=0))
    await drsai.open()
    await drsai.engine.start(*request())
    await turns(drsai, 1)
    assert (await run_of(drsai)).usage == {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
    await drsai.close()
    crew.bob.delay = 0
    other = await make({"crew": crew})
    await ended(other)
    run = await run_of(other)
    assert run.usage == {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    assert (run.turns, run.stop_code) == (3, None)
    assert 0 < run.seconds < 30


async def test_a_recorded_answer_counts_although_its_turn_is_never_stored(make: Make) -> None:
    team = Lookers()
    seen: list[int] = []

    async def look() -> str:
        """Look."""
        seen.append(((await run_of(drsai)).usage or {})["total_tokens"])
        return "nothing"

    drsai = await make({"crew": lambda: AssistantAgent("ann", team.clients[0], tools=[look], max_tool_iterations=3)})
    result = await drsai.run("crew", "x")
    assert seen == [3, 8]
    assert result.usage["total_tokens"] == team.counted


async def test_queued_and_paused_runs(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK)
    await drsai.engine.start(*request())
    await turns(drsai, 1)
    await drsai.engine.pause(Principal(), "t")
    crew.bob.release()
    await reached(drsai, "paused")
    run = await run_of(drsai)
    assert run.usage is not None
    assert (run.usage["completion_tokens"], run.turns) == (2, 2)
    await drsai.engine.resume(Principal(), "t")
    await ended(drsai)
    run = await run_of(drsai)
    assert run.usage is not None
    assert (run.usage["completion_tokens"], run.turns) == (3, 3)
