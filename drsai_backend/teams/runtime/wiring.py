"""Put a team, and the teams nested in it, on a turn runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import cast

from autogen_agentchat.agents import MessageFilterAgent
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.messages import ModelClientStreamingChunkEvent

# Private: how a team is put together. tests/teams/test_upstream.py fails when it changes.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import GroupChatTermination
from autogen_core import AgentId, AgentInstantiationContext, RoutedAgent, TopicId
from autogen_core.model_context import ChatCompletionContext

from drsai_backend.errors import TeamBuildError
from drsai_backend.teams.messages import Message, TeamMessages, message_types
from drsai_backend.teams.runtime.turn_runtime import TurnRuntime
from drsai_backend.teams.team_tree import Parts, children, is_a, nested_teams, parts, stateful_tools, task_runner

OutputSink = Callable[[Message], None]


class OutputQueue(asyncio.Queue[Message | GroupChatTermination]):
    """A team's output queue that hands every message to a sink in the order of emission.

    Only the end of the run is queued, so that `run_stream`, which makes a task for each item it waits for, wakes once
    per run instead of once per streamed chunk.
    """

    def __init__(self, sink: OutputSink) -> None:
        super().__init__()
        self._sink = sink

    async def put(self, item: Message | GroupChatTermination) -> None:
        self.put_nowait(item)

    def put_nowait(self, item: Message | GroupChatTermination) -> None:
        if isinstance(item, GroupChatTermination):
            super().put_nowait(item)
        else:
            self._sink(item)


_discover_handlers: Callable[[type[RoutedAgent]], Iterable[object]] = RoutedAgent._discover_handlers.__func__


@lru_cache(maxsize=512)
def _handlers_of(cls: type[RoutedAgent]) -> Iterable[object]:
    return tuple(_discover_handlers(cls))


# AutoGen looks through all names of a class for every instance that it makes: containers and managers, for every run.
setattr(RoutedAgent, "_discover_handlers", classmethod(_handlers_of))  # noqa: B010 - a method of another class


class _Container(ChatAgentContainer):
    """Shows pieces of an answer without a message of the runtime for each."""

    async def _log_message(self, message: Message) -> None:
        runtime = cast(TurnRuntime, self._runtime)
        if type(message) is not ModelClientStreamingChunkEvent or not runtime.show_piece(message, self.id.key):
            await super()._log_message(message)


async def wire(
    team: BaseGroupChat, runtime: TurnRuntime, sink: OutputSink | None = None, known: Parts | None = None
) -> None:
    """Put a team that has not run yet on `runtime`. With `sink`, its messages go there instead of to `run_stream`.
    `known`: its parts, if they are known already.

    Raises:
        TeamBuildError: the team, or one inside it, has run before, or a participant has its manager's name.
    """
    known = parts(team) if known is None else known
    teams = nested_teams(known)
    if any(each._initialized or each._is_running for each in teams):
        raise TeamBuildError("a team factory must build a fresh team for every run, inner teams included", param="team")
    runtime.outermost = team._team_id
    if sink is not None:
        team._output_message_queue = OutputQueue(sink)
    share_message_types(known, teams)
    for each in teams:
        if each._group_chat_manager_topic_type in each._participant_topic_types:
            raise TeamBuildError(f"no participant may be called {each._group_chat_manager_name!r}", param="team")
        for part in _keepers_of_state(each):
            # Another run would see, and change, what this one's people say.
            if vars(part).setdefault("_drsai_run", runtime.mark) is not runtime.mark:
                raise TeamBuildError(
                    f"a team factory must build everything afresh for every run, this {type(part).__name__} included",
                    param="team",
                )
        each._runtime = runtime
        each._embedded_runtime = False
        if type(each)._init is BaseGroupChat._init:
            _place_members(each, runtime)
        else:
            await each._init(runtime)
            for topic_type in (*each._participant_topic_types, each._group_chat_manager_topic_type):
                await runtime.instance(AgentId(topic_type, each._team_id))


def share_message_types(parts: Parts, teams: Iterable[BaseGroupChat]) -> None:
    """Let all teams know the message types of all agents: what an inner one shows passes the outer ones, and AutoGen
    asks to have each named in each `custom_message_types`."""
    known = {kind.__name__: kind for _, part in parts for kind in message_types(part)}
    for each in teams:
        known |= each._message_factory._message_types
    for each in teams:
        own = each._message_factory
        takes_all = isinstance(own, TeamMessages) and own.takes_all
        each._message_factory = TeamMessages({**known, **own._message_types}, takes_all=takes_all)


def _keepers_of_state(team: BaseGroupChat) -> Iterator[object]:
    """The agents, model contexts and conditions of a team: what must not be shared between runs."""
    stack: list[object] = [team._termination_condition, *team._participants]
    while stack:
        part = stack.pop()
        if part is None or is_a(part, BaseGroupChat):
            continue
        yield part
        if isinstance(part, TerminationCondition):
            stack += children(part)
        elif is_a(part, MessageFilterAgent):
            stack.append(part._wrapped_agent)
        else:
            stack += [task_runner(tool) for _, tool in stateful_tools(part)]
            context = getattr(part, "_model_context", None)
            if isinstance(context, ChatCompletionContext):
                yield context


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
            container = _Container(*names) if own_containers else team._create_participant_factory(*names)()
        runtime.place(agent_id, container)
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
    runtime.place(manager_id, manager)
    runtime.route(TopicId(team._group_chat_manager_topic_type, key), [manager_id])
    runtime.route(TopicId(team._output_topic_type, key), [manager_id])
    runtime.route(TopicId(team._group_topic_type, key), [*members, manager_id])
    team._initialized = True


def manager_of(team: BaseGroupChat) -> BaseGroupChatManager:
    """The manager of a wired team."""
    manager = runtime_of(team).lane(team._team_id).manager
    assert manager is not None
    return manager


def container_of(team: BaseGroupChat, position: int) -> ChatAgentContainer:
    """The container of the participant at that position of a wired team."""
    agent = runtime_of(team)._agents[AgentId(team._participant_topic_types[position], team._team_id)]
    assert is_a(agent, ChatAgentContainer)
    return agent


def runtime_of(team: BaseGroupChat) -> TurnRuntime:
    """The runtime of a wired team."""
    runtime = team._runtime
    assert isinstance(runtime, TurnRuntime)
    return runtime
