"""Put a team, and the teams nested in it, on a turn runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from autogen_agentchat.agents import MessageFilterAgent, SocietyOfMindAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

# Private: how a team is put together. tests/teams/test_upstream.py fails when it changes.
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import GroupChatTermination
from autogen_core import Agent, AgentId, AgentInstantiationContext, TopicId

from drsai_backend.errors import TeamBuildError
from drsai_backend.teams._runtime import TurnRuntime

OutputSink = Callable[[BaseAgentEvent | BaseChatMessage], None]


class OutputQueue(asyncio.Queue[BaseAgentEvent | BaseChatMessage | GroupChatTermination]):
    """A team's output queue that hands every message to a sink in the order of emission.

    Only the end of the run is queued, so that `run_stream`, which makes a task for each item it waits for, wakes once
    per run instead of once per streamed chunk.
    """

    def __init__(self, sink: OutputSink) -> None:
        super().__init__()
        self._sink = sink

    async def put(self, item: BaseAgentEvent | BaseChatMessage | GroupChatTermination) -> None:
        self.put_nowait(item)

    def put_nowait(self, item: BaseAgentEvent | BaseChatMessage | GroupChatTermination) -> None:
        if isinstance(item, GroupChatTermination):
            super().put_nowait(item)
        else:
            self._sink(item)


@cache
def _container_handlers() -> tuple[Any, ...]:
    return tuple(ChatAgentContainer._discover_handlers())


class TurnContainer(ChatAgentContainer):
    """AutoGen's participant container, which looks its handlers up once per process instead of once per instance."""

    @classmethod
    def _discover_handlers(cls) -> Any:
        return _container_handlers()


def as_team(served: Any) -> BaseGroupChat:
    """The group chat that runs what a team factory returned; a lone agent becomes a chat of one with one turn.

    Raises:
        TeamBuildError: neither an agent nor a group chat.
    """
    if isinstance(served, BaseGroupChat):
        return served
    if isinstance(served, ChatAgent):
        return RoundRobinGroupChat([served], name=f"{served.name}_chat", max_turns=1)
    raise TeamBuildError(
        f"a team factory must return an AutoGen ChatAgent or BaseGroupChat, not {type(served).__name__}", param="team"
    )


def inner_team(participant: Any) -> BaseGroupChat | None:
    """The group chat that a participant is, or holds."""
    if isinstance(participant, MessageFilterAgent):
        return inner_team(participant._wrapped_agent)
    if isinstance(participant, SocietyOfMindAgent):
        participant = participant._team
    return participant if isinstance(participant, BaseGroupChat) else None


def nested_teams(team: BaseGroupChat) -> Iterator[BaseGroupChat]:
    """The team and all teams inside it, outermost first, depth first."""
    yield team
    for participant in team._participants:
        inner = inner_team(participant)
        if inner is not None:
            yield from nested_teams(inner)


def leaf_agents(team: BaseGroupChat) -> Iterator[ChatAgent | Team]:
    """Every agent of the team and of the teams inside it, wrapped ones included."""
    for participant in team._participants:
        agent: Any = participant
        while agent is not None:
            if not isinstance(agent, BaseGroupChat):
                yield agent
            agent = agent._wrapped_agent if isinstance(agent, MessageFilterAgent) else None
        inner = inner_team(participant)
        if inner is not None:
            yield from leaf_agents(inner)


async def wire(team: BaseGroupChat, runtime: TurnRuntime, sink: OutputSink | None = None) -> None:
    """Put a team that has not run yet on `runtime`. With `sink`, its messages go there instead of to `run_stream`.

    Raises:
        TeamBuildError: the team has run before, on another runtime.
    """
    if team._initialized or team._is_running:
        raise TeamBuildError("a team factory must build a fresh team for every run", param="team")
    runtime.outermost = team._team_id
    if sink is not None:
        team._output_message_queue = OutputQueue(sink)
    for each in nested_teams(team):
        each._runtime = runtime
        each._embedded_runtime = False
        if type(each)._init is BaseGroupChat._init:
            _place_members(each, runtime)
        else:
            await each._init(runtime)
            for topic_type in (*each._participant_topic_types, each._group_chat_manager_topic_type):
                await runtime.instance(AgentId(topic_type, each._team_id))


def _place_members(team: BaseGroupChat, runtime: TurnRuntime) -> None:
    """What `BaseGroupChat._init` does by registering types and subscriptions, done with the objects themselves: that
    registration inspects every handler's type hints again and takes longer than a turn."""
    key = team._team_id
    own_containers = type(team)._create_participant_factory is BaseGroupChat._create_participant_factory
    members: list[AgentId] = []
    for participant, topic_type in zip(team._participants, team._participant_topic_types, strict=True):
        agent_id = AgentId(topic_type, key)
        with AgentInstantiationContext.populate_context((runtime, agent_id)):
            names = (team._group_topic_type, team._output_topic_type, participant, team._message_factory)
            container = TurnContainer(*names) if own_containers else team._create_participant_factory(*names)()
        _place(runtime, agent_id, container)
        members.append(agent_id)
        runtime.route(TopicId(topic_type, key), [agent_id])
    manager_id = AgentId(team._group_chat_manager_topic_type, key)
    with AgentInstantiationContext.populate_context((runtime, manager_id)):
        manager = team._create_group_chat_manager_factory(
            name=team._group_chat_manager_name,
            group_topic_type=team._group_topic_type,
            output_topic_type=team._output_topic_type,
            participant_topic_types=team._participant_topic_types,
            participant_names=team._participant_names,
            participant_descriptions=team._participant_descriptions,
            output_message_queue=team._output_message_queue,
            termination_condition=team._termination_condition,
            max_turns=team._max_turns,
            message_factory=team._message_factory,
        )()
    _place(runtime, manager_id, manager)
    runtime.route(TopicId(team._group_chat_manager_topic_type, key), [manager_id])
    runtime.route(TopicId(team._output_topic_type, key), [manager_id])
    runtime.route(TopicId(team._group_topic_type, key), [*members, manager_id])
    team._initialized = True


def _place(runtime: TurnRuntime, agent_id: AgentId, agent: Agent) -> None:
    runtime.place(agent_id, agent)


def manager_of(team: BaseGroupChat) -> BaseGroupChatManager:
    """The manager of a wired team."""
    runtime = team._runtime
    assert isinstance(runtime, TurnRuntime)
    manager = runtime.lane(team._team_id).manager
    assert manager is not None
    return manager


def container_of(team: BaseGroupChat, position: int) -> ChatAgentContainer:
    """The container of the participant at that position of a wired team."""
    runtime = team._runtime
    assert isinstance(runtime, TurnRuntime)
    agent = runtime._agents[AgentId(team._participant_topic_types[position], team._team_id)]
    assert isinstance(agent, ChatAgentContainer)
    return agent
