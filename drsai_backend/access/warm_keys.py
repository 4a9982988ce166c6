"""Warm keys are the API keys that this process knows to work: a check of one looks at no database.

A check looks a key up by the SHA-256 of its text, in a dictionary and, the first time, in the database. Nothing ever
compares a key with a key. How long the comparison of two digests takes may tell how a digest begins, and that is no use
to anybody: a digest does not lead back to 256 random bits. So the time that a check takes tells whether a text is
known, which the answer tells as well, and never how much of it is right. A wrong checksum is refused at once: everybody
can compute it.

A key that was found is believed for two seconds; while it is in use, a poll renews that every second, for all such keys
together by a look at their rows. So a revoked key stops working within two seconds in every process, whatever the
clocks of machines say and however long the transaction took that revoked it. While the database does not answer, keys
that worked are believed for `grace_seconds` more; then no key is valid, and checks raise DatabaseUnavailable.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from cachetools import TTLCache

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database import Database, api_keys
from drsai_backend.database.api_keys import StoredKey
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.access import KeyDigest
from drsai_backend.errors import Conflict, DatabaseError, DatabaseUnavailable, Unauthenticated

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

T = TypeVar("T")

log = logging.getLogger("drsai.access")

UNKNOWN: Final = "the API key is not known here: it is another server's, or was deleted"
REVOKED: Final = "the API key was revoked: ask for another one"

_BATCH: Final = 500  # digests of one look-up
_PACE: Final = 0.01  # seconds between two look-ups, however many unknown keys are tried
_LATELY: Final = 5  # times `stale_seconds`: for so long after its last use a key is polled
_NOTE_EVERY: Final = 60.0  # seconds between two writes of a key's `last_used_at`


@dataclass(slots=True)
class _Warm:
    """A key that worked when it was looked at last, `seen_at`. Times are of the monotonic clock but `expires_at`, which
    is in seconds since 1970."""

    digest: KeyDigest
    principal: Principal
    expires_at: float
    seen_at: float
    used_at: float
    noted_at: float


class WarmKeys:
    """What a process remembers of API keys.

    Args:
        database: not closed by this object.
        max_keys: how many keys that work are remembered, those used last, and how many texts that are none.
        stale_seconds: after which time what is remembered of a key is not believed any more. A poll every half of it
            renews that of the keys that were used lately; without any there is no poll.
        grace_seconds: for how much longer it is believed while the database does not answer.
    """

    def __init__(self, database: Database, *, max_keys: int, stale_seconds: float, grace_seconds: float) -> None:
        self._database = database
        self._max_keys = max_keys
        self._stale = stale_seconds
        self._grace = grace_seconds
        # In the order of their last use. The poll reads all of them, which an LRUCache would take for their use.
        self._warm: OrderedDict[KeyDigest, _Warm] = OrderedDict()
        # By digest why not. Nobody can have tried a key before it was made, so none of them is a new one.
        self._refused: TTLCache[KeyDigest, str] = TTLCache(max_keys, stale_seconds / 2)
        self._wanted: dict[KeyDigest, asyncio.Future[_Warm | str]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self._away = False

    async def check(self, digest: KeyDigest) -> Principal:
        """Return whose key it is that has this digest. Raises as `ApiKeys.check`."""
        warm = self._warm.get(digest)
        if warm is None or not self._believed(warm):
            warm = await self._look_up(digest)
        if warm.expires_at <= time.time():
            moment = datetime.fromtimestamp(warm.expires_at, UTC).isoformat(" ", "seconds")
            raise Unauthenticated(f"the API key expired at {moment}: ask for another one")
        warm.used_at = time.monotonic()
        if digest in self._warm:
            self._warm.move_to_end(digest)
        if self._polling is None or self._polling.done():
            self._polling = _start(self._poll(), "drsai poll keys")
        return warm.principal

    def refuse(self, digest: KeyDigest, refusal: str) -> str:
        """Refuse a key here from now on. Returns `refusal`, which is why: what a check says."""
        self._warm.pop(digest, None)
        self._refused[digest] = refusal
        return refusal

    async def close(self) -> None:
        """End the poll, and write when keys were used last."""
        if self._polling is not None:
            self._polling.cancel()
        tasks = [task for task in (self._polling, self._looking, self._noting) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._note_use(self._warm.values())

    # --- what is not known yet ------------------------------------------------------------------------------------

    def _believed(self, warm: _Warm) -> bool:
        return time.monotonic() - warm.seen_at < self._stale + (self._grace if self._away else 0.0)

    async def _look_up(self, digest: KeyDigest) -> _Warm:
        """Look at the database, together with all others who do so now.

        One query at a time, of many digests, takes one connection, whatever is tried.
        """
        found = self._refused.get(digest)
        if found is None:
            if digest not in self._wanted:
                self._wanted[digest] = asyncio.get_running_loop().create_future()
                # Whoever waits may leave; then nobody asks for the error.
                self._wanted[digest].add_done_callback(lambda future: future.exception())
            future = self._wanted[digest]
            if self._looking is None or self._looking.done():
                self._looking = _start(self._look(), "drsai look up keys")
            found = await asyncio.shield(future)
        if isinstance(found, str):
            raise Unauthenticated(found)
        return found

    async def _look(self) -> None:
        while self._wanted:
            digests = list(islice(self._wanted, _BATCH))
            began = time.monotonic()
            try:
                rows = await self._read(partial(api_keys.find_keys, digests=digests))
                found = [self._remember(digest, rows.get(digest), began) for digest in digests]
            except Exception as error:  # noqa: BLE001 - boundary: it travels to those who wait
                for digest in digests:
                    self._wanted.pop(digest).set_exception(error)
            else:
                for digest, each in zip(digests, found, strict=True):
                    self._wanted.pop(digest).set_result(each)
            await asyncio.sleep(_PACE)

    def _remember(self, digest: KeyDigest, stored: StoredKey | None, seen_at: float) -> _Warm | str:
        """`seen_at`: when the query began. What was committed by then, it has seen."""
        if (refusal := self._refused.get(digest)) is not None:
            return refusal  # It was revoked here while the query was under way.
        if stored is None or stored.info.revoked_at is not None:
            return self.refuse(digest, UNKNOWN if stored is None else REVOKED)
        info = stored.info
        principal = Principal(
            info.user_id,
            info.tenant,
            # One that only a later version knows allows nothing here.
            frozenset(scope for scope in Scope if scope in info.scopes),
            frozenset(info.roles),
            key_id=info.key_id,
        )
        expires_at = math.inf if info.expires_at is None else info.expires_at.timestamp()
        noted_at = -math.inf
        if info.last_used_at is not None:
            noted_at = seen_at - (utcnow() - info.last_used_at).total_seconds()
        self._warm[digest] = warm = _Warm(digest, principal, expires_at, seen_at, seen_at, noted_at)
        if len(self._warm) > self._max_keys:
            self._warm.popitem(last=False)
        return warm

    # --- what is done in the background -----------------------------------------------------------------------------

    async def _poll(self) -> None:
        """Look again and again at the keys that were used lately, until there are none."""
        self._away = told = False
        while True:
            await asyncio.sleep(self._stale / 2)
            began = time.monotonic()
            used = self._used_since(began - _LATELY * self._stale)
            if not used:
                return
            # A database that hangs is away before what was seen last is stale.
            late = asyncio.get_running_loop().call_later(self._stale / 4, self._is_away)
            try:
                live = await self._read(partial(api_keys.live_keys, digests=[digest for digest, _ in used]))
            except DatabaseError as error:
                if not told:
                    log.warning("API keys in use work for some seconds only: %s", error)
                self._away = told = True
                continue
            finally:
                late.cancel()
            told = False
            for digest, warm in used:
                if digest in live:
                    warm.seen_at = began
                else:  # A check finds out why.
                    self._warm.pop(digest, None)
            if self._noting is None or self._noting.done():
                self._noting = _start(self._note_use([warm for _, warm in used]), "drsai note the use of keys")

    def _used_since(self, moment: float) -> Sequence[tuple[KeyDigest, _Warm]]:
        return [*takewhile(lambda item: item[1].used_at > moment, reversed(self._warm.items()))]

    def _is_away(self) -> None:
        self._away = True

    async def _read(self, fn: Callable[[Session], T]) -> T:
        """Return what the database says now: an answer that took so long that it would not be believed is none."""
        try:
            async with asyncio.timeout(self._stale + self._grace):
                result = await self._database.read(fn)
        except TimeoutError:
            raise DatabaseUnavailable("the database does not answer") from None
        self._away = False
        return result

    async def _note_use(self, used: Iterable[_Warm]) -> None:
        """Write of the keys that are due when they were used last. It may be lost: nothing depends on it."""
        due = [warm for warm in used if warm.used_at - warm.noted_at >= _NOTE_EVERY]
        if not due:
            return
        now, at = time.monotonic(), utcnow()
        digests, older_than = [warm.digest for warm in due], at - timedelta(seconds=_NOTE_EVERY)
        try:
            await self._database.write(partial(api_keys.note_use, digests=digests, at=at, older_than=older_than))
        except (DatabaseError, Conflict) as error:
            log.debug("the use of API keys is noted later: %s", error)
            return
        for warm in due:
            warm.noted_at = now


def _start(work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
    """A task that belongs to no request: what it logs must not have the id of the one that happened to start it."""
    return asyncio.create_task(work, name=name, context=Context())
