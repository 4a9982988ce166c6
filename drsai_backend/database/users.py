"""Users have no table: a user is whoever something belongs to. Lists of them, and the deletion of all that is one
user's. Synchronous functions of a `Session`.

What belongs to a user is found by the columns of tables, so that a new table with an owner is in it by itself. The
audit log stays: it names its users in other columns.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from drsai_backend.database import schemas
from drsai_backend.database.audit import audit
from drsai_backend.database.hooks import NO_HOOKS, Hooks
from drsai_backend.database.locks import alone
from drsai_backend.database.manager.thread_parts import is_live
from drsai_backend.database.model_answers import forget_answers_of
from drsai_backend.database.owned import NAME, owned_by
from drsai_backend.database.retention import delete_threads
from drsai_backend.database.runs.statements import queue
from drsai_backend.database.shares import is_granted, remove_grants
from drsai_backend.datamodel import (
    ApiKey,
    AuditEntry,
    AutoGenMessage,
    Run,
    RunStatus,
    RunWebhook,
    Thread,
    WebhookDelivery,
    table_of,
    utcnow,
)
from drsai_backend.datamodel.audit import PROGRAM, Action, Actor
from drsai_backend.datamodel.base import UTCDateTime
from drsai_backend.datamodel.lifecycle import WAITING
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.page import Page, cut

THREADS: Final = 50
"""How many threads one transaction deletes."""
ROWS: Final = 1000
"""How many rows of another table."""
_MADE_BY_JOBS: Final = frozenset({"embeddedtext", "searchindex", "work_job"})
_LOOKED_BACK: Final = timedelta(days=30)
"""For how long it is looked for what is left of a user who was deleted."""

_KINDS: Final = {
    "userinput": "user_inputs",
    "singletask": "single_tasks",
    "tasks": "task_lists",
    "plancheck": "plan_checks",
    "agentjson": "agent_configs",
    "apikey": "api_keys",
    "runwebhook": "run_webhooks",
    "webhookdelivery": "webhook_deliveries",
    "webhooksecret": "webhook_secrets",
    "storedanswer": "stored_answers",
    "storedfile": "files",
    "filecontent": "file_contents",
    "storeddefinition": "definitions",
    "work_job": "jobs",
}
"""What the rows of a table are called where they are counted; others go by the name of their table."""

_thread = table_of(Thread)
_run = table_of(Run)
_entry = table_of(AuditEntry).c
_OF_ASKERS: Final = (table_of(RunWebhook), table_of(WebhookDelivery))
"""Their rows go with a thread, and belong to whoever asked for them, which need not be the thread's owner."""
_OF_THREADS: Final = {"messages": table_of(AutoGenMessage), "runs": _run}


class UserSummary(BaseModel):
    """A user of a tenant."""

    user_id: str
    threads: int = Field(description="How many threads are theirs.")


@cache
def owned_tables() -> dict[str, sa.Table]:
    """Return this package's tables whose rows belong to a user, by name."""
    return {table.name: table for table in schemas.tables() if {"tenant", "user_id"} <= {*table.c.keys()}}


def _saying_whose() -> list[sa.Table]:
    """Return those of them that are asked who is a user: of other rows, their thread says whose they are."""
    return [table for table in owned_tables().values() if table in _OF_ASKERS or not table.foreign_keys]


@cache
def loose_tables() -> dict[str, sa.Table]:
    """Return those of them whose rows need no thread, and no key is in them."""
    return {
        name: table
        for name, table in owned_tables().items()
        if table not in (_thread, table_of(ApiKey)) and (table in _OF_ASKERS or not table.foreign_keys)
    }


def list_users(
    session: Session, tenant: str, *, after: str | None = None, limit: int = 20, hooks: Hooks = NO_HOOKS
) -> Page[UserSummary]:
    """A page of the users of a tenant to whom anything belongs: a thread, a key, an agent.

    Args:
        tenant: the tenant.
        after: `next` of the page before.
        limit: how many at most.
        hooks: bring tables of features.
    """
    found: set[str] = set()
    for table in (*_saying_whose(), *hooks.tables):
        # What is a tenant's own is nobody's.
        user, theirs = table.c.user_id, sa.and_(table.c.tenant == tenant, table.c.user_id != "")
        # By code points, as Python compares them, whatever the database's language.
        ordered = sa.collate(user, "C") if session.get_bind().dialect.name == "postgresql" else user
        query = sa.select(ordered).where(theirs, *(() if after is None else (ordered > after,))).distinct()
        found.update(session.execute(query.order_by(ordered).limit(limit + 1)).scalars())
    page = cut(sorted(found), limit, str)
    counts = sa.select(_thread.c.user_id, sa.func.count()).where(
        _thread.c.tenant == tenant, _thread.c.user_id.in_(page.items)
    )
    threads = {row[0]: row[1] for row in session.execute(counts.group_by(_thread.c.user_id))}
    return page.map(lambda user: UserSummary(user_id=user, threads=threads.get(user, 0)))


def owns_anything(session: Session, owner: Owner, hooks: Hooks = NO_HOOKS) -> bool:
    """Whether anything belongs to a user, or is shared with them."""
    return is_granted(session, owner) or any(
        session.execute(sa.select(sa.literal(1)).where(*owned_by(table, owner)).limit(1)).first()
        for table in (*_saying_whose(), *hooks.tables)
    )


def left_of_deleted(session: Session, hooks: Hooks = NO_HOOKS) -> list[tuple[Owner, datetime]]:
    """Return users of whom rows are left though they were deleted in the last 30 days, and since when they are gone: a
    process of an earlier release has deleted them, which does not know all tables. Whoever has a thread or something
    newer, or got one of their threads back, is not gone: what is there is theirs."""
    told = (
        _entry.action == Action.USER_DELETED,
        _entry.at > utcnow() - _LOOKED_BACK,
        # Their keys end before they are exported and anything is deleted, and it may stay at that.
        _entry.detail["api_keys"].as_string().is_(None),
    )
    # By themselves: in the order in which they are grouped, SQLite would read the whole log.
    gone = sa.select(_entry.tenant, _entry.owner, _entry.at).where(*told).cte("gone").prefix_with("MATERIALIZED").c
    newest = sa.select(gone.tenant, gone.owner, sa.func.max(gone.at).label("at"))
    last = newest.group_by(gone.tenant, gone.owner).subquery().c
    is_left = _any_row((*loose_tables().values(), *hooks.tables), operator.le, last.tenant, last.owner, last.at)
    is_back = _is_back(hooks, last.tenant, last.owner, last.at)
    query = sa.select(last.tenant, last.owner, last.at).where(is_left, ~is_back)
    rows = session.connection().execute(query.order_by(last.tenant, last.owner))
    return [(Owner(row.tenant, row.owner), row.at) for row in rows]


def delete_left(session: Session, owner: Owner, gone_at: datetime, hooks: Hooks = NO_HOOKS) -> bool:
    """Delete a part of what `left_of_deleted` has found of a user. False: nothing is left, or they are back."""
    values = (owner.tenant, owner.user_id, sa.literal(gone_at, UTCDateTime()))
    if session.execute(sa.select(_is_back(hooks, *values))).scalar_one():
        return False
    return bool(delete_part(session, owner, PROGRAM, hooks)[0])


def _is_back(hooks: Hooks, tenant: Any, user: Any, gone_at: Any) -> sa.ColumnElement[bool]:
    # An earlier release deletes all threads. One that is imported is as old as it was.
    has_thread = sa.exists().where(_thread.c.tenant == tenant, _thread.c.user_id == user)
    imported = (_entry.action == Action.THREAD_IMPORTED, _entry.at > gone_at)
    was_imported = sa.exists().where(_entry.tenant == tenant, _entry.owner == user, *imported)
    # What jobs of theirs have made since says nothing of them.
    own = (table for table in _saying_whose() if table.name not in _MADE_BY_JOBS)
    return sa.or_(has_thread, was_imported, _any_row((*own, *hooks.tables), operator.gt, tenant, user, gone_at))


def _any_row(
    tables: Iterable[sa.Table], compared: Callable[[Any, Any], Any], tenant: Any, user: Any, gone_at: Any
) -> sa.ColumnElement[bool]:
    times = ((table, table.c.get("created_at", table.c.get("used_at"))) for table in tables)
    return sa.or_(
        *(
            sa.exists().where(table.c.tenant == tenant, table.c.user_id == user, compared(time, gone_at))
            for table, time in times
            if time is not None
        )
    )


def threads_of(session: Session, owner: Owner, *, after: int = 0, limit: int = 500) -> list[tuple[int, str]]:
    """The keys and ids of a user's threads, those after a key first."""
    query = sa.select(_thread.c.id, _thread.c.thread_id).where(*owned_by(_thread, owner), _thread.c.id > after)
    return [(row.id, row.thread_id) for row in session.execute(query.order_by(_thread.c.id).limit(limit))]


def busy_threads(session: Session, owner: Owner, *, limit: int = THREADS) -> dict[str, list[tuple[int, str]]]:
    """Threads of a user on which a run is live now, by id; and of each what waits in its queue: key and run_id."""
    live = is_live(session.get_bind().dialect.name)
    query = sa.select(_thread.c.id, _thread.c.thread_id).where(*owned_by(_thread, owner), live)
    found = {row.id: row.thread_id for row in session.execute(query.order_by(_thread.c.id).limit(limit))}
    waiting = sa.select(queue.c.thread_key, queue.c.run_id).where(queue.c.thread_key.in_(found))
    queued: dict[str, list[tuple[int, str]]] = {thread_id: [] for thread_id in found.values()}
    for key, run_id in session.execute(waiting.order_by(queue.c.id).limit(ROWS)):
        queued[found[key]].append((key, run_id))
    return queued


def runs_elsewhere(session: Session, owner: Owner, *, limit: int = THREADS) -> dict[str, Owner]:
    """Runs that are not over, or wait in a queue, which a user has begun on threads of others: whose thread it is, by
    `run_id`."""
    # In the words of the partial indexes, each of which is read for itself.
    is_live = _run.c.status == sa.literal_column(f"'{RunStatus.RUNNING}'")
    is_waiting = _run.c.status.in_([sa.literal_column(f"'{status}'") for status in WAITING])
    parts = (sa.select(_run.c.id).where(each) for each in (is_live, is_waiting))
    is_open = _run.c.id.in_(sa.union_all(*parts))
    is_queued = sa.exists().where(queue.c.run_id == _run.c.run_id)
    # Not by the index of a tenant's threads, which are more.
    mine = (_thread.c.tenant + "" == owner.tenant, _run.c.principal["user_id"].as_string() == owner.user_id)
    query = sa.select(_run.c.run_id, _thread.c.user_id).join(_thread, _thread.c.id == _run.c.thread_key)
    query = query.where(is_open, *mine, sa.or_(_run.c.status != RunStatus.CREATED, is_queued))
    rows = session.execute(query.order_by(_run.c.id).limit(limit))
    return {row.run_id: Owner(owner.tenant, row.user_id) for row in rows}


def delete_part(
    session: Session, owner: Owner, actor: Actor, hooks: Hooks = NO_HOOKS
) -> tuple[dict[str, int], Sequence[ThreadName]]:
    """Delete some of what belongs to a user, and keys of theirs not: what `hooks` delete; where that is nothing any
    more, threads with all that belongs to them, except those on which a run is live; and where there are none any more,
    rows of other tables, those of features included, and what is shared with them. To be called until nothing is
    deleted; whoever is killed in between begins anew, and finds the user by rows. The audit log says of each part what
    it was.

    Returns:
        How many of which kind, and the threads.
    """
    alone(session, *owner)  # No upload ends beside it.
    counts: Counter[str] = Counter({name: hook(session, owner) for name, hook in hooks.user_deleted.items()})
    names: Sequence[ThreadName] = ()
    if not counts.total():
        counts, names = _delete_threads(session, owner)
        if not names:
            for table in (*loose_tables().values(), *hooks.tables):
                counts[_KINDS.get(table.name, table.name)] = delete_owned(session, table, owner)
            # Somebody who gets the name later must not get what was shared with this one.
            counts["shares_received"] = remove_grants(session, owner)
    deleted = {kind: count for kind, count in counts.items() if count}
    if deleted:
        audit(session, actor, Action.USER_DELETED, owner.user_id, owner, {**deleted})
    return deleted, names


def delete_owned(session: Session, table: sa.Table, owner: Owner, *, limit: int = ROWS) -> int:
    """Delete up to `limit` rows of a user's; returns how many."""
    key = tuple(table.primary_key.columns)
    some = sa.select(*key).where(*owned_by(table, owner)).order_by(*key).limit(limit)
    return session.connection().execute(sa.delete(table).where(sa.tuple_(*key).in_(some))).rowcount


def _delete_threads(session: Session, owner: Owner) -> tuple[Counter[str], Sequence[ThreadName]]:
    is_free = sa.not_(sa.func.coalesce(is_live(session.get_bind().dialect.name), sa.false()))
    columns = (_thread.c.id, *(_thread.c[name] for name in NAME))
    query = sa.select(*columns).where(*owned_by(_thread, owner), is_free).order_by(_thread.c.id).limit(THREADS)
    rows = session.execute(query.with_for_update()).all()
    counts: Counter[str] = Counter(threads=len(rows))
    if rows:
        keys = [row.id for row in rows]
        for kind, table in _OF_THREADS.items():
            mine = sa.select(sa.func.count()).where(table.c.thread_key.in_(keys))
            counts[kind] = session.execute(mine).scalar_one()
        for name, table in loose_tables().items():
            if "thread_id" in table.c:
                theirs = table.c.thread_id.in_([row.thread_id for row in rows])
                mine = sa.select(sa.func.count()).where(*owned_by(table, owner), theirs)
                counts[_KINDS.get(name, name)] = session.execute(mine).scalar_one()
        counts["stored_answers"] = forget_answers_of(session, keys)
        delete_threads(session, rows)
    return counts, [ThreadName(row.tenant, row.user_id, row.thread_id) for row in rows]
