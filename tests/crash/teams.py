"""Teams for crash tests. The system message names who is asked: by it the model server finds its script."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, Swarm


def _agent(context: RunContext, name: str, **more: Any) -> AssistantAgent:
    client = context.model_client()
    return AssistantAgent(name, client, system_message=f"You are {name}.", model_client_stream=True, **more)


def pair(context: RunContext) -> RoundRobinGroupChat:
    """Two agents, one after the other."""
    return RoundRobinGroupChat([_agent(context, "ann"), _agent(context, "bob")], max_turns=2)


def asking(context: RunContext) -> RoundRobinGroupChat:
    """An agent, a person, and the agent again, until it says DONE."""
    person = UserProxyAgent("person", description="The user.")
    return RoundRobinGroupChat(
        [_agent(context, "ann"), person], termination_condition=TextMentionTermination("DONE", sources=["ann"])
    )


def desk(context: RunContext) -> Swarm:
    """A clerk who hands over to an expert, who hands over to the user."""
    clerk = _agent(context, "clerk", handoffs=["expert"])
    expert = _agent(context, "expert", handoffs=["user"])
    return Swarm(
        [clerk, expert],
        termination_condition=HandoffTermination(target="user") | TextMentionTermination("DONE", sources=["expert"]),
    )


teams = {"pair": pair, "asking": asking, "desk": desk}
