"""Suspects are runs that were on board of two processes that died in the same turn of theirs. One of them may kill what
it runs in, so they are resumed in processes that hold nothing else, by halves and all at once, until it is known
which."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from drsai_backend.datamodel import RunStatus

if TYPE_CHECKING:
    from drsai_backend.runs.recovery.recovery import Recovery

log = logging.getLogger("drsai.recovery")

DEATHS: Final = 2
"""So many deaths in one turn make a run suspect."""
IN_ORDER: Final = 75
"""The exit code of such a process that has ended by itself: whatever it has left undone, no run has killed it."""
_PLACES: Final = 4
"""Such processes that one process has at a time; more groups wait for their turn."""
_GATHER_SECONDS: Final = 1.0
"""How long the suspects of one death are waited for."""
_AGAIN_SECONDS: Final = 30.0


class Ended(NamedTuple):
    """The end of such a process: its exit code is `IN_ORDER`, or says how it has died."""

    pid: int
    code: int


Isolate: TypeAlias = Callable[[Sequence[int]], Awaitable[Ended]]
"""Resumes runs in a process that holds nothing else, given the keys of their threads: each to its next turn boundary,
or its end. The process takes their leases itself, so that nobody holds up another one while it begins."""


@dataclass(eq=False)
class Suspects:
    """The suspects that one process has resumed. Without `isolate` it resumes them itself, one at a time."""

    _recovery: Recovery
    _max_deaths: int
    isolate: Isolate | None = None
    _keys: set[int] = field(default_factory=set[int])
    _new: list[int] = field(default_factory=list[int])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PLACES))
    _here: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __contains__(self, key: int) -> bool:
        """Whether the thread's run is among them; they are no business of a sweep."""
        return key in self._keys

    def add(self, key: int) -> None:
        """Have the run of a thread resumed apart, with those that are added soon after."""
        if key not in self._keys:
            self._keys.add(key)
            self._new.append(key)
            if len(self._new) == 1:
                self._spawn(self._gather())

    async def close(self) -> None:
        """End the processes in order: they hand over what they run."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.create_task(work, context=Context())  # It is of no request.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _gather(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        keys, self._new = sorted(self._new), []
        self._halve(keys)

    def _halve(self, keys: Sequence[int]) -> None:
        half = (len(keys) + 1) // 2
        for part in (keys[:half], keys[half:]):
            if part:
                self._spawn(self._resume(part))

    async def _resume(self, keys: Sequence[int], deaths: int = 0) -> None:
        """Resume runs in a process that holds nothing else. `deaths`: so often has one that is alone died there."""
        try:
            if self.isolate is None:
                await self._resume_here(keys)
            else:
                keys = await self._resume_apart(self.isolate, keys, deaths)
        except Exception as error:
            # Whatever it was, they are runs that others may be able to resume.
            log.error("suspects are not resumed", exc_info=error)
        for key in keys:
            self._keys.discard(key)
            self._recovery.look_later(key)

    async def _resume_here(self, keys: Sequence[int]) -> None:
        for key in keys:
            async with self._here:
                await self._recovery.resume_here(key)

    async def _resume_apart(self, isolate: Isolate, keys: Sequence[int], deaths: int) -> Sequence[int]:
        """Returns those that are to be looked at again: the others are suspect still, and are on their way."""
        async with self._places:
            heads = [head for key in keys if (head := await self._recovery.suspect(key)) is not None]
            if not heads:
                return keys
            pid, code = await isolate([head.key for head in heads])
        if code == IN_ORDER:
            return keys
        died = [now for head in heads if (now := await self._recovery.died_of(head, pid)) is not None]
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        log.warning("a process for %d suspects has died with %d of them: %s", len(heads), len(died), how)
        if not died:
            await asyncio.sleep(_AGAIN_SECONDS)  # It could not even begin.
        elif len(heads) > 1:
            self._halve([head.key for head in died])
        elif deaths + 1 < self._max_deaths:
            self._spawn(self._resume([died[0].key], deaths + 1))
        else:
            reason = f"The run was given up: {deaths + 1} processes that ran nothing else died in its turn ({how})."
            await self._recovery.end(died.pop(), RunStatus.ERROR, error=reason)
        return [key for key in keys if key not in {head.key for head in died}]
