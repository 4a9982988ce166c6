"""What we rely on in the private parts of AutoGen 0.7.5. A failure here says what has changed and who depends on it.

Of agents and their tools: `test_upstream_agents`.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections import deque
from importlib.metadata import version
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import AndTerminationCondition, OrTerminationCondition
from autogen_agentchat.conditions import MaxMessageTermination, TimeoutTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import BaseGroupChat, MagenticOneGroupChat, RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.teams._group_chat import _events
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._graph._digraph_group_chat import GraphFlowManager
from autogen_agentchat.teams._group_chat._sequential_routed_agent import SequentialRoutedAgent
from autogen_core import AgentRuntime, CancellationToken, ComponentFromConfig

from drsai_backend.teams.recording.structure import MANAGERS, survey
from drsai_backend.teams.runtime import wiring
from drsai_backend.teams.runtime.turn_runtime import TurnRuntime
from drsai_backend.teams.runtime.wiring import container_of, manager_of, wire
from tests.support.teams.scenarios import SCENARIOS, Scenario, round_robin

TEAMS = [scenario for scenario in SCENARIOS if scenario.name != "odd_texts"]


async def wired(build: Any) -> BaseGroupChat:
    team = build(False)
    await wire(team, TurnRuntime())
    return team


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_version_is_the_one_that_was_looked_at() -> None:
    for package in ("autogen-agentchat", "autogen-core"):
        assert version(package) == "0.7.5", f"{package} has changed: read that, then all tests here and of agents"


def test_a_component_says_whether_it_reads_older_configs() -> None:
    """`teams.context.problems` compares this method with AutoGen's own."""
    assert parameters(ComponentFromConfig._from_config_past_version) == ["config", "version"]
    assert (AssistantAgent.component_version, RoundRobinGroupChat.component_version) == (2, 1)


@pytest.mark.parametrize("scenario", TEAMS, ids=lambda scenario: scenario.name)
async def test_the_structure_covers_save_state(scenario: Scenario) -> None:
    """Every key that a fresh team saves has a place in the structure, and nothing has a place that is not saved."""
    team = await wired(scenario.build)
    structure = survey(team)
    saved = await team.save_state()
    covered = {"/".join(cell.path[1:]) for cell in structure.cells if cell.path[0] == "state"}

    def compare(saved: Any, skeleton: Any, path: tuple[str, ...]) -> None:
        if "/".join(path) in covered:
            return
        assert isinstance(saved, dict), f"nothing covers {path}"
        assert isinstance(skeleton, dict), f"nothing covers {path}"
        here = {name.split("/")[len(path)] for name in covered if name.startswith("/".join((*path, "")))}
        assert set(saved) == set(skeleton) | here, f"save_state() has other keys than our structure at {path}"
        for key, value in saved.items():
            if isinstance(value, dict) or key not in skeleton:
                compare(value, skeleton.get(key, {}), (*path, key))
            elif "/".join((*path, key)) not in covered:
                assert skeleton[key] == value, f"the constant {key} at {path} has another value"

    compare(saved, structure.skeleton["state"], ())


@pytest.mark.parametrize("manager", MANAGERS, ids=lambda manager: manager.__name__)
async def test_every_managers_saved_keys(manager: type[BaseGroupChatManager]) -> None:
    """AutoGen's managers save what `structure` says they save, from the attributes that it says."""
    found = [
        team
        for team in [await wired(scenario.build) for scenario in TEAMS]
        if type(manager_of(team)).save_state is manager.save_state
    ]
    assert found, f"no scenario has a {manager.__name__}"
    live = manager_of(found[0])
    saved = await live.save_state()
    fields = MANAGERS[manager].fields
    named = {"message_thread": "_message_thread"} | {key: field.attribute for key, field in fields.items()}
    constants = {"type", "version"} & set(saved)
    assert set(saved) == set(named) | constants, f"{manager.__name__}.save_state() has other keys now"
    for key, attribute in named.items():
        value = getattr(live, attribute)
        if isinstance(value, deque):
            value = list(value)
        assert saved[key] == value, f"{manager.__name__}.{attribute} is not what is saved as {key}"


def test_every_manager_is_known() -> None:
    """A new team class of AutoGen's gets its cells, or is at least looked at."""

    def below(cls: type) -> set[type]:
        return {sub for each in cls.__subclasses__() for sub in (each, *below(each))}

    stock = {cls for cls in below(BaseGroupChatManager) if cls.__module__.startswith("autogen_agentchat")}
    assert stock == set(MANAGERS)


async def test_the_managers_attributes() -> None:
    manager = manager_of(await wired(round_robin))
    expected: dict[str, type | tuple[type, ...]] = {
        "_name": str,
        "_group_topic_type": str,
        "_output_topic_type": str,
        "_participant_names": list,
        "_participant_name_to_topic_type": dict,
        "_message_thread": list,
        "_active_speakers": list,
        "_current_turn": int,
        "_output_message_queue": object,
        "_termination_condition": object,
        "_message_factory": object,
    }
    for name, kind in expected.items():
        assert isinstance(vars(manager)[name], kind), f"BaseGroupChatManager.{name} has changed: turn_runtime.py"
    for name in ("handle_start", "handle_agent_response", "handle_group_chat_message", "handle_group_chat_error"):
        assert hasattr(BaseGroupChatManager, name), f"BaseGroupChatManager.{name} is gone: turn_runtime.py"


async def test_the_containers_attributes() -> None:
    team = await wired(round_robin)
    container = container_of(team, 0)
    assert isinstance(container, SequentialRoutedAgent)
    assert vars(container)["_message_buffer"] == [], "ChatAgentContainer._message_buffer: teams/_structure.py"
    assert set(await container.save_state()) == {"type", "version", "agent_state", "message_buffer"}
    assert parameters(ChatAgentContainer.__init__) == [
        "parent_topic_type",
        "output_topic_type",
        "agent",
        "message_factory",
    ], "ChatAgentContainer is made with other arguments: teams/_wiring.py"
    buffer = container._message_buffer
    buffer.append(TextMessage(content="x", source="user"))
    await manager_of(team)._runtime.send_message(_events.GroupChatReset(), container.id)
    assert container._message_buffer is buffer, "the buffer is cleared in place: teams/_cells.py relies on it"


def test_the_teams_attributes() -> None:
    team = round_robin(False)
    for name in (
        "_participants",
        "_participant_names",
        "_participant_topic_types",
        "_participant_descriptions",
        "_group_topic_type",
        "_group_chat_manager_topic_type",
        "_group_chat_manager_name",
        "_output_topic_type",
        "_output_message_queue",
        "_message_factory",
        "_termination_condition",
        "_max_turns",
        "_team_id",
        "_runtime",
        "_embedded_runtime",
        "_initialized",
        "_is_running",
    ):
        assert name in vars(team), f"BaseGroupChat.{name} is gone: teams/_wiring.py"
    assert parameters(BaseGroupChat._create_group_chat_manager_factory) == [
        "name",
        "group_topic_type",
        "output_topic_type",
        "participant_topic_types",
        "participant_names",
        "participant_descriptions",
        "output_message_queue",
        "termination_condition",
        "max_turns",
        "message_factory",
    ], "managers are made with other arguments: teams/_wiring.py"
    assert parameters(BaseGroupChat._create_participant_factory) == [
        "parent_topic_type",
        "output_topic_type",
        "agent",
        "message_factory",
    ]
    assert parameters(BaseGroupChat._init) == ["runtime"]


async def test_init_does_what_the_wiring_does() -> None:
    """`_place_members` stands for `BaseGroupChat._init`: same agents under the same ids, same routes."""
    ours, theirs = round_robin(False), round_robin(False)
    theirs._team_id = ours._team_id
    for name in (
        "_group_topic_type",
        "_group_chat_manager_topic_type",
        "_participant_topic_types",
        "_output_topic_type",
    ):
        setattr(theirs, name, getattr(ours, name))
    placed, registered = TurnRuntime(), TurnRuntime()
    await wire(ours, placed)
    await theirs._init(registered)
    from autogen_core import AgentId, TopicId

    topics = [*ours._participant_topic_types, ours._group_chat_manager_topic_type]
    for topic in topics:
        stock = await registered.instance(AgentId(topic, ours._team_id))
        mine = await placed.instance(AgentId(topic, ours._team_id))
        assert isinstance(mine, type(stock)), f"BaseGroupChat._init makes a {type(stock).__name__} for {topic}"
    for topic in (*topics, ours._group_topic_type, ours._output_topic_type):
        where = TopicId(topic, ours._team_id)
        assert placed.recipients(where) == registered.recipients(where), "BaseGroupChat._init subscribes otherwise"


@pytest.mark.parametrize("cls", [ChatAgentContainer, GraphFlowManager, *MANAGERS], ids=lambda cls: cls.__name__)
def test_the_handlers_of_a_class_do_not_depend_on_the_agent(cls: Any) -> None:
    """`wiring` remembers them for each class."""
    original = inspect.getattr_static(wiring, "_discover_handlers")
    assert [inspect.unwrap(handler) for handler in cls._discover_handlers()] == [
        inspect.unwrap(handler) for handler in original(cls)
    ]
    assert cls._discover_handlers(), f"{cls.__name__} has none"
    assert "self" not in inspect.signature(original).parameters


def test_the_events() -> None:
    fields = {
        _events.GroupChatStart: {"messages", "output_task_messages"},
        _events.GroupChatAgentResponse: {"response", "name"},
        _events.GroupChatTeamResponse: {"result", "name"},
        _events.GroupChatRequestPublish: set(),
        _events.GroupChatMessage: {"message"},
        _events.GroupChatTermination: {"message", "error"},
        _events.GroupChatError: {"error"},
        _events.SerializableException: {"error_type", "error_message", "traceback"},
    }
    for event, expected in fields.items():
        assert set(event.model_fields) == expected, f"{event.__name__} has other fields: turn_runtime.py"


def test_how_errors_become_text() -> None:
    """`_echoes` reads the local `exc` of `from_exception`, and knows `str(error)` again."""
    assert inspect.getfullargspec(_events.SerializableException.from_exception).args == ["cls", "exc"]
    assert "raise RuntimeError(str(message.error))" in inspect.getsource(BaseGroupChat.run_stream)


def test_the_runtime_protocol() -> None:
    for name, member in inspect.getmembers(AgentRuntime, inspect.isfunction):
        if not name.startswith("_"):
            assert parameters(member) == parameters(getattr(TurnRuntime, name)), f"AgentRuntime.{name} has changed"


def test_the_conditions_attributes() -> None:
    one, other = MaxMessageTermination(3), MaxMessageTermination(4)
    assert list(OrTerminationCondition(one, other)._conditions) == [one, other]
    both = AndTerminationCondition(one, other)
    assert list(both._conditions) == [one, other]
    assert both._stop_messages == []
    assert vars(one)["_message_count"] == 0
    assert isinstance(vars(TimeoutTermination(3))["_start_time"], float)


def test_where_the_models_of_managers_are() -> None:
    """`runs.start.build` gives the team a client of the run before it makes its manager."""
    for cls in (SelectorGroupChat, MagenticOneGroupChat):
        source = inspect.getsource(cls._create_group_chat_manager_factory)
        assert "self._model_client" in source, f"{cls.__name__} keeps its model elsewhere"


def test_the_token_calls_back_under_its_lock() -> None:
    """`Lane.cancel` may call no method of the token; should that lock go, it may."""
    token = CancellationToken()
    held: list[bool] = []
    token.add_callback(lambda: held.append(token._lock.locked()))
    token.cancel()
    assert held == [True]


def test_what_a_graph_counts_with() -> None:
    """`_structure._graph` writes these back itself."""
    source = inspect.getsource(GraphFlowManager.load_state)
    for text in ("target: Counter(groups)", 'self._enqueued_any = state["enqueued_any"]', 'deque(state["ready"])'):
        assert text in source, f"{text!r} is gone: teams/_structure.py"
    assert "_triggered_activation_groups" not in inspect.getsource(GraphFlowManager.save_state)


_SPANS = """
import asyncio, contextlib
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult, RequestUsage
from opentelemetry import trace
from drsai_backend.teams.session import TeamSession
from tests.support.running import as_messages
from tests.support.scripted import ScriptedClient

names = []
class Mine(trace.NoOpTracer):
    @contextlib.contextmanager
    def start_as_current_span(self, name, *_, **__):
        names.append(name)
        yield trace.INVALID_SPAN
class Provider(trace.TracerProvider):
    def get_tracer(self, *_, **__):
        return Mine()
if {is_set}:
    trace.set_tracer_provider(Provider())
async def main():
    team = RoundRobinGroupChat([AssistantAgent("ann", ScriptedClient(lambda *_: "Yes."))], max_turns=1)
    session = TeamSession(team)
    await session.prepare()
    await session.run(as_messages("x"))
asyncio.run(main())
print(names)
"""


@pytest.mark.parametrize("is_set", [True, False])
def test_spans_of_agents_are_made_where_they_are_seen(is_set: bool) -> None:
    script = _SPANS.replace("{is_set}", str(is_set))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ("['create_agent ann', 'invoke_agent ann']" if is_set else "[]")
