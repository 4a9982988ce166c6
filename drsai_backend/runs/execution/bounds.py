"""The bounds of a run are watched while it is under way: what it has used is counted here, over all its processes, and
ends it when it is too much.

Where each bites: turns at every boundary, also of nested teams; tokens before every model call; seconds by a timer, so
that a model call or a tool which hangs is cut.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from drsai_backend.database.backends.prepared import Step
from drsai_backend.database.hooks import MadeCall
from drsai_backend.database.runs.values import Progress
from drsai_backend.datamodel import utcnow
from drsai_backend.models import UsageMeter
from drsai_backend.models.endpoints.answers import AnsweredCall
from drsai_backend.teams.limits import LimitReached, RunLimits
from drsai_backend.teams.replay.call import calling_tool

log = logging.getLogger("drsai.run")

_NEARLY = 0.8
_LOOK: Final = 60.0
"""Seconds until the next look at the time, at the latest."""


class Bounds:
    """Counts for one run in one process.

    Args:
        limits: what the run may use; None and 0: no bound.
        meter: counts its tokens, those of earlier processes included; readable as `meter`.
        turns: turns that are stored.
        seconds: for how long it ran before.
    """

    def __init__(self, limits: RunLimits, meter: UsageMeter, turns: int = 0, seconds: float = 0.0) -> None:
        self.limits = limits
        self.short_forms = False
        """Whether all who may read what is stored of the run read its short forms."""
        self.turns = turns
        self.unstored: deque[MadeCall] = deque()
        """Model calls that are not stored yet, where features want them (`count_each`)."""
        self._made = 0
        self.meter = meter
        self._seconds = seconds
        self._since = time.monotonic()
        self._inner = 0
        self._warned: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._late: Callable[[LimitReached], None] | None = None

    def count_each(self, *, with_exchanges: bool = False) -> None:
        """Keep each model call until it is stored, from now on, or with it what the model was sent and has answered."""
        self.meter.each, self.meter.keeps_exchanges = self._keep, with_exchanges

    def _keep(self, record: AnsweredCall) -> None:
        self._made += 1
        self.unstored.append(MadeCall(self._made, utcnow(), record, calling_tool.get()))

    def progress(self, *, turn: bool = False, also: Sequence[Step] | None = None) -> Progress:
        """Return how far the run has come; `turn`: with the turn that is about to be stored; `also` stores the calls
        that are not stored yet."""
        turns = self.turns + self._inner + 1 if turn else self.turns
        calls = [*(self.meter.short if self.short_forms else self.meter.records)]
        newest = 0 if also is None else self.unstored[-1].number
        return Progress(self.meter.as_dict(), turns, self.seconds, calls, also or (), newest)

    @property
    def seconds(self) -> float:
        """For how long the run ran, in all processes."""
        return round(self._seconds + time.monotonic() - self._since, 3)

    def start(self, late: Callable[[LimitReached], None]) -> None:
        """The team starts. `late` is called when its time is over."""
        self._since = time.monotonic()
        self._late = late
        if self.limits.max_run_seconds:
            self._look_at_time()

    def stop(self) -> None:
        """The team has ended."""
        self._late = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def turn_stored(self, progress: Progress) -> None:
        """A turn is stored with `progress`."""
        self.turns, self._inner = progress.turns, 0
        self.stored(progress)

    def stored(self, progress: Progress) -> None:
        """The model calls of `progress` are stored with it."""
        while self.unstored and self.unstored[0].number <= progress.newest:
            self.unstored.popleft()

    def check(self) -> None:
        """At a turn boundary: may another turn start?

        Raises:
            LimitReached: no.
        """
        self._check_turns(self.turns)
        self.check_tokens()

    def inner_turn(self) -> None:
        """At a nested team's turn boundary: another of its turns starts, as part of the turn in flight. A turn that is
        repeated counts them once more from the last stored one on.

        Raises:
            LimitReached: it may not.
        """
        self._check_turns(self.turns + self._inner)
        self._inner += 1

    def check_tokens(self) -> None:
        """May another model call start?

        Raises:
            LimitReached: no.
        """
        most = self.limits.max_run_tokens
        if most:
            used = self.meter.total_tokens
            self._warn("max_run_tokens", used, most, "tokens")
            if used >= most:
                text = f"The run was stopped: it has used {used} tokens, and {most} is its bound (max_run_tokens)."
                raise LimitReached("max_run_tokens", text)

    def _check_turns(self, turns: int) -> None:
        most = self.limits.max_turns
        if most:
            self._warn("max_turns", turns, most, "turns")
            if turns >= most:
                text = f"The run was stopped after {turns} turns: {most} is its bound (max_turns)."
                raise LimitReached("max_turns", text)

    def _look_at_time(self) -> None:
        most, used = self.limits.max_run_seconds, self.seconds
        assert most
        self._warn("max_run_seconds", used, most, "seconds")
        if used >= most:
            assert self._late is not None
            text = f"The run was stopped: it ran for {used:.0f} seconds, and {most:g} is its bound (max_run_seconds)."
            self._late(LimitReached("max_run_seconds", text))
            return
        left = (most if used >= _NEARLY * most else _NEARLY * most) - used
        # Not the very moment: a timer may come a little early by the other clock. And not a day ahead: one that is
        # cancelled keeps what its context has until then, the client's key among it (`log_context.hide`).
        self._timer = asyncio.get_running_loop().call_later(min(left + 0.002, _LOOK), self._look_at_time)

    def _warn(self, name: str, used: float, most: float, what: str) -> None:
        if used >= _NEARLY * most and name not in self._warned:
            self._warned.add(name)
            log.warning("a run nears its bound: %g of %g %s", used, most, what, extra={"bound": name})
