"""Everything in a team that can be bound to a run, each with a path that names it in the turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autogen_agentchat.agents import MessageFilterAgent, SocietyOfMindAgent
from autogen_agentchat.base import ChatAgent

# Private: where a team keeps its manager's name, and an agent its tools. tests/teams/test_upstream.py.
from autogen_agentchat.teams import BaseGroupChat
from autogen_core.tools import StaticWorkbench

from drsai_backend.teams._kinds import is_a

Parts = Sequence[tuple[str, Any]]


def parts(team: BaseGroupChat) -> Parts:
    """Group chats, agents, wrapped agents, and agents and teams used as tools, outermost first, each once.

    The path of an agent is the names from the outermost team's member down to it, joined by `/`. A group chat has its
    manager's, as the one that asks a model for it.
    """
    seen: set[int] = set()
    used: set[str] = set()

    def unique(path: str) -> str:
        free, number = path, 1
        while free in used:
            number += 1
            free = f"{path}#{number}"
        used.add(free)
        return free

    def walk(part: Any, path: str) -> Iterator[tuple[str, Any]]:
        if id(part) in seen:
            return
        seen.add(id(part))
        below = f"{path}/" if path else ""
        if is_a(part, BaseGroupChat):
            yield unique(below + part._group_chat_manager_name), part
            for participant in part._participants:
                yield from walk(participant, below + participant.name)
            return
        yield unique(path), part
        if is_a(part, MessageFilterAgent):
            yield from walk(part._wrapped_agent, below + part._wrapped_agent.name)
        elif is_a(part, SocietyOfMindAgent):
            yield from walk(part._team, path)
        for workbench in getattr(part, "_workbench", None) or ():
            if isinstance(workbench, StaticWorkbench):
                for tool in workbench._tools:
                    runner = getattr(tool, "_task_runner", None)  # AutoGen's AgentTool and TeamTool
                    if isinstance(runner, (ChatAgent, BaseGroupChat)):
                        yield from walk(runner, below + tool.name)

    return list(walk(team, ""))
