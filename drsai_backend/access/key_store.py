"""API keys: made, listed and revoked, and checked at every request without a look at the database.

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
from typing import Any, Final, TypeVar

from cachetools import TTLCache
from pydantic import SecretStr
from sqlalchemy.orm import Session

from drsai_backend.access import key_rows
from drsai_backend.access.key_rows import KeyInfo, KeyPage, StoredKey
from drsai_backend.access.keys import KeyDigest, Malformed, make_key, make_key_id, parse_key
from drsai_backend.access.principal import ROLES, Principal, Scope, check_roles, scopes_of
from drsai_backend.database import Database
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import Conflict, DatabaseError, DatabaseUnavailable, InvalidRequest, Unauthenticated

T = TypeVar("T")

log = logging.getLogger("drsai.access")

_UNKNOWN: Final = "the API key is not known here: it is another server's, or was deleted"
_REVOKED: Final = "the API key was revoked: ask for another one"
_BATCH: Final = 500  # digests of one look-up
_PACE: Final = 0.01  # seconds between two look-ups, however many unknown keys are tried
_LATELY: Final = 5  # times `stale_seconds`: for so long after its last use a key is polled
_NOTE_EVERY: Final = 60.0  # seconds between two writes of a key's `last_used_at`


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. This is the only place where `key` is; `info` can be read again."""

    key: SecretStr
    info: KeyInfo


@dataclass(slots=True)
class _Warm:
    """A key that worked when it was looked at last, `seen_at`. Times are of the monotonic clock but `expires_at`, which
    is in seconds since 1970."""

    id: int
    principal: Principal
    expires_at: float
    seen_at: float
    used_at: float
    noted_at: float


class ApiKeys:
    """The API keys of a database. One object per process and event loop; any number of processes.

    Args:
        database: not closed by this object.
        max_keys: how many keys that work are remembered, those used last, and how many texts that are none.
        stale_seconds: after which time what is remembered of a key is not believed any more. A poll every half of it
            renews that of the keys that were used lately; without any there is no poll.
        grace_seconds: for how much longer it is believed while the database does not answer.

    Attributes:
        stale_seconds: as given.
    """

    def __init__(
        self,
        database: Database,
        *,
        max_keys: int = 10_000,
        stale_seconds: float = 2.0,
        grace_seconds: float = 5.0,
    ) -> None:
        self._database = database
        self._max_keys = max_keys
        self.stale_seconds = self._stale = stale_seconds
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
        self._exist = False
        self._missed_at = -math.inf

    async def create(
        self,
        owner: Owner,
        scopes: Iterable[str],
        name: str | None = None,
        expires_in: timedelta | None = None,
        *,
        roles: Iterable[str] = (),
        actor: Actor = PROGRAM,
    ) -> NewKey:
        """Make a key. It works at once, in every process.

        Args:
            owner: who asks with it.
            scopes: names of scopes and roles. Roles are stored as the scopes that they have now.
            name: what people call it, "laptop" say.
            expires_in: None: it works until it is revoked.
            roles: the application's roles of who asks with it, `treasurer` say: they answer what is to be answered by
                these, and read what is shared with these. They allow nothing by themselves.
            actor: who makes it, for the audit log; `Principal.actor` of a request.

        Raises:
            InvalidRequest: an unknown scope or none, an owner, name or role that cannot be shown, more than 256 roles,
                a time that is over.
            Conflict: the owner has 1,000 keys that work already.
        """
        check_name(owner.tenant, "tenant")
        check_name(owner.user_id, "user")
        if name is not None:
            check_name(name, "name")
        granted = read_scopes(scopes)
        now = utcnow()
        info = KeyInfo(
            key_id=make_key_id(),
            tenant=owner.tenant,
            user_id=owner.user_id,
            name=name,
            scopes=sorted(granted),
            roles=sorted(check_roles([*roles])),
            created_at=now,
            created_by=actor.user_id,
            expires_at=None if expires_in is None else _end(now, expires_in),
        )
        key = make_key()
        digest = parse_key(key)
        assert not isinstance(digest, Malformed)
        await self._database.write(partial(key_rows.insert_key, digest=digest, info=info, actor=actor))
        self._exist = True
        return NewKey(SecretStr(key), info)

    async def list(
        self, tenant: str | None = None, user_id: str | None = None, after: str | None = None, limit: int = 20
    ) -> KeyPage:
        """A page of keys, newest first, those that do not work any more too.

        Args:
            tenant, user_id: only theirs; None: of all.
            after: `next` of the page before.
            limit: how many at most.

        Raises:
            InvalidRequest: `after` is not the `next` of an earlier page.
        """
        return await self._database.read(
            partial(key_rows.list_keys, tenant=tenant, user_id=user_id, after=after, limit=limit)
        )

    async def revoke(self, tenant: str | None, key_id: str, *, actor: Actor = PROGRAM) -> KeyInfo:
        """End a key: it stops working in this process at once, in the others within two seconds. One that was revoked
        before stays as it is.

        Args:
            tenant: whose key it must be; None: whoever's.
            key_id: its public name, `key_…`.
            actor: who revokes it, for the audit log.

        Raises:
            NotFound: the tenant has no such key.
        """
        stored = await self._database.write(partial(key_rows.revoke_key, tenant=tenant, key_id=key_id, actor=actor))
        self._refuse(stored.digest, _REVOKED)
        return stored.info

    async def delete_of(self, owner: Owner, *, actor: Actor = PROGRAM, may_be_last: bool = False) -> int:
        """Delete all keys of a user, and return how many. They stop working as revoked ones do: in this process at
        once, in the others within `stale_seconds`.

        Args:
            owner: whose keys.
            actor: who deletes them, for the audit log.
            may_be_last: whether no key at all may be left. Without one nobody is asked for a key any more, unless the
                settings say so.

        Raises:
            Conflict: no key would be left. Nothing was deleted.
        """
        digests = await self._database.write(
            partial(key_rows.delete_keys, owner=owner, actor=actor, may_be_last=may_be_last)
        )
        for digest in digests:
            self._refuse(digest, _UNKNOWN)
        return len(digests)

    async def any_exist(self) -> bool:
        """Whether a key was ever made; that the first one was made elsewhere is seen within half of `stale_seconds`."""
        if not self._exist and time.monotonic() - self._missed_at > self._stale / 2:
            self._exist = await self._database.read(key_rows.any_key, short=True)
            self._missed_at = time.monotonic()
        return self._exist

    async def check(self, text: str) -> Principal:
        """Who asks with this key.

        Raises:
            Unauthenticated: the text is no key, is mistyped, unknown, revoked or expired. The error's text says which.
            DatabaseUnavailable: it is not known, and the database does not answer.
        """
        digest = parse_key(text)
        if isinstance(digest, Malformed):
            raise Unauthenticated(digest.value)
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
                rows = await self._read(partial(key_rows.find_keys, digests=digests))
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
            return self._refuse(digest, _UNKNOWN if stored is None else _REVOKED)
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
        self._warm[digest] = warm = _Warm(stored.id, principal, expires_at, seen_at, seen_at, noted_at)
        if len(self._warm) > self._max_keys:
            self._warm.popitem(last=False)
        return warm

    def _refuse(self, digest: KeyDigest, refusal: str) -> str:
        self._warm.pop(digest, None)
        self._refused[digest] = refusal
        return refusal

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
                live = await self._read(partial(key_rows.live_keys, ids=[warm.id for _, warm in used]))
            except DatabaseError as error:
                if not told:
                    log.warning("API keys in use work for some seconds only: %s", error)
                self._away = told = True
                continue
            finally:
                late.cancel()
            told = False
            for digest, warm in used:
                if warm.id in live:
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
        """What the database says now: an answer that took so long that it would not be believed is none."""
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
        ids, older_than = [warm.id for warm in due], at - timedelta(seconds=_NOTE_EVERY)
        try:
            await self._database.write(partial(key_rows.note_use, ids=ids, at=at, older_than=older_than))
        except (DatabaseError, Conflict) as error:
            log.debug("the use of API keys is noted later: %s", error)
            return
        for warm in due:
            warm.noted_at = now


def _start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task that belongs to no request: what it logs must not have the id of the one that happened to start it."""
    return asyncio.create_task(work, name=name, context=Context())


def read_scopes(names: Iterable[str]) -> frozenset[Scope]:
    found: set[Scope] = set()
    for name in names:
        try:
            found |= scopes_of([name])
        except ValueError:
            known = ", ".join(dict.fromkeys([*ROLES, *Scope]))
            raise InvalidRequest(f"there is no scope or role {name!r}, but {known}", param="scope") from None
    if not found:
        raise InvalidRequest("a key needs a scope or a role, such as `user`", param="scope")
    return frozenset(found)


def _end(now: datetime, expires_in: timedelta) -> datetime:
    try:
        if expires_in > timedelta(0):
            return now + expires_in
    except OverflowError:
        raise InvalidRequest("a key cannot expire after the year 9999", param="expires") from None
    raise InvalidRequest("a key must expire in the future", param="expires")
