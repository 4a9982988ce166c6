"""The built-in teams are those that are served when no others are given."""

from __future__ import annotations

from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination

from drsai_backend.agents import AssistantAgent
from drsai_backend.config import Settings
from drsai_backend.teams.context import RunContext, TeamFactory
from drsai_backend.teams.group_chats import RoundRobinGroupChat
from drsai_backend.tools.builtin import builtin_tools

MAX_MESSAGES = 9
"""Of the writers' team, the user's own included: four drafts with a review each."""


def assistant(context: RunContext) -> AssistantAgent:
    """A helpful assistant with a calculator, a clock and a unit converter, or what DRSAI_ASSISTANT_TOOLS names."""
    client = context.model_client()
    # AutoGen refuses tools with a model that cannot call them, as small local ones.
    settings = context.settings or Settings()
    names = settings.assistant_tools if client.model_info["function_calling"] else ()
    if settings.memory and names:
        names = [*names, "remember", "forget"]
    tools = builtin_tools(names, context.settings)
    agent = AssistantAgent(
        "assistant",
        client,
        tools=[*tools] or None,
        description="A helpful assistant.",
        system_message="You are a helpful assistant. Answer briefly and in the language of the question."
        + (" Use your tools, for calculations, times and units too." if tools else ""),
        model_client_stream=True,
        reflect_on_tool_use=True,
        max_tool_iterations=4,
    )
    if settings.memory:
        context.recall(agent, "memory")
    return agent


def writers(context: RunContext) -> RoundRobinGroupChat:
    """A writer and a reviewer, who work on a text until the reviewer approves it."""
    writer = AssistantAgent(
        "writer",
        context.model_client(),
        description="Writes and revises the text.",
        system_message="You are a writer. Write what the user asks for, in at most 150 words unless told otherwise. "
        "When the reviewer asks for a change, answer with the whole revised text and nothing else.",
        model_client_stream=True,
    )
    reviewer = AssistantAgent(
        "reviewer",
        context.model_client(),
        description="Reviews the text.",
        system_message="You are a reviewer. Ask the writer for the one change that improves the text most. "
        "When the text is good, or after two reviews, answer with the single word APPROVE.",
        model_client_stream=True,
    )
    return RoundRobinGroupChat(
        [writer, reviewer],
        termination_condition=TextMentionTermination("APPROVE", sources=["reviewer"])
        | MaxMessageTermination(MAX_MESSAGES),
    )


def plain_assistant(context: RunContext) -> AssistantAgent:
    """A helpful assistant."""
    return assistant(context)


def builtin_teams(*, tools: bool = True) -> dict[str, TeamFactory]:
    """The built-in teams by name. `tools=False`, for a model that cannot call any: they are described without."""
    return {"assistant": assistant if tools else plain_assistant, "writers": writers}
