"""Retention removes threads, those above all that nobody has touched for long: synchronous functions of a `Session`.

`drsai threads prune` calls them, and so does the job behind `DRSAI_RETENTION_DAYS` and `DRSAI_RETENTION`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.manager.thread_parts import is_live
from drsai_backend.database.model_answers import forget_answers_of
from drsai_backend.database.owned import NAME, any_of_threads, of_thread
from drsai_backend.database.values import batches
from drsai_backend.datamodel import PlanCheck, RunStatus, SingleTask, Tasks, Thread, UserInput, table_of, utcnow
from drsai_backend.datamodel.audit import PROGRAM, Action, Actor
from drsai_backend.datamodel.lifecycle import IDLE, SUSPENDED
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import InvalidRequest, ThreadBusy
from drsai_backend.json_types import JsonObject

OVER: Final = tuple(sorted(IDLE))
"""What a thread is of which nothing is under way."""

BATCH: Final = 200
LOOKED: Final = 5_000
"""Threads that one transaction looks at, whosever they are: no index has them by their age."""

NAMED: Final = (UserInput, SingleTask, Tasks, PlanCheck)
"""These name their thread by `user_id` and `thread_id`. The other tables refer to its key, and their rows go with it by
ON DELETE CASCADE."""

_thread = table_of(Thread)


class Rule(NamedTuple):
    """Which threads are deleted, as arguments of `prune`."""

    older_than: timedelta
    statuses: frozenset[RunStatus]
    tenant: str | None
    but: Sequence[str]


def rules(days: float | None, given: Mapping[str, float]) -> list[Rule]:
    """Return what is deleted where threads with nothing under way are kept for `days` (None: for ever), but for what is
    `given`: days by `STATUS`, for all tenants, or by `TENANT/STATUS`. `*` is each status with nothing under way, and 0
    is for ever. What is said of a tenant counts before what is said of all, and a status before `*`."""
    said: defaultdict[str | None, dict[str, float]] = defaultdict(dict)
    for name, each in given.items():
        tenant, _, status = name.rpartition("/")
        said[tenant or None][status] = each
    named, common = [tenant for tenant in said if tenant is not None], said[None]
    found: list[Rule] = []
    for tenant in (None, *named):
        by_days: defaultdict[float, set[RunStatus]] = defaultdict(set)
        for status in (*OVER, *SUSPENDED):
            is_over = status in OVER
            own = (said[tenant].get(status), said[tenant].get("*") if is_over else None)
            all_of = (common.get(status), common.get("*", days) if is_over else None)
            kept = next((each for each in (*own, *all_of) if each is not None), 0)
            by_days[kept].add(status)
        by_days.pop(0, None)
        but = () if tenant else named
        found += [Rule(timedelta(days=kept), frozenset(which), tenant, but) for kept, which in by_days.items()]
    return found


def prune(  # noqa: PLR0913 - which threads, in words of who prunes
    session: Session,
    *,
    older_than: timedelta,
    statuses: Iterable[RunStatus] = OVER,
    tenant: str | None = None,
    but: Sequence[str] = (),
    user_id: str | None = None,
    after: int = 0,
    limit: int = BATCH,
    looked: int = LOOKED,
    actor: Actor = PROGRAM,
) -> tuple[int, int | None]:
    """Delete up to `limit` threads with all that belongs to them, of the next `looked` behind the key `after`; with
    `user_id` of all, as an index has theirs.

    Those of one of the `statuses` that have not changed for longer than `older_than`; by default those of which nothing
    is under way. Those that wait for results of their clients' tools count as completed. A thread with a live run or an
    input in its queue is never among them. Without `tenant`, or `user_id`: of all, `but` of these tenants. The audit
    log says how many of each tenant.

    Returns:
        How many, and what the next call is given as `after`; None: there are no threads behind it.

    Raises:
        InvalidRequest: `older_than` reaches back before the first year.
    """
    key, order, last = _thread.c.id, [_thread.c.id], None
    terms = _terms(session, older_than, statuses, tenant, user_id)
    if user_id is None:
        window = sa.select(key).where(key > after).order_by(key).limit(looked).subquery()
        last = session.execute(sa.select(sa.func.max(window.c.id))).scalar_one()
        if last is None:
            return 0, None
        terms.append(key.between(after + 1, last))
    else:  # In the order of the index that has theirs.
        order.insert(0, _thread.c.updated_at)
    if but:
        terms.append(_thread.c.tenant.not_in(but))
    query = sa.select(key, *(_thread.c[name] for name in NAME)).where(*terms)
    # Locked rows are in use.
    rows = session.execute(query.order_by(*order).limit(limit).with_for_update(skip_locked=True)).all()
    for where, count in Counter(row.tenant for row in rows).items():
        detail: JsonObject = {"threads": count, "older_than_seconds": older_than.total_seconds(), "user_id": user_id}
        audit(session, actor, Action.THREADS_PRUNED, where, where, detail)
    return delete_threads(session, rows), rows[-1].id if len(rows) == limit else last


def delete_matching(session: Session, terms: Iterable[sa.ColumnElement[bool]], actor: Actor) -> int:
    """Delete the threads that match with all that belongs to them, and return how many. The audit log has each.

    Raises:
        ThreadBusy: a run is live on one of them. Nothing is to be committed.
    """
    columns = (
        _thread.c.id,
        *(_thread.c[name] for name in NAME),
        is_live(session.get_bind().dialect.name).label("live"),
    )
    # In one order, or two deletions that overlap could wait for each other.
    threads = session.execute(sa.select(*columns).where(*terms).order_by(_thread.c.id).with_for_update()).all()
    for row in threads:
        if row.live:
            raise ThreadBusy(f"a run is live on thread {row.thread_id!r}: it cannot be deleted now", param="status")
        name = ThreadName(row.tenant, row.user_id, row.thread_id)
        audit(session, actor, Action.THREAD_DELETED, row.thread_id, name)
    return delete_threads(session, threads)


def delete_thread(session: Session, name: ThreadName, actor: Actor) -> bool:
    """Delete a thread with all that belongs to it. False: there is none. Raises as `delete_matching`."""
    return delete_matching(session, of_thread(_thread, name), actor) > 0


def count_prunable(
    session: Session,
    *,
    older_than: timedelta,
    statuses: Iterable[RunStatus] = OVER,
    tenant: str | None = None,
    user_id: str | None = None,
) -> int:
    """Return how many threads `prune` would delete in all. Raises as it does."""
    terms = _terms(session, older_than, statuses, tenant, user_id)
    return session.execute(sa.select(sa.func.count()).select_from(_thread).where(*terms)).scalar_one()


def _terms(
    session: Session, older_than: timedelta, statuses: Iterable[RunStatus], tenant: str | None, user_id: str | None
) -> list[sa.ColumnElement[bool]]:
    before = time_before(older_than)
    wanted = set(statuses)
    status = _thread.c.status.in_(list(wanted))
    if RunStatus.COMPLETED in wanted:
        # No person is asked: programs take calls of a tool for their answer, and bring no results.
        waits = _thread.c.status == RunStatus.AWAITING_INPUT
        status = sa.or_(status, sa.and_(waits, _thread.c.input_request["kind"].as_string() == "client_tool"))
    terms = [
        _thread.c.updated_at < before,
        status,
        _thread.c.queued == 0,
        sa.not_(sa.func.coalesce(is_live(session.get_bind().dialect.name), sa.false())),
    ]
    if user_id is not None:
        terms.append(_thread.c.user_id == user_id)
    # Not by the index of a tenant's threads, which are more than a transaction looks at.
    of_tenant = _thread.c.tenant if user_id is not None else _thread.c.tenant + ""
    return terms if tenant is None else [*terms, of_tenant == tenant]


def time_before(older_than: timedelta, *, only_past: bool = False) -> datetime:
    """Return when what is older has last changed. Raises InvalidRequest where that is before the first year; or still
    to come, if `only_past`."""
    if only_past and older_than < timedelta(0):
        raise InvalidRequest("older_than must not be negative", param="older_than")
    try:
        return utcnow() - older_than
    except OverflowError:
        raise InvalidRequest("older_than reaches back before the first year", param="older_than") from None


def delete_threads(session: Session, rows: Sequence[sa.Row[*tuple[object, ...]]]) -> int:
    """Delete threads with all that belongs to them; returns how many. `rows` have `id`
    and the columns of a `ThreadName`, and are locked."""
    for part in batches(rows):
        names = [ThreadName(row.tenant, row.user_id, row.thread_id) for row in part]
        for table in map(table_of, NAMED):
            session.execute(sa.delete(table).where(any_of_threads(table)), {"threads": names})
        keys = [row.id for row in part]
        forget_answers_of(session, keys)
        session.execute(sa.delete(_thread).where(_thread.c.id.in_(keys)))
    return len(rows)
