"""Webhooks have an outbox of events: each is stored in the transaction of what it tells, and claimed by whoever sends
it.

Synchronous functions of a `Session`. A claim is a lease: it moves `next_at` to when its holder counts as dead, by the
database's clock on PostgreSQL, and so needs nobody who gives it back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared, Step
from drsai_backend.database.owned import owned_by
from drsai_backend.database.runs.statements import expires_of, insert_row, now_of, run, thread
from drsai_backend.datamodel import ApiKey, RunStatus, RunWebhook, UTCDateTime, WebhookDelivery, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import TooManyWebhooks
from drsai_backend.json_types import JsonObject
from drsai_backend.net.addresses import endpoint_of

Kind: TypeAlias = Literal["run", "response"]
"""What events call a run: a chat's is a run, one that the Responses API has begun is a response."""

EVENTS: Final = {
    RunStatus.COMPLETED: "run.completed",
    RunStatus.STOPPED: "run.stopped",
    RunStatus.ERROR: "run.failed",
    RunStatus.AWAITING_INPUT: "run.awaiting_input",
    RunStatus.PAUSED: "run.paused",
}
"""What is told when a run, or a part of it, has ended so."""

PER_ENDPOINT: Final = 4
"""Attempts to one scheme, host and port that a process makes at a time: a peer that hangs holds up no other one."""
PER_USER: Final = 8
"""And for one user."""
LOOKED_AT: Final = 1000
"""Events that are due longest, from which a claim chooses: what it costs must not grow with all that are due."""

webhook = table_of(RunWebhook)
delivery = table_of(WebhookDelivery)
_key = table_of(ApiKey)
_insert_webhook = Prepared(lambda _: insert_row(webhook, "id"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new background run asks to be told.

    Attributes:
        asked_by: who asks.
        subscriber: the user of the same tenant whose secret signs.
        url: where to; None: what the API key `key_id` says, if anything.
        kind: what the events call it.
        max_pending: how many events of who asks may be on their way for it to be taken.
    """

    asked_by: Owner
    subscriber: str
    url: str | None
    key_id: str | None
    kind: Kind = "run"
    max_pending: int = 10_000


@dataclass(frozen=True, slots=True)
class Due:
    """An event that was claimed, to be sent now. `attempts` counts this one."""

    id: int
    claim: str
    event_id: str
    created_at: datetime
    thread_id: str
    run_id: str
    owner: Owner
    subscriber: str
    kind: str
    type: str
    url: str
    endpoint: str
    attempts: int


# --- asked for, and raised ---------------------------------------------------------------------------------------


def wanting(session: Session, thread_key: int, run_id: str, wanted: Wanted) -> Sequence[Step]:
    """Return the statement which notes that the ends of a new run are to be told, if its request or its key says where.

    Raises:
        TooManyWebhooks: too many events of who asks are on their way.
    """
    connection, tenant = session.connection(), wanted.asked_by.tenant
    url = wanted.url
    if url is None and wanted.key_id is not None:
        of_key = sa.select(_key.c.webhook_url).where(_key.c.tenant == tenant, _key.c.key_id == wanted.key_id)
        url = connection.execute(of_key).scalar()
    if url is None:
        return ()
    _check_pending(connection, wanted)
    row = {"thread_key": thread_key, "run_id": run_id, **wanted.asked_by._asdict()}
    rest = {"subscriber": wanted.subscriber, "kind": wanted.kind, "url": url, "endpoint": endpoint_of(url)}
    return [(_insert_webhook, {**row, **rest})]


def _check_pending(connection: sa.Connection, wanted: Wanted) -> None:
    theirs = sa.select(delivery.c.id).where(*owned_by(delivery, wanted.asked_by), delivery.c.next_at.is_not(None))
    # Reads no more rows than the bound.
    if connection.execute(theirs.offset(wanted.max_pending - 1).limit(1)).first() is not None:
        raise TooManyWebhooks(
            f"{wanted.max_pending} webhooks of {wanted.asked_by.user_id} have not arrived yet: look at what their peer "
            "answers (GET /v1/webhooks/deliveries), or ask without a webhook"
        )


@Prepared
def _raise_events(dialect: str) -> sa.ClauseElement:
    moment = sa.bindparam("now", type_=UTCDateTime())
    ended = sa.select(run.c.run_id).where(
        sa.or_(run.c.run_id == sa.bindparam("run"), run.c.joined == sa.bindparam("run"))
    )
    given = ("thread_key", "run_id", "tenant", "user_id", "subscriber", "kind", "url", "endpoint")
    event_id = sa.literal("evt_", sa.String()) + sa.func.substr(webhook.c.run_id, 5)
    made = sa.select(
        event_id + sa.cast(sa.bindparam("suffix"), sa.String()),
        sa.cast(sa.bindparam("type"), sa.String()),
        moment,
        moment if dialect == "sqlite" else now_of(dialect),
        *(webhook.c[name] for name in given),
    ).where(
        # Not by the index of what the thread's runs have asked for, which is more.
        webhook.c.thread_key + 0 == sa.bindparam("key"),
        webhook.c.run_id.in_(ended),
    )
    return sa.insert(delivery).from_select(["event_id", "type", "created_at", "next_at", *given], made)


def raising(key: int, run_id: str, epoch: int, status: RunStatus, now: datetime) -> Step:
    """The statement that stores the events of the end of a run, or of a part of it: its own, and those of the runs
    whose input it has taken up. It belongs into the transaction that stores the status. A run ends once in an epoch of
    its thread, so run and epoch name the event.
    """
    values = {"key": key, "run": run_id, "suffix": f"_{epoch}", "type": EVENTS[status], "now": now}
    return _raise_events, values


# --- sending -----------------------------------------------------------------------------------------------------


def any_due(session: Session) -> bool:
    """Whether any event is due."""
    connection, d = session.connection(), delivery.c
    query = sa.select(sa.literal(1)).where(d.next_at.is_not(None), d.next_at <= now_of(connection.dialect.name))
    return connection.execute(query.limit(1), {"now": utcnow()}).first() is not None


def claim(
    session: Session,
    name: str,
    lease: timedelta,
    limit: int,
    *,
    full_endpoints: Collection[str] = (),
    full_users: Collection[Owner] = (),
) -> list[Due]:
    """Claim events that are due: of those that are due longest, the ones that were tried least.

    Args:
        name: of the claim; of this call only.
        lease: after which time the claim counts for nothing.
        limit: how many at most; `PER_ENDPOINT` of an endpoint and `PER_USER` of a user.
        full_endpoints, full_users: of which there are to be none.
    """
    connection, d = session.connection(), delivery.c
    now = utcnow()
    times = {"now": now, "lease": lease, "expires": now + lease}
    is_due = (d.next_at.is_not(None), d.next_at <= now_of(connection.dialect.name))
    longest = sa.select(d.id, d.tenant, d.user_id, d.endpoint, d.attempts, d.next_at).where(*is_due)
    if full_endpoints:
        longest = longest.where(d.endpoint.not_in(full_endpoints))
    if full_users:
        longest = longest.where(sa.tuple_(d.tenant, d.user_id).not_in(list(full_users)))
    due = longest.order_by(d.next_at).limit(LOOKED_AT).subquery()
    order = (due.c.attempts, due.c.next_at, due.c.id)
    first = sa.select(due, sa.func.row_number().over(partition_by=due.c.endpoint, order_by=order).label("of_endpoint"))
    some = first.subquery()
    fair = (some.c.tenant, some.c.user_id)
    by_age = (some.c.attempts, some.c.next_at, some.c.id)
    second = sa.select(some, sa.func.row_number().over(partition_by=fair, order_by=by_age).label("of_user"))
    picked = second.where(some.c.of_endpoint <= PER_ENDPOINT).subquery()
    chosen = sa.select(picked.c.id).where(picked.c.of_user <= PER_USER)
    chosen = chosen.order_by(picked.c.attempts, picked.c.next_at, picked.c.id).limit(limit)
    ids = list(connection.execute(chosen, times).scalars())
    if not ids:
        return []
    # Where another process was faster, the row is not due any more once its change is seen.
    change = (
        sa.update(delivery)
        .where(d.id.in_(ids), *is_due)
        .values(next_at=expires_of(connection.dialect.name), claim=name, attempts=d.attempts + 1)
        .returning(delivery)
    )
    rows = connection.execute(change, times).mappings().all()
    named = sa.select(thread.c.id, thread.c.thread_id).where(thread.c.id.in_({row["thread_key"] for row in rows}))
    threads = {row.id: row.thread_id for row in connection.execute(named)}
    return [_due(row, threads[row["thread_key"]]) for row in rows]


def _due(row: sa.RowMapping, thread_id: str) -> Due:
    names = ("id", "claim", "event_id", "created_at", "run_id", "subscriber", "kind", "type", "url", "endpoint")
    given: JsonObject = {name: row[name] for name in (*names, "attempts")}
    return Due(**given, thread_id=thread_id, owner=Owner(row["tenant"], row["user_id"]))


def mark_delivered(session: Session, due: Due, status_code: int) -> bool:
    """The event has arrived. False: its claim was over, and somebody else sends it, or it is gone."""
    over = {"next_at": None, "claim": None, "delivered_at": utcnow(), "status_code": status_code, "error": None}
    return session.connection().execute(_held(due).values(over)).rowcount == 1


def mark_failed(session: Session, due: Due, error: str, status_code: int | None, again_in: timedelta | None) -> bool:
    """An attempt has failed. `again_in`: when the next one is; None: there is none. Returns as `mark_delivered`."""
    connection = session.connection()
    values: dict[str, object] = {"claim": None, "error": error, "status_code": status_code, "next_at": None}
    times: dict[str, object] = {}
    if again_in is not None:
        values["next_at"] = expires_of(connection.dialect.name)
        times = {"lease": again_in, "expires": utcnow() + again_in}
    return connection.execute(_held(due).values(values), times).rowcount == 1


def end_subscription(session: Session, due: Due, error: str) -> None:
    """The peer wants no more: what else is on its way to that URL for that user is given up, and keys forget it."""
    connection, d = session.connection(), delivery.c
    same = (*owned_by(delivery, due.owner), d.url == due.url)
    given_up = {"next_at": None, "claim": None, "error": error}
    connection.execute(sa.update(delivery).where(*same, d.next_at.is_not(None)).values(given_up))
    theirs = (*owned_by(webhook, due.owner), webhook.c.url == due.url)
    connection.execute(sa.delete(webhook).where(*theirs))
    subscriber = Owner(due.owner.tenant, due.subscriber)
    keys = (*owned_by(_key, subscriber), _key.c.webhook_url == due.url)
    connection.execute(sa.update(_key).where(*keys).values(webhook_url=None))


def _held(due: Due) -> sa.Update:
    return sa.update(delivery).where(delivery.c.id == due.id, delivery.c.claim == due.claim)


def prune_deliveries(session: Session, older_than: timedelta, limit: int = 1000) -> int:
    """Delete up to `limit` events that are over and older, and return how many: call it until it says 0."""
    old = sa.select(delivery.c.id).where(delivery.c.next_at.is_(None), delivery.c.created_at < utcnow() - older_than)
    chosen: Sequence[int] = session.connection().execute(old.limit(limit)).scalars().all()
    if chosen:
        session.connection().execute(sa.delete(delivery).where(delivery.c.id.in_(chosen)))
    return len(chosen)
