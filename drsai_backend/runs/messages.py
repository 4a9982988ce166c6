"""What a team is given to do: AutoGen messages made from a request's messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, MultiModalMessage, TextMessage
from autogen_agentchat.teams import BaseGroupChat, Swarm

from drsai_backend.datamodel import utcnow
from drsai_backend.errors import InvalidRequest
from drsai_backend.runs.events import InputMessage
from drsai_backend.runs.history import system_text
from drsai_backend.teams.imported import answers, mark
from drsai_backend.teams.messages import UnknownMessage, dump_of
from drsai_backend.teams.runtime.wiring import manager_of
from drsai_backend.teams.suspension import InputRequired
from drsai_backend.teams.team_tree import is_a


def input_messages(team: BaseGroupChat, messages: Sequence[InputMessage]) -> list[BaseChatMessage]:
    """A request's messages as the thread stores them: its system messages, as one, and everything up to the last
    answer are marked as imported (see `teams.imported`), what follows is the task of the run.

    Messages without content are left out: most are answers that only called tools of the client. Those calls and their
    results are not imported, as a model must not be shown calls of tools that it does not have.
    """
    answered = max((index for index, each in enumerate(messages) if each.role == "assistant"), default=-1)
    imported: list[BaseChatMessage] = []
    system = system_text(messages)
    if system is not None:
        imported.append(TextMessage(content=system, source="system", metadata=mark("system")))
    for message in messages[: answered + 1]:
        if message.role == "assistant":
            imported += answers(team, message.text)
        elif message.role == "user" and not message.is_empty:
            imported.append(_message(message, mark("user")))
    task = [each for each in messages[answered + 1 :] if each.role == "user"]
    return [*imported, *_task_messages(team, [each for each in task if not each.is_empty] or task[-1:])]


def _task_messages(team: BaseGroupChat, messages: Sequence[InputMessage]) -> list[BaseChatMessage]:
    """The task of a run. `team` has its state loaded: a swarm that handed off to a person is answered by a handoff."""
    task = spoken(messages)
    speaker = _handed_off_by(team)
    if speaker is not None and task and not any(isinstance(message, HandoffMessage) for message in task):
        last = task[-1]
        if isinstance(last, TextMessage):
            task.pop()
        # Only text fits into a handoff; what came with pictures stays before it.
        task.append(HandoffMessage(content=messages[-1].text, source=last.source, target=speaker))
    return task


def check_types(team: BaseGroupChat, messages: Sequence[InputMessage]) -> Sequence[InputMessage]:
    """The messages, those of them made of stored dumps as objects of the team's own classes. `team` knows all its
    message types (see `teams.runtime.wiring.share_message_types`).

    Raises:
        InvalidRequest: the team takes no messages of a type; or its class is not in this process.
    """
    factory = team._message_factory  # pyright: ignore[reportPrivateUsage]
    found: list[InputMessage] = []
    for each in messages:
        message = each.message
        if isinstance(message, UnknownMessage):
            with suppress(ValueError):
                message = cast(BaseChatMessage, factory.create(message.dump()))
        if message is not None and (isinstance(message, UnknownMessage) or not factory.is_registered(type(message))):
            raise InvalidRequest(
                f"the team takes no messages of type {dump_of(message)['type']}; name it in its `custom_message_types`",
                param="task",
            )
        found.append(replace(each, message=message))
    return found


def spoken(messages: Sequence[InputMessage]) -> list[BaseChatMessage]:
    """The messages as AutoGen's."""
    return [_message(message) for message in messages]


def input_request(question: InputRequired) -> dict[str, Any]:
    """What `Thread.input_request` says of a question."""
    return {
        "id": str(uuid4()),
        "type": question.type,
        "kind": question.kind,
        "source": question.source,
        "prompt": question.prompt,
        "choices": None if question.choices is None else list(question.choices),
        "asked_at": utcnow().isoformat(),
        "deadline": None if question.deadline is None else question.deadline.isoformat(),
        "tool": question.tool,
        **({} if question.key is None else {"key": question.key}),
    }


def _message(message: InputMessage, metadata: dict[str, str] | None = None) -> BaseChatMessage:
    if message.message is not None:
        return message.message
    kind: Any = TextMessage if isinstance(message.content, str) else MultiModalMessage
    return kind(content=message.content, source=message.role, metadata=metadata or {})


def _handed_off_by(team: BaseGroupChat) -> str | None:
    """The swarm member whose latest handoff left the team. A swarm refuses any task but an answer to it."""
    if not is_a(team, Swarm):
        return None
    for message in reversed(manager_of(team)._message_thread):  # pyright: ignore[reportPrivateUsage]
        if isinstance(message, HandoffMessage):
            return None if message.target in team._participant_names else message.source  # pyright: ignore[reportPrivateUsage]
    return None


def outward_handoff(team: BaseGroupChat, messages: Sequence[Any]) -> HandoffMessage | None:
    """The handoff to somebody outside the team that a run ended with."""
    for message in reversed(messages):
        if isinstance(message, HandoffMessage) and message.target not in team._participant_names:  # pyright: ignore[reportPrivateUsage]
            return message
        if isinstance(message, BaseChatMessage):
            return None
    return None
