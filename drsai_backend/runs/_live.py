"""A run in this process as others see it: its events so far, and handles that read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from autogen_core import CancellationToken

from drsai_backend.runs.events import MessageDone, RunEnded, RunEvent


class LiveRun:
    """A run, from its start until its last reader is gone. `speakers`: number of agents that may speak; 1: a lone one.

    The events are kept from the beginning, so that a reader may come late. Deltas of a message are dropped once the
    message itself is stored and no reader is behind.
    """

    def __init__(self, run_id: str, thread_id: str, user_id: str, team: str, created: int, speakers: int) -> None:
        self.run_id = run_id
        self.thread_id = thread_id
        self.user_id = user_id
        self.team = team
        self.created = created
        self.speakers = speakers
        self.token = CancellationToken()
        self.stop_requested = False
        self.failure: BaseException | None = None
        """What the run ended with as ERROR, for callers in this process."""
        self.events: list[RunEvent] = []
        self.ended: RunEnded | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def emit(self, event: RunEvent) -> None:
        self.events.append(event)
        if isinstance(event, RunEnded):
            self.ended = event
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def more(self) -> None:
        """Wait for the next event."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter


class RunHandle:
    """Reads a run from its beginning. The run belongs to the engine: a reader may stop at any time."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._position = 0
        self.run_id = live.run_id
        self.thread_id = live.thread_id
        self.user_id = live.user_id
        self.team = live.team
        self.created = live.created
        self.speakers = live.speakers

    async def events(self) -> AsyncIterator[RunEvent]:
        """Every event of the run from its beginning; ends after `RunEnded`."""
        events = self._live.events
        while True:
            while self._position < len(events):
                event = events[self._position]
                self._position += 1
                yield event
                if isinstance(event, RunEnded):
                    return
            await self._live.more()

    def poll(self) -> Sequence[RunEvent]:
        """The events that are ready now, after those that `events()` has yielded; they are not yielded again."""
        ready = self._live.events[self._position :]
        self._position += len(ready)
        return ready

    async def wait(self) -> RunEnded:
        """The end of the run."""
        while self._live.ended is None:
            await self._live.more()
        return self._live.ended

    def transcript(self) -> Sequence[MessageDone]:
        """The stored messages of the run so far, in order, its input included."""
        return [event for event in self._live.events if isinstance(event, MessageDone)]

    @property
    def failure(self) -> BaseException | None:
        """What was raised in this process when the run ended as ERROR."""
        return self._live.failure
