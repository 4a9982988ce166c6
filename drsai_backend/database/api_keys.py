"""API keys have here the form in which they are stored and shown: read models, and synchronous functions of a
`Session`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import sqlalchemy as sa
from pydantic import BaseModel, Field, computed_field
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.hooks import NO_HOOKS, Hooks
from drsai_backend.database.locks import alone
from drsai_backend.database.owned import owned_by
from drsai_backend.database.pages import Cursor, given
from drsai_backend.database.values import batches
from drsai_backend.datamodel import ApiKey, table_of, utcnow
from drsai_backend.datamodel.access import KeyDigest
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.net.addresses import endpoint_of
from drsai_backend.page import Page

MAX_KEYS: Final = 1000
"""Keys of one user that work: more are those of a program that makes one at every start."""

_LAST_KEYS: Final = (
    "these are the last API keys, and a server without any asks nobody for one: make another user's key first, or set "
    "DRSAI_AUTH=required"
)

_key = table_of(ApiKey)
_list: Final = Cursor((_key.c.id,))


class KeyInfo(BaseModel):
    """An API key as it is shown: everything of it but the key. Times are aware and in UTC."""

    key_id: str
    tenant: str
    user_id: str
    name: str | None = Field(default=None, description="What it is called, by whoever made it.")
    scopes: list[str] = Field(description="What it may do. Roles are written out as they were when it was made.")
    roles: list[str] = Field(default=[], description="The application's roles of who asks, for approvals and shares.")
    created_at: datetime
    created_by: str | None = Field(
        default=None, description="The user who made it; null: the command line or a program."
    )
    expires_at: datetime | None = Field(default=None, description="null: it does not expire.")
    last_used_at: datetime | None = Field(default=None, description="To the minute; null: never.")
    revoked_at: datetime | None = None
    revoked_by: str | None = Field(
        default=None, description="The user who revoked it; null: the command line or a program."
    )
    webhook_url: str | None = Field(
        default=None, description="Where its background runs are told of that name no `webhook_url` themselves."
    )

    @computed_field
    @property
    def state(self) -> Literal["active", "expired", "revoked"]:
        """What it is now. A key that was revoked stays so."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= utcnow() else "active"

    @property
    def owner(self) -> Owner:
        """Whose it is."""
        return Owner(self.tenant, self.user_id)


KeyPage = Page[KeyInfo]  # The name of earlier releases.


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A row: its number, the digest that it is found by, and what is shown of it."""

    id: int
    digest: KeyDigest
    info: KeyInfo


def insert_key(session: Session, digest: KeyDigest, info: KeyInfo, actor: Actor) -> None:
    """Store a new key.

    Raises:
        Conflict: its user has `MAX_KEYS` that work.
    """
    alone(session, "keys", *info.owner)
    works = (_key.c.revoked_at.is_(None), sa.or_(_key.c.expires_at.is_(None), _key.c.expires_at > info.created_at))
    count = sa.select(sa.func.count()).where(*owned_by(_key, info.owner), *works)
    if session.connection().execute(count).scalar_one() >= MAX_KEYS:
        raise Conflict(f"{info.user_id} has {MAX_KEYS} keys that work already: revoke some", param="user")
    values = info.model_dump(exclude={"state"})
    session.connection().execute(sa.insert(_key).values(digest=digest, **values))
    detail: JsonObject = {"scopes": info.scopes, "name": info.name}
    if info.roles:
        detail["roles"] = info.roles
    if info.expires_at is not None:
        detail["expires_at"] = info.expires_at.isoformat()
    if info.webhook_url is not None:
        detail["webhook"] = endpoint_of(info.webhook_url)
    audit(session, actor, Action.KEY_CREATED, info.key_id, info.owner, detail)


def find_keys(session: Session, digests: Collection[KeyDigest]) -> dict[KeyDigest, StoredKey]:
    """The keys that have one of these digests, revoked and expired ones too."""
    rows = session.connection().execute(sa.select(_key).where(_key.c.digest.in_(digests))).all()
    return {row.digest: _stored(row) for row in rows}


def live_keys(session: Session, digests: Collection[KeyDigest]) -> set[KeyDigest]:
    """Return which of these keys are there and not revoked. Expired ones count: who remembers a key knows until
    when."""
    found: set[KeyDigest] = set()
    for part in batches(list(digests)):
        query = sa.select(_key.c.digest).where(_key.c.digest.in_(part), _key.c.revoked_at.is_(None))
        found.update(session.connection().execute(query).scalars())
    return found


def any_key(session: Session) -> bool:
    """Whether a key was ever made: one that was revoked or has expired counts."""
    return session.connection().execute(sa.select(_key.c.id).limit(1)).scalar() is not None


def list_keys(
    session: Session, tenant: str | None, user_id: str | None, after: str | None, limit: int
) -> Page[KeyInfo]:
    """See `ApiKeys.list`. Raises InvalidRequest where `after` is no cursor."""
    query = sa.select(_key).where(*given((tenant, _key.c.tenant.__eq__), (user_id, _key.c.user_id.__eq__)))
    return _list.page(session, query, after, limit).map(KeyInfo.model_validate)


def revoke_key(session: Session, tenant: str | None, key_id: str, actor: Actor) -> StoredKey:
    """Revoke a key of a tenant's; None: of whichever. One that was revoked before stays as it is.

    Raises:
        NotFound: there is none.
    """
    mine = (_key.c.key_id == key_id, *given((tenant, _key.c.tenant.__eq__)))
    connection = session.connection()
    revoked = {"revoked_at": utcnow(), "revoked_by": actor.user_id}
    change = sa.update(_key).where(*mine, _key.c.revoked_at.is_(None)).values(revoked)
    is_new = connection.execute(change).rowcount == 1
    row = connection.execute(sa.select(_key).where(*mine)).first()
    if row is None:
        raise NotFound(f"no key {key_id!r}", param="key_id")
    stored = _stored(row)
    if is_new:
        audit(session, actor, Action.KEY_REVOKED, key_id, stored.info.owner)
    return stored


def change_webhook(session: Session, tenant: str | None, key_id: str, url: str | None, actor: Actor) -> StoredKey:
    """Set or remove where a key's background runs are told of. Else as `revoke_key`.

    Raises:
        NotFound: there is no such key.
        Conflict: it was revoked.
    """
    mine = (_key.c.key_id == key_id, *given((tenant, _key.c.tenant.__eq__)))
    connection = session.connection()
    row = connection.execute(sa.select(_key).where(*mine).with_for_update()).first()
    if row is None:
        raise NotFound(f"no key {key_id!r}", param="key_id")
    before = _stored(row)
    if before.info.revoked_at is not None and url is not None:
        raise Conflict(f"the key {key_id!r} was revoked: nothing runs with it any more", param="key_id")
    if before.info.webhook_url != url:
        connection.execute(sa.update(_key).where(_key.c.id == before.id).values(webhook_url=url))
        detail: JsonObject = {"webhook": None if url is None else endpoint_of(url)}
        audit(session, actor, Action.KEY_CHANGED, key_id, before.info.owner, detail)
    return StoredKey(before.id, before.digest, before.info.model_copy(update={"webhook_url": url}))


def delete_keys(
    session: Session, owner: Owner, actor: Actor, *, may_be_last: bool, hooks: Hooks = NO_HOOKS
) -> list[KeyDigest]:
    """Delete all keys of a user, with what `hooks` have of them. Returns their digests.

    Raises:
        Conflict: there would be no key any more, and that must not be.
    """
    connection = session.connection()
    mine = owned_by(_key, owner)
    gone = connection.execute(sa.delete(_key).where(*mine).returning(_key.c.digest, _key.c.key_id)).all()
    if not gone:
        return []
    for hook in hooks.keys_deleted:
        hook(session, owner, [row.key_id for row in gone])
    # Locked, so that of two who delete the last two keys one fails.
    other = connection.execute(sa.select(_key.c.id).limit(1).with_for_update(read=True)).first()
    if other is None and not may_be_last:
        raise Conflict(_LAST_KEYS, param="user_id")
    audit(session, actor, Action.USER_DELETED, owner.user_id, owner, {"api_keys": len(gone)})
    return [row.digest for row in gone]


def note_use(session: Session, digests: Collection[KeyDigest], at: datetime, *, older_than: datetime) -> None:
    """Write when keys were used last, where what is written is older than that."""
    old = sa.or_(_key.c.last_used_at.is_(None), _key.c.last_used_at < older_than)
    for part in batches(list(digests)):
        # Locked rows are in use: another process writes the same of them just now, or revokes them.
        due = sa.select(_key.c.id).where(_key.c.digest.in_(part), old).order_by(_key.c.id)
        rows = due.with_for_update(skip_locked=True)
        session.connection().execute(sa.update(_key).where(_key.c.id.in_(rows)).values(last_used_at=at))


def _stored(row: sa.Row[*tuple[object, ...]]) -> StoredKey:
    values = row._mapping  # pyright: ignore[reportPrivateUsage] - SQLAlchemy's public name for it
    return StoredKey(values["id"], values["digest"], KeyInfo.model_validate(values))
