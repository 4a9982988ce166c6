"""Events that are due, and senders for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend.database import DatabaseManager
from drsai_backend.database.webhook_views import DeliveryInfo
from drsai_backend.datamodel import Thread, WebhookDelivery, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.webhooks.sender import Sender
from drsai_backend.webhooks.webhooks import Webhooks
from tests.support.peer import Peer
from tests.support.threads import settings

ANN = Owner("default", "ann")
QUICK: dict[str, Any] = {
    "allowed_addresses": ["127.0.0.1"],
    "webhook_timeout_seconds": 20,  # a machine that stands still sends nothing twice
    "webhook_retry_seconds": [0.05] * 3,
    "sweep_seconds": 0.05,
}


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as peer:
        yield peer


class Outbox:
    """Due events, put in by hand."""

    def __init__(self, db: DatabaseManager) -> None:
        self.db = db
        self.webhooks = Webhooks(db, settings(**QUICK))
        self.secrets: dict[Owner, str] = {}
        self._count = 0

    async def put(self, *urls: str, owner: Owner = ANN, **values: Any) -> list[str]:
        """An event for each URL; their ids."""
        if owner not in self.secrets:
            made = await self.webhooks.make_secret(owner)
            self.secrets[owner] = made.secret.get_secret_value()
        named = {"tenant": owner.tenant, "user_id": owner.user_id, "thread_id": "t"}
        if not await self.db.get(Thread, named):
            await self.db.upsert(Thread(**named))
        [thread] = await self.db.get(Thread, named)
        rows = []
        for url in urls:
            self._count += 1
            endpoint = "/".join(url.split("/")[:3])
            row = {"event_id": f"evt_{self._count:04}", "run_id": f"run_{self._count:04}", "thread_key": thread.id}
            given = {"kind": "run", "type": "run.completed", "subscriber": owner.user_id, "url": url}
            times = {"created_at": utcnow(), "next_at": utcnow(), "attempts": 0}
            rows.append({**row, **owner._asdict(), **given, **times, "endpoint": endpoint, **values})
        await self.db.database.write(lambda session: session.execute(sa.insert(table_of(WebhookDelivery)), rows))
        return [row["event_id"] for row in rows]

    async def all(self, owner: Owner = ANN) -> list[DeliveryInfo]:
        """All events, oldest first."""
        return (await self.webhooks.list(owner, limit=5000)).items[::-1]

    async def over(self, owner: Owner = ANN, seconds: float = 60) -> list[DeliveryInfo]:
        """All events, once none is pending."""
        async with asyncio.timeout(seconds):
            items = await self.all(owner)
            while any(item.state == "pending" for item in items):
                await asyncio.sleep(0.02)
                items = await self.all(owner)
            return items


@pytest.fixture
def outbox(db: DatabaseManager) -> Outbox:
    return Outbox(db)


Send = Callable[..., Sender]


@pytest.fixture
async def send(db: DatabaseManager) -> AsyncIterator[Send]:
    """`send(**settings)` is one more sender at work."""
    async with AsyncExitStack() as stack:

        def made(resolve: Any = None, **values: Any) -> Sender:
            sender = Sender(db, settings(**{**QUICK, **values}), resolve=resolve)
            sender.start()
            stack.push_async_callback(sender.stop)
            return sender

        yield made
