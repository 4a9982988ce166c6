"""Kept calls are the tool calls of a turn that came to no end: they are AutoGen's events in the thread, and stand in
the model context of the agent that made them. The others hear of them. Else the next message would have them made
again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import FunctionCall
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
)
from autogen_core.tools import ToolResult

from drsai_backend.database.runs.values import StepRow
from drsai_backend.datamodel.base import JsonText
from drsai_backend.datamodel.file import files_of, to_note
from drsai_backend.datamodel.run import KEPT
from drsai_backend.json_types import JsonObject
from drsai_backend.models.answer import ReasonedResult
from drsai_backend.state.codec import dump_json
from drsai_backend.teams.imported import import_messages
from drsai_backend.teams.messages import REASONING, Message, thought_beside
from drsai_backend.teams.replay.steps import ASKED, CHOSEN, RETURNED, call_step, read_value
from drsai_backend.teams.team_tree import tree_of

NOBODY: Final = "drsai"
"""Who says in a thread what no agent and no user does."""
_KEY: Final = "drsai.kept"
_ANSWER: Final = re.compile(r"m(\d+)")
_LOST: Final = "The run ended before this call came to its end: it may have happened."
_TOLD: Final = "In a turn that came to no end, these calls of tools were made, and are not undone:"
_NOT_MADE: Final = "The call was not made: the run ended while it waited to be approved."


def kept_calls(steps: Iterable[StepRow], said: Sequence[str] = ()) -> list[BaseAgentEvent]:
    """The calls that a turn's steps tell of, and what came of them, as the events that the turn would have ended with,
    without those that are kept already. Their metadata says `drsai.kept`: the path of the agent. `said`: texts that are
    kept already; what a model has said beside its calls is left out where it is in them."""
    values = {(each.agent, each.step): each.value for each in steps}
    numbered = [(agent, int(found[1])) for agent, step in values if (found := _ANSWER.fullmatch(step))]
    events: list[BaseAgentEvent] = []
    for agent, number in sorted(numbered):
        value = read_value(values[agent, f"m{number}"])
        answer = ReasonedResult.model_validate(value)
        if isinstance(answer.content, str) or CHOSEN in value or (agent, f"m{number}{KEPT}") in values:
            continue
        source, metadata = agent.rpartition("/")[2], {_KEY: agent}
        if answer.reasoning:
            events.append(thought_beside(source, answer.reasoning, metadata))
        if answer.thought and not any(answer.thought in text for text in said):
            events.append(ThoughtEvent(content=answer.thought, source=source, metadata=metadata))
        results = [_result(values, agent, call_step(f"m{number}", call.id), call) for call in answer.content]
        asked = ToolCallRequestEvent(
            content=answer.content, source=source, models_usage=answer.usage, metadata=metadata
        )
        returned = (values.get((agent, call_step(f"m{number}", call.id)), {}) for call in answer.content)
        if files := [file for each in returned for file in files_of(read_value(each))]:
            metadata = {**metadata, **to_note(files)}
        events += [asked, ToolCallExecutionEvent(content=results, source=source, metadata=metadata)]
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


def is_kept(message: Message) -> bool:
    """Whether a message is an event of `kept_calls`, or `taken_back`."""
    return _KEY in message.metadata


def taken_back(configs: Iterable[JsonObject]) -> list[JsonText]:
    """Return, of the dumps of a run's messages, those of tool calls and their results, as kept events of no agent: all
    hear of them."""
    kinds = (ToolCallRequestEvent.__name__, ToolCallExecutionEvent.__name__)
    calls = ({**each, "metadata": {**each["metadata"], _KEY: ""}} for each in configs if each["type"] in kinds)
    return [JsonText(dump_json(each).decode()) for each in calls]


async def restore_calls(team: BaseGroupChat, events: Iterable[Message]) -> list[BaseChatMessage]:
    """Let a wired team know kept events: the agent that made the calls has them in its model context, as AutoGen would
    have it, and whoever else may be asked next hears what was done. Returns as `import_messages`."""
    agents, left = tree_of(team).parts, list[BaseChatMessage]()
    for path, of_agent in groupby(events, lambda event: event.metadata[_KEY]):
        known, told, calls, thought = list[LLMMessage](), [_TOLD], dict[str, FunctionCall](), None
        for event in of_agent:
            if isinstance(event, ThoughtEvent):
                thought = thought if REASONING in event.metadata else event.content
            elif isinstance(event, ToolCallRequestEvent):
                known.append(AssistantMessage(content=event.content, thought=thought, source=event.source))
                calls |= {call.id: call for call in event.content}
                thought = None
            elif isinstance(event, ToolCallExecutionEvent):
                known.append(FunctionExecutionResultMessage(content=event.content))
                asked = ((calls[each.call_id].arguments, each) for each in event.content if each.call_id in calls)
                told += [f"{each.name}({arguments}): {each.content}" for arguments, each in asked]
        agent = agents.get(path)
        own = {id(agent): known}
        source = path.rpartition("/")[2] or NOBODY
        note = TextMessage(content="\n".join(told), source=source, metadata={_KEY: path})
        left += await import_messages(team, [note], own)
        context = getattr(agent, "_model_context", None)
        # An agent that is a tool is no participant.
        for message in own.get(id(agent), ()):
            if isinstance(context, ChatCompletionContext):
                await context.add_message(message)
    return left


def calls_in(context: Iterable[LLMMessage]) -> list[LLMMessage]:
    """Return, of the messages of a model context, calls of tools with their results, and what is told of those of
    others."""

    def tells(message: LLMMessage) -> bool:
        if isinstance(message, AssistantMessage):
            return not isinstance(message.content, str)
        return isinstance(message, FunctionExecutionResultMessage) or str(message.content).startswith(_TOLD)

    return [each for each in context if tells(each)]
