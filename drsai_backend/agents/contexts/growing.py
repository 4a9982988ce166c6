"""A growing list is what all contexts here share, with the units into which a prompt may be cut.

A context's state is every message it was given, in the form of AutoGen's own contexts, so the journal stores what a
turn has added and nothing more. What a prompt leaves out is a view: nothing of it is written, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class GrowingContext(ChatCompletionContext):
    """A context whose messages only grow at their end, or are cleared.

    Subclasses give a view of `_messages` in `get_messages` and change none of them.
    """

    def __init__(self, initial_messages: list[LLMMessage] | None = None) -> None:
        super().__init__(initial_messages)
        self._scanned: list[LLMMessage] | None = None
        self._scanned_to = 0
        self._systems: dict[str, int] = {}
        """Where the system messages are, by their texts: of equal ones the newest, as AutoGen's memories add theirs in
        each turn."""
        self._first_user: int | None = None

    def _scan(self) -> None:
        """Look at the messages that are new since the last prompt, so that a prompt costs what it shows."""
        messages = self._messages
        # The recorder and `load_state` put another list in place; `clear` a new one.
        if messages is not self._scanned or len(messages) < self._scanned_to:
            self._scanned, self._scanned_to = messages, 0
            self._systems, self._first_user = {}, None
            self._scan_anew()
        for position in range(self._scanned_to, len(messages)):
            self._scan_message(position, messages[position])
        self._scanned_to = len(messages)

    def _scan_anew(self) -> None:
        """The messages are others than those seen before: forget what is known of them."""

    def _scan_message(self, position: int, message: LLMMessage) -> None:
        if isinstance(message, SystemMessage):
            self._systems.pop(message.content, None)
            self._systems[message.content] = position
        elif self._first_user is None and isinstance(message, UserMessage):
            self._first_user = position


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
