"""Scripted runs: the events that one plays, and the handle that it plays them to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeAlias

from autogen_agentchat.messages import TextMessage

from drsai_backend.datamodel import RunStatus
from drsai_backend.runs.events import (
    ENDED,
    Logged,
    MessageDone,
    MessageRead,
    Position,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
)
from drsai_backend.runs.requests import Ask

USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
FULL_USAGE = {
    **USAGE,
    "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
        "audio_tokens": 0,
    },
}
COMPLETED = RunEnded(RunStatus.COMPLETED, "done", USAGE, 0.25)

# A step is an event, a pause in seconds, or something to wait for.
Step: TypeAlias = "RunEvent | float | asyncio.Event"
Script: TypeAlias = Callable[[Ask], Iterable[Step]]


def said(source: str, text: str, seq: int = 1, *, shown: bool = True, id: str | None = None) -> MessageDone:
    """A stored text message."""
    message = TextMessage(source=source, content=text)
    if id is not None:
        message.id = id
    return MessageDone(seq, message, shown)


def spoken(source: str, *parts: str, seq: int = 1, id: str | None = None) -> list[RunEvent]:
    """A text message as an agent streams it."""
    return [*(TextDelta(source, part, id) for part in parts), said(source, "".join(parts), seq, id=id)]


def echo(ask: Ask) -> Iterable[Step]:
    """A lone agent that repeats the last words, streamed."""
    text = ask.messages[-1].text
    yield said("user", text, 1, shown=False)
    yield from spoken("assistant", "You said: ", text, seq=2)
    yield COMPLETED


def writers(ask: Ask) -> Iterable[Step]:
    """A group chat of two."""
    yield said("user", ask.messages[-1].text, 1, shown=False)
    yield from spoken("writer", "A draft", " of it.", seq=2)
    yield said("reviewer", "APPROVE", 3)
    yield COMPLETED


class FakeHandle:
    """A run of the fake engine: a task that plays the script, whoever listens."""

    def __init__(
        self, ask: Ask, user_id: str, run_id: str, thread_id: str, speakers: int, script: Script, at: Position
    ) -> None:
        self.ask = ask
        self.run_id = run_id
        self.thread_id = thread_id
        self.team = ask.team
        self.user_id = user_id
        self.created = 1_700_000_000
        self.speakers = speakers
        self.ignored = () if ask.client_tools is None else ("tools",)
        self.imported = False
        self.played: list[RunEvent] = []
        self.log: list[Logged] = []
        self.closed = False
        self._seen = 0
        self._at = at
        self._news = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._play(script(ask)))

    async def _play(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                self.played.append(step)
                self.log.append(Logged(self._stand(step), self.run_id, step))
                self._news.set()
                self._news = asyncio.Event()

    def _stand(self, event: RunEvent) -> Position:
        """Where an event stands, as the engine counts."""
        seq, epoch, n = self._at
        if isinstance(event, MessageDone | MessageRead):
            self._at = Position(event.seq, epoch, 1)
            return Position(event.seq, epoch, 0)
        if isinstance(event, RunEnded):
            return Position(seq, epoch, ENDED)
        if isinstance(event, RunStarted):
            epoch, n = epoch + (event.attempt > 1), 0
        self._at = Position(seq, epoch, n + 1)
        return self._at

    async def more(self) -> None:
        """Wait for the next event, or for the end of the script."""
        waiter = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait({waiter, self.task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()

    async def events(self) -> AsyncIterator[RunEvent]:
        try:
            while True:
                while self._seen == len(self.played):
                    if self.task.done():
                        self.task.result()
                        return
                    await self.more()
                self._seen += 1
                yield self.played[self._seen - 1]
                if isinstance(self.played[self._seen - 1], RunEnded):
                    return
        finally:
            self.closed = True

    def poll(self) -> list[RunEvent]:
        ready = self.played[self._seen :]
        self._seen = len(self.played)
        return ready

    async def wait(self) -> RunEnded:
        await self.task
        return next(event for event in self.played if isinstance(event, RunEnded))

    def transcript(self) -> list[MessageDone]:
        return [event for event in self.played if isinstance(event, MessageDone)]


async def follow(handle: FakeHandle, after: Position | None) -> AsyncIterator[Logged]:
    told = 0
    while True:
        while told < len(handle.log):
            told += 1
            if after is None or handle.log[told - 1].position > after:
                yield handle.log[told - 1]
        if handle.task.done():
            handle.task.result()
            return
        await handle.more()
