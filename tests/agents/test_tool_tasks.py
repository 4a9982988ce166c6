"""An agent learns of what its tools raise, whoever makes the call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Handoff
from autogen_core import FunctionCall
from autogen_core.tools import BaseTool, FunctionTool

import drsai_backend
from drsai_backend import DrSai, DrSaiAgent, RunStatus
from drsai_backend.runs import InputMessage
from tests.support.asks import asks
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import settings


class Failing(Handoff):
    """A handoff whose tool raises what no agent expects."""

    @property
    def handoff_tool(self) -> BaseTool[Any, Any]:
        def fail() -> str:
            raise asyncio.CancelledError

        return FunctionTool(fail, name=self.name, description="Hand over.")


def hands_over(*_: Any) -> Answer:
    return [FunctionCall("1", "{}", "transfer_to_bob")]


@pytest.mark.parametrize("kind", [DrSaiAgent, AssistantAgent])
async def test_a_handoff_that_raises_ends_the_run(migrated_sqlite: str, kind: Any) -> None:
    def swarm() -> drsai_backend.Swarm:
        model = ScriptedClient(hands_over)
        ann = kind("ann", model, handoffs=[Failing(target="bob")])
        return drsai_backend.Swarm([ann, kind("bob", model)], max_turns=2)

    async with DrSai({"swarm": swarm}, migrated_sqlite, settings=settings()) as drsai, asyncio.timeout(20):
        handle = await drsai.engine.start(*asks("swarm", [InputMessage("user", "Go.")], thread_id="t"))
        assert (await handle.wait()).status is RunStatus.ERROR
