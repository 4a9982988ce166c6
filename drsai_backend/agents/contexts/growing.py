"""A growing list is what all contexts here share, with the units into which a prompt may be cut.

A context's state is every message it was given, in the form of AutoGen's own contexts, so the journal stores what a
turn has added and nothing more. What a prompt leaves out is a view: nothing of it is written, and nothing is lost.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from autogen_core import FunctionCall
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from drsai_backend.models.tokens import TOKENS_PER_MESSAGE, estimate_content

CountTokens: TypeAlias = Callable[[LLMMessage], int]
"""Tokens of one message of a prompt."""


def estimate_message(message: LLMMessage) -> int:
    """Estimated tokens of one message, without network: see `drsai_backend.models.tokens`."""
    return TOKENS_PER_MESSAGE + estimate_content(message.content, getattr(message, "thought", None))


def calls_of(message: LLMMessage) -> list[FunctionCall]:
    """The tool calls of a message; of most there are none."""
    if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
        return message.content
    return []


class SeenMessages(list[LLMMessage]):
    """The messages of a context, with what was found out about those that were looked at. The next run's context takes
    the list over as it is, and looks at what is new alone.

    Attributes:
        reader: who has looked, and how: what another one has found out is not used.
        to: how many messages were looked at.
        systems: where the system messages are, by their texts: of equal ones the newest, as AutoGen's memories add
            theirs in each turn.
        first_user: where the user's first message is.
        counts: tokens of messages, by their place.
        summary_at: where the newest summary is.
        covered: how many messages that stands for.
        view: the messages as they are shown.
        newest: the outputs of each tool that are shown, as places in `view` and in the message, oldest first.
    """

    __slots__ = ("counts", "covered", "first_user", "newest", "reader", "summary_at", "systems", "to", "view")

    def __init__(self, messages: Iterable[LLMMessage], reader: object) -> None:
        super().__init__(messages)
        self.reader = reader
        self.to = 0
        self.systems: dict[str, int] = {}
        self.first_user: int | None = None
        self.counts: dict[int, int] = {}
        self.summary_at: int | None = None
        self.covered = 0
        self.view: list[LLMMessage] = []
        self.newest: defaultdict[str, deque[tuple[int, int]]] = defaultdict(deque)


class GrowingContext(ChatCompletionContext):
    """A context whose messages only grow at their end, or are cleared.

    Subclasses give a view of `_messages` in `get_messages` and change none of them. `_seen` is the same list, once
    `_scan` has looked at it.
    """

    def __init__(self, initial_messages: list[LLMMessage] | None = None) -> None:
        super().__init__(initial_messages)
        self._seen = SeenMessages((), None)

    def _scan(self) -> None:
        """Look at the messages that are new since the last prompt, so that a prompt costs what it shows."""
        messages, reader = self._messages, self._reader()
        # `load_state` and `clear` put another list in place.
        if not isinstance(messages, SeenMessages) or messages.reader != reader or len(messages) < messages.to:
            self._messages = messages = SeenMessages(messages, reader)
        self._seen = messages
        for position in range(messages.to, len(messages)):
            self._scan_message(position, messages[position])
        messages.to = len(messages)

    def _reader(self) -> object:
        """Whatever decides what is found out about a message."""
        return type(self)

    def _scan_message(self, position: int, message: LLMMessage) -> None:
        seen = self._seen
        if isinstance(message, SystemMessage):
            seen.systems.pop(message.content, None)
            seen.systems[message.content] = position
        elif seen.first_user is None and isinstance(message, UserMessage):
            seen.first_user = position


def unit_start(messages: Sequence[LLMMessage], end: int, lowest: int) -> int:
    """Return where the unit begins whose last message is `end - 1`: that message, or a call with all of its results.

    Args:
        messages: a context's messages.
        end: one behind the unit's last message; above `lowest`.
        lowest: where to stop looking.

    Returns:
        The position of the unit's first message. `end` where it holds results without their call: such a unit is no
        part of a prompt, as no endpoint takes it.
    """
    last = messages[end - 1]
    if not isinstance(last, FunctionExecutionResultMessage):
        return end - 1
    wanted = {result.call_id for result in last.content}
    for position in range(end - 2, lowest - 1, -1):
        message = messages[position]
        if isinstance(message, FunctionExecutionResultMessage):
            wanted |= {result.call_id for result in message.content}
        wanted -= {call.id for call in calls_of(message)}
        if not wanted:
            return position
    return end
