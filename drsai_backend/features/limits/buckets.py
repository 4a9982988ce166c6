"""Buckets are what this process knows of limits: how far each was used up when the database told it last.

By that a request is refused at once that the database would refuse, so who asks too often costs it nothing; headers of
answers say it; and what nobody has an identity for yet, addresses, is counted here alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

import orjson

from drsai_backend.database.backends.prepared import Row, Step
from drsai_backend.errors import TooManyRequests
from drsai_backend.features.limits import rows
from drsai_backend.features.limits.base import AGAIN, BUCKETS, MINUTE, Bound, duration
from drsai_backend.features.rules.base import Who
from drsai_backend.features.rules.rows import LOCK

if TYPE_CHECKING:
    from cachetools import TTLCache

Headers = list[tuple[bytes, bytes]]
_REMEMBERED: Final = 100_000
_ROW: Final = 600_000_000_000
"""Nanoseconds for which it is believed that a bucket has its row, which lives for a day."""
_BELIEVED: Final = 1_000_000_000
"""Nanoseconds for which it is believed that a bucket is used up: others may give tokens back."""


class Buckets:
    """What a process knows of buckets: when each is full, and when that was told, by the clock of this process.

    What is full by now is as if nothing were known of it, so nothing expires: those that were told of first make room.
    A cache with times (cachetools) was half of what limits cost a request.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}

    def __contains__(self, subject: str) -> bool:
        found = self._known.get(subject)
        return found is not None and time.monotonic_ns() - found[1] < _ROW

    def tell(self, subject: str, ahead: int) -> None:
        """A bucket is full in `ahead`."""
        now = time.monotonic_ns()
        self._known.pop(subject, None)
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[subject] = (now + ahead, now)

    def forget(self, subject: str) -> None:
        """A bucket has no row."""
        self._known.pop(subject, None)

    def move(self, subject: str, by: int) -> None:
        """Something was taken from a bucket, or given back."""
        if (found := self._known.get(subject)) is not None:
            self._known[subject] = (max(found[0], time.monotonic_ns()) + by, found[1])

    def ahead(self, bound: Bound) -> int:
        """Return in how many nanoseconds a bucket is full, as far as is known."""
        return max(0, self._known.get(bound.subject, (0, 0))[0] - time.monotonic_ns())

    def refuse(self, bound: Bound, many: int) -> None:
        """Raise TooManyRequests where the database has just told that so much is not left."""
        if time.monotonic_ns() - self._known.get(bound.subject, (0, 0))[1] < _BELIEVED:
            refuse(bound, self.ahead(bound) + bound.cost(many))

    def show(self, bounds: Sequence[Bound], headers: Headers | None) -> None:
        """Say in the headers of an answer, if there is one, what is left: of the limits of each measure, of that of
        which the least is."""
        if headers is None:
            return
        found = dict(headers)
        for measure in BUCKETS:
            those = [(each, self.ahead(each)) for each in bounds if each.measure == measure]
            if of := [(each.left(ahead), each.most, ahead) for each, ahead in those]:
                found |= headers_of(measure, *min(of))
        headers[:] = found.items()


def headers_of(measure: str, left: int, most: int, ahead: int) -> dict[bytes, bytes]:
    """Return the headers of a limit: OpenAI's, and of requests those of the engine that the task API is of, too."""
    told = {
        f"x-ratelimit-limit-{measure}": most,
        f"x-ratelimit-remaining-{measure}": left,
        f"x-ratelimit-reset-{measure}": duration(ahead),
    }
    if measure == "requests":
        told |= {"x-ratelimit-limit": most, "x-ratelimit-remaining": left, "x-ratelimit-reset": math.ceil(ahead / 1e9)}
    return {name.encode(): str(value).encode() for name, value in told.items()}


def refuse(bound: Bound, ahead: int) -> None:
    """Raise TooManyRequests where a bucket would be full in `ahead`, and that is more than it holds."""
    if (wait := ahead - MINUTE) > 0:
        raise TooManyRequests(bound.refusal(wait), after=wait / 1e9)


class Addresses:
    """Requests a minute of each address, counted by one process: what it protects is the process, and a row for each
    address would have strangers fill the database."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buckets = Buckets()

    def take(self, address: str, headers: Headers) -> None:
        """Count a request. Raises TooManyRequests: there were too many from its address."""
        bound = Bound(Who("address", name=_network(address)), "requests", self._most)
        ahead = self._buckets.ahead(bound)
        try:
            refuse(bound, ahead + bound.cost(1))
            ahead += bound.cost(1)
            self._buckets.tell(bound.subject, ahead)
        finally:
            headers += headers_of("requests", bound.left(ahead), self._most, ahead).items()


def _network(address: str) -> str:
    """Return the address, or of version 6 the network of 64 bits that one client has."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found) if not isinstance(found, IPv6Address) else str(IPv6Address(int(found) >> 64 << 64))


class Taking:
    """The charge of a request: what it takes of buckets, and that there are not too many runs.

    Args:
        buckets: are told what the database tells.
        bounds: the limits that it counts for.
        tokens: what its first model call may use.
        headers: those of its answer.
        reserved: where it is kept for `Limits.calls_made` how many tokens were taken before they are used, by run.
        dialect: of the database.
    """

    def __init__(
        self,
        buckets: Buckets,
        bounds: Sequence[Bound],
        tokens: int,
        headers: Headers | None,
        reserved: TTLCache[str, int],
        dialect: str,
    ) -> None:
        self.is_paid = False
        self._buckets, self._tokens, self._headers, self._reserved = buckets, tokens, headers, reserved
        self._taken = [(each, each.subject, each.cost(self._many(each))) for each in bounds if each.measure in BUCKETS]
        self._runs = [each for each in bounds if each.measure == "runs"]
        self._is_sqlite = dialect == "sqlite"
        self._run_id = ""
        try:
            for each, _, _ in self._taken:
                buckets.refuse(each, self._many(each))
        except TooManyRequests:
            buckets.show(bounds, headers)
            raise

    def _many(self, bound: Bound) -> int:
        return 1 if bound.measure == "requests" else self._tokens

    def steps(self, thread_key: int, run_id: str) -> Sequence[Step]:
        """See `Charge`."""
        self._run_id = run_id
        values = {
            "wanted": _json({"subject": subject, "cost": cost, "period": MINUTE} for _, subject, cost in self._taken),
            "bounds": _json({"place": n, **b.who._asdict(), "most": b.most} for n, b in enumerate(self._runs)),
            "thread_key": thread_key,
            "now": time.time_ns(),
        }
        steps: list[Step] = []
        if not self._is_sqlite:
            if unknown := [subject for _, subject, _ in self._taken if subject not in self._buckets]:
                steps.append((rows.MAKE, {"subjects": _json(unknown)}))
            if self._runs:
                steps.append((LOCK, {"locks": _json(b.subject for b in self._runs)}))
        return [*steps, (rows.TAKE, values)]

    def check(self, row: Row) -> Sequence[Step]:
        """See `Charge`."""
        now, states, live = row[0], orjson.loads(row[1] or "{}"), orjson.loads(row[2] or "{}")
        ahead = {subject: max(0, states.get(subject, 0) - now) for _, subject, _ in self._taken}
        for subject, each in ahead.items():
            self._buckets.tell(subject, each)
            if subject not in states and not self._is_sqlite:  # The write that made it was undone.
                self._buckets.forget(subject)
        try:
            for place, b in enumerate(self._runs):
                if live[str(place)] >= b.most:
                    raise TooManyRequests(b.too_many(live[str(place)]), after=AGAIN)
            for b, subject, cost in self._taken:
                refuse(b, ahead[subject] + cost)
            for _, subject, cost in self._taken:
                self._buckets.move(subject, cost)
        finally:
            self._buckets.show([b for b, _, _ in self._taken], self._headers)
        self._reserved[self._run_id] = self._tokens
        if not self._is_sqlite:
            return ()
        return [
            (rows.put, {"subject": subject, "tat": now + ahead[subject] + cost}) for _, subject, cost in self._taken
        ]


def _json(values: Iterable[object]) -> str:
    return orjson.dumps([*values]).decode()
