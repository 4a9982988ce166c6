"""What a team is made of: its agents, inner teams, tools and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from autogen_agentchat.agents import MessageFilterAgent, SocietyOfMindAgent
from autogen_agentchat.base import ChatAgent, Team, TerminationCondition

# Private: where a team keeps its manager's name, and an agent its tools. tests/teams/test_upstream.py.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.tools import BaseTool, StaticWorkbench

from drsai_backend.errors import TeamBuildError
from drsai_backend.teams.messages import TeamMessages

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")
AnyTool: TypeAlias = BaseTool[Any, Any]
Part: TypeAlias = ChatAgent | Team
Parts: TypeAlias = Sequence[tuple[str, Part]]


@lru_cache(maxsize=2048)  # bounded, as a factory may make a class of its own for every run
def _is(kind: type, wanted: type) -> bool:
    return issubclass(kind, wanted)


def is_a(value: object, wanted: type[T]) -> TypeIs[T]:
    """`isinstance(value, wanted)`, remembered per class.

    The bases of AutoGen's classes are protocols, whose check in Python takes two microseconds; a run asks some seventy
    times what its agents are.
    """
    return _is(type(value), wanted)


def parts(team: BaseGroupChat) -> Parts:
    """Group chats, agents, wrapped agents, and agents and teams used as tools, outermost first, each once.

    The path of an agent is the names from the outermost team's member down to it, joined by `/`. A group chat has its
    manager's, as the one that asks a model for it.
    """
    used: set[str] = set()

    def unique(path: str) -> str:
        free, number = path, 1
        while free in used:
            number += 1
            free = f"{path}#{number}"
        used.add(free)
        return free

    return list(_walk(team, "", set(), unique))


def _walk(part: Part, path: str, seen: set[int], unique: Callable[[str], str]) -> Iterator[tuple[str, Part]]:
    if id(part) in seen:
        return
    seen.add(id(part))
    below = f"{path}/" if path else ""
    if is_a(part, BaseGroupChat):
        yield unique(below + part._group_chat_manager_name), part
        for participant in part._participants:
            yield from _walk(participant, below + participant.name, seen, unique)
        return
    yield unique(path), part
    if is_a(part, MessageFilterAgent):
        yield from _walk(part._wrapped_agent, below + part._wrapped_agent.name, seen, unique)
    elif is_a(part, SocietyOfMindAgent):
        yield from _walk(part._team, path, seen, unique)
    for workbench in getattr(part, "_workbench", None) or ():
        if isinstance(workbench, StaticWorkbench):
            for tool in workbench._tools:
                runner = getattr(tool, "_task_runner", None)  # AutoGen's AgentTool and TeamTool
                if isinstance(runner, (ChatAgent, BaseGroupChat)):
                    yield from _walk(runner, below + tool.name, seen, unique)


def as_team(served: object) -> BaseGroupChat:
    """The group chat that runs what a team factory returned; a lone agent becomes a chat of one with one turn.

    Raises:
        TeamBuildError: neither an agent nor a group chat.
    """
    if is_a(served, BaseGroupChat):
        return served
    if is_a(served, ChatAgent):
        team = RoundRobinGroupChat([served], name=f"{served.name}_chat", max_turns=1)
        # An agent on its own may show what it likes, and takes any task.
        team._message_factory = TeamMessages(takes_all=True)
        return team
    raise TeamBuildError(
        f"a team factory must return an AutoGen ChatAgent or BaseGroupChat, not {type(served).__name__}", param="team"
    )


_STATELESS = cast(Any, BaseTool).save_state_json


def has_state(tool: AnyTool) -> bool:
    """Whether a tool's class saves a state of its own."""
    return type(tool).save_state_json is not _STATELESS


def ephemeral_tools(workbenches: Sequence[object]) -> dict[str, int]:
    """Of the tools in these workbenches that are marked `ephemeral`: how many outputs stay in the prompt, by name."""
    found: dict[str, int] = {}
    for workbench in workbenches:
        if isinstance(workbench, StaticWorkbench):
            for tool in workbench._tools:
                kept = getattr(getattr(tool, "options", None), "ephemeral", None)
                if isinstance(kept, int):
                    found[tool.name] = kept
    return found


def known_tools(agent: object) -> set[str] | None:
    """The names of an agent's tools and handoffs, by which its model calls them; None: some are only known to a
    workbench that lists them when it is asked."""
    handoffs: dict[str, object] = getattr(agent, "_handoffs", {})
    names = set(handoffs)
    for workbench in cast("Sequence[object]", getattr(agent, "_workbench", None) or ()):
        if not isinstance(workbench, StaticWorkbench):
            return None
        names.update(tool.name for tool in workbench._tools)
    return names


def stateful_tools(agent: object) -> Iterator[tuple[str, AnyTool]]:
    """The tools of an agent that have a state, each with a name that is unique for the agent."""
    workbenches: Sequence[object] = getattr(agent, "_workbench", None) or ()
    for position, workbench in enumerate(workbenches):
        if isinstance(workbench, StaticWorkbench):
            for tool in workbench._tools:
                if has_state(tool):
                    yield f"{position}/{tool.name}", tool


def task_runner(tool: object) -> Part | None:
    """The agent or team that is a tool (`AgentTool`, `TeamTool`); None for any other."""
    return tool._task_runner if isinstance(tool, (AgentTool, TeamTool)) else None


def nested_teams(parts: Parts) -> list[BaseGroupChat]:
    """The group chats among a team's parts: the team and all inside it, tools included, outermost first."""
    return [part for _, part in parts if is_a(part, BaseGroupChat)]


def leaf_agents(part: Part) -> Iterator[Part]:
    """Every agent of a team and of the teams inside it, wrapped ones included."""
    if is_a(part, BaseGroupChat):
        for participant in part._participants:
            yield from leaf_agents(participant)
        return
    yield part
    if is_a(part, MessageFilterAgent):
        yield from leaf_agents(part._wrapped_agent)
    elif is_a(part, SocietyOfMindAgent) and is_a(part._team, BaseGroupChat):
        yield from leaf_agents(part._team)


def children(condition: TerminationCondition) -> list[TerminationCondition]:
    """The conditions that a condition is made of."""
    wrapped = [value for value in vars(condition).values() if isinstance(value, TerminationCondition)]
    return [*getattr(condition, "_conditions", ()), *wrapped]
