"""The verbs of webhooks are here: what a request may ask to be told, secrets, and what became of deliveries.

A secret belongs to a user, not to a key, which is replaced more often, nor to a tenant, whose members could then sign
for each other. It is that of whoever holds the credentials: a gateway that acts as others has one for all of them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import SecretStr

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager, api_keys, webhook_views
from drsai_backend.database.api_keys import KeyInfo
from drsai_backend.database.locks import alone
from drsai_backend.database.webhook_views import DeliveryInfo
from drsai_backend.database.webhooks import Kind, Wanted, prune_deliveries
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import Conflict, InvalidRequest
from drsai_backend.net.addresses import Reachable
from drsai_backend.page import Page
from drsai_backend.webhooks.events import make_secret

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

OVERLAP: Final = timedelta(days=1)
"""For how long the secret before signs, too, after one was rotated."""


class NewSecret(NamedTuple):
    """A secret that was just made: it is shown here and never again. Until `previous_until` the one before signs, too;
    None: there was none."""

    secret: SecretStr
    created_at: datetime
    previous_until: datetime | None = None


class Webhooks:
    """Webhooks of a database.

    Args:
        db: encrypts the secrets. Not closed by this object.
        settings: which addresses may be reached, how many deliveries may wait, and how long they are kept.
    """

    def __init__(self, db: DatabaseManager, settings: Settings) -> None:
        self._db = db
        self._reachable = Reachable(settings.allowed_addresses)
        self._max_pending = settings.webhook_max_pending
        self._keep = timedelta(days=settings.webhook_keep_days)

    # --- what is asked for -----------------------------------------------------------------------------------------

    def check_url(self, url: str) -> str:
        """The URL, when it may be a webhook's. What its name stands for is checked at each attempt.

        Raises:
            InvalidRequest: it is none; `RefusedAddress` where its host is an address that is not to be reached.
        """
        self._reachable.check_url(url, "webhook_url")
        return url

    async def check(self, who: Principal, url: str) -> None:
        """Whether `who` may have runs told to that URL.

        Raises:
            InsufficientScope: they lack `webhooks:write`.
            InvalidRequest: it is no URL for this, or they have no secret yet, so that nobody could tell whose it is.
        """
        who.require(Scope.WEBHOOKS_WRITE)
        self.check_url(url)
        signer = subscriber_of(who)
        if not await self._db.database.read(partial(webhook_views.has_secret, owner=signer), short=True):
            raise InvalidRequest(
                f"`webhook_url` needs a secret that signs, and {signer.user_id} has none: POST /v1/webhooks/secret, or "
                "`drsai webhooks secret`, makes one",
                param="webhook_url",
            )

    def wanted(self, who: Principal, url: str | None, kind: Kind) -> Wanted:
        """Return what a background run of `who` asks to be told, with a URL of its own or none."""
        return Wanted(who.owner, subscriber_of(who).user_id, url, who.key_id, kind, self._max_pending)

    async def change_key(
        self, tenant: str | None, key_id: str, url: str | None, *, actor: Actor = PROGRAM
    ) -> tuple[KeyInfo, NewSecret | None]:
        """Set where the background runs of a key are told of that name no URL, or remove it (None).

        Returns:
            The key; and a secret for its user, if they had none.

        Raises:
            InvalidRequest: the URL cannot be used.
            NotFound: the tenant (None: any) has no such key.
            Conflict: it was revoked.
        """
        if url is not None:
            self.check_url(url)

        def change(session: Session) -> tuple[KeyInfo, NewSecret | None]:
            info = api_keys.change_webhook(session, tenant, key_id, url, actor).info
            made = None if url is None else self.secret_in(session, info.owner, actor)
            return info, made

        return await self._db.database.act(change)

    # --- secrets ---------------------------------------------------------------------------------------------------

    async def ensure_secret(self, owner: Owner, *, actor: Actor = PROGRAM) -> NewSecret | None:
        """Make a secret for a user who has none. None: they have one.

        Raises:
            InvalidRequest: no name of a user or tenant.
            ConfigurationError: there is nothing to encrypt it with.
        """
        try:
            return await self._db.database.write(lambda session: self.secret_in(session, owner, actor))
        except Conflict:
            return None

    def secret_in(self, session: Session, owner: Owner, actor: Actor) -> NewSecret | None:
        """`ensure_secret`, in a transaction. Raises Conflict as well: somebody else makes one just now."""
        check_name(owner.tenant, "tenant")
        check_name(owner.user_id, "user")
        alone(session, "webhook secret", *owner)
        if webhook_views.has_secret(session, owner):
            return None
        text = make_secret()
        webhook_views.add_secret(session, owner, self._db.secrets.encrypt(text), actor)
        return NewSecret(SecretStr(text), utcnow())

    async def make_secret(self, owner: Owner, *, actor: Actor = PROGRAM) -> NewSecret:
        """Make a user's secret, or another one in its place: for a day both sign. Raises as `ensure_secret`."""

        def make(session: Session) -> NewSecret:
            made = self.secret_in(session, owner, actor)
            if made is None:
                text, until = make_secret(), utcnow() + OVERLAP
                webhook_views.replace_secret(session, owner, self._db.secrets.encrypt(text), until, actor)
                made = NewSecret(SecretStr(text), utcnow(), until)
            return made

        return await self._db.database.act(make)

    # --- deliveries ------------------------------------------------------------------------------------------------

    async def list(self, owner: Owner, after: str | None = None, limit: int = 20) -> Page[DeliveryInfo]:
        """A page of the events that a user has asked for, newest first. `after` is the `next` of the page before.

        Raises:
            InvalidRequest: it is none.
        """
        return await self._db.database.read(
            partial(webhook_views.list_deliveries, owner=owner, after=after, limit=limit)
        )

    async def retry(self, owner: Owner, event_id: str) -> DeliveryInfo:
        """Have an event sent now, and repeated as a new one is: one that was given up, or has arrived, too.

        Raises:
            NotFound: the user has no such event.
        """
        return await self._db.database.act(partial(webhook_views.retry_delivery, owner=owner, event_id=event_id))

    async def prune(self) -> int:
        """Delete events that arrived or were given up, once they are old. Returns how many."""
        total = 0
        while gone := await self._db.database.write(partial(prune_deliveries, older_than=self._keep)):
            total += gone
        return total


def subscriber_of(who: Principal) -> Owner:
    """Return whose secret signs what `who` asks to be told."""
    return Owner(who.tenant, who.acted_by or who.user_id)
