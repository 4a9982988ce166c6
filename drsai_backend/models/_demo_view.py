"""What the offline demo model sees of a request: who said what, and what is new."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

MAX_TASK = 4_000
PREFIX = "[offline demo model] "
PERSON = re.compile(r"user|human|person|customer|client", re.IGNORECASE)


def text_of(message: LLMMessage) -> str:
    """The words of a message, without the demo model's own prefix. Images and tool calls have none."""
    if isinstance(message, FunctionExecutionResultMessage):
        return "\n".join(result.content for result in message.content)
    content = message.content
    if isinstance(content, str):
        return content.replace(PREFIX, "")
    return "\n".join(part for part in content if isinstance(part, str)).replace(PREFIX, "")


def shorten(text: str, limit: int = 120) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def words(text: str) -> list[str]:
    """Lower-case words in order, `snake_case` and `camelCase` taken apart, plural endings dropped."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return [_singular(word) for word in re.findall(r"[^\W_]+", apart.lower())]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request, split by speaker."""

    system: str
    messages: Sequence[LLMMessage]
    people: list[UserMessage]
    """What people wrote, oldest first. Messages of other agents are no part of it."""
    since: Sequence[LLMMessage]
    """Everything after the last of them: the agents' own work on it."""

    @classmethod
    def of(cls, messages: Sequence[LLMMessage]) -> Conversation:
        """Read a request."""
        system = "\n".join(message.content for message in messages if isinstance(message, SystemMessage))
        rest = [message for message in messages if not isinstance(message, SystemMessage)]
        inputs = [message for message in rest if isinstance(message, UserMessage)]
        people = [message for message in inputs if PERSON.search(message.source)]
        if not people and inputs:
            people = [message for message in inputs if message.source == inputs[0].source]
        start = 0
        if people:
            start = next(index for index, message in enumerate(rest) if message is people[-1]) + 1
        return cls(system=system, messages=rest, people=people, since=rest[start:])

    @property
    def task(self) -> str:
        """The last thing a person wrote: its first 4,000 characters, as the rules search it many times."""
        return text_of(self.people[-1])[:MAX_TASK] if self.people else ""

    @property
    def last(self) -> LLMMessage | None:
        """The newest message of all."""
        return self.messages[-1] if self.messages else None

    @property
    def own_answers(self) -> list[str]:
        """What this agent has said about the task so far."""
        return [
            text_of(message)
            for message in self.since
            if isinstance(message, AssistantMessage) and isinstance(message.content, str)
        ]

    @property
    def others(self) -> list[UserMessage]:
        """What other agents have said about the task so far."""
        return [message for message in self.since if isinstance(message, UserMessage)]

    @property
    def results(self) -> FunctionExecutionResultMessage | None:
        """The tool results that wait for an answer."""
        return self.last if isinstance(self.last, FunctionExecutionResultMessage) else None
