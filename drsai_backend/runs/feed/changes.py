"""When something of a run may have changed that is read anew each time, such as its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from drsai_backend.database.runs.log import Mark
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.runs.events import TextDelta, ThoughtDelta
from drsai_backend.runs.feed.live_run import LiveRun, Reader
from drsai_backend.runs.feed.watch import Watch
from drsai_backend.teams.replay.steps import ToolPartial

_LOOK: Final = 1.0
"""Seconds between two looks at a turn in flight in another process."""
_LOOKS: Final = 100
"""Looks per second of all readers in this process, about."""
_QUIET: Final = (TextDelta, ThoughtDelta, ToolPartial)


@dataclass(eq=False)
class Changes:
    """For all readers of one engine. `closing`: whether nothing is to be waited for any more."""

    _watch: Watch
    _live: Callable[[ThreadName], LiveRun | None]
    closing: Callable[[], bool]
    _looking: int = 0

    def of(self, name: ThreadName, run_id: str) -> RunChanges:
        """Those of one run from now on, for one reader."""
        live = self._live(name)
        reader = None
        if live is not None and live.run_id == run_id and live.ended is None:
            reader = Reader(live)
            reader.poll()
        return RunChanges(self, name, reader, 0 if reader is None else reader.live.steps_stored)

    async def wait(self, name: ThreadName, key: int, mark: Mark, *, running: bool) -> None:
        """Return when the thread is not as it was at `mark`, or, while its run runs elsewhere, when its turn in flight
        is to be looked at."""
        if not running:
            await self._watch.wait(name, key, mark)
            return
        self._looking += 1
        try:
            async with asyncio.timeout(max(_LOOK, self._looking / _LOOKS)):
                await self._watch.wait(name, key, mark)
        except TimeoutError:
            return
        finally:
            self._looking -= 1


@dataclass(frozen=True, slots=True)
class RunChanges:
    """The changes of one run since this was made."""

    _changes: Changes
    _name: ThreadName
    _reader: Reader | None
    _stored: int

    async def wait(self, key: int, mark: Mark, *, running: bool) -> None:
        """Return when the run may have changed, or the process shuts down; it may return without any reason."""
        reader = self._reader
        if reader is None:
            await self._changes.wait(self._name, key, mark, running=running)
            return
        while True:
            events, live = reader.poll(), reader.live
            if any(not isinstance(event, _QUIET) for event in events) or live.ended is not None:
                return
            # An event may be told a moment before what it is of is stored.
            if live.steps_stored != self._stored:
                return
            await live.more()
