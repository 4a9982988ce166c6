"""`Gate` lets a few runs do something at a time, however many want to, and their owners take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from drsai_backend.datamodel.owner import Owner

T = TypeVar("T")

AT_ONCE: Final = 2
"""Where their writes are made in the event loop's own thread."""
WAITING: Final = 16
"""Where they wait for another process to make them."""
_PATIENCE: Final = 0.25


class Gate:
    """Who comes passes while there is a place. Of those who wait, every other one is let in by the turn of its owner,
    and owners that come anew are next; the others by how long they have waited. So who comes while one user's hundreds
    wait is not behind them, and nobody waits for ever.

    Args:
        at_once: how many places there are.
        patience: seconds after which work that others wait for holds them up no longer: a server of tools may not
            answer.
    """

    def __init__(self, at_once: int = AT_ONCE, *, patience: float = _PATIENCE) -> None:
        self._at_once, self._patience = at_once, patience
        self._held: set[object] = set()
        self._late: set[object] = set()
        """Who holds a place since the last look."""
        self._line: deque[tuple[Owner, asyncio.Future[None]]] = deque()
        self._owners: OrderedDict[Owner, deque[asyncio.Future[None]]] = OrderedDict()
        """Those that wait, by their turns."""
        self._by_owner = self._is_watched = False

    async def through(self, owner: Owner, work: Callable[[], Awaitable[T]]) -> T:
        """Return what the work returns, which begins when there is a place. Raises what the work raises."""
        place: object = object()
        waiting = None
        if len(self._held) < self._at_once:
            self._held.add(place)
        else:
            place = waiting = self._queue(owner)
        try:
            if waiting is not None:
                await waiting
            return await work()
        finally:
            self._held.discard(place)
            self._let_in()

    def _queue(self, owner: Owner) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._line.append((owner, waiting))
        if owner not in self._owners:
            self._owners[owner] = deque()
            self._owners.move_to_end(owner, last=False)
        self._owners[owner].append(waiting)
        if not self._is_watched:
            self._is_watched = True
            loop.call_later(self._patience, self._look, loop)
        return waiting

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._held -= self._late
        self._late = {*self._held}
        self._let_in()
        self._is_watched = bool(self._line)
        if self._is_watched:
            loop.call_later(self._patience, self._look, loop)

    def _let_in(self) -> None:
        while self._line and len(self._held) < self._at_once:
            owner, waiting = self._line[0]
            if waiting.done():  # It is let in already, or was cancelled.
                self._line.popleft()
                continue
            if self._by_owner:
                owner = next(iter(self._owners))
            waiting = self._next_of(owner)
            if not waiting.done():
                self._by_owner = not self._by_owner
                self._held.add(waiting)
                waiting.set_result(None)
        if not self._line:
            self._owners.clear()  # Those that were cancelled are left.

    def _next_of(self, owner: Owner) -> asyncio.Future[None]:
        queue = self._owners[owner]
        waiting = queue.popleft()
        if queue:
            self._owners.move_to_end(owner)
        else:
            del self._owners[owner]
        return waiting
