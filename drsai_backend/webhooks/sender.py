"""The sender finds events that are due, claims, sends and marks them, in every process that has teams at work.

1. `claim` takes some, by a lease that outlives an attempt: nobody else sends them meanwhile. A process that is killed
   leaves them to whoever claims them next, so an event may arrive twice, with the same `webhook-id`, and never not at
   all.
2. Each is sent by itself: bounded in time altogether, in number, per peer and per user.
3. 2xx: it has arrived. 410: the peer wants no more. Anything else, redirects included, is a failure, and repeated
   after the time that the settings say, a fifth more or less by chance; after the last one it is given up.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from contextvars import Context
from datetime import timedelta
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Final, NamedTuple

from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database.webhook_views import StoredSecret, read_secrets
from drsai_backend.database.webhooks import (
    PER_ENDPOINT,
    PER_USER,
    Due,
    any_due,
    claim,
    end_subscription,
    mark_delivered,
    mark_failed,
)
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, DrSaiError, RefusedAddress
from drsai_backend.net.addresses import Reachable
from drsai_backend.net.transport import Resolve
from drsai_backend.webhooks.events import body_of, signed_headers

if TYPE_CHECKING:
    import httpx
    from sqlalchemy.orm import Session

log = logging.getLogger("drsai.webhooks")

IN_FLIGHT: Final = 16
"""Attempts that a process makes at a time."""
_GRACE: Final = 5.0
"""Seconds that attempts under way get at most when the process is stopped."""
_LONGEST: Final = 86400.0
"""Seconds: the longest wait that a peer can ask for (`Retry-After`)."""
_GONE: Final = 410


class _Outcome(NamedTuple):
    """What an attempt has come to. `error` is None when it has arrived; `after`: what the peer asks to wait, in
    seconds."""

    error: str | None
    status_code: int | None = None
    after: float = 0.0


class Sender:
    """Sends the events of one database; any number of processes share the work.

    Args:
        db: decrypts the secrets. Not closed by this object.
        settings: `allowed_addresses`, `webhook_timeout_seconds`, `webhook_retry_seconds`, and `sweep_seconds`, which
            are between two looks.
        resolve: how names are resolved; default: as the system does.
    """

    def __init__(self, db: DatabaseManager, settings: Settings, *, resolve: Resolve | None = None) -> None:
        self._db = db
        self._reachable = Reachable(settings.allowed_addresses)
        self._timeout = settings.webhook_timeout_seconds
        self._delays = settings.webhook_retry_seconds
        self._interval = settings.sweep_seconds
        self._grace = min(_GRACE, settings.shutdown_grace_seconds)
        self._resolve = resolve
        self._client: httpx.AsyncClient | None = None
        self._under_way: dict[asyncio.Task[None], Due] = {}
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send, in the running event loop."""
        # What it logs belongs to no request.
        self._task = asyncio.create_task(self._work(), name="drsai webhooks", context=Context())

    def wake(self) -> None:
        """Look now: something may be due."""
        self._awake.set()

    async def stop(self) -> None:
        """Claim nothing any more, give the attempts under way a few seconds, and leave the rest to others."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=self._grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    # --- claiming ----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            self._awake.clear()
            try:
                found = await self._send_due()
            except DrSaiError as error:
                found = False
                log.warning("no webhooks are sent: %s", error.message)
            except Exception:
                # Without this loop no webhook would ever be sent.
                found = False
                log.exception("no webhooks are sent")
            if not found:
                try:
                    async with asyncio.timeout(self._interval):
                        await self._awake.wait()
                except TimeoutError:
                    pass

    async def _send_due(self) -> bool:
        """Begin attempts, as many as there is room for. False: there is nothing to do now."""
        room = IN_FLIGHT - len(self._under_way)
        if room <= 0:
            return False
        endpoints = Counter(due.endpoint for due in self._under_way.values())
        users = Counter(due.owner for due in self._under_way.values())
        # As long again for a database that is slow to hear of the outcome.
        lease = timedelta(seconds=2 * self._timeout + 1)
        take = partial(
            _claimed,
            name=secrets.token_hex(8),
            lease=lease,
            limit=room,
            full_endpoints=[endpoint for endpoint, count in endpoints.items() if count >= PER_ENDPOINT],
            full_users=[owner for owner, count in users.items() if count >= PER_USER],
        )
        if not await self._db.database.read(any_due, short=True):
            return False
        claimed, signing = await self._db.database.write(take)
        for due in claimed:
            sealed = signing.get(Owner(due.owner.tenant, due.subscriber))
            task = asyncio.create_task(self._attempt(due, sealed), name=f"drsai webhook {due.event_id}")
            self._under_way[task] = due
            task.add_done_callback(self._done)
        return bool(claimed)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._awake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an attempt to send a webhook failed", exc_info=error)

    # --- an attempt --------------------------------------------------------------------------------------------------

    async def _attempt(self, due: Due, signing: StoredSecret | None) -> None:
        # Its process was killed each time: who claims it now ends it.
        is_spent = due.attempts > len(self._delays) + 1
        outcome = _Outcome("the process that sent it ended before the answer") if is_spent else None
        try:
            await self._mark(due, outcome or await self._outcome(due, signing))
        except DrSaiError as error:
            # Its claim runs out, and it is sent once more.
            log.warning("what became of webhook %s is not stored: %s", due.event_id, error.message)

    async def _outcome(self, due: Due, signing: StoredSecret | None) -> _Outcome:
        import httpx

        if signing is None:
            return _Outcome(f"the user {due.subscriber} has no webhook secret")
        try:
            keys = [self._db.secrets.decrypt(sealed) for sealed in signing.sealed]
            async with asyncio.timeout(self._timeout):
                return await self._post(due, keys)
        except TimeoutError:
            return _Outcome(f"no answer within {self._timeout:g} s")
        except (RefusedAddress, ConfigurationError) as error:
            return _Outcome(error.message)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # Their texts may quote addresses of an intranet.
            return _Outcome(f"it could not be sent: {type(error).__name__}")

    async def _post(self, due: Due, keys: Sequence[str]) -> _Outcome:
        from drsai_backend.net.retry_after import pause_of

        body = body_of(due)
        headers = signed_headers(due.event_id, int(time.time()), body, keys)
        headers |= {"content-type": "application/json", "user-agent": "drsai_backend"}
        # What is answered besides the status is nobody's business, and may be endless: it is not read.
        async with self._http().stream("POST", due.url, content=body, headers=headers) as response:
            code = response.status_code
            if response.is_success:
                return _Outcome(None, code)
            what = "a redirect, which is not followed" if response.is_redirect else "no success"
            return _Outcome(f"the answer was {code}: {what}", code, min(pause_of(response.headers) or 0.0, _LONGEST))

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            from drsai_backend.net.clients import client

            # One jar for all peers: what is kept in it would be sent with another user's events, and have no bound.
            jar = CookieJar(DefaultCookiePolicy(allowed_domains=()))
            self._client = client(self._reachable, 0, resolve=self._resolve, timeout=self._timeout, cookies=jar)
        return self._client

    async def _mark(self, due: Due, outcome: _Outcome) -> None:
        database, names = self._db.database, {"run_id": due.run_id, "thread_id": due.thread_id}
        code, error = outcome.status_code, outcome.error
        if error is None:
            assert code is not None
            await database.write(partial(mark_delivered, due=due, status_code=code), short=True)
            log.info("webhook %s arrived at %s", due.event_id, due.endpoint, extra=names)
            return
        again_in = None
        if due.attempts <= len(self._delays) and code != _GONE:
            delay = self._delays[due.attempts - 1] * random.uniform(0.8, 1.2)  # Not all that failed together at once.
            again_in = timedelta(seconds=max(delay, outcome.after))
        await database.write(
            partial(mark_failed, due=due, error=error, status_code=code, again_in=again_in), short=True
        )
        if code == _GONE:
            await database.write(partial(end_subscription, due=due, error="the peer has answered 410 to another one"))
        if again_in is None:
            text = "webhook %s for %s is given up after %d attempts: %s"
            log.warning(text, due.event_id, due.endpoint, due.attempts, error, extra=names)
        else:
            log.info("webhook %s is sent again to %s: %s", due.event_id, due.endpoint, error, extra=names)


def _claimed(
    session: Session,
    *,
    name: str,
    lease: timedelta,
    limit: int,
    full_endpoints: Sequence[str],
    full_users: Sequence[Owner],
) -> tuple[list[Due], dict[Owner, StoredSecret]]:
    """Return what was claimed, and what signs it."""
    found = claim(session, name, lease, limit, full_endpoints=full_endpoints, full_users=full_users)
    return found, read_secrets(session, {Owner(due.owner.tenant, due.subscriber) for due in found})
