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

from drsai_backend.agents.contexts import CompactionContext, EphemeralOutputsContext, TokenBufferedContext
from drsai_backend.errors import TeamBuildError
from drsai_backend.json_types import JsonObject
from drsai_backend.state.journal import Path, put
from drsai_backend.teams.recording.base import Field, fields_of
from drsai_backend.teams.recording.cells import Cell, ListCell, MemoryCell, StateCell, ValueCell
from drsai_backend.teams.runtime.wiring import container_of, manager_of, runtime_of
from drsai_backend.teams.team_tree import AnyTool, is_a, stateful_tools, task_runner

_log = logging.getLogger("drsai.team")

MEMORY = "memory"
"""The last name in the path of a memory's cell: a stored state may have more or fewer of them than the team."""

# Subclasses may edit messages in place (AutoGen's documentation shows one), which a cursor would not see.
APPEND_ONLY_CONTEXTS = (
    UnboundedChatCompletionContext,
    BufferedChatCompletionContext,
    TokenLimitedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    EphemeralOutputsContext,
    TokenBufferedContext,
    CompactionContext,
)

# The constant parts of states, dumped once.
_CONTAINER = ChatAgentContainerState().model_dump()
_TEAM = TeamState().model_dump()
_ASSISTANT = AssistantAgentState().model_dump()
_SOCIETY = SocietyOfMindAgentState().model_dump()
_BASE = BaseState().model_dump()


def _copied(groups: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    return {target: dict(counts) for target, counts in groups.items()}


@dataclass(frozen=True)
class ManagerState:
    """What a manager of AutoGen's saves beside the message thread: `fields` by their keys in `model`, the class of its
    saved state, or a state without a class. `extras` are those that it leaves out."""

    model: type[BaseState] | None
    fields: Mapping[str, Field]
    extras: Mapping[str, Field] = field(default_factory=dict[str, Field])

    @cached_property
    def constants(self) -> JsonObject:
        if self.model is None:
            return {}
        return self.model().model_dump(include={"type", "version"})


def _named(*names: str) -> dict[str, Field]:
    return {name: Field(f"_{name}") for name in ("current_turn", *names)}


MANAGERS: dict[type[BaseGroupChatManager], ManagerState] = {
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
    skeleton: dict[str, JsonObject] = field(default_factory=lambda: {"state": {}, "extras": {}})
    cells: list[Cell] = field(default_factory=list)
    derived: list[Cell] = field(default_factory=list)
    selectors: list[SelectorGroupChatManager] = field(default_factory=list)
    movable: bool = True

    def extra(self, path: Path, name: str) -> Path:
        """A new place in the `extras`, for something that the part at `path` needs and its state leaves out."""
        key = "/".join((*path, name))
        self.skeleton["extras"][key] = {}
        return "extras", key

    @property
    def signature(self) -> list[tuple[Path, type]]:
        """Equal for teams whose states have the same shape."""
        return [(cell.path, type(cell)) for cell in (*self.cells, *self.derived)]


def survey(team: BaseGroupChat) -> Structure:
    """The structure of a wired team."""
    structure = Structure(runtime_of(team).mark)
    structure.skeleton["state"] = _team(structure, team, ("state",))
    return structure


def _team(structure: Structure, team: BaseGroupChat, path: Path) -> JsonObject:
    if not _saves_like(team, BaseGroupChat):
        structure.cells.append(StateCell(path, team))
        return {}
    states: JsonObject = {}
    here = (*path, "agent_states")
    for position, (name, participant) in enumerate(zip(team._participant_names, team._participants, strict=True)):
        container = container_of(team, position)
        inner = (*here, name)
        buffer = ListCell((*inner, "message_buffer"), container, "_message_buffer", team._message_factory)
        structure.cells.append(buffer)
        state = _agent(structure, participant, (*inner, "agent_state"))
        states[name] = {**_CONTAINER, "message_buffer": [], "agent_state": state}
    manager_name = team._group_chat_manager_name
    states[manager_name] = _manager(structure, manager_of(team), (*here, manager_name))
    return {**_TEAM, "agent_states": states}


def _agent(structure: Structure, agent: Any, path: Path) -> JsonObject:
    if is_a(agent, BaseGroupChat):
        return _team(structure, agent, path)
    _declared(structure, agent, path)
    _tools(structure, agent, path)
    _memories(structure, agent, path)
    if _saves_like(agent, AssistantAgent):
        return {**_ASSISTANT, "llm_context": _context(structure, agent._model_context, (*path, "llm_context"))}
    if _saves_like(agent, SocietyOfMindAgent):
        _extra_context(structure, agent._model_context, path)
        inner = _agent(structure, agent._team, (*path, "inner_team_state"))
        return {**_SOCIETY, "inner_team_state": inner}
    if _saves_like(agent, BaseChatAgent):
        if is_a(agent, MessageFilterAgent):
            where = structure.extra(path, "wrapped")
            put(structure.skeleton, where, _agent(structure, agent._wrapped_agent, where))
        elif isinstance(agent, CodeExecutorAgent):
            _extra_context(structure, agent._model_context, path)
        return dict(_BASE)
    structure.cells.append(StateCell(path, agent))
    return {}


def _saves_like(instance: object, known: type[Any]) -> bool:
    """Whether an instance's state is saved and loaded by that class's methods, not by a subclass's own."""
    methods = instance.__class__
    return (
        getattr(methods, "save_state", None) is known.save_state
        and getattr(methods, "load_state", None) is known.load_state
    )


def _tools(structure: Structure, agent: object, path: Path) -> None:
    """The state of an agent's tools, agents and teams used as tools among them, which AutoGen saves nowhere."""
    for name, tool in stateful_tools(agent):
        where = structure.extra(path, f"tool/{name}")
        runner = task_runner(tool)
        if runner is None:
            structure.cells.append(StateCell(where, _ToolState(tool)))
        else:
            put(structure.skeleton, where, _agent(structure, runner, where))


def _memories(structure: Structure, agent: object, path: Path) -> None:
    """What is in an agent's list memories, which AutoGen saves nowhere."""
    memories: Sequence[object] = getattr(agent, "_memory", None) or ()
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
        structure.cells.append(MemoryCell((*structure.extra(path, f"memory/{position}"), MEMORY), memory))


class _ToolState:
    """A tool under the names that agents and teams have for the same methods."""

    def __init__(self, tool: AnyTool) -> None:
        self.save_state = tool.save_state_json
        self.load_state = tool.load_state_json


def _context(structure: Structure, context: ChatCompletionContext, path: Path) -> JsonObject:
    if type(context) in APPEND_ONLY_CONTEXTS:
        structure.cells.append(ListCell((*path, "messages"), context, "_messages", None))
        return {"messages": []}
    structure.cells.append(StateCell(path, context))
    return {}


def _extra_context(structure: Structure, context: ChatCompletionContext, path: Path) -> None:
    where = structure.extra(path, "model_context")
    put(structure.skeleton, where, _context(structure, context, where))


def _manager(structure: Structure, manager: BaseGroupChatManager, path: Path) -> JsonObject:
    _declared(structure, manager, path)
    if _saves_like(manager, BaseAgent):
        # It has none; but the conversation, at least, is to survive.
        _conversation(structure, manager, structure.extra(path, "manager"), _named())
        return {}
    known = next((state for cls, state in MANAGERS.items() if _saves_like(manager, cls)), None)
    if known is None:
        structure.cells.append(StateCell(path, manager))
        return {}
    _conversation(structure, manager, path, known.fields)
    structure.cells += [ValueCell(structure.extra(path, name), manager, extra) for name, extra in known.extras.items()]
    if is_a(manager, SelectorGroupChatManager):
        # load_state fills the selection context from the message thread.
        if is_a(manager._model_context, CompactionContext):
            raise TeamBuildError(
                "a SelectorGroupChat fills its model_context anew from its messages, and would have them summarised "
                "again: give it a TokenBufferedContext"
            )
        structure.selectors.append(manager)
        if type(manager._model_context) in APPEND_ONLY_CONTEXTS:
            where = ("derived", *path, "model_context")
            structure.derived.append(ListCell(where, manager._model_context, "_messages", None))
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
        where = structure.extra(path, "fields")
        structure.cells += [ValueCell((*where, name), owner, each) for name, each in fields_of(owner).items()]
