"""`turn` lets answers that stream take turns: however many do, nobody in the event loop waits for more than a few."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import Final
from weakref import WeakKeyDictionary

AT_ONCE: Final = 1
"""Turns of answers in a round of the event loop: of the youngest answers, and of any."""
_FREE: Final = 2
"""Turns of a round that are taken without a wait, where nobody waits: an answer takes one to read what has come, and
one to hand it on, in each for so many pieces:"""
AT_A_TURN: Final = 4
"""Pieces that have come together, as nothing was waited for between them. They are shown, and sent, as one. A bystander
waits for as many as with two turns of two pieces each, but half as many answers are taken up, each of which has left
the caches of the processor. One that comes alone has its turn alone."""
_AGES: Final = 16
_MEMORY: Final = 1024
"""Rounds after which half of what an owner has had is forgotten."""

owner: Final = ContextVar[object]("owner", default=None)
"""Whose answers they are, in the tasks of a run. None: nobody's in particular."""


class Turns:
    """Those who wait, by the age of their answer, or by the turns that its owner has had lately, where these are more.
    The youngest go first, so that a short answer soon ends beside many long ones, and one user's beside another's
    hundreds; and each age in its turn, so that no answer waits for ever."""

    def __init__(self) -> None:
        self._ages = [deque[asyncio.Future[None]]() for _ in range(_AGES)]
        self._had: dict[object, int] = {}
        self.round = 0
        """Counts rounds of the event loop after which turns were given: where it is the same, none has passed while
        somebody waits."""
        self._free = _FREE
        """Turns of this round that are taken without a wait: nobody waits."""
        self._is_due = False

    def take(self, number: int) -> asyncio.Future[None] | None:
        """Take the turn of a piece of an answer, the one with this number, or of what comes after so many. Returns what
        is to be awaited first; None: nobody waits."""
        if not self._is_due:
            self._is_due = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._give, loop)
        if (whose := owner.get()) is not None:
            self._had[whose] = had = self._had.get(whose, 0) + 1
            if had > number:
                number = had
        if self._free:
            self._free -= 1
            return None
        waiting = asyncio.get_running_loop().create_future()
        self._ages[min(number.bit_length(), _AGES - 1)].append(waiting)
        return waiting

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        self.round += 1
        if self.round % _MEMORY == 0:
            self._had = {whose: had // 2 for whose, had in self._had.items() if had > 1}
        place = self.round % _AGES
        for ages in (self._ages, self._ages[place:] + self._ages[:place]):
            left = AT_ONCE
            for age in ages:
                while age and left:
                    waiting = age.popleft()
                    if not waiting.done():  # Its answer was not cancelled.
                        waiting.set_result(None)
                        left -= 1
        self._is_due = any(self._ages)
        self._free = 0 if self._is_due else _FREE
        if self._is_due:
            loop.call_soon(self._give, loop)


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns_here() -> Turns:
    """Return the turns of the running loop."""
    loop = asyncio.get_running_loop()
    if (turns := _turns.get(loop)) is None:
        turns = _turns[loop] = Turns()
    return turns


async def turn(number: int) -> None:
    """Wait for a turn; see `Turns.take`."""
    if (waiting := turns_here().take(number)) is not None:
        await waiting
