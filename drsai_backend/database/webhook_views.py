"""Views of webhooks are their events as they are shown, and the secrets that sign them: synchronous functions of a
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
from drsai_backend.database.owned import owned_by
from drsai_backend.database.pages import Cursor
from drsai_backend.database.runs.statements import now_of
from drsai_backend.database.webhooks import delivery
from drsai_backend.datamodel import WebhookSecret, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, NotFound
from drsai_backend.page import Page

_secret = table_of(WebhookSecret)
_list: Final = Cursor((delivery.c.id,))


class DeliveryInfo(BaseModel):
    """An event for a webhook, and how far it has come. Times are aware and in UTC."""

    event_id: str = Field(description="`webhook-id`: the same in all attempts.")
    type: str = Field(description="What happened: `run.completed`, `run.failed` …")
    run_id: str
    url: str
    created_at: datetime
    attempts: int = Field(description="How often it was sent so far, or was about to be.")
    next_at: datetime | None = Field(
        default=None, description="When it is sent again, at the earliest; null: it is over."
    )
    delivered_at: datetime | None = None
    status_code: int | None = Field(default=None, description="What was answered to the last attempt.")
    error: str | None = Field(default=None, description="Why the last attempt failed.")

    @computed_field
    @property
    def state(self) -> Literal["pending", "delivered", "given_up"]:
        """What has become of it."""
        if self.next_at is not None:
            return "pending"
        return "given_up" if self.delivered_at is None else "delivered"


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """What signs the webhooks of a user, as ciphertext: all of `sealed` sign, the newest first."""

    created_at: datetime
    sealed: tuple[str, ...]
    previous_until: datetime | None


def list_deliveries(session: Session, owner: Owner, after: str | None, limit: int) -> Page[DeliveryInfo]:
    """A page of the events that a user has asked for. Raises InvalidRequest where `after` is no cursor."""
    query = sa.select(delivery).where(*owned_by(delivery, owner))
    return _list.page(session, query, after, limit).map(DeliveryInfo.model_validate)


def retry_delivery(session: Session, owner: Owner, event_id: str) -> DeliveryInfo:
    """Have an event sent now, and all attempts after that once more: one that was given up or has arrived, too. The one
    under way is not disturbed.

    Raises:
        NotFound: the user has no such event.
    """
    connection, d = session.connection(), delivery.c
    mine = (*owned_by(delivery, owner), d.event_id == event_id)
    again = {"next_at": now_of(connection.dialect.name), "attempts": 0, "delivered_at": None}
    change = sa.update(delivery).where(*mine, d.claim.is_(None)).values(again)
    connection.execute(change, {"now": utcnow()})
    row = connection.execute(sa.select(delivery).where(*mine)).mappings().first()
    if row is None:
        raise NotFound(f"no delivery {event_id!r}", param="delivery_id")
    return DeliveryInfo.model_validate(dict(row))


def read_secrets(session: Session, owners: Collection[Owner]) -> dict[Owner, StoredSecret]:
    """Return what signs the webhooks of these users, where there is something."""
    found: dict[Owner, StoredSecret] = {}
    for owner in owners:
        row = session.connection().execute(sa.select(_secret).where(*owned_by(_secret, owner))).mappings().first()
        if row is not None:
            until: datetime | None = row["previous_until"]
            valid = until is not None and until > utcnow()
            sealed = (row["secret"], row["previous_secret"]) if valid else (row["secret"],)
            found[owner] = StoredSecret(row["created_at"], sealed, until if valid else None)
    return found


def has_secret(session: Session, owner: Owner) -> bool:
    """Whether the user has a secret."""
    query = sa.select(sa.literal(1)).select_from(_secret).where(*owned_by(_secret, owner))
    return session.connection().execute(query).first() is not None


def add_secret(session: Session, owner: Owner, sealed: str, actor: Actor) -> None:
    """Store a user's first secret. Raises Conflict: there is one."""
    if has_secret(session, owner):
        raise Conflict("there is a webhook secret already: rotate it", param="secret")
    values = {"created_at": utcnow(), "secret": sealed}
    session.connection().execute(sa.insert(_secret).values(**owner._asdict(), **values))
    audit(session, actor, Action.WEBHOOK_SECRET_CREATED, owner.user_id, owner)


def replace_secret(session: Session, owner: Owner, sealed: str, until: datetime, actor: Actor) -> None:
    """Store another secret; the one before signs, too, until then. Raises NotFound: there is none."""
    change = sa.update(_secret).where(*owned_by(_secret, owner))
    change = change.values(secret=sealed, previous_secret=_secret.c.secret, previous_until=until, created_at=utcnow())
    if session.connection().execute(change).rowcount != 1:
        raise NotFound("there is no webhook secret yet: make one", param="secret")
    audit(session, actor, Action.WEBHOOK_SECRET_ROTATED, owner.user_id, owner)
