"""What `drsai serve` is given by the benchmarks over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import BaseGroupChat
from autogen_core.models import CreateResult

from benchmarks.teams import InstantClient, our_team
from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext

SECONDS = 20.0
VARIABLE = "BENCHMARK_ANSWER_SECONDS"
"""Says what an answer of the slow model takes; `SECONDS` where it does not."""
_seconds = float(os.environ.get(VARIABLE, SECONDS))


class SlowClient(InstantClient):
    """Spreads an answer over so many seconds, its first token after one of them."""

    async def create_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[str | CreateResult, None]:
        pause = 1.0
        async for item in super().create_stream(*args, **kwargs):
            await asyncio.sleep(pause)
            pause = (_seconds - 1) / 12
            yield item


def _asking() -> BaseGroupChat:
    members: list[Any] = [AssistantAgent("ada", _client, model_client_stream=True), UserProxyAgent("person")]
    return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(4))


def _answering(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ada", context.model_client(), model_client_stream=True)


def _with_endpoint(context: RunContext) -> BaseGroupChat:
    return our_team(context.model_client(), stream=True)


_client = InstantClient()
_slow = SlowClient()
teams = {
    "pair": lambda: our_team(_client, stream=True),
    "slow": lambda: our_team(_slow, stream=True),
    "asking": _asking,
    "answering": _answering,
    "endpoint": _with_endpoint,
}
