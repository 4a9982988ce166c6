"""The key store makes, lists, revokes, deletes and checks API keys.

What a key looks like is in `access.keys`, its row in `database.api_keys`, and why a check needs no look at the
database in `access.warm_keys`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from pydantic import SecretStr

from drsai_backend.access.keys import Malformed, make_key, make_key_id, parse_key
from drsai_backend.access.principal import ROLES, Principal, Scope, check_roles, scopes_of
from drsai_backend.access.warm_keys import REVOKED, UNKNOWN, WarmKeys
from drsai_backend.database import Database, api_keys
from drsai_backend.database.api_keys import KeyInfo
from drsai_backend.database.hooks import NO_HOOKS, Hooks
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InvalidRequest, Unauthenticated
from drsai_backend.page import Page

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. This is the only place where `key` is; `info` can be read again."""

    key: SecretStr
    info: KeyInfo


class ApiKeys:
    """The API keys of a database. One object per process and event loop; any number of processes.

    Args:
        database: not closed by this object.
        max_keys: how many keys that work are remembered, those used last, and how many texts that are none.
        stale_seconds: after which time what is remembered of a key is not believed any more. A poll every half of it
            renews that of the keys that were used lately; without any there is no poll.
        grace_seconds: for how much longer it is believed while the database does not answer.
        hooks: what features do where keys are deleted.

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
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        self._database, self._hooks = database, hooks
        self.stale_seconds = stale_seconds
        self._warm = WarmKeys(database, max_keys=max_keys, stale_seconds=stale_seconds, grace_seconds=grace_seconds)
        self._exist = False
        self._missed_at = -math.inf

    async def create(  # noqa: PLR0913 - what programs make a key with
        self,
        owner: Owner,
        scopes: Iterable[str],
        name: str | None = None,
        expires_in: timedelta | None = None,
        *,
        roles: Iterable[str] = (),
        webhook_url: str | None = None,
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
            webhook_url: where its background runs are told of that name no URL themselves; one that
                `Webhooks.check_url` has passed, of a user who has a webhook secret.
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
            webhook_url=webhook_url,
        )
        key = make_key()
        digest = parse_key(key)
        assert not isinstance(digest, Malformed)
        made = NewKey(SecretStr(key), info)

        def store(session: Session) -> NewKey:
            api_keys.insert_key(session, digest, info, actor)
            return made

        await self._database.act(store)
        self._exist = True
        return made

    async def list(
        self, tenant: str | None = None, user_id: str | None = None, after: str | None = None, limit: int = 20
    ) -> Page[KeyInfo]:
        """A page of keys, newest first, those that do not work any more too.

        Args:
            tenant, user_id: only theirs; None: of all.
            after: `next` of the page before.
            limit: how many at most.

        Raises:
            InvalidRequest: `after` is not the `next` of an earlier page.
        """
        return await self._database.read(
            partial(api_keys.list_keys, tenant=tenant, user_id=user_id, after=after, limit=limit)
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
        stored = await self._database.write(partial(api_keys.revoke_key, tenant=tenant, key_id=key_id, actor=actor))
        self._warm.refuse(stored.digest, REVOKED)
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
            partial(api_keys.delete_keys, owner=owner, actor=actor, may_be_last=may_be_last, hooks=self._hooks)
        )
        for digest in digests:
            self._warm.refuse(digest, UNKNOWN)
        return len(digests)

    async def any_exist(self) -> bool:
        """Whether a key was ever made; that the first one was made elsewhere is seen within half of `stale_seconds`."""
        if not self._exist and time.monotonic() - self._missed_at > self.stale_seconds / 2:
            self._exist = await self._database.read(api_keys.any_key, short=True)
            self._missed_at = time.monotonic()
        return self._exist

    @property
    def had_none(self) -> bool:
        """Whether no key was ever made, as far as that was seen last."""
        return not self._exist and self._missed_at > -math.inf

    async def check(self, text: str) -> Principal:
        """Return who asks with this key.

        Raises:
            Unauthenticated: the text is no key, is mistyped, unknown, revoked or expired. The error's text says which.
            DatabaseUnavailable: it is not known, and the database does not answer.
        """
        digest = parse_key(text)
        if isinstance(digest, Malformed):
            raise Unauthenticated(digest.value)
        return await self._warm.check(digest)

    async def close(self) -> None:
        """End the poll, and write when keys were used last."""
        await self._warm.close()


def read_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """The scopes of a new key, by names of scopes and roles. Raises InvalidRequest, param `scope`, for an unknown name
    or none."""
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
