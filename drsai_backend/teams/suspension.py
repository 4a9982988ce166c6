"""Asking a person: how an agent's question ends the process's part of a run, and how the answer comes back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


class InputRequired(BaseException):
    """An agent needs a person's answer and there is none yet.

    A `BaseException`, so that it passes AutoGen's `except Exception` on its way out of the agent. The turn runtime ends
    the stream, the last turn boundary stands, and the turn is repeated once the answer is there.
    """

    def __init__(self, source: str, prompt: str) -> None:
        super().__init__(f"{source} asks: {prompt}")
        self.source = source
        self.prompt = prompt


@dataclass(slots=True)
class InputBroker:
    """The answers a person has given for the turn in flight, in the order in which they were asked for.

    A turn may ask more than once (a nested team); after each answer it is repeated from its boundary and is given the
    earlier answers again.
    """

    answers: list[dict[str, Any]] = field(default_factory=list)
    _used: int = 0

    def ask(self, source: str, prompt: str) -> str:
        """The answer to `source`'s question. Raises InputRequired when the person has not answered it yet."""
        for position in range(self._used, len(self.answers)):
            answer = self.answers[position]
            if answer["source"] == source:
                self._used = position + 1
                return str(answer["content"])
        raise InputRequired(source, prompt)

    def turn_done(self) -> bool:
        """The turn is stored: its answers are used up. True when there were any."""
        had = bool(self.answers)
        self.answers = []
        self._used = 0
        return had

    def give(self, answers: Iterable[dict[str, Any]]) -> None:
        self.answers = list(answers)
        self._used = 0
