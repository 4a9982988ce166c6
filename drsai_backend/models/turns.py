"""`turn` lets answers that stream take turns: however many do, nobody in the event loop waits for more than a few."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

AT_ONCE: Final = 4
"""Pieces of answers that are handled in a round of the event loop: of the youngest answers, and of any."""
_AGES: Final = 16


class _Turns:
    """Those who wait, by the age of their answer. The youngest go first, so that a short answer soon ends beside many
    long ones; and each age in its turn, so that no answer waits for ever."""

    def __init__(self) -> None:
        self._ages = [deque[asyncio.Future[None]]() for _ in range(_AGES)]
        self._round = 0
        self._is_due = False

    def wait(self, loop: asyncio.AbstractEventLoop, number: int) -> asyncio.Future[None]:
        waiting = loop.create_future()
        self._ages[min(number.bit_length(), _AGES - 1)].append(waiting)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._give, loop)
        return waiting

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        self._round += 1
        place = self._round % _AGES
        for ages in (self._ages, self._ages[place:] + self._ages[:place]):
            left = AT_ONCE
            for age in ages:
                while age and left:
                    waiting = age.popleft()
                    if not waiting.done():  # Its answer was not cancelled.
                        waiting.set_result(None)
                        left -= 1
        self._is_due = any(self._ages)
        if self._is_due:
            loop.call_soon(self._give, loop)


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


async def turn(number: int) -> None:
    """Wait for the turn of a piece of an answer, the one with this number."""
    loop = asyncio.get_running_loop()
    if (turns := _turns.get(loop)) is None:
        turns = _turns[loop] = _Turns()
    await turns.wait(loop, number)
