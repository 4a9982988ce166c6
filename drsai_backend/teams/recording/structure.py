"""The structure is the state of a wired team as a skeleton and cells: what `save_state()` would give, found without
calling it.

Known classes are taken apart into cells; a class that brings a `save_state` of its own is one `StateCell`. What
`save_state()` leaves out although the team needs it, and what a class declares (`base.Durable`), goes to the `extras`
half of the skeleton.

AutoGen's termination conditions have no `save_state`. A condition is captured as the attributes that differ from those
it had when the team was built, so that its settings are not stored again and an untouched condition costs nothing. Kept
are attributes that are JSON: `bool`, `int`, `float`, `str`, `None`, and lists, sets and dicts of them; combined and
wrapped conditions are walked. Clocks are kept as elapsed time.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, cast

import orjson
from autogen_agentchat.agents import (
    AssistantAgent,
    BaseChatAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    SocietyOfMindAgent,
)
from autogen_agentchat.base import AndTerminationCondition, TerminationCondition
from autogen_agentchat.conditions import TimeoutTermination
from autogen_agentchat.messages import StopMessage
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
from autogen_core import AgentId, BaseAgent
from autogen_core.memory import ListMemory
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.tools import Workbench

from drsai_backend.agents.contexts import CompactionContext, EphemeralOutputsContext, TokenBufferedContext
from drsai_backend.errors import TeamBuildError
from drsai_backend.json_types import JsonObject
from drsai_backend.state.journal import Path, put
from drsai_backend.teams.recording.base import Field, fields_of
from drsai_backend.teams.recording.cells import Cell, ListCell, MemoryCell, StateCell, ValueCell
from drsai_backend.teams.runtime.turn_runtime import TurnRuntime
from drsai_backend.teams.runtime.wiring import manager_of, runtime_of
from drsai_backend.teams.team_tree import (
    SHARED,
    AnyTool,
    ToolState,
    WorkbenchState,
    children,
    is_a,
    is_class,
    task_runner,
)

_log = logging.getLogger("drsai.team")

MEMORY = "memory"
"""The last name in the path of the cell of a memory or a workbench: a stored state may have more or fewer of them than
the team."""

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
        runtime: the team is on it.
        tools: those with a state, and workbenches with one, by the id of their agent.
        skeleton: `{"state": …, "extras": …}` with the constant parts filled in and the cells' places empty.
        cells: in the order that numbers them in the journal.
        derived: cells that follow from others when a state is loaded, and need only be handed on by `adopt`.
        selectors: managers whose model context follows from their message thread.
        movable: False when a part can be brought back only by loading a stored state.
    """

    runtime: TurnRuntime
    tools: Mapping[int, Sequence[tuple[str, AnyTool | Workbench]]]
    skeleton: dict[str, JsonObject]
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
    runtime = runtime_of(team)
    assert runtime.tree is not None
    structure = Structure(runtime, runtime.tree.tools, {"state": {}, "extras": {}})
    structure.skeleton["state"] = _team(structure, team, ("state",))
    return structure


def _team(structure: Structure, team: BaseGroupChat, path: Path) -> JsonObject:
    if _known(type(team)) is not BaseGroupChat:
        structure.cells.append(StateCell(path, team))
        return {}
    states: JsonObject = {}
    here = (*path, "agent_states")
    placed, key = structure.runtime._agents, team._team_id
    for name, participant, topic_type in zip(
        team._participant_names, team._participants, team._participant_topic_types, strict=True
    ):
        container = placed[AgentId(topic_type, key)]
        inner = (*here, name)
        buffer = ListCell((*inner, "message_buffer"), container, "_message_buffer", team._message_factory)
        structure.cells.append(buffer)
        state = _agent(structure, participant, (*inner, "agent_state"))
        states[name] = {**_CONTAINER, "message_buffer": [], "agent_state": state}
    manager_name = team._group_chat_manager_name
    states[manager_name] = _manager(structure, manager_of(team), (*here, manager_name))
    return {**_TEAM, "agent_states": states}


def _agent(structure: Structure, agent: Any, path: Path) -> JsonObject:
    cls = cast("type[object]", type(agent))
    if is_class(cls, BaseGroupChat):
        return _team(structure, agent, path)
    if getattr(agent, "durable_fields", ()):
        _declared(structure, agent, path)
    for name, tool in structure.tools.get(id(agent), ()):
        _tool(structure, tool, structure.extra(path, f"tool/{name}"))
    if memories := getattr(agent, "_memory", None):
        _memories(structure, memories, path)
    known = _known(cls)
    if known is AssistantAgent:
        return {**_ASSISTANT, "llm_context": _context(structure, agent._model_context, (*path, "llm_context"))}
    if known is SocietyOfMindAgent:
        _extra_context(structure, agent._model_context, path)
        inner = _agent(structure, agent._team, (*path, "inner_team_state"))
        return {**_SOCIETY, "inner_team_state": inner}
    if known is BaseChatAgent:
        if is_class(cls, MessageFilterAgent):
            where = structure.extra(path, "wrapped")
            put(structure.skeleton, where, _agent(structure, agent._wrapped_agent, where))
        elif isinstance(agent, CodeExecutorAgent):
            _extra_context(structure, agent._model_context, path)
        return dict(_BASE)
    structure.cells.append(StateCell(path, agent))
    return {}


_KNOWN: Final = (
    BaseGroupChat,
    AssistantAgent,
    SocietyOfMindAgent,
    BaseChatAgent,
    BaseAgent,
    *MANAGERS,
)


@lru_cache(maxsize=2048)  # bounded, as a factory may make a class of its own for every run
def _known(cls: type[object]) -> type[Any] | None:
    """Return the class of AutoGen's whose methods save and load the state of such an object; None: it has its own."""
    own = getattr(cls, "save_state", None), getattr(cls, "load_state", None)
    return next((known for known in _KNOWN if own == (known.save_state, known.load_state)), None)


def _tool(structure: Structure, tool: AnyTool | Workbench, where: Path) -> None:
    """The state of an agent's tool, of the agent or team that it is, or of a workbench, which AutoGen saves nowhere."""
    runner = task_runner(tool)
    if runner is not None:
        put(structure.skeleton, where, _agent(structure, runner, where))
    elif not isinstance(tool, Workbench):
        structure.cells.append(StateCell(where, ToolState(tool)))
    elif vars(tool).setdefault("_drsai_run", structure.runtime.mark) is structure.runtime.mark:
        structure.cells.append(StateCell((*where, MEMORY), WorkbenchState(tool)))
    else:
        setattr(tool, SHARED, True)  # What several runs have done with it belongs to no thread.


def _memories(structure: Structure, memories: Sequence[object], path: Path) -> None:
    """Find what is in an agent's list memories, which AutoGen saves nowhere."""
    mark = structure.runtime.mark
    for position, memory in enumerate(memories):
        if not isinstance(memory, ListMemory):
            continue
        if vars(memory).setdefault("_drsai_run", mark) is mark:
            structure.cells.append(MemoryCell((*structure.extra(path, f"memory/{position}"), MEMORY), memory))
        else:
            _log.warning(
                "the ListMemory %r is shared by several runs: what they write to it is kept with no thread; a team "
                "factory must make one for every run",
                memory.name,
            )


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
    if getattr(manager, "durable_fields", ()):
        _declared(structure, manager, path)
    known = _known(type(manager))
    if known is BaseAgent:
        # It has none; but the conversation, at least, is to survive.
        _conversation(structure, manager, structure.extra(path, "manager"), _named())
        return {}
    if known not in MANAGERS:
        structure.cells.append(StateCell(path, manager))
        return {}
    saved = MANAGERS[known]
    _conversation(structure, manager, path, saved.fields)
    structure.cells += [ValueCell(structure.extra(path, name), manager, extra) for name, extra in saved.extras.items()]
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
    return dict(saved.constants)


def _conversation(structure: Structure, manager: BaseGroupChatManager, path: Path, fields: Mapping[str, Field]) -> None:
    structure.cells.append(ListCell((*path, "message_thread"), manager, "_message_thread", manager._message_factory))
    structure.cells += [ValueCell((*path, key), manager, each) for key, each in fields.items()]


def _declared(structure: Structure, owner: object, path: Path) -> None:
    """Find what the class of an agent or a manager declares as durable."""
    where = structure.extra(path, "fields")
    structure.cells += [ValueCell((*where, name), owner, each) for name, each in fields_of(owner).items()]


# --- conditions ------------------------------------------------------------------------------------------------------

_SCALARS = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True)
class Counts:
    """What a condition, and the conditions inside it, have counted since the team was built.

    Attributes:
        condition: nobody has called it yet.
        before: its attributes then.
        inner: those of the conditions inside it.
    """

    condition: TerminationCondition
    before: JsonObject
    inner: Sequence[Counts]

    @classmethod
    def of(cls, condition: TerminationCondition) -> Counts:
        """Begin to count."""
        return cls(condition, _attributes(condition), [*map(cls.of, children(condition))])

    def capture(self) -> JsonObject | None:
        """Return what has changed; None: nothing."""
        state: JsonObject = {}
        condition, before = self.condition, self.before
        now = _attributes(condition)
        changed = {name: value for name, value in now.items() if name not in before or before[name] != value}
        if changed:
            sets: JsonObject = {name: [*value] for name, value in changed.items() if type(value) is set}
            if plain := {name: value for name, value in changed.items() if name not in sets}:
                state["v"] = plain
            if sets:
                state["sets"] = sets
        inner = [each.capture() for each in self.inner]
        if any(inner):
            state["c"] = inner
        if isinstance(condition, AndTerminationCondition) and condition._stop_messages:
            state["s"] = [message.dump() for message in condition._stop_messages]
        if isinstance(condition, TimeoutTermination):
            state["elapsed"] = round(time.monotonic() - condition._start_time, 3)
        return state or None

    def restore(self, state: JsonObject | None) -> None:
        """Put what `capture` gave back into the condition."""
        if not state:
            return
        condition = self.condition
        for name, value in state.get("v", {}).items():
            setattr(condition, name, copy.deepcopy(value))
        for name, value in state.get("sets", {}).items():
            setattr(condition, name, set(value))
        for each, inner in zip(self.inner, state.get("c", ()), strict=False):
            each.restore(inner)
        if isinstance(condition, AndTerminationCondition):
            condition._stop_messages = [StopMessage.model_validate(message) for message in state.get("s", ())]
        if isinstance(condition, TimeoutTermination) and "elapsed" in state:
            condition._start_time = time.monotonic() - state["elapsed"]


def _attributes(condition: TerminationCondition) -> JsonObject:
    skipped = {"_conditions", "_stop_messages"}
    if isinstance(condition, TimeoutTermination):
        skipped.add("_start_time")
    kept: JsonObject = {}
    for name, value in vars(condition).items():
        if name in skipped:
            continue
        if isinstance(value, _SCALARS):
            kept[name] = value
        elif isinstance(value, (list, dict)):
            try:
                kept[name] = orjson.loads(orjson.dumps(value))
            except TypeError:
                continue
        elif type(value) is set and all(isinstance(item, _SCALARS) for item in cast("set[object]", value)):
            kept[name] = set(cast("set[object]", value))
    return kept
