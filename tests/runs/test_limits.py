"""Runaways: whatever a team does, its run ends at its bounds, and the next message resumes the thread. SQLite and
PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall
from autogen_ext.models.replay import ReplayChatCompletionClient

from drsai_backend import DrSai, RunLimits, RunStatus, limited
from drsai_backend.access.principal import Principal
from drsai_backend.errors import ConfigurationError, InvalidRequest
from drsai_backend.teams.registry import TeamRegistry, load_teams
from tests.support.scripted import ScriptedClient, counting
from tests.support.threads import QUICK, Make, disown, ended, request, run_of, settings, sources, thread_of, turns


class Silent(BaseChatAgent):
    """Says nothing, for ever."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        await asyncio.sleep(0)
        return Response(chat_message=TextMessage(content="", source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


def endless() -> RoundRobinGroupChat:
    return RoundRobinGroupChat([Silent("ann", ""), Silent("bob", "")])


def nested() -> RoundRobinGroupChat:
    """One turn that never ends."""
    return RoundRobinGroupChat([RoundRobinGroupChat([Silent("ann", ""), Silent("bob", "")], name="inner")])


@pytest.mark.parametrize(("team", "messages"), [(endless, 8), (nested, 1)])
async def test_turns(make: Make, caplog: pytest.LogCaptureFixture, team: Any, messages: int) -> None:
    drsai = await make({"crew": team}, max_turns=7)
    for number in (1, 2):
        result = await drsai.run("crew", "go on", thread_id="t")
        run = (await drsai.engine.list_runs(Principal(), "t", after=None, limit=1)).items[0]
        assert (result.status, run.stop_code) == (RunStatus.STOPPED, "max_turns")
        assert "7 is its bound (max_turns)" in (run.stop_reason or "")
        assert len((await thread_of(drsai)).messages) == number * messages
    assert sum("nears its bound: 6 of 7 turns" in record.message for record in caplog.records) == 2


async def test_turns_over_takeovers(make: Make, database_url: str) -> None:
    client = ScriptedClient(counting("ann"), delay=0.02)
    teams = {"crew": lambda: RoundRobinGroupChat([AssistantAgent("ann", client)])}
    drsai = await make(teams, **QUICK, max_turns=12)
    await drsai.engine.start(*request())
    for turn in (2, 5, 8):
        await turns(drsai, turn)
        await disown(drsai)
    thread = await ended(drsai)
    assert thread.status is RunStatus.STOPPED
    assert sources(thread) == ["user", *["ann"] * 12]
    run = await run_of(drsai)
    assert (run.turns, run.stop_code) == (12, "max_turns")
    assert run.attempt > 1


def loops(messages: Sequence[Any], options: dict[str, Any]) -> list[FunctionCall]:
    """Calls its tool again and again."""
    return [FunctionCall(id=f"c{len(messages)}", name="look", arguments="{}")]


async def look() -> str:
    """Look."""
    return "nothing"


async def test_tokens_bite_between_the_model_calls_of_a_turn(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    client = ScriptedClient(loops)
    team = {"crew": lambda: AssistantAgent("ann", client, tools=[look], max_tool_iterations=10_000)}
    drsai = await make(team, max_run_tokens=100)
    result = await drsai.run("crew", "go on", thread_id="t")
    run = await run_of(drsai)
    assert (result.status, run.stop_code) == (RunStatus.STOPPED, "max_run_tokens")
    assert 100 <= result.usage["total_tokens"] == (run.usage or {})["total_tokens"] < 130
    assert any("nears its bound" in record.message and "tokens" in record.message for record in caplog.records)
    client.rule = counting("ann")
    again = await drsai.run("crew", "and now?", thread_id="t")
    assert again.status is RunStatus.COMPLETED
    assert "and now?" in (await thread_of(drsai)).messages[-1]["content"]
    assert [message["content"] for message in (await thread_of(drsai)).messages if message["source"] == "user"] == [
        "go on",
        "and now?",
    ]


async def hangs() -> str:
    """Never comes back."""
    await asyncio.sleep(3600)
    return ""


@pytest.mark.parametrize("what", ["tool", "model"])
async def test_time_cuts_what_hangs(make: Make, what: str, caplog: pytest.LogCaptureFixture) -> None:
    client = ScriptedClient(lambda m, o: [FunctionCall(id="c", name="hangs", arguments="{}")])
    client.delay = 3600 if what == "model" else 0
    drsai = await make({"crew": lambda: AssistantAgent("ann", client, tools=[hangs])}, max_run_seconds=0.4)
    async with asyncio.timeout(20):
        result = await drsai.run("crew", "go on", thread_id="t")
    run = await run_of(drsai)
    assert (result.status, run.stop_code) == (RunStatus.STOPPED, "max_run_seconds")
    assert "0.4 is its bound" in (run.stop_reason or "")
    assert run.seconds >= 0.4
    assert any("of 0.4 seconds" in record.message for record in caplog.records)


async def test_time_goes_on_over_a_takeover_and_waits_for_nobody(make: Make, database_url: str) -> None:
    client = ScriptedClient(lambda m, o: [FunctionCall(id="c", name="hangs", arguments="{}")])
    teams = {"crew": lambda: AssistantAgent("ann", client, tools=[hangs])}
    drsai = DrSai(teams, database_url, settings=settings(max_run_seconds=1.2, shutdown_grace_seconds=0))
    await drsai.open()
    await drsai.engine.start(*request())
    await asyncio.sleep(0.5)
    await drsai.close()
    ran = (await run_of(drsai := await make(teams, recovery="fail"))).seconds  # Nobody resumes it.
    assert 0.4 < ran < 5
    run = await run_of(drsai)
    assert run.seconds == ran


async def test_a_request_may_lower_a_bound_and_not_raise_it(make: Make) -> None:
    drsai = await make({"crew": endless, "short": limited(max_turns=4)(endless)}, max_turns=6)
    await drsai.run("crew", "x", thread_id="t", limits=RunLimits(max_turns=2))
    assert ((await run_of(drsai)).turns, (await run_of(drsai)).limits) == (2, {"max_turns": 2})
    with pytest.raises(InvalidRequest, match="`max_turns` must be at most 6") as refused:
        await drsai.run("crew", "x", limits=RunLimits(max_turns=7))
    assert refused.value.param == "max_turns"
    with pytest.raises(InvalidRequest, match="at most 4"):
        await drsai.run("short", "x", limits=RunLimits(max_turns=5))
    handle = await drsai.start("short", "x", thread_id="q", background=True, limits=RunLimits(max_turns=3))
    await handle.wait()
    [run] = (await drsai.engine.list_runs(Principal(), "q", after=None, limit=1)).items
    assert (run.turns, run.limits, run.stop_code) == (3, {"max_turns": 3}, "max_turns")


async def test_limits_of_a_team(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "teams.json"
    agent = AssistantAgent("ann", ReplayChatCompletionClient(["x"]))
    config = json.loads(RoundRobinGroupChat([agent]).dump_component().model_dump_json())
    path.write_text(json.dumps({"crew": {**config, "limits": {"max_turns": 5}}}))
    teams = load_teams(str(path))
    assert TeamRegistry(teams).get("crew").options.limits == RunLimits(max_turns=5)
    drsai = await make(teams)
    with pytest.raises(InvalidRequest, match="at most 5"):
        await drsai.run("crew", "x", limits=RunLimits(max_turns=6))
    assert (await drsai.run("crew", "x", limits=RunLimits(max_turns=1))).status is RunStatus.STOPPED
    path.write_text(json.dumps({"crew": {**config, "limits": {"max_turn": 5}}}))
    with pytest.raises(ConfigurationError, match="max_turn"):
        load_teams(str(path))
    with pytest.raises(ConfigurationError, match="not negative"):
        limited(max_turns=-1)
