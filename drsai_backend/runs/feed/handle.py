"""The handle of a run is what whoever started it reads it by, wherever it runs."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.runs.events import Logged, MessageDone, Position, QueuedBehind, RunEnded, RunEvent
from drsai_backend.runs.failures import HandedOver
from drsai_backend.runs.feed.live_run import LiveRun, Reader, as_done

_LOST: Final = RunEnded(
    RunStatus.RUNNING, error_code="run_moved", error_message="The run is not followed any more; ask for it."
)


Follow: TypeAlias = Callable[[str, Position | None], AsyncGenerator[Logged]]
"""Reads the log of a run of that id after a place, by what is stored where this process does not run it."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that is known by what is stored: it waits in the queue, or another worker has it.

    Attributes:
        after: where in its log the request begins that it is read for; None: with it.
    """

    run_id: str
    name: ThreadName
    team: str
    created: int
    speakers: int
    ignored: Sequence[str] = ()
    after: Position | None = None
    failure: None = None
    failed_agent: None = None


@dataclass(eq=False)
class Attempt:
    """A try of a request in this process. `run` names its run, once it has started; None: it could not. `more` makes
    handles of it as long as there is something of it in the memory. `listeners` count the clients that wait for it."""

    digest: str
    at: float = field(default_factory=time.monotonic)
    listeners: int = 1
    run: tuple[ThreadName, str] | None = None
    more: Callable[[], Handle | None] = lambda: None
    started: asyncio.Event = field(default_factory=asyncio.Event)


class Handle:
    """Reads a run from its beginning. The run belongs to the engine: a reader may stop at any time.

    Where the run leaves this process, its handle follows it by what is stored.

    Args:
        source: a run of this process, or what is known of one that may be another's.
        follow: reads the log of a run that is not here, or not any more; None: the run does not leave.

    Attributes:
        run_id: names the run.
        name: what finds the thread that it runs on.
        thread_id, user_id: of that name.
        team: the name that its team is served under.
        created: when it was started, in seconds since 1970.
        speakers: how many agents may speak; 1: a lone one.
        attempt: the request that it answers, where its client may repeat it.
        ignored: fields of the request that nobody of the team takes: parameters, and `tools`, the client's.
        imported: whether conversations are stored that look like the request's history and may be other people's, so
            that it was imported into a thread of its own.
    """

    def __init__(self, source: LiveRun | StoredRun, follow: Follow | None = None) -> None:
        self._source = source
        self._follow = follow
        self._readers = 0
        self._begin()
        self.attempt: Attempt | None = None
        self.imported = False
        self.run_id = source.run_id
        self.name = source.name
        self.thread_id = source.name.thread_id
        self.user_id = source.name.user_id
        self.team = source.team
        self.created = source.created
        self.speakers = source.speakers
        self.ignored = source.ignored

    def _begin(self) -> None:
        source = self._source
        self._reader = Reader(source) if isinstance(source, LiveRun) else None
        self._at = None if isinstance(source, LiveRun) else source.after
        self._batch: list[RunEvent] = []
        self._noted: list[RunEvent] = []
        """What `wait` has read while an iteration was under way, which yields it."""
        self._said: list[MessageDone] = []
        self._ended: RunEnded | None = None
        self._lost = _LOST

    async def events(self) -> AsyncGenerator[RunEvent]:
        """Yield every event of the run from its beginning; ends after `RunEnded`, also where that says that the run is
        still in the queue, because a person is asked first. Who stops before the end and asks again reads on where they
        were; after the end, or after `wait`, all is told anew."""
        if self._ended is not None and not self._readers:
            self._begin()
        self._readers += 1
        try:
            while (reader := self._reader) is not None and self._ended is None:
                self._batch = self._batch or reader.poll()
                if not self._batch:
                    await reader.live.more()
                while self._batch:
                    event = self._batch.pop(0)
                    if isinstance(event, RunEnded) and self._moves(event):
                        self._lost, self._at, self._reader = event, reader.live.positions[-1], None
                        break
                    yield self._note(event)
            while self._noted:
                yield self._noted.pop(0)
            if self._ended is not None:
                return
            assert self._follow is not None
            async with aclosing(self._follow(self.run_id, self._at)) as log:
                async for logged in log:
                    self._at = logged.position
                    yield self._note(as_done(logged.event))
                    if self._ended is not None:
                        return
            yield self._note(self._lost)  # This process closes, or the thread was deleted.
        finally:
            self._readers -= 1

    def _moves(self, ended: RunEnded) -> bool:
        """Whether this is where the run left the process, which itself stays and can follow it."""
        return self._follow is not None and ended.status is RunStatus.RUNNING and ended.error_code != HandedOver.code

    def _note(self, event: RunEvent) -> RunEvent:
        if type(event) is MessageDone:
            self._said.append(event)
        elif type(event) is RunEnded:
            self._ended = event
        elif type(event) is QueuedBehind:
            event = self._ended = RunEnded(
                RunStatus.AWAITING_INPUT,
                "The message waits in the queue: a person is asked first.",
                input_request=event.input_request,
                queued_behind=event.run_id,
            )
        return event

    def poll(self) -> Sequence[RunEvent]:
        """The events that are ready now, after those that `events()` has yielded; they are not yielded again. Of a run
        that is followed by what is stored, they come one by one."""
        if self._reader is None:
            return ()
        ready = [*self._batch, *self._reader.poll()]
        moves = bool(ready) and isinstance(ready[-1], RunEnded) and self._moves(ready[-1])
        self._batch = [ready.pop()] if moves else []
        return [self._note(event) for event in ready]

    def maker(self) -> Callable[[], Handle | None]:
        """Return what makes more handles of the run, from its beginning. It keeps nothing of what the run has said:
        once that has ended here and nobody reads it any more, it makes None."""
        source, follow = self._source, self._follow
        found = weakref.ref(source) if isinstance(source, LiveRun) else lambda: source
        return lambda: None if (again := found()) is None else Handle(again, follow)

    async def wait(self) -> RunEnded:
        """The end of the run."""
        if isinstance(self._source, LiveRun):
            await self._source.end()
            read = self.poll()
            if self._readers:
                self._noted += read
        if self._ended is None:  # Another process runs it now.
            if self._readers:
                return await Handle(self._source, self._follow).wait()
            async for _ in self.events():
                pass
        assert self._ended is not None
        return self._ended

    def transcript(self) -> Sequence[MessageDone]:
        """The stored messages of the run that were read so far, in order, its input included."""
        return self._said

    @property
    def failure(self) -> BaseException | None:
        """What was raised in this process when the run ended as ERROR."""
        return self._source.failure

    @property
    def failed_agent(self) -> str | None:
        """The name of the agent that raised `failure`, if one did."""
        return self._source.failed_agent
