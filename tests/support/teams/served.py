"""The teams that the servers under test serve. A model server plays their models; a system message says who asks.

The tools write a line into the file `CHAOS_TOOLS` when they take effect, each line with one write: what has happened is
there whatever becomes of the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from datetime import timedelta
from typing import Annotated, Any

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination, TextMentionTermination

from drsai_backend import (
    AssistantAgent,
    Depends,
    RoundRobinGroupChat,
    RunContext,
    SelectorGroupChat,
    Swarm,
    TaskComplete,
    builtin_tools,
    client_tools,
    tool,
)
from drsai_backend.agents import idempotent, requires_approval
from drsai_backend.agents.contexts import CompactionContext
from tests.support.teams import equipped

CHOOSE = "You choose who speaks.\n{roles}\n{history}\nPick one of {participants}."


async def _take_effect(tool: str, token: str, before: float, after: float) -> str:
    await asyncio.sleep(0 if "CHAOS_AT_ONCE" in os.environ else before)
    line = json.dumps({"tool": tool, "token": token, "time": time.time(), "pid": os.getpid()}) + "\n"
    file = os.open(os.environ["CHAOS_TOOLS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)
    await asyncio.sleep(after)
    return f"{tool} {token} done"


@idempotent
async def look(token: str, before: float, after: float) -> str:
    """Looks something up; may be called again."""
    return await _take_effect("look", token, before, after)


async def pay(token: str, before: float, after: float) -> str:
    """Pays; must not be called again."""
    return await _take_effect("pay", token, before, after)


def _agent(context: RunContext, name: str, **more: Any) -> AssistantAgent:
    client = context.model_client()
    return AssistantAgent(name, client, system_message=f"You are {name}.", model_client_stream=True, **more)


def solo(context: RunContext) -> AssistantAgent:
    """One agent."""
    return _agent(context, "sam")


def brief(context: RunContext) -> AssistantAgent:
    """One agent, whose context is summarised when it is nearly full."""
    shown = CompactionContext(100, context.model_client(), prompt="Summarise this.", keep_first=False)
    return _agent(context, "sam", model_context=shown)


def twice(context: RunContext) -> RoundRobinGroupChat:
    """One agent, which speaks twice."""
    return RoundRobinGroupChat([_agent(context, "sam")], max_turns=2)


def pair(context: RunContext) -> RoundRobinGroupChat:
    """Two agents, one after the other."""
    return RoundRobinGroupChat([_agent(context, "ann"), _agent(context, "bob")], max_turns=2)


def rounds(context: RunContext) -> RoundRobinGroupChat:
    """Three agents, one after the other."""
    return RoundRobinGroupChat([_agent(context, name) for name in ("ann", "bob", "cid")], max_turns=3)


def chosen(context: RunContext) -> SelectorGroupChat:
    """A model chooses who speaks."""
    members = [_agent(context, name) for name in ("ann", "bob", "cid")]
    return SelectorGroupChat(members, context.model_client(), selector_prompt=CHOOSE, max_turns=3)


def swarm(context: RunContext) -> Swarm:
    """Two agents who hand over to each other; one has a tool."""
    clerk = _agent(context, "clerk", handoffs=["expert"])
    expert = _agent(context, "expert", handoffs=["clerk"], tools=[look])
    return Swarm([clerk, expert], termination_condition=TextMentionTermination("DONE") | MaxMessageTermination(12))


def desk(context: RunContext) -> Swarm:
    """A clerk who hands over to an expert, who hands over to the user."""
    clerk = _agent(context, "clerk", handoffs=["expert"])
    expert = _agent(context, "expert", handoffs=["user"])
    return Swarm(
        [clerk, expert],
        termination_condition=HandoffTermination(target="user") | TextMentionTermination("DONE", sources=["expert"]),
    )


@client_tools(agent="worker")
def tools(context: RunContext) -> RoundRobinGroupChat:
    """An agent with both kinds of tools, several rounds of them in a turn, and one who sums up."""
    worker = _agent(context, "worker", tools=[look, pay], max_tool_iterations=4)
    return RoundRobinGroupChat([worker, _agent(context, "bob")], max_turns=2)


def asking(context: RunContext) -> RoundRobinGroupChat:
    """An agent that asks a person."""
    return RoundRobinGroupChat(
        [_agent(context, "asker"), UserProxyAgent("person", description="The user.")],
        termination_condition=TextMentionTermination("DONE", sources=["asker"]) | MaxMessageTermination(12),
    )


async def who_pays(context: RunContext) -> str:
    """A dependency that is made once per run."""
    return context.user_id


@tool
async def transfer(token: str, before: float, after: float, payer: Annotated[str, Depends(who_pays)]) -> str:
    """Pays for somebody; must not be called again."""
    return f"{payer}: {await _take_effect('transfer', token, before, after)}"


@tool(idempotent=True)
async def balance(token: str, before: float, after: float) -> str:
    """Looks something up; may be called again."""
    return await _take_effect("balance", token, before, after)


def bank(context: RunContext) -> RoundRobinGroupChat:
    """An agent with tools of this package, and one who sums up."""
    worker = _agent(context, "worker", tools=[balance, transfer, *builtin_tools(["ask_person"])], max_tool_iterations=4)
    return RoundRobinGroupChat([worker, _agent(context, "bob")], max_turns=2)


@tool(idempotent=True)
async def close(token: str, before: float, after: float) -> str:
    """Ends the task with what it says."""
    raise TaskComplete(await _take_effect("close", token, before, after))


def closing(context: RunContext) -> RoundRobinGroupChat:
    """An agent with a tool that completes the task, and one who would go on."""
    worker = _agent(context, "worker", tools=[balance, close], max_tool_iterations=4)
    return RoundRobinGroupChat([worker, _agent(context, "bob")])


@requires_approval(by="user:bob", not_by="asker")
async def send(to: str) -> str:
    """Sends money."""
    return f"sent to {to}"


@requires_approval(by="user:bob", deadline=timedelta(seconds=1))
async def send_soon(to: str) -> str:
    """Sends money, if that is approved within a second."""
    return f"sent to {to}"


def paying(context: RunContext) -> RoundRobinGroupChat:
    """An agent with tools that bob approves, whoever asks."""
    payer = _agent(context, "payer", tools=[send, send_soon], reflect_on_tool_use=True)
    return RoundRobinGroupChat([payer], max_turns=1)


teams = {
    "solo": solo,
    "twice": twice,
    "brief": brief,
    "pair": pair,
    "rounds": rounds,
    "chosen": chosen,
    "swarm": swarm,
    "desk": desk,
    "tools": tools,
    "bank": bank,
    "closing": closing,
    "asking": asking,
    "paying": paying,
    **equipped.teams,
}
