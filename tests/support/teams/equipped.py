"""Agents with tools that act outside of the process, whose models fall back and whose contexts are compacted.

They need `CHAOS_SITE`, the URL of `effects.Site`, and the profile `fast` (`PROFILES`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Any

from autogen_core.tools import StaticStreamWorkbench

from drsai_backend import (
    AssistantAgent,
    Depends,
    PlanExecuteTeam,
    ReactAgent,
    RoundRobinGroupChat,
    RunContext,
    tool,
)
from drsai_backend.agents.contexts import CompactionContext
from drsai_backend.tools import FileOutput, ToolRun
from drsai_backend.tools.http import HttpTool
from drsai_backend.tools.mcp import McpStdio, McpWorkbench
from tests.support import effects

PROFILES: dict[str, Any] = {
    "profiles": {
        "fast": {
            "model": "flaky",
            "retries": 0,
            "timeout": 1.5,
            "fallback": ["spare"],
            "breaker": {"failures": 20, "seconds": 1},
        },
        "spare": {"model": "steady", "timeout": 30},
    }
}
"""The models of `spare`: the first may hang, drop and refuse."""
_NUMBER = {"type": "number", "required": True}
_PARAMETERS = [
    {"name": "token", "type": "string", "required": True},
    {"name": "before", **_NUMBER},
    {"name": "after", **_NUMBER},
]


async def who_asks(context: RunContext) -> str:
    """A dependency that is made once per run."""
    return context.user_id


async def _act(name: str, token: str, before: float, after: float) -> str:
    return await asyncio.to_thread(effects.take_effect, os.environ["CHAOS_TOOLS"], name, token, before, after)


@tool
def transfer(token: str, before: float, after: float, payer: Annotated[str, Depends(who_asks)]) -> str:
    """Pays for somebody; must not be called again. It runs in a thread."""
    done = effects.take_effect(os.environ["CHAOS_TOOLS"], "transfer", token, before, after)
    return f"{payer}: {done}"


@tool(idempotent=True)
async def balance(token: str, before: float, after: float, run: ToolRun) -> str:
    """Looks something up; may be called again."""
    return f"{run.agent}: {await _act('balance', token, before, after)}"


@tool
async def plot(token: str, before: float, after: float) -> FileOutput:
    """Makes a file; must not be called again."""
    return FileOutput(f"plot-{token}.txt", (await _act("plot", token, before, after)).encode())


def _http(name: str, method: str) -> HttpTool:
    endpoint = {"url": f"{os.environ['CHAOS_SITE']}/{name}/{{token}}/{{before}}/{{after}}", "method": method}
    config = {"name": name, "description": f"{method}s something.", "parameters": _PARAMETERS, "endpoint": endpoint}
    return HttpTool({**config, "endpoint": {**endpoint, "timeout": 90}}, allowed_addresses=("127.0.0.0/8",))


def _agent(context: RunContext, name: str, model: str | None = None, **more: Any) -> AssistantAgent:
    client = context.model_client(model)
    return AssistantAgent(name, client, system_message=f"You are {name}.", model_client_stream=True, **more)


def office(context: RunContext) -> RoundRobinGroupChat:
    """An agent with tools of this package, two of them over HTTP, and one who sums up."""
    tools: list[Any] = [transfer, balance, plot, _http("fetch", "GET"), _http("order", "POST")]
    keeper = _agent(context, "keeper", tools=tools, max_tool_iterations=4)
    return RoundRobinGroupChat([keeper, _agent(context, "bob")], max_turns=2)


def marking(context: RunContext) -> RoundRobinGroupChat:
    """An agent with a tool of an MCP server, which is a process."""
    environment = {"CHAOS_TOOLS": os.environ["CHAOS_TOOLS"]}
    server = McpStdio(name="n", command=sys.executable, args=(effects.__file__,), env=environment, timeout=90)
    keeper = _agent(context, "keeper", workbench=[McpWorkbench([server])], max_tool_iterations=4)
    return RoundRobinGroupChat([keeper], max_turns=1)


def spare(context: RunContext) -> RoundRobinGroupChat:
    """An agent whose first model may fail."""
    keeper = _agent(context, "keeper", "fast", tools=[balance, transfer], max_tool_iterations=4)
    return RoundRobinGroupChat([keeper], max_turns=1)


def short(context: RunContext) -> AssistantAgent:
    """One agent, whose context is soon full and summarised."""
    shown = CompactionContext(36, context.model_client(), prompt="Summarise this.", keep_first=False)
    return _agent(context, "sam", model_context=shown)


def scribe(context: RunContext) -> ReactAgent:
    """An agent that writes its calls as text."""
    tools = StaticStreamWorkbench([transfer, balance])
    client = context.model_client()
    return ReactAgent("scribe", client, workbench=tools, max_steps=4, system_message="You are scribe.")


def travel(context: RunContext) -> PlanExecuteTeam:
    """A plan, whose steps have tools."""
    tools: list[Any] = [transfer, balance]
    least = {"max_steps": 9, "retries": 1, "replans": 1}
    return PlanExecuteTeam(context.model_client(), tools, name="travel", system_message="You are travel.", **least)


teams = {"office": office, "marking": marking, "spare": spare, "short": short, "scribe": scribe, "travel": travel}
