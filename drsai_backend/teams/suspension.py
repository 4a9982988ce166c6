"""Asking a person: how an agent's question ends the process's part of a run, and how the answer comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
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
    _used: set[int] = field(default_factory=set)
    _listener: Callable[[InputRequired], None] | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def ask(self, source: str, prompt: str) -> str:
        """The answer to `source`'s question. Raises InputRequired when the person has not answered it yet."""
        for position, answer in enumerate(self.answers):
            if answer["source"] == source and position not in self._used:
                self._used.add(position)
                return str(answer["content"])
        question = InputRequired(source, prompt)
        if self._listener is not None and self._loop is not None:
            # Not now: on its straight way out of the agent the exception gets there by itself. From any thread.
            with contextlib.suppress(RuntimeError):  # the loop is closed: a thread that outlived its run
                self._loop.call_soon_threadsafe(self._listener, question)
        raise question

    def on_question(self, listener: Callable[[InputRequired], None]) -> None:
        """Have `listener` called in this event loop, soon after a question that has no answer yet."""
        self._listener = listener
        self._loop = asyncio.get_running_loop()

    def turn_done(self) -> bool:
        """The turn is stored: its answers are used up. True when there were any."""
        had = bool(self.answers)
        self.give(())
        return had

    def give(self, answers: Iterable[dict[str, Any]]) -> None:
        self.answers = list(answers)
        self._used = set()
