"""The tree of a team has its agents, inner teams, tools and conditions, and tells which of its agents answers the
user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from autogen_agentchat.agents import MessageFilterAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent, Team, TerminationCondition

# Private: where a team keeps its manager's name, its participants and its graph, and an agent its tools.
# tests/teams/test_upstream.py.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams import BaseGroupChat, GraphFlow, MagenticOneGroupChat, RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.model_context import ChatCompletionContext
from autogen_core.tools import StaticWorkbench, Workbench

from drsai_backend.agents.base import AnyTool
from drsai_backend.errors import TeamBuildError
from drsai_backend.teams.messages import TeamMessages

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")
Part: TypeAlias = ChatAgent | Team


@lru_cache(maxsize=2048)  # bounded, as a factory may make a class of its own for every run
def is_class(kind: type[object], wanted: type[object]) -> bool:
    """`issubclass`, remembered. The bases of AutoGen's classes are protocols, whose check in Python takes two
    microseconds."""
    return issubclass(kind, wanted)


def is_a(value: object, wanted: type[T]) -> TypeIs[T]:
    """`isinstance(value, wanted)`, remembered per class."""
    return is_class(type(value), wanted)


@dataclass(frozen=True, slots=True)
class TeamTree:
    """A built team, walked once.

    Attributes:
        team: the outermost group chat.
        parts: group chats, agents, wrapped agents, and agents and teams used as tools, outermost first, each once, by
            their paths. The path of an agent is the names from the outermost team's member down to it, joined by `/`. A
            group chat has its manager's, as the one that asks a model for it.
        teams: the group chats among the parts.
        agents: the agents of the team and of the teams inside it, wrapped ones included, and none that is a tool.
        tools: the tools with a state, and workbenches with one, by the id of their agent; each has a name that is
            unique for the agent.
        unshared: agents, model contexts and conditions: what must be made afresh for every run.
    """

    team: BaseGroupChat
    parts: dict[str, Part]
    teams: list[BaseGroupChat]
    agents: list[Part]
    tools: dict[int, list[tuple[str, AnyTool | Workbench]]]
    unshared: list[object]


def tree_of(team: BaseGroupChat) -> TeamTree:
    """Walk through a team, the teams inside it, and its tools."""
    tree = TeamTree(team, {}, [], [], {}, [])
    _walk(tree, {}, team, "")
    return tree


def _walk(
    tree: TeamTree, seen: dict[int, bool], part: Any, path: str, *, is_member: bool = True, is_stored: bool = True
) -> None:
    """Add a part and what is inside it. `is_member`: it is no tool; `is_stored`: its state is the thread's. `seen`
    says of parts, by their ids, whether they were added as members: a tool may be a member, too."""
    before = seen.get(id(part))
    if before is not None and before >= is_member:
        return
    seen[id(part)] = is_member
    cls = cast("type[object]", type(part))
    is_team, below = is_class(cls, BaseGroupChat), f"{path}/" if path else ""
    if before is None:
        name = below + part._group_chat_manager_name if is_team else path
        tree.parts[_free(tree, name) if name in tree.parts else name] = part
        if is_team:
            tree.teams.append(part)
            tree.unshared.extend(_conditions_in(part._termination_condition))
        else:
            _add_tools(tree, seen, part, below)
    if is_team:
        for participant in part._participants:
            _walk(tree, seen, participant, below + participant.name, is_member=is_member)
        return
    if is_member:
        tree.agents.append(part)
    if is_stored:
        context = getattr(part, "_model_context", None)
        tree.unshared.extend([part, context] if isinstance(context, ChatCompletionContext) else [part])
    if is_class(cls, MessageFilterAgent):
        inner = part._wrapped_agent
        _walk(tree, seen, inner, below + inner.name, is_member=is_member, is_stored=is_stored)
    elif is_class(cls, SocietyOfMindAgent):
        is_chat = is_a(part._team, BaseGroupChat)
        _walk(tree, seen, part._team, path, is_member=is_member and is_chat, is_stored=is_chat)


def _free(tree: TeamTree, path: str) -> str:
    return next(free for number in count(2) if (free := f"{path}#{number}") not in tree.parts)


def _add_tools(tree: TeamTree, seen: dict[int, bool], agent: Part, below: str) -> None:
    for position, workbench in enumerate(cast("Sequence[Workbench]", getattr(agent, "_workbench", None) or ())):
        if keeps_state(workbench.__class__):
            tree.tools.setdefault(id(agent), []).append((f"{position}", workbench))
        for tool in workbench._tools if isinstance(workbench, StaticWorkbench) else ():
            if keeps := has_state(tool):
                tree.tools.setdefault(id(agent), []).append((f"{position}/{tool.name}", tool))
            runner = getattr(tool, "_task_runner", None)  # AutoGen's AgentTool and TeamTool
            if isinstance(runner, (ChatAgent, BaseGroupChat)):
                is_stored = keeps and task_runner(tool) is not None
                _walk(tree, seen, runner, below + tool.name, is_member=False, is_stored=is_stored)


def _conditions_in(condition: TerminationCondition | None) -> list[TerminationCondition]:
    if condition is None:
        return []
    return [condition, *(each for child in children(condition) for each in _conditions_in(child))]


def as_team(served: object) -> BaseGroupChat:
    """The group chat that runs what a team factory returned; a lone agent becomes a chat of one with one turn.

    Raises:
        TeamBuildError: neither an agent nor a group chat.
    """
    if is_a(served, BaseGroupChat):
        return served
    if is_a(served, ChatAgent):
        team = RoundRobinGroupChat([served], name=f"{served.name}_chat", max_turns=1)
        team.has_one_turn = True  # pyright: ignore[reportAttributeAccessIssue] - see `DrSaiGroupChat`
        # An agent on its own may show what it likes, and takes any task.
        team._message_factory = TeamMessages(takes_all=True)
        return team
    raise TeamBuildError(
        f"a team factory must return an AutoGen ChatAgent or BaseGroupChat, not {type(served).__name__}", param="team"
    )


_STATELESS = AnyTool.save_state_json


def has_state(tool: AnyTool) -> bool:
    """Whether a tool's class saves a state of its own."""
    return type(tool).save_state_json is not _STATELESS


@lru_cache(maxsize=2048)  # bounded, as a factory may make a class of its own for every run
def keeps_state(kind: type[object]) -> bool:
    """Whether workbenches of a class save more than the states of their tools. This package's save nothing."""
    saves = kind.save_state if issubclass(kind, Workbench) else StaticWorkbench.save_state
    return saves is not StaticWorkbench.save_state and not saves.__module__.startswith("drsai_backend.")


SHARED: Final = "_drsai_shared"
"""The attribute that a workbench has which several runs share."""


class ToolState:
    """The state of a tool, under the names that agents and teams have for the same methods."""

    def __init__(self, tool: AnyTool) -> None:
        self.owner: object = tool
        self.save_state = tool.save_state_json
        self.load_state = tool.load_state_json


class WorkbenchState:
    """The state of a workbench, {} of one that cannot be asked: AutoGen's agents never ask it."""

    def __init__(self, workbench: Workbench) -> None:
        self.owner = workbench

    async def save_state(self) -> Mapping[str, object]:
        """See `autogen_core.tools.Workbench.save_state`."""
        try:
            return await self.owner.save_state()
        except NotImplementedError:
            return {}

    async def load_state(self, state: Mapping[str, object]) -> None:
        """See `autogen_core.tools.Workbench.load_state`."""
        if state:
            await self.owner.load_state(state)


def ephemeral_tools(workbenches: Sequence[object]) -> dict[str, int]:
    """Return, of the tools in these workbenches that are marked `ephemeral`, how many outputs stay in the prompt, by
    name."""
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


def task_runner(tool: object) -> Part | None:
    """The agent or team that is a tool (`AgentTool`, `TeamTool`); None for any other."""
    return tool._task_runner if isinstance(tool, (AgentTool, TeamTool)) else None


def children(condition: TerminationCondition) -> list[TerminationCondition]:
    """The conditions that a condition is made of."""
    wrapped = [value for value in vars(condition).values() if isinstance(value, TerminationCondition)]
    return [*getattr(condition, "_conditions", ()), *wrapped]


def answering_agent(team: Part, named: str | None = None) -> Part | None:
    """The agent that answers the user, or None: none of the team does by a model. Its messages take the form that a
    request asks for, and it may call the client's tools.

    A lone agent does. In a group chat it is the participant that the team's setting names (`answered_by`, or the key
    `answered_by` beside a component config); without one the last participant that asks a model, of a graph the last
    at its end. So a writer and a reviewer answer by the reviewer. Magentic-One answers by its orchestrator, which is no
    agent.

    Raises:
        TeamBuildError: the team has no participant of the name `named`.
    """
    if not is_a(team, BaseGroupChat):
        if is_a(team, MessageFilterAgent):
            return answering_agent(team._wrapped_agent)
        asks_model = getattr(team, "_model_client", None) is not None and not is_a(team, UserProxyAgent)
        return team if asks_model else None
    participants: Sequence[Part] = team._participants
    if named is not None:
        found = next((each for each in participants if each.name == named), None)
        if found is None:
            raise TeamBuildError(f"the team is said to be answered by {named!r}, which is none of its participants")
        return answering_agent(found)
    if is_a(team, MagenticOneGroupChat):
        return None
    if is_a(team, GraphFlow):
        ends = team._graph.get_leaf_nodes()
        participants = [each for each in participants if each.name in ends] or participants
    return next((agent for each in reversed(participants) if (agent := answering_agent(each)) is not None), None)
