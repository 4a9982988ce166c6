"""The state of a wired team as a skeleton and cells: what `save_state()` would give, found without calling it.

Known classes are taken apart into cells; a class that brings a `save_state` of its own is one `StateCell`. What
`save_state()` leaves out although the team needs it, and what a class declares (`base.Durable`), goes to the `extras`
half of the skeleton.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autogen_agentchat.agents import (
    AssistantAgent,
    BaseChatAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    SocietyOfMindAgent,
)
from autogen_agentchat.state import (
    AssistantAgentState,
    BaseState,
    ChatAgentContainerState,
    MagenticOneOrchestratorState,
    RoundRobinManagerState,
    SelectorManagerState,
    SocietyOfMindAgentState,
    SwarmManagerState,
    TeamState,
)
from autogen_agentchat.teams import BaseGroupChat

# Private: the managers' attributes behind their saved state. tests/teams/test_upstream.py fails when they change.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._graph._digraph_group_chat import GraphFlowManager
from autogen_agentchat.teams._group_chat._magentic_one._magentic_one_orchestrator import MagenticOneOrchestrator
from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager
from autogen_agentchat.teams._group_chat._selector_group_chat import SelectorGroupChatManager
from autogen_agentchat.teams._group_chat._swarm_group_chat import SwarmGroupChatManager
from autogen_core import BaseAgent
from autogen_core.memory import ListMemory
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.tools import BaseTool

from drsai_backend.state.journal import Path
from drsai_backend.teams.recording.base import Field, fields_of
from drsai_backend.teams.recording.cells import Cell, ListCell, MemoryCell, StateCell, ValueCell
from drsai_backend.teams.runtime.wiring import container_of, manager_of, runtime_of
from drsai_backend.teams.team_tree import is_a, stateful_tools, task_runner

_log = logging.getLogger("drsai.team")

MEMORY = "memory"
"""The last name in the path of a memory's cell: a stored state may have more or fewer of them than the team."""

# Subclasses may edit messages in place (AutoGen's documentation shows one), which a cursor would not see.
APPEND_ONLY_CONTEXTS = (
    UnboundedChatCompletionContext,
    BufferedChatCompletionContext,
    TokenLimitedChatCompletionContext,
    HeadAndTailChatCompletionContext,
)

# The constant parts of states, dumped once.
_CONTAINER = ChatAgentContainerState().model_dump()
_TEAM = TeamState().model_dump()
_ASSISTANT = AssistantAgentState().model_dump()
_SOCIETY = SocietyOfMindAgentState().model_dump()
_BASE = BaseState().model_dump()


def _copied(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {target: dict(counts) for target, counts in groups.items()}


@dataclass(frozen=True)
class ManagerState:
    """What a manager of AutoGen's saves beside the message thread: `fields` by their keys in `model`, the class of its
    saved state, or a state without a class. `extras` are those that it leaves out."""

    model: type[BaseState] | None
    fields: Mapping[str, Field]
    extras: Mapping[str, Field] = field(default_factory=dict[str, Field])

    @cached_property
    def constants(self) -> dict[str, Any]:
        if self.model is None:
            return {}
        return self.model().model_dump(include={"type", "version"})


def _named(*names: str) -> dict[str, Field]:
    return {name: Field(f"_{name}") for name in ("current_turn", *names)}


MANAGERS: dict[Any, ManagerState] = {
    RoundRobinGroupChatManager: ManagerState(RoundRobinManagerState, _named("next_speaker_index")),
    SelectorGroupChatManager: ManagerState(SelectorManagerState, _named("previous_speaker")),
    SwarmGroupChatManager: ManagerState(SwarmManagerState, _named("current_speaker")),
    MagenticOneOrchestrator: ManagerState(
        MagenticOneOrchestratorState, _named("task", "facts", "plan", "n_rounds", "n_stalls")
    ),
    GraphFlowManager: ManagerState(
        None,
        {
            **_named(),
            "remaining": Field(
                "_remaining", _copied, lambda value: {target: Counter[str](groups) for target, groups in value.items()}
            ),
            # Copied both ways: save_state() gives away the inner dicts, which change with the next turn.
            "enqueued_any": Field("_enqueued_any", _copied, _copied),
            "ready": Field("_ready", list, deque),
        },
        {
            "triggered_activation_groups": Field(
                "_triggered_activation_groups",
                lambda value: {node: sorted(groups) for node, groups in value.items() if groups},
                lambda value: {node: set(groups) for node, groups in value.items()},
            )
        },
    ),
}


@dataclass(slots=True)
class Structure:
    """What a team's state consists of.

    Attributes:
        skeleton: `{"state": …, "extras": …}` with the constant parts filled in and the cells' places empty.
        cells: in the order that numbers them in the journal.
        derived: cells that follow from others when a state is loaded, and need only be handed on by `adopt`.
        selectors: managers whose model context follows from their message thread.
        movable: False when a part can be brought back only by loading a stored state.
        mark: what the team's run marks its own with.
    """

    mark: object
    skeleton: dict[str, Any] = field(default_factory=lambda: {"state": {}, "extras": {}})
    cells: list[Cell] = field(default_factory=list)
    derived: list[Cell] = field(default_factory=list)
    selectors: list[SelectorGroupChatManager] = field(default_factory=list)
    movable: bool = True

    @property
    def signature(self) -> list[tuple[Path, type]]:
        """Equal for teams whose states have the same shape."""
        return [(cell.path, type(cell)) for cell in (*self.cells, *self.derived)]


def survey(team: BaseGroupChat) -> Structure:
    """The structure of a wired team."""
    structure = Structure(runtime_of(team).mark)
    structure.skeleton["state"] = _team(structure, team, ("state",))
    return structure


def _team(structure: Structure, team: BaseGroupChat, path: Path) -> dict[str, Any]:
    if not _saves_like(team, BaseGroupChat):
        structure.cells.append(StateCell(path, team))
        return {}
    states: dict[str, Any] = {}
    here = (*path, "agent_states")
    for position, (name, participant) in enumerate(zip(team._participant_names, team._participants, strict=True)):
        container = container_of(team, position)
        inner = (*here, name)
        state: dict[str, Any] = {**_CONTAINER, "message_buffer": []}
        structure.cells.append(
            ListCell((*inner, "message_buffer"), container, "_message_buffer", team._message_factory)
        )
        state["agent_state"] = _agent(structure, participant, (*inner, "agent_state"))
        states[name] = state
    manager_name = team._group_chat_manager_name
    states[manager_name] = _manager(structure, manager_of(team), (*here, manager_name))
    return {**_TEAM, "agent_states": states}


def _agent(structure: Structure, agent: Any, path: Path) -> dict[str, Any]:
    if is_a(agent, BaseGroupChat):
        return _team(structure, agent, path)
    _declared(structure, agent, path)
    _tools(structure, agent, path)
    _memories(structure, agent, path)
    if _saves_like(agent, AssistantAgent):
        state: dict[str, Any] = dict(_ASSISTANT)
        state["llm_context"] = _context(structure, agent._model_context, (*path, "llm_context"))
        return state
    if _saves_like(agent, SocietyOfMindAgent):
        _extra_context(structure, agent._model_context, path)
        inner = _agent(structure, agent._team, (*path, "inner_team_state"))
        return {**_SOCIETY, "inner_team_state": inner}
    if _saves_like(agent, BaseChatAgent):
        if is_a(agent, MessageFilterAgent):
            key = _extra_key(path, "wrapped")
            structure.skeleton["extras"][key] = _agent(structure, agent._wrapped_agent, ("extras", key))
        elif isinstance(agent, CodeExecutorAgent):
            _extra_context(structure, agent._model_context, path)
        return dict(_BASE)
    structure.cells.append(StateCell(path, agent))
    return {}


def _saves_like(instance: Any, known: type[Any]) -> bool:
    """Whether an instance's state is saved and loaded by that class's methods, not by a subclass's own."""
    methods = instance.__class__
    return (
        getattr(methods, "save_state", None) is known.save_state
        and getattr(methods, "load_state", None) is known.load_state
    )


def _tools(structure: Structure, agent: Any, path: Path) -> None:
    """The state of an agent's tools, agents and teams used as tools among them, which AutoGen saves nowhere."""
    for name, tool in stateful_tools(agent):
        key = _extra_key(path, f"tool/{name}")
        where = ("extras", key)
        structure.skeleton["extras"][key] = {}
        runner = task_runner(tool)
        if runner is None:
            structure.cells.append(StateCell(where, _ToolState(tool)))
        else:
            structure.skeleton["extras"][key] = _agent(structure, runner, where)


def _memories(structure: Structure, agent: Any, path: Path) -> None:
    """What is in an agent's list memories, which AutoGen saves nowhere."""
    memories: Sequence[Any] = getattr(agent, "_memory", None) or ()
    for position, memory in enumerate(memories):
        if not isinstance(memory, ListMemory):
            continue
        if vars(memory).setdefault("_drsai_run", structure.mark) is not structure.mark:
            _log.warning(
                "the ListMemory %r is shared by several runs: what they write to it is kept with no thread; a team "
                "factory must make one for every run",
                memory.name,
            )
            continue
        key = _extra_key(path, f"memory/{position}")
        structure.skeleton["extras"][key] = {}
        structure.cells.append(MemoryCell(("extras", key, MEMORY), memory))


class _ToolState:
    """A tool under the names that agents and teams have for the same methods."""

    def __init__(self, tool: BaseTool[Any, Any]) -> None:
        self.save_state = tool.save_state_json
        self.load_state = tool.load_state_json


def _context(structure: Structure, context: ChatCompletionContext, path: Path) -> dict[str, Any]:
    if type(context) in APPEND_ONLY_CONTEXTS:
        structure.cells.append(ListCell((*path, "messages"), context, "_messages", None))
        return {"messages": []}
    structure.cells.append(StateCell(path, context))
    return {}


def _extra_context(structure: Structure, context: ChatCompletionContext, path: Path) -> None:
    key = _extra_key(path, "model_context")
    structure.skeleton["extras"][key] = _context(structure, context, ("extras", key))


def _extra_key(path: Path, name: str) -> str:
    return "/".join((*path, name))


def _manager(structure: Structure, manager: BaseGroupChatManager, path: Path) -> dict[str, Any]:
    _declared(structure, manager, path)
    if _saves_like(manager, BaseAgent):
        # It has none; but the conversation, at least, is to survive.
        key = _extra_key(path, "manager")
        structure.skeleton["extras"][key] = {}
        _conversation(structure, manager, ("extras", key), _named())
        return {}
    known = next((state for cls, state in MANAGERS.items() if _saves_like(manager, cls)), None)
    if known is None:
        structure.cells.append(StateCell(path, manager))
        return {}
    _conversation(structure, manager, path, known.fields)
    for name, extra in known.extras.items():
        key = _extra_key(path, name)
        structure.skeleton["extras"][key] = {}
        structure.cells.append(ValueCell(("extras", key), manager, extra))
    if is_a(manager, SelectorGroupChatManager):
        # load_state fills the selection context from the message thread.
        structure.selectors.append(manager)
        if type(manager._model_context) in APPEND_ONLY_CONTEXTS:
            where = _extra_key(path, "model_context")
            structure.derived.append(ListCell(("derived", where), manager._model_context, "_messages", None))
        else:
            structure.movable = False
    # The state models hold nothing but constants beside what the cells bring.
    return dict(known.constants)


def _conversation(structure: Structure, manager: BaseGroupChatManager, path: Path, fields: Mapping[str, Field]) -> None:
    structure.cells.append(ListCell((*path, "message_thread"), manager, "_message_thread", manager._message_factory))
    structure.cells += [ValueCell((*path, key), manager, each) for key, each in fields.items()]


def _declared(structure: Structure, owner: object, path: Path) -> None:
    """What the class of an agent or a manager declares as durable."""
    if getattr(owner, "durable_fields", ()):
        key = _extra_key(path, "fields")
        structure.skeleton["extras"][key] = {}
        structure.cells += [ValueCell(("extras", key, name), owner, each) for name, each in fields_of(owner).items()]
