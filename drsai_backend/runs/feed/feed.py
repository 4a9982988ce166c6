"""The feed is the event log of a thread, followed from any place on, whichever process works on it.

Where this process runs the thread, events come from the live run, token by token. Where another one does, they are read
from the database, message by message, when a look at the thread's row says that there is something new (`watch`): a
notification per stored turn would make PostgreSQL commit one after the other.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from drsai_backend.database import Database
from drsai_backend.database.runs.log import LogPage, mark_of, read_log, thread_of_run
from drsai_backend.database.runs.reads import RunRow, ThreadHead, head_of
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.lifecycle import PENDING
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import DatabaseError, DatabaseUnavailable, NotFound
from drsai_backend.runs.events import (
    ENDED,
    STARTED,
    Logged,
    MessageRead,
    Position,
    QueuedBehind,
    RunEnded,
    RunStarted,
)
from drsai_backend.runs.failures import code_of
from drsai_backend.runs.feed.live_run import LiveRun, Reader
from drsai_backend.runs.feed.watch import Watch

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

T = TypeVar("T")

_LATER: Final = 1.0
"""Seconds until a database that cannot be reached is tried again."""


class Feeds:
    """Follows threads and runs for one engine: tells their logs, and what others need who read more of a run each time
    that something has changed.

    Args:
        live: the run of this process on a thread, if there is one that has begun.
        closing: whether the process shuts down, so that nothing is to be waited for any more.
    """

    def __init__(
        self, database: Database, live: Callable[[ThreadName], LiveRun | None], closing: Callable[[], bool]
    ) -> None:
        self._database = database
        self._live = live
        self._closing = closing
        self._watch = Watch(database, closing)

    def changed(self, name: ThreadName) -> None:
        """A run has begun or ended on this thread in this process."""
        live = self._live(name)
        self._watch.changed(name, None if live is None else live.run_id)

    async def thread(self, name: ThreadName, after: Position | None = None) -> AsyncGenerator[Logged]:
        """The log of a thread, run after run; it ends when the thread is deleted or the process shuts down.

        Raises:
            NotFound: there is no such thread.
        """
        head = await self._database.read(lambda session: head_of(session, name))
        async with aclosing(self._follow(name, head.key, None, after or Position())) as log:
            async for logged in log:
                yield logged

    async def run(
        self,
        owner: Owner,
        run_id: str,
        after: Position | None = None,
        *,
        is_stored: bool = False,
        shared: Callable[[], Awaitable[Owner]] | None = None,
    ) -> AsyncGenerator[Logged]:
        """The log of one run; ends with its `RunEnded`, also when that says that it waits. A run whose input was
        handed to another one is followed there. While it is in the queue, `QueuedBehind` tells of each question that
        keeps it there. `is_stored`: the run is known to be there, so a database that is away is waited for. `shared`
        gives the owner of a run that is not this owner's.

        Raises:
            NotFound: no such run of this owner.
            DatabaseUnavailable: the database is away.
        """
        read = self._patiently if is_stored else self._database.read
        found = await read(lambda session: thread_of_run(session, owner, run_id))
        if found is None and shared is not None:
            owner = await shared()
            found = await read(lambda session: thread_of_run(session, owner, run_id))
        if found is None:
            raise NotFound(f"no run {run_id!r}", param="run_id")
        key, thread_id = found
        async with aclosing(self._follow(owner.thread(thread_id), key, run_id, after or Position())) as log:
            async for logged in log:
                yield logged
                if isinstance(logged.event, RunEnded):
                    return

    async def _follow(self, name: ThreadName, key: int, run_id: str | None, at: Position) -> AsyncGenerator[Logged]:
        """The log after a place: of a thread, or of a run, which may go on behind its end."""
        asked = ""
        while True:
            live = self._live(name)
            if live is not None and run_id in (None, live.run_id) and _tells(live, at):
                async with aclosing(_from_live(live, at)) as log:
                    async for logged in log:
                        at = logged.position
                        yield logged
                continue
            page = await self.look(partial(read_log, key=key, seq=at.seq, epoch=at.epoch, run_id=run_id))
            # A database that has fallen back gives the key of a thread that is not there any more to another one.
            if page is None or page.head.name != name:
                return
            # A database that has fallen back numbers anew what comes.
            at = min(at, Position(page.head.last_seq, page.head.epoch, ENDED))
            if run_id is not None and page.runs and page.runs[0]["joined"] is not None:
                run = page.runs[0]
                run_id, at = run["joined"], max(at, Position(run["last_seq"], run["epoch"], STARTED))
                continue
            found = _from_page(page, at)
            for logged in found:
                at = logged.position
                yield logged
            if found:
                continue
            if self._closing() or (run_id is not None and _is_over(page, at)):
                return
            question = page.head.input_request
            if page.blocked and question is not None and question["id"] != asked:
                asked = question["id"]
                yield Logged(at, page.runs[0]["run_id"], QueuedBehind(page.head.run_id or "", question))
                continue
            is_queued = bool(page.runs) and page.runs[0]["status"] is RunStatus.CREATED
            await self._watch.wait(name, key, mark_of(page.head), queued=run_id if is_queued else None)

    def listen(self, name: ThreadName, run_id: str) -> Reader | None:
        """Hears of a run what happens from now on, if this process runs it."""
        live = self._live(name)
        if live is None or live.run_id != run_id or live.ended is not None:
            return None
        reader = Reader(live)
        reader.poll()
        return reader

    async def wait(self, head: ThreadHead, heard: Reader | None, *, in_flight: bool) -> bool:
        """Wait until something of a run may be other than it was read. False: the process shuts down.

        Args:
            head: its thread, as it was read.
            heard: what `listen` has returned before it was read.
            in_flight: the run is live, here or elsewhere.
        """
        if self._closing():
            return False
        if heard is not None:
            await heard.change()
        else:
            await self._watch.wait(head.name, head.key, mark_of(head), in_flight=in_flight)
        return True

    async def look(self, fn: Callable[[Session], T]) -> T | None:
        """Return what a follower reads, once the database is there; None: the process shuts down."""
        try:
            return await self._patiently(fn)
        except DatabaseError:
            if self._closing():  # It may be closed already.
                return None
            raise

    async def _patiently(self, fn: Callable[[Session], T]) -> T:
        while True:
            try:
                return await self._database.read(fn)
            except DatabaseUnavailable:
                if self._closing():
                    raise
                await asyncio.sleep(_LATER)


def _tells(live: LiveRun, at: Position) -> bool:
    """Whether the log of a live run has all that follows a place."""
    if not live.positions or at.seq < live.positions[0].seq:
        return False
    ended = live.ended
    return ended is None or (ended.status is not RunStatus.RUNNING and at < live.positions[-1])


async def _from_live(live: LiveRun, at: Position) -> AsyncGenerator[Logged]:
    """The rest of a live run's log, to its end in this process."""
    reader = Reader(live, at)
    while True:
        ready = reader.poll_positions()
        for position, event in ready:
            left = isinstance(event, RunEnded) and event.status is RunStatus.RUNNING  # its log continues elsewhere
            # A message may have been read from storage before it is told here; so may the start of the attempt.
            heard = position <= at or (isinstance(event, RunStarted) and at.epoch >= position.epoch)
            if not heard and not left:
                yield Logged(position, live.run_id, event)
            if isinstance(event, RunEnded):
                return
        if not ready:
            if live.ended is not None:
                return
            await live.more()


def _from_page(page: LogPage, at: Position) -> list[Logged]:
    """The events that rows tell, after `at`."""
    found: list[Logged] = []
    messages = deque(page.messages)
    last = messages[-1][0] if page.full and messages else None
    seq, epoch, _ = at

    def tell_messages(up_to: float = math.inf, *, run_id: str = "") -> None:
        nonlocal seq
        while messages and messages[0][0] <= up_to:
            seq, of_run, config, shown = messages.popleft()
            found.append(Logged(Position(seq, epoch, 0), of_run or run_id, MessageRead(seq, config, shown)))

    for run in page.runs:
        if run["status"] is RunStatus.CREATED:
            continue
        if last is not None and run["first_seq"] > last:
            break
        if run["epoch"] > epoch:
            start = run["first_seq"] - 1
            # Whoever knows an earlier attempt hears first what that has stored.
            if run["status"] is RunStatus.RUNNING and (at.seq > start or (at.seq, at.n) == (start, STARTED)):
                start = max(start, run["last_seq"])
            tell_messages(start)
            if last is not None and start > last:
                break
            epoch = run["epoch"]
            started = RunStarted(run["run_id"], run["team"], run["attempt"])
            found.append(Logged(Position(max(seq, start), epoch, STARTED), run["run_id"], started))
        over = run["status"] is not RunStatus.RUNNING
        tell_messages(run["last_seq"] if over else math.inf, run_id=run["run_id"])
        end = Position(max(seq, run["last_seq"]), epoch, ENDED)
        if over and end > at and (last is None or run["last_seq"] <= last):
            found.append(Logged(end, run["run_id"], ended_of(run, page.head)))
    tell_messages()
    return [logged for logged in found if logged.position > at]


def ended_of(run: RunRow, head: ThreadHead) -> RunEnded:
    """The end of a run, by its row."""
    finished = run["finished_at"] or run["updated_at"]
    return RunEnded(
        RunStatus(run["status"]),
        run["stop_reason"],
        run["usage"] or {},
        (finished - run["started_at"]).total_seconds(),
        head.input_request if head.run_id == run["run_id"] else None,
        code_of(run["error_message"]),
        run["error_message"],
        run["stop_code"],
        usage_before=run["usage_before"] or {},
        **(run["finish"] or {}),
        shown=(run["ending"] or {}).get("shown"),
    )


def _is_over(page: LogPage, at: Position) -> bool:
    """Whether the run has nothing to tell after `at` any more."""
    return not page.runs or (
        RunStatus(page.runs[0]["status"]) not in PENDING
        and at >= Position(page.runs[0]["last_seq"], page.runs[0]["epoch"], ENDED)
    )
