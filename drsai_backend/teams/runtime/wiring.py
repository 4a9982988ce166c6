"""Wiring puts a team, and the teams nested in it, on a turn runtime."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Final, cast

from autogen_agentchat.agents import AssistantAgent, _base_chat_agent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, StructuredMessage

# Private: how a team is put together. tests/teams/test_upstream.py fails when it changes.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.teams._group_chat import _chat_agent_container
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import GroupChatTermination
from autogen_core import Agent, AgentId, AgentInstantiationContext, RoutedAgent
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

from drsai_backend.errors import TeamBuildError
from drsai_backend.models import run_client_of
from drsai_backend.teams.messages import Message, TeamMessages
from drsai_backend.teams.runtime.turn_runtime import OutputSink, TurnRuntime
from drsai_backend.teams.team_tree import TeamTree, is_a, tree_of


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


def _where_seen(span: Callable[..., AbstractContextManager[object]]) -> Callable[..., AbstractContextManager[object]]:
    def made(*args: object, **options: object) -> AbstractContextManager[object]:
        unseen = isinstance(get_tracer_provider(), ProxyTracerProvider)
        return nullcontext() if unseen else span(*args, **options)

    return made


# Spans of AutoGen's take a tenth of a run also where nobody has set OpenTelemetry up.
for module, name in ((_base_chat_agent, "trace_create_agent_span"), (_chat_agent_container, "trace_invoke_agent_span")):
    setattr(module, name, _where_seen(getattr(module, name)))


_HANDING_ON: Final = ("on_messages_stream", "_call_llm", "_process_model_result", "_reflect_on_tool_use_flow")
"""Methods of AutoGen's agent that an answer's pieces go through."""


class _Container(ChatAgentContainer):
    """Shows pieces of an answer without a message of the runtime for each; those after its beginning without the agent,
    where that would hand each on as it is."""

    _runtime: TurnRuntime  # pyright: ignore[reportIncompatibleVariableOverride]

    async def _log_message(self, message: Message) -> None:
        if type(message) is not ModelClientStreamingChunkEvent or not self._runtime.show_piece(message, self.id.key):
            await super()._log_message(message)
        elif not message.content:
            self._pass_by(message)

    def _pass_by(self, begun: ModelClientStreamingChunkEvent) -> None:
        """An answer begins: let its model's client show what follows."""
        agent = self._agent
        if is_a(agent, AssistantAgent) and _hands_on(type(agent)) and vars(agent).keys().isdisjoint(_HANDING_ON):
            client = run_client_of(agent._model_client)
            if client is not None:
                client.show = self._runtime.shows_text(begun, self.id.key)


@lru_cache(maxsize=2048)  # bounded, as a factory may make a class of its own for every run
def _hands_on(cls: type[AssistantAgent]) -> bool:
    """Whether agents of a class hand the pieces of their model's answers on as AutoGen's do."""
    return all(
        inspect.getattr_static(cls, name) is inspect.getattr_static(AssistantAgent, name) for name in _HANDING_ON
    )


async def wire(
    team: BaseGroupChat, runtime: TurnRuntime, sink: OutputSink | None = None, known: TeamTree | None = None
) -> None:
    """Put a team that has not run yet on `runtime`. With `sink`, its messages go there instead of to `run_stream`.
    `known`: what it is made of, if that is known already.

    Raises:
        TeamBuildError: the team, or one inside it, has run before, or a participant has its manager's name.
    """
    runtime.tree = tree = tree_of(team) if known is None else known
    for each in tree.teams:
        if each._initialized or each._is_running:
            text = "a team factory must build a fresh team for every run, inner teams included"
            raise TeamBuildError(text, param="team")
        if each._group_chat_manager_topic_type in each._participant_topic_types:
            raise TeamBuildError(f"no participant may be called {each._group_chat_manager_name!r}", param="team")
    runtime.outermost = team._team_id
    runtime.sink = sink
    if sink is not None:
        team._output_message_queue = OutputQueue(sink)
    share_message_types(tree)
    for part in tree.unshared:
        # Another run would see, and change, what this one's people say.
        if vars(part).setdefault("_drsai_run", runtime.mark) is not runtime.mark:
            raise TeamBuildError(
                f"a team factory must build everything afresh for every run, this {type(part).__name__} included",
                param="team",
            )
    for each in tree.teams:
        each._runtime = runtime
        each._embedded_runtime = False
        if type(each)._init is BaseGroupChat._init:
            _place_members(each, runtime)
        else:
            await each._init(runtime)
            for topic_type in (*each._participant_topic_types, each._group_chat_manager_topic_type):
                await runtime.instance(AgentId(topic_type, each._team_id))


def share_message_types(tree: TeamTree) -> None:
    """Let all teams know the message types that all agents say they show: what an inner one shows passes the outer
    ones, and AutoGen asks to have each named in each `custom_message_types`."""
    known: dict[str, type[Message]] = {}
    for part in tree.parts.values():
        # AssistantAgent names the bare StructuredMessage; its own is that of its factory.
        for kind in getattr(part, "produced_message_types", ()):
            if isinstance(kind, type) and kind is not StructuredMessage:
                known[kind.__name__] = cast("type[Message]", kind)
        if (structured := getattr(part, "_structured_message_factory", None)) is not None:
            known[structured.StructuredMessage.__name__] = structured.StructuredMessage
    for each in tree.teams:
        known |= each._message_factory._message_types
    for each in tree.teams:
        own = each._message_factory
        takes_all = isinstance(own, TeamMessages) and own.takes_all
        each._message_factory = TeamMessages({**known, **own._message_types}, takes_all=takes_all)


def _place_members(team: BaseGroupChat, runtime: TurnRuntime) -> None:
    """Do what `BaseGroupChat._init` does by registering types and subscriptions, done with the objects themselves: that
    registration inspects every handler's type hints again and takes longer than a turn."""
    key = team._team_id
    own_containers = type(team)._create_participant_factory is BaseGroupChat._create_participant_factory
    members: dict[AgentId, Agent] = {}
    routes: dict[tuple[str, str], list[AgentId]] = {}
    for participant, topic_type in zip(team._participants, team._participant_topic_types, strict=True):
        agent_id = AgentId(topic_type, key)
        with AgentInstantiationContext.populate_context((runtime, agent_id)):
            names = (team._group_topic_type, team._output_topic_type, participant, team._message_factory)
            members[agent_id] = _Container(*names) if own_containers else team._create_participant_factory(*names)()
        routes[topic_type, key] = [agent_id]
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
    routes[team._group_chat_manager_topic_type, key] = routes[team._output_topic_type, key] = [manager_id]
    routes[team._group_topic_type, key] = [*members, manager_id]
    runtime.seat(members, routes)
    runtime.place(manager_id, manager)
    team._initialized = True


def manager_of(team: BaseGroupChat) -> BaseGroupChatManager:
    """The manager of a wired team."""
    manager = runtime_of(team)._lanes[team._team_id].manager
    assert manager is not None
    return manager


def container_of(team: BaseGroupChat, position: int) -> ChatAgentContainer:
    """The container of the participant at that position of a wired team."""
    agent = runtime_of(team)._agents[AgentId(team._participant_topic_types[position], team._team_id)]
    return cast(ChatAgentContainer, agent)


def runtime_of(team: BaseGroupChat) -> TurnRuntime:
    """The runtime of a wired team."""
    return cast(TurnRuntime, team._runtime)
