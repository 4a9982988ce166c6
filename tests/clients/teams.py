"""The teams that the clients talk to."""

from __future__ import annotations

from typing import Any

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, requires_approval


def solo(context: RunContext) -> AssistantAgent:
    """One agent without tools of its own."""
    return AssistantAgent(
        "solo", context.model_client(), system_message="You are solo.", model_client_stream=True, description="Alone."
    )


def pair(context: RunContext) -> RoundRobinGroupChat:
    """A group chat: one writes, one reviews."""
    members: list[Any] = [
        AssistantAgent(name, context.model_client(), system_message=f"You are the {name}.", model_client_stream=True)
        for name in ("writer", "reviewer")
    ]
    return RoundRobinGroupChat(members, max_turns=2)


@requires_approval
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def careful(context: RunContext) -> AssistantAgent:
    """An agent with a tool of its own, which a person must approve."""
    client = context.model_client()
    return AssistantAgent(
        "careful", client, system_message="You are careful.", tools=[delete], reflect_on_tool_use=True
    )


teams = {"solo": solo, "pair": pair, "careful": careful}
