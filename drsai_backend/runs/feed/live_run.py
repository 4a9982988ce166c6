"""A live run is a run in this process as others see it: its events so far, and who reads them."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken

from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.runs.events import (
    ENDED,
    STARTED,
    MessageDone,
    MessageRead,
    Position,
    RunEnded,
    RunEvent,
    RunStarted,
    Spoke,
    TextDelta,
    ThoughtDelta,
    WatchedEvent,
)
from drsai_backend.runs.transcript import is_shown
from drsai_backend.teams.imported import unfinished_message
from drsai_backend.teams.limits import LimitReached
from drsai_backend.teams.messages import read_message
from drsai_backend.teams.replay.steps import ToolPartial

log = logging.getLogger("drsai.extensions")

_KEEP: Final = 4096
"""Events that are kept whatever they are."""
_QUIET: Final = (TextDelta, ThoughtDelta, ToolPartial)
"""Events that change nothing which is stored."""


class RunToken(CancellationToken):
    """A run's cancellation token, which can be cancelled whatever was linked to it, and keeps nothing of what is over:
    AutoGen's clients link a task for each piece of an answer."""

    def __init__(self) -> None:
        super().__init__()
        self._linked: weakref.WeakSet[asyncio.Future[object]] = weakref.WeakSet()

    def link_future(self, future: asyncio.Future[object]) -> asyncio.Future[object]:
        # AutoGen's McpWorkbench links the coroutine of each call, and then no `cancel()` comes to its end.
        if asyncio.isfuture(future):
            self._linked.add(future)
            if self.is_cancelled():
                future.cancel()
        return future

    def cancel(self) -> None:
        super().cancel()
        for future in list(self._linked):
            future.cancel()


class Continued(NamedTuple):
    """The answer that a run continues, and who does so."""

    source: str
    text: str


@dataclass(eq=False)
class LiveRun:
    """A run, from its start in this process until its last reader is gone. `speakers`: number of agents that may speak;
    1: a lone one.

    The events are kept from the beginning, so that a reader may come late. In long runs, what led to messages that are
    stored now is dropped.
    """

    run_id: str
    name: ThreadName
    team: str
    created: int
    speakers: int
    started: float = field(default_factory=time.perf_counter)
    token: RunToken = field(default_factory=RunToken)
    stop_requested: bool = False
    limit: LimitReached | None = None
    """The run is stopped since it has used up what it may use."""
    leaving: bool = False
    """The process shuts down: the run is to be handed over at its next turn boundary."""
    is_suspect: bool = False
    """It may kill its process: it is to be handed over once it has come through a turn."""
    failure: BaseException | None = None
    """What the run ended with as ERROR, for callers in this process."""
    failed_agent: str | None = None
    """The name of the agent that raised it, if one did."""
    is_taken_over: bool = False
    """The worker before this one was lost."""
    watchers: Sequence[Watcher] = ()
    """Are told each event at once, but pieces."""
    has_spoken: bool = False
    """Whether they were told that text is shown."""
    ignored: Sequence[str] = ()
    """Fields of the request that nobody of the team takes; see `runs.start.parameters.Allotment`."""
    continued: Continued | None = None
    """Until the whole answer is stored: what of it was there before the run."""
    events: list[RunEvent] = field(default_factory=list[RunEvent])
    positions: list[Position] = field(default_factory=list[Position])
    dropped: int = 0
    """Counts the times that events were dropped; indexes into `events` are void then."""
    steps_stored: int = 0
    """Counts the times that something of the turn in flight was stored, which is no event."""
    ended: RunEnded | None = None
    _at: Position = field(default_factory=Position)
    _limit: int = _KEEP
    _waiters: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])
    _end_waiters: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])

    @property
    def is_made_again(self) -> bool:
        """Whether another process makes a call again that is cut off here."""
        return self.leaving and not self.stop_requested and self.limit is None

    def begin(self, epoch: int, seq: int, attempt: int) -> None:
        """The lease is taken: `seq` is the newest message that was stored before."""
        self._at = Position(seq, epoch, STARTED - 1)
        self.emit(RunStarted(self.run_id, self.team, attempt))

    def emit(self, event: RunEvent) -> None:
        seq, epoch, n = self._at
        if type(event) is MessageDone:
            self._at = Position(event.seq, epoch, STARTED)
            at = Position(event.seq, epoch, 0)
        elif type(event) is RunEnded:
            at = Position(seq, epoch, ENDED)
            self.ended = event
        else:
            at = self._at = Position(seq, epoch, n + 1)
        self.events.append(event)
        self.positions.append(at)
        if type(event) is MessageDone and len(self.events) > self._limit:
            self._drop()
        if self._waiters:
            self._wake()
        if self.ended is not None:
            _resolve(self._end_waiters)
        if self.watchers:
            if not self.has_spoken and isinstance(event, TextDelta | MessageDone) and event.shown:
                self.has_spoken = True
                self.tell(Spoke())
            if type(event) not in _QUIET:
                self.tell(event)

    def tell(self, event: WatchedEvent) -> None:
        """Tell those who watch the run something, which need not be a part of its log."""
        for watch in self.watchers:
            try:
                watch(self, event)
            except Exception:
                # Foreign code may raise anything, and the run is not to be held up.
                log.exception("an extension has missed an event", extra={"run_id": self.run_id})

    def steps_done(self) -> None:
        """Tell that something of the turn in flight is stored: who reads what is stored looks again."""
        self.steps_stored += 1
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        _resolve(waiters)

    def _drop(self) -> None:
        lasting = (MessageDone, RunStarted)
        pairs = [pair for pair in zip(self.positions, self.events, strict=True) if isinstance(pair[1], lasting)]
        self.positions = [position for position, _ in pairs]
        self.events = [event for _, event in pairs]
        self.dropped += 1
        self._limit = len(self.events) + _KEEP

    def unfinished(self) -> list[TextMessage]:
        """Return what was shown of messages that are not stored, in the order in which they were begun."""
        begun: dict[tuple[str, str | None], list[str]] = {}
        for event in reversed(self.events):
            if isinstance(event, MessageDone | RunStarted):
                break
            if isinstance(event, TextDelta) and event.shown:
                begun.setdefault((event.source, event.message_id), []).append(event.text)
        texts = [(source, "".join(reversed(parts)), of) for (source, of), parts in reversed(begun.items())]
        if self.continued is not None:
            _, rest, of = texts[0] if texts else ("", "", None)
            texts[:1] = [(self.continued.source, self.continued.text + rest, of)]
        return [unfinished_message(source, text, of) for source, text, of in texts if text.strip()]

    def after(self, position: Position) -> int:
        """The index of the first event after `position`."""
        return bisect_right(self.positions, position)

    async def end(self) -> None:
        """Wait until the run has ended here."""
        if self.ended is None:
            waiter = asyncio.get_running_loop().create_future()
            self._end_waiters.append(waiter)
            await waiter

    async def more(self) -> None:
        """Wait for the next event; it may return without one."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter


def _resolve(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class Reader:
    """Reads the events of a live run from a position on. It may stop at any time."""

    __slots__ = ("_dropped", "_last", "_next", "_steps", "live")

    def __init__(self, live: LiveRun, after: Position | None = None) -> None:
        self.live = live
        self._next = 0 if after is None else live.after(after)
        self._dropped = live.dropped
        self._last = after or Position()
        self._steps = live.steps_stored

    def poll(self) -> list[RunEvent]:
        """Return what is there now and was not read yet."""
        return self.live.events[self._advance() :]

    def poll_positions(self) -> list[tuple[Position, RunEvent]]:
        """The same, with where each stands."""
        start = self._advance()
        return list(zip(self.live.positions[start:], self.live.events[start:], strict=True))

    async def change(self) -> None:
        """Wait until something has happened of which something is stored, or the run has ended here."""
        live = self.live
        # An event may be told a moment before what it is of is stored.
        while live.ended is None and live.steps_stored == self._steps:
            if not all(isinstance(event, _QUIET) for event in self.poll()):
                return
            await live.more()

    def _advance(self) -> int:
        live = self.live
        if self._dropped != live.dropped:
            self._dropped = live.dropped
            self._next = live.after(self._last)
        start, self._next = self._next, len(live.events)
        if start < self._next:
            self._last = live.positions[-1]
        return start


def as_done(event: RunEvent) -> RunEvent:
    """Convert a stored message to a `MessageDone`."""
    if not isinstance(event, MessageRead):
        return event
    message = read_message(event.config)
    return MessageDone(event.seq, message, is_shown(message) if event.shown is None else event.shown)


Watcher: TypeAlias = Callable[[LiveRun, WatchedEvent], None]
"""Is told what a run of this process tells, in the event loop."""


class LiveRuns(dict[ThreadName, "LiveRun | asyncio.Future[LiveRun]"]):
    """The runs of this process by their threads; a future while one begins.

    Attributes:
        closing: nothing new is begun.
    """

    closing = False

    def live(self, name: ThreadName) -> LiveRun | None:
        """Return the run on a thread, once it has begun."""
        found = self.get(name)
        return found if isinstance(found, LiveRun) else None

    def is_closing(self) -> bool:
        """Return whether this process shuts down."""
        return self.closing
