"""An imported conversation was had elsewhere, and a client brings it along: who said what of it, and how a team gets to
know it.

Chat clients keep histories themselves, and send them whole to a thread that does not know them. They are stored as
messages of the thread, marked in their metadata, and put into the agents' model contexts as if the team had had that
conversation: an agent's own answers as `assistant`, those of others as it would have heard them. The client's system
message is no part of this: it goes with every request of every agent (`RunModelClient.with_steps`). Calls of the
client's tools are known to the agent that gets these tools, and to no other; where none gets them, all hear of them in
words.

What an agent had said of a message when its run was stopped becomes known in the same way: a chat window has shown it,
so the thread keeps it, as the answer that it was, marked as cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

from autogen_agentchat.agents import AssistantAgent, MessageFilterAgent, UserProxyAgent
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage

# Private: what a manager knows of the conversation. tests/teams/test_upstream.py fails when it changes.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._magentic_one._magentic_one_orchestrator import MagenticOneOrchestrator
from autogen_agentchat.teams._group_chat._selector_group_chat import SelectorGroupChatManager
from autogen_agentchat.teams._group_chat._swarm_group_chat import SwarmGroupChatManager
from autogen_core import FunctionCall
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
)

from drsai_backend.json_types import JsonObject
from drsai_backend.models.calls.facade import run_client_of
from drsai_backend.models.endpoints.message_rules import without_calls
from drsai_backend.teams.client_tools.workbench import has_client_tools
from drsai_backend.teams.messages import noted_in
from drsai_backend.teams.runtime.wiring import container_of, manager_of
from drsai_backend.teams.team_tree import is_a, tree_of

Role = Literal["system", "user", "assistant", "calls", "tool"]
"""`calls` is an assistant's message that calls the client's tools, `tool` holds their results."""
_KEY: Final = "drsai.imported"
_CALLS: Final = "drsai.tool_calls"
_THOUGHT: Final = "drsai.thought"
_UNFINISHED: Final = "drsai.unfinished"


def mark(role: Role) -> dict[str, str]:
    """The metadata of an imported message."""
    return {_KEY: role}


def unfinished_message(source: str, text: str, message_id: str | None) -> TextMessage:
    """The beginning of a message. Its metadata says `drsai.unfinished`: `stopped`; no agent has taken it up yet."""
    message = TextMessage(content=text, source=source, metadata={**mark("assistant"), _UNFINISHED: "stopped"})
    if message_id is not None:
        message.id = message_id
    return message


def is_unfinished(message: BaseChatMessage | BaseAgentEvent) -> bool:
    """Whether a message was cut off."""
    return _UNFINISHED in message.metadata


def called(
    team: BaseGroupChat, text: str, calls: Sequence[FunctionCall], results: Mapping[str, str], thought: str | None
) -> list[TextMessage]:
    """An earlier answer that called the client's tools, what these returned, by the ids of the calls, and what was
    thought beside the calls."""
    source = min(tree_of(team).agents, key=_unlikely).name
    asked = json.dumps([asdict(call) for call in calls])
    pairs = [{"call_id": each.id, "name": each.name, "content": results[each.id], "is_error": False} for each in calls]
    said = "\n".join(results.values())
    told = {_THOUGHT: thought} if thought else {}
    return [
        TextMessage(content=text, source=source, metadata={**mark("calls"), _CALLS: asked, **told}),
        TextMessage(content=said, source=source, metadata={**mark("tool"), _CALLS: json.dumps(pairs)}),
    ]


def kept_in(message: BaseChatMessage) -> list[Any]:
    """The calls in a message of role `calls`, or the results in one of role `tool`."""
    return json.loads(message.metadata[_CALLS])


def _as_model_messages(message: BaseChatMessage) -> LLMMessage:
    """A message of role `calls` or `tool` as the agent that gets the client's tools has it in its context."""
    kept = kept_in(message)
    if imported_role(message) == "tool":
        return FunctionExecutionResultMessage(content=[FunctionExecutionResult(**each) for each in kept])
    calls = [FunctionCall(**each) for each in kept]
    return AssistantMessage(content=calls, thought=message.to_model_text() or None, source=message.source)


def in_words(messages: Sequence[BaseChatMessage]) -> list[BaseChatMessage]:
    """The messages as a team hears them that has no agent for the client's tools: calls and results are texts."""
    return [_in_words(each) if imported_role(each) in ("calls", "tool") else each for each in messages]


def _in_words(message: BaseChatMessage) -> TextMessage:
    [told] = without_calls([_as_model_messages(message)])
    is_answer = isinstance(told, AssistantMessage)
    source, role = (message.source, "assistant") if is_answer else ("user", "user")
    return TextMessage(content=str(told.content), source=source, metadata=mark(role))


def imported_role(message: object) -> Role | None:
    """The role that an imported message had at its client; None: it was said here. Takes a message or its dump."""
    metadata: dict[str, Role] | None = noted_in(message)
    return metadata[_KEY] if metadata and _KEY in metadata else None


def imported_among(configs: Iterable[JsonObject]) -> list[tuple[Role, JsonObject]]:
    """The dumps of imported messages, each with its role. Of thousands mostly none is one."""
    noted = [each for each in configs if each.get("metadata")]
    return [(role, each) for each in noted if (role := imported_role(each)) is not None]


def imported_results(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what the client's tools have returned, of the dump of an imported message: by the ids of the calls."""
    kept = json.loads(config["metadata"][_CALLS]) if imported_role(config) == "tool" else ()
    return {each["call_id"]: each["content"] for each in kept}


def imported_calls(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The names and arguments of the calls of the client's tools in the dump of an imported answer."""
    kept = json.loads(config["metadata"][_CALLS]) if imported_role(config) == "calls" else ()
    return [(each["name"], each["arguments"]) for each in kept]


def answers(team: BaseGroupChat, text: str) -> list[TextMessage]:
    """An earlier answer as messages of the participants that gave it.

    In a group chat its headings (`**writer**`, see `api.openai.speech`) say who; what has none is the first agent's.
    """
    tree = tree_of(team)
    agents = tree.agents
    first = min(agents, key=_unlikely).name
    found = [(first, text)]
    if len(agents) > 1:
        names = {each.name for each in agents} | {each._group_chat_manager_name for each in tree.teams}
        heading = r"(?:\A|(?<=\n\n))\*\*({})\*\*[ \t]*(?:\n+|\Z)".format("|".join(map(re.escape, sorted(names))))
        before, *rest = re.split(heading, text.replace("\r\n", "\n"))
        found = [(first, before), *zip(rest[::2], rest[1::2], strict=True)]
        found = [(source, said.strip()) for source, said in found]
    return [TextMessage(content=said, source=source, metadata=mark("assistant")) for source, said in found if said]


def _unlikely(agent: object) -> int:
    """Return how unlikely it is that an agent gave an answer of which nothing is known."""
    if is_a(agent, UserProxyAgent) or getattr(agent, "only_thinks", False):
        return 2
    return 0 if _client_of(agent) is not None else 1


async def import_messages(
    team: BaseGroupChat, messages: Sequence[BaseChatMessage], own: dict[int, list[LLMMessage]] | None = None
) -> list[BaseChatMessage]:
    """Let a wired team know imported messages, oldest first. What an agent was sent before and has not taken up yet
    comes before them.

    An agent without a model context hears them with the next message that it gets; one whose model client is not known
    here (`_model_client`) gets the system message so, too.

    Args:
        own: by the identity of an agent, what it is given instead; taken out of this where it was.

    Returns:
        What must go into the team's task instead: Magentic-One begins each task with nothing else.
    """
    own = {} if own is None else own
    said = [message for message in messages if imported_role(message) not in ("system", "calls", "tool")]
    manager = manager_of(team)
    if is_a(manager, MagenticOneOrchestrator):
        return said
    for position, participant in enumerate(team._participants):
        container = container_of(team, position)
        if is_a(participant, BaseGroupChat):
            sent = _taken(container)
            _buffer(container, await import_messages(participant, [*sent, *messages], own))
        else:
            await tell(container, participant, messages, own)
    # Not by `update_message_thread`: to a graph the last message of one of its agents is a step.
    manager._message_thread.extend(said)
    if is_a(manager, SelectorGroupChatManager):
        await manager._add_messages_to_context(manager._model_context, said)
    elif is_a(manager, SwarmGroupChatManager):
        speakers = [each.source for each in said if each.source in team._participant_names]
        manager._current_speaker = speakers[-1] if speakers else manager._current_speaker
    return []


async def tell(
    container: ChatAgentContainer,
    agent: Any,
    messages: Sequence[BaseChatMessage],
    own: dict[int, list[LLMMessage]] | None = None,
) -> None:
    """Let one agent of a wired team, which its container runs, know imported messages; `own` as in
    `import_messages`."""
    names, sent = {agent.name}, _taken(container)
    while is_a(agent, MessageFilterAgent):
        sent = agent._apply_filter(sent)
        heard = {id(message) for message in agent._apply_filter(messages)}
        agent = agent._wrapped_agent
        names.add(agent.name)
        messages = [
            each for each in messages if id(each) in heard or each.source in names or imported_role(each) == "system"
        ]
    knows_tools = has_client_tools(agent)
    hears: dict[Role | None, bool] = {"system": _client_of(agent) is None, "tool": knows_tools}
    messages = [each for each in messages if hears.get(imported_role(each), True)]
    if not knows_tools:
        # Of an answer that called tools which it has not got, it knows the text.
        messages = [each for each in messages if imported_role(each) != "calls" or each.to_model_text().strip()]
    context = getattr(agent, "_model_context", None)
    if not isinstance(context, ChatCompletionContext):
        _buffer(container, [*sent, *messages])
        return
    await AssistantAgent._add_messages_to_context(context, sent)
    given = [] if own is None else own.pop(id(agent), [])
    for each in given:
        await context.add_message(each)
    for message in () if given else messages:
        role, client = imported_role(message), run_client_of(_client_of(agent))
        if client is not None and (thought := message.metadata.get(_THOUGHT)):
            client.thoughts |= {call["id"]: thought for call in kept_in(message)}
        if role == "system":
            await context.add_message(SystemMessage(content=message.to_model_text()))
        elif role == "tool" or (role == "calls" and knows_tools):
            await context.add_message(_as_model_messages(message))
        elif role in ("assistant", "calls") and message.source in names:
            await context.add_message(AssistantMessage(content=message.to_model_text(), source=message.source))
        else:
            await context.add_message(message.to_model_message())


def _taken(container: ChatAgentContainer) -> Sequence[BaseChatMessage]:
    """Return what a participant was sent and has not taken up: it is taken up now."""
    sent = [*container._message_buffer]
    container._message_buffer.clear()
    return sent


def _buffer(container: ChatAgentContainer, messages: Sequence[BaseChatMessage]) -> None:
    for message in messages:
        container._buffer_message(message)


def _client_of(agent: object) -> ChatCompletionClient | None:
    client = getattr(agent, "_model_client", None)
    return client if isinstance(client, ChatCompletionClient) else None
