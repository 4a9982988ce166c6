"""Ephemeral outputs leave the prompt: only the newest ones of some tools stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from autogen_core.models import FunctionExecutionResultMessage, LLMMessage

from drsai_backend.errors import ConfigurationError

EPHEMERAL_NOTE = "[An older output of this tool, left out. Call the tool again if you need it.]"


class OutputAges:
    """Replaces old outputs while a prompt is walked from its newest message back.

    Args:
        keep: tool name → how many of its newest outputs stay.
    """

    def __init__(self, keep: Mapping[str, int]) -> None:
        self._keep = keep
        self._seen: Counter[str] = Counter()

    def view(self, message: LLMMessage) -> LLMMessage:
        """The message itself, or a copy whose old outputs are a note each. Call it once per message, newest first."""
        if not self._keep or not isinstance(message, FunctionExecutionResultMessage):
            return message
        view: LLMMessage = message
        for position in reversed(range(len(message.content))):
            name = message.content[position].name
            if name not in self._keep:
                continue
            self._seen[name] += 1
            if self._seen[name] > self._keep[name]:
                view = left_out(view, position)
        return view


def left_out(message: LLMMessage, position: int) -> LLMMessage:
    """Return a copy with a note in place of one output, unless that is shorter than the note."""
    assert isinstance(message, FunctionExecutionResultMessage)
    results = list(message.content)
    if len(results[position].content) <= len(EPHEMERAL_NOTE):
        return message
    results[position] = results[position].model_copy(update={"content": EPHEMERAL_NOTE})
    return FunctionExecutionResultMessage(content=results)


def checked(keep: Mapping[str, int] | None) -> dict[str, int]:
    """A copy of the option.

    Raises:
        ConfigurationError: a number is below 0.
    """
    found = dict(keep or {})
    for name, number in found.items():
        if number < 0:
            raise ConfigurationError(f"ephemeral[{name!r}] is {number}: give how many outputs stay, 0 or more")
    return found
