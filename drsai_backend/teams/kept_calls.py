"""The tool calls of a turn that came to no end are kept: as AutoGen's events in the thread, and in the model context of
the agent that made them. Else the next message would have them made again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

# Private: where an agent has its model context, and what it was sent and has not taken up.
# pyright: reportPrivateUsage=false
from autogen_agentchat.agents import AssistantAgent, MessageFilterAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_core import FunctionCall
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
)
from autogen_core.tools import ToolResult

from drsai_backend.json_types import JsonObject
from drsai_backend.teams.replay.steps import ASKED, RETURNED, read_value
from drsai_backend.teams.runtime.wiring import container_of
from drsai_backend.teams.team_tree import Parts, is_a, nested_teams, parts

Event = BaseAgentEvent | BaseChatMessage
_KEY: Final = "drsai.kept"
_ANSWER: Final = re.compile(r"m(\d+)")
_LOST: Final = "The run ended before this call came to its end: it may have happened."
_NOT_MADE: Final = "The call was not made: the run ended while it waited to be approved."


class Recorded(Protocol):
    """A recorded step; see `replay.steps.Step`."""

    @property
    def agent(self) -> str: ...
    @property
    def step(self) -> str: ...
    @property
    def value(self) -> JsonObject: ...


def kept_calls(steps: Iterable[Recorded], said: Sequence[str] = ()) -> list[BaseAgentEvent]:
    """The calls that a turn's steps tell of, and what came of them, as the events that the turn would have ended with.
    Their metadata says `drsai.kept`: the path of the agent. `said`: texts that are kept already; what a model has said
    beside its calls is left out where it is in them."""
    values = {(each.agent, each.step): each.value for each in steps}
    numbered = [(agent, int(found[1])) for agent, step in values if (found := _ANSWER.fullmatch(step))]
    events: list[BaseAgentEvent] = []
    for agent, number in sorted(numbered):
        answer = CreateResult.model_validate(read_value(values[agent, f"m{number}"]))
        if isinstance(answer.content, str):
            continue
        source, metadata = agent.rpartition("/")[2], {_KEY: agent}
        if answer.thought and not any(answer.thought in text for text in said):
            events.append(ThoughtEvent(content=answer.thought, source=source, metadata=metadata))
        results = [_result(values, agent, f"m{number}:t{call.id}", call) for call in answer.content]
        used = answer.usage
        events += [
            ToolCallRequestEvent(content=answer.content, source=source, models_usage=used, metadata=metadata),
            ToolCallExecutionEvent(content=results, source=source, metadata=metadata),
        ]
    return events


def _result(
    values: dict[tuple[str, str], JsonObject], agent: str, step: str, call: FunctionCall
) -> FunctionExecutionResult:
    value = values.get((agent, step)) or values.get((agent, step + RETURNED))
    if value is not None:
        result = ToolResult.model_validate(read_value(value)["result"])
        text, is_error = result.to_text(), result.is_error
    else:
        waited = (agent, step + ASKED) in values and (agent, f"{step}!1") not in values
        text, is_error = _NOT_MADE if waited else _LOST, True
    return FunctionExecutionResult(content=text, name=call.name, call_id=call.id, is_error=is_error)


def is_kept(message: Event) -> bool:
    """Whether a message is an event of `kept_calls`."""
    return _KEY in message.metadata


async def restore_calls(team: BaseGroupChat, events: Sequence[Event]) -> None:
    """Put kept events into the model contexts of the agents that made the calls, behind what these agents were sent
    before. An agent without a context, or one that is gone, hears nothing of them."""
    members = parts(team)
    by_path = dict(members)
    places = _places(members)
    thought: str | None = None
    for event in events:
        agent = by_path.get(event.metadata[_KEY])
        context = getattr(agent, "_model_context", None)
        if not isinstance(context, ChatCompletionContext):
            continue
        if isinstance(event, ThoughtEvent):
            thought = event.content
        elif isinstance(event, ToolCallRequestEvent):
            if id(agent) in places:
                await _take_up(*places[id(agent)], context)
            said = AssistantMessage(content=event.content, thought=thought, source=event.source)
            await context.add_message(said)
            thought = None
        elif isinstance(event, ToolCallExecutionEvent):
            await context.add_message(FunctionExecutionResultMessage(content=event.content))


def _places(members: Parts) -> dict[int, tuple[ChatAgentContainer, ChatAgent]]:
    """By the identity of an agent, wrapped ones too: what holds the messages that it has not taken up, and the
    participant that it is, or is wrapped in."""
    places: dict[int, tuple[ChatAgentContainer, ChatAgent]] = {}
    for team in nested_teams(members):
        for position, participant in enumerate(team._participants if team._initialized else ()):
            agent: object = participant
            if is_a(participant, BaseGroupChat):
                continue
            while is_a(agent, MessageFilterAgent):
                agent = agent._wrapped_agent
            places[id(agent)] = container_of(team, position), participant
    return places


async def _take_up(container: ChatAgentContainer, agent: ChatAgent, context: ChatCompletionContext) -> None:
    sent = [*container._message_buffer]
    container._message_buffer.clear()
    while is_a(agent, MessageFilterAgent):
        sent = [*agent._apply_filter(sent)]
        agent = agent._wrapped_agent
    await AssistantAgent._add_messages_to_context(context, sent)
