"""A circuit breaker leaves an endpoint alone for a while that fails again and again, and then probes it by one call."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from drsai_backend.models.profiles.schema import BreakerRule

MAX_BREAKERS: Final = 1024
_LONGEST: Final = 300.0
_PROBE_SECONDS: Final = 600.0
"""After that a probe of which nothing was heard counts as lost."""


@dataclass(slots=True)
class Breaker:
    """The state of one endpoint. Closed: all calls pass. Open until `open_until`: none does. Then one probe, whose
    outcome closes it, or opens it for twice as long, five minutes at most."""

    clock: Callable[[], float]
    failures: int = 0
    opened: int = 0
    """How often in a row it was opened."""
    open_until: float = 0.0
    probe_since: float | None = None
    epoch: int = 1
    """Another one since it was opened, probed or closed last: what becomes of a call that was begun before that says
    nothing new of the endpoint."""

    def allows(self) -> int | None:
        """The epoch of a call that may be made now, of which `succeeded`, `failed` or `released` is to be told; None:
        none may."""
        now = self.clock()
        if now < self.open_until:
            return None
        if self.opened:
            if self.probe_since is not None and now - self.probe_since < _PROBE_SECONDS:
                return None
            self.probe_since = now
            self.epoch += 1
        return self.epoch

    def succeeded(self) -> None:
        """A call was answered."""
        if self.opened:
            self.epoch += 1
        self.failures = self.opened = 0
        self.probe_since, self.open_until = None, 0.0

    def failed(self, epoch: int, rule: BreakerRule, *, retry_after: float | None = None) -> None:
        """A call has failed, by the endpoint's fault; `retry_after`: it is to be left alone for so many seconds."""
        now = self.clock()
        if epoch == self.epoch:
            self.failures += 1
            if self.opened or self.failures >= rule.failures:  # Of an epoch in which it is open there is the probe.
                self.failures, self.probe_since = 0, None
                self.opened += 1
                self.epoch += 1
                seconds = min(rule.seconds * 2 ** min(self.opened - 1, 16), max(_LONGEST, rule.seconds))
                self.open_until = max(self.open_until, now + seconds)
        if retry_after is not None:
            self.open_until = max(self.open_until, now + min(retry_after, _LONGEST))

    def released(self, epoch: int) -> None:
        """A call ended in a way that says nothing of the endpoint."""
        if epoch == self.epoch:
            self.probe_since = None


class Breakers:
    """The breakers of a `DrSai`, whose runs learn from each other: by endpoint, model and whose key it is, the 1,024
    that were used last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MAX_BREAKERS) -> None:
        self._clock = clock
        self._most = most
        self._known: OrderedDict[tuple[str, str, str], Breaker] = OrderedDict()

    def of(self, endpoint: str, model: str, whose: str = "") -> Breaker:
        """The breaker of a model at an endpoint. `whose`: names a request's own key, whose limits are nobody else's."""
        key = endpoint, model, whose
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Breaker(self._clock)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return found

    def __len__(self) -> int:
        return len(self._known)
