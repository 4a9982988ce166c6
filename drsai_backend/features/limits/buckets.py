"""Buckets are what this process knows of limits: how far each was used up when the database told it last.

By that a request is refused at once that the database would refuse, so who asks too often costs it nothing; headers of
answers say it; and what nobody has an identity for yet, addresses, is counted here alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias

import orjson

from drsai_backend.database.backends.prepared import Row, Step
from drsai_backend.errors import TooManyRequests
from drsai_backend.features.limits import rows
from drsai_backend.features.limits.base import AGAIN, MINUTE, Bound, Bounds, duration
from drsai_backend.features.rules.base import Who
from drsai_backend.features.rules.rows import LOCK
from drsai_backend.json_types import JsonObject

Headers = list[tuple[bytes, bytes]]
Taken: TypeAlias = tuple[Bound, str, int]
"""A limit by the minute, under what it is stored, and by how much what is taken moves it."""
_NO_RUNS: Final = ("[]", "[]")
_REMEMBERED: Final = 100_000
_RESERVED: Final = 16_384
"""Runs of which it is known what was taken for their first calls."""
_ROW: Final = 600_000_000_000
"""Nanoseconds for which it is believed that a bucket has its row, which lives for a day."""
_BELIEVED: Final = 1_000_000_000
"""Nanoseconds for which it is believed that a bucket is used up: others may give tokens back."""
_NEVER: Final = (0, -(10**18))
"""Of a bucket of which nothing was told: when it is full, and when that was told."""


class Buckets:
    """What a process knows of buckets: when each is full, and when that was told, by the clock of this process.

    What is full by now is as if nothing were known of it, so nothing expires: those that were told of first make room.
    A cache with times (cachetools) was half of what limits cost a request.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        self._reserved: dict[str, tuple[int, int, tuple[int, int] | None]] = {}

    def __contains__(self, subject: str) -> bool:
        found = self._known.get(subject)
        return found is not None and time.monotonic_ns() - found[1] < _ROW

    def tell(self, subject: str, ahead: int, now: int | None = None) -> None:
        """A bucket is full in `ahead`; `now`: by the clock of this process."""
        now = time.monotonic_ns() if now is None else now
        if subject not in self._known and len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[subject] = (now + ahead, now)

    def forget(self, subject: str) -> None:
        """A bucket has no row."""
        self._known.pop(subject, None)

    def move(self, costs: Iterable[tuple[str, int]]) -> None:
        """Something was taken from buckets, or given back."""
        now = time.monotonic_ns()
        for subject, by in costs:
            if subject in self._known:
                full, told = self._known[subject]
                self._known[subject] = ((full if full > now else now) + by, told)

    def ahead(self, bound: Bound) -> int:
        """Return in how many nanoseconds a bucket is full, as far as is known."""
        return max(0, self._known.get(bound.subject, _NEVER)[0] - time.monotonic_ns())

    def refuse(self, taken: Iterable[Taken]) -> None:
        """Raise TooManyRequests where the database has just told that so much is not left."""
        now = time.monotonic_ns()
        for bound, subject, cost in taken:
            full, told = self._known.get(subject, _NEVER)
            if now - told < _BELIEVED:
                refuse(bound, (full - now if full > now else 0) + cost)

    def reserve(self, run_id: str, tokens: int) -> None:
        """So many tokens were taken for a run before it uses them."""
        if len(self._reserved) >= _RESERVED:
            del self._reserved[next(iter(self._reserved))]
        self._reserved[run_id] = (tokens, time.monotonic_ns(), None)

    def reserved(self, run_id: str | None, epoch: int, number: int) -> int:
        """Return how many were, for the calls that are given first, named by the first of them: each time, as they are
        given again where their write is in doubt. Calls beside runs, of number 0, are given once. A bucket has the
        tokens back after a minute in any case."""
        run, which = run_id or "", (epoch, number)
        tokens, at, first = self._reserved.get(run, (*_NEVER, None))
        if first not in (None, which) or time.monotonic_ns() - at >= MINUTE:
            return 0
        self._reserved[run] = (tokens if number else 0, at, which)
        return tokens

    def show(self, bounds: Iterable[Bound], headers: Headers | None) -> None:
        """Say in the headers of an answer, if there is one, what is left: of the limits of each measure, of that of
        which the least is."""
        if headers is None:
            return
        now, least = time.monotonic_ns(), dict[str, tuple[int, int, int]]()
        for each in bounds:
            full = self._known.get(each.subject, _NEVER)[0]
            ahead = full - now if full > now else 0
            left = (MINUTE - ahead) // each.unit if ahead < MINUTE else 0, each.most, ahead
            if each.measure not in least or left < least[each.measure]:
                least[each.measure] = left
        found = dict(headers)
        for measure, left in least.items():
            found |= headers_of(measure, *left)
        headers[:] = found.items()


def headers_of(measure: str, left: int, most: int, ahead: int) -> dict[bytes, bytes]:
    """Return the headers of a limit: OpenAI's, and of requests those of the engine that the task API is of, too."""
    name = measure.encode()
    told = {
        b"x-ratelimit-limit-" + name: b"%d" % most,
        b"x-ratelimit-remaining-" + name: b"%d" % left,
        b"x-ratelimit-reset-" + name: duration(ahead).encode(),
    }
    if measure == "requests":
        numbers = {b"limit": most, b"remaining": left, b"reset": math.ceil(ahead / 1e9)}
        told |= {b"x-ratelimit-" + what: b"%d" % number for what, number in numbers.items()}
    return told


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
        is_run: it begins or resumes a run, which counts for the limits of those.
        is_sqlite: the database is of that kind.
    """

    def __init__(
        self,
        buckets: Buckets,
        bounds: Bounds,
        tokens: int,
        headers: Headers | None,
        *,
        is_run: bool,
        is_sqlite: bool,
    ) -> None:
        self.is_paid = False
        self._buckets, self._tokens, self._headers = buckets, tokens, headers
        self._bounds, self._is_sqlite = bounds, is_sqlite
        self._runs, self._live = (bounds.runs, bounds.live) if is_run else ((), _NO_RUNS)
        self._taken: list[Taken] = [
            (each, each.subject, each.unit if each.measure == "requests" else each.cost(tokens))
            for each in bounds.buckets
        ]
        self._run_id = ""
        try:
            buckets.refuse(self._taken)
        except TooManyRequests:
            buckets.show(bounds.buckets, headers)
            raise

    def steps(self, thread_key: int, run_id: str) -> Sequence[Step]:
        """See `Charge`."""
        self._run_id = run_id
        bounds, locks = self._live
        wanted = [{"subject": subject, "cost": cost, "period": MINUTE} for _, subject, cost in self._taken]
        values = {"wanted": _json(wanted), "bounds": bounds, "thread_key": thread_key, "now": time.time_ns()}
        steps: list[Step] = []
        if not self._is_sqlite:
            if unknown := [subject for _, subject, _ in self._taken if subject not in self._buckets]:
                steps.append((rows.MAKE, {"subjects": _json(unknown)}))
            if self._runs:
                steps.append((LOCK, {"locks": locks}))
        return [*steps, (rows.TAKE, values)]

    def check(self, row: Row) -> Sequence[Step]:
        """See `Charge`."""
        now, states, live = row[0], orjson.loads(row[1] or "{}"), orjson.loads(row[2] or "{}")
        here, refusal = time.monotonic_ns(), self._refusal(now, states, live)
        tats: list[JsonObject] = []
        for _, subject, cost in self._taken:
            tat = states[subject] if subject in states and states[subject] > now else now
            tat = tat + cost if refusal is None else tat
            tats.append({"subject": subject, "tat": tat})
            if subject in states or self._is_sqlite:
                self._buckets.tell(subject, tat - now, here)
            else:  # The write that made it was undone.
                self._buckets.forget(subject)
        self._buckets.show(self._bounds.buckets, self._headers)
        if refusal is not None:
            raise refusal
        self._buckets.reserve(self._run_id, self._tokens)
        return [(rows.put, {"tats": _json(tats)})] if self._is_sqlite else ()

    def _refusal(self, now: int, states: Mapping[str, int], live: Mapping[str, int]) -> TooManyRequests | None:
        """Return what a request is refused with by what the database has told; None: it passes."""
        for place, each in enumerate(self._runs):
            if live[str(place)] >= each.most:
                return TooManyRequests(each.too_many(live[str(place)]), after=AGAIN)
        for each, subject, cost in self._taken:
            tat = states.get(subject, now)
            if (wait := (tat if tat > now else now) + cost - now - MINUTE) > 0:
                return TooManyRequests(each.refusal(wait), after=wait / 1e9)
        return None


def _json(values: Iterable[object]) -> str:
    return orjson.dumps([*values]).decode()
