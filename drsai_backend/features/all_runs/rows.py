"""The rows of all runs are searched by the few that an index finds, or in the order of one, and only read.

What is looked for decides the way. Live and waiting runs have small indexes; so have those that have failed, in the
order of their age. Runs of a user, of a thread or of a small tenant are found by their threads. All else passes the
runs of everybody in the order of their age, from `until` back to `since`. Synchronous functions of a `Session`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.pages import Cursor, Query, given
from drsai_backend.database.runs.workers import GAP
from drsai_backend.datamodel import Run, RunStatus, Thread, WebhookDelivery, Worker, WorkJob, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.base import UTCDateTime, to_epoch_us
from drsai_backend.datamodel.encrypted import keys_of
from drsai_backend.datamodel.lifecycle import WAITING
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.features.all_runs import said
from drsai_backend.features.all_runs.base import (
    MOST_COUNTED,
    AnyRun,
    Board,
    ErrorGroup,
    Holder,
    JobQueue,
    LiveRun,
    Order,
    Verb,
    Wanted,
)
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page, cut, read_cursor
from drsai_backend.runs.failures import GIVEN_UP, code_of
from drsai_backend.runs.threads.queries import IS_WAITING, NEWEST, of_status

_run, _thread, _worker = table_of(Run), table_of(Thread), table_of(Worker)
_job, _delivery = table_of(WorkJob), table_of(WebhookDelivery)
_r, _t = _run.c, _thread.c
_SLOW: Final = r"^([0-9]{1,11}\.[0-9]{6})-([0-9]{1,18}-[0-9]{1,18})$"
"""The `next` of a page of the slowest: the moment at which the first one was read, to which live runs are counted."""
_DAY: Final = timedelta(days=1)
_FEW: Final = 1_000
"""Threads of a small tenant."""
_NAMES: Final = (
    *("run_id", "team", "status", "attempt", "background", "created_at", "started_at", "finished_at", "turns"),
    *("usage", "error_message", "stop_code", "ending"),
)
_WHOSE: Final = (_t.tenant, _t.user_id, _t.thread_id)
_SHORT: Final = (RunStatus.RUNNING, *WAITING)
"""Statuses of which an index has all runs, and there are few."""
_IS_LIVE: Final = of_status(RunStatus.RUNNING)
_CHANGES: Final[Mapping[Verb, tuple[Sequence[RunStatus], sa.ColumnElement[bool]]]] = {
    "cancel": (_SHORT, sa.true()),
    "pause": ((RunStatus.RUNNING,), sa.func.coalesce(_t.control, "").not_in(("pause", "cancel"))),
    # One that was asked to pause, and has not come to it, goes on.
    "resume": ((RunStatus.PAUSED, RunStatus.RUNNING), sa.or_(_r.status == RunStatus.PAUSED, _t.control == "pause")),
    "retry": ((RunStatus.ERROR,), _t.run_id == _r.run_id),
}
"""By verb: the statuses of runs that it changes, and what else must be so."""


def list_runs(
    session: Session, of: Wanted, tenant: str | None, order: Order, after: str | None, limit: int
) -> Page[AnyRun]:
    """Return a page of runs: the newest first, or those that have run longest. Raises InvalidRequest where `after` is
    no `next` of such a list."""
    at = utcnow()
    if order == "slow" and after is not None:
        pinned, after = read_cursor(_SLOW, after).groups()
        at = datetime.fromtimestamp(float(pinned), UTC)
    is_said = of.text is not None or of.tool is not None
    query, is_sorted = _query(session, of, tenant, at, *((said.COUNT,) if is_said else ()))
    if order == "slow" and is_sorted and of.since is None:
        recent = (_r.created_at >= at - _DAY, _IS_LIVE)
        # SQLite uses no partial index for one side of an OR.
        union = sa.union_all(*(sa.select(_r.id).where(term).correlate(None) for term in recent))
        is_sqlite = session.get_bind().dialect.name == "sqlite"
        query = query.where(_r.id.in_(union) if is_sqlite else sa.or_(*recent))
    if order == "newest" and is_sorted:
        cursor = Cursor((_r.created_at, _r.id), NEWEST.pattern)
    else:
        # Found first, by their own index: that of their age would pass the runs of everybody.
        found = query.cte("found").prefix_with("MATERIALIZED")
        by, pattern = ("milliseconds", r"[0-9]+-[0-9]+") if order == "slow" else ("created_at", NEWEST.pattern)
        columns = cast("tuple[sa.Column[object], ...]", (found.c[by], found.c.id))
        cursor, query = Cursor(columns, pattern), sa.select(found)
    if is_said:
        page = said.read_page(session, cursor, query, of, after, limit)
    elif (code := _hidden_code(session, of)) is not None:
        page = _read_page(session, cursor, query, code, after, limit)
    else:
        page = cursor.page(session, query, after, limit)
    if order == "slow" and page.next is not None:
        page = page.model_copy(update={"next": f"{at.timestamp():.6f}-{page.next}"})
    return page.map(_shown)


def get_run(session: Session, run_id: str, tenant: str | None) -> AnyRun:
    """Return a run. Raises NotFound."""
    query, _ = _query(session, Wanted(), None, utcnow())
    return _shown(_one(session, query, run_id, tenant))


def _one(session: Session, query: Query, run_id: str, tenant: str | None) -> JsonObject:
    query = query.where(_r.run_id == run_id, *given((tenant, _t.tenant.__eq__)))
    row = session.connection().execute(query).mappings().first()
    if row is None:
        raise NotFound(f"no run {run_id!r}", param="run_id")
    return dict(row)


def _query(
    session: Session, of: Wanted, tenant: str | None, at: datetime, *more: sa.ColumnElement[Any]
) -> tuple[Query, bool]:
    """The runs that are wanted, live ones as they are at that moment, and whether their age sorts them by an index.
    Where texts are encrypted, those that have failed with whatever code: `_hidden_code`."""
    is_short = of.status in _SHORT
    by_thread = not is_short and (of.user is not None or of.thread is not None or _is_small(session, tenant))
    dialect = session.get_bind().dialect.name

    def whose(column: sa.Column[str], value: str) -> sa.ColumnElement[bool]:
        # PostgreSQL knows who has few; SQLite would take the index of threads for whomever.
        return (column if by_thread or dialect == "postgresql" else column + "") == value

    is_encrypted = keys_of(session.get_bind().dialect) is not None
    for name in ("error", "text", "tool"):
        if getattr(of, name) is not None and is_encrypted:
            raise InvalidRequest(
                f"{name} cannot be searched: texts are encrypted (DRSAI_ENCRYPTION_KEYS), and no "
                "database finds words in them; look with status, error_code, team and since",
                param=name,
            )
    has_failed, ran = of_status(RunStatus.ERROR), _milliseconds(dialect, at)
    terms = given(
        (tenant, lambda name: whose(_t.tenant, name)),
        (of.user, lambda name: whose(_t.user_id, name)),
        (of.thread, lambda name: whose(_t.thread_id, name)),
        (of.team, _r.team.__eq__),
        (of.status, of_status),
        (of.error_code, lambda code: has_failed if is_encrypted else sa.and_(has_failed, _has_code(code))),
        (of.error, lambda text: sa.and_(has_failed, _r.error_message.icontains(text, autoescape=True))),
        (of.since, _r.created_at.__ge__),
        (of.until, _r.created_at.__lt__),
        (of.slower_than, lambda seconds: ran >= int(seconds * 1000)),
    )
    columns = (_r.id, *(_r[name] for name in _NAMES), *_WHOSE, ran.label("milliseconds"), *more)
    joined = sa.select(*columns).join(_thread, _r.thread_key == _t.id)
    return joined.where(*terms), not (is_short or by_thread)


def _hidden_code(session: Session, of: Wanted) -> str | None:
    """The code of an error that is looked for where no query finds it, as texts are encrypted."""
    return None if keys_of(session.get_bind().dialect) is None else of.error_code


def _read_page(
    session: Session, cursor: Cursor, query: Query, code: str, after: str | None, limit: int
) -> Page[JsonObject]:
    """Read a page of the failed runs of a query, those with the code out of the first 1,000. Raises as
    `Cursor.behind`."""
    rows = [*session.connection().execute(cursor.sorted(query, after).limit(said.MOST_RUNS + 1)).mappings()]
    looked = [dict(row) for row in rows[: said.MOST_RUNS]]
    page = cut([row for row in looked if code_of(row["error_message"]) == code], limit, cursor.place)
    if page.next is None and len(looked) < len(rows):
        return page.model_copy(update={"next": cursor.place(looked[-1])})
    return page


def _is_small(session: Session, tenant: str | None) -> bool:
    """Whether a tenant has few threads, so that they find its runs sooner than the runs of all tenants would."""
    if tenant is None:
        return False
    some = sa.select(_t.id).where(_t.tenant == tenant).offset(_FEW).limit(1)
    return session.connection().execute(some).first() is None


def _milliseconds(dialect: str, at: datetime) -> sa.ColumnElement[int]:
    """For how long a run has run: what is stored of it, and of a live one the time since."""
    stored, whole = sa.cast(_r.seconds * 1000, sa.BigInteger), sa.BigInteger
    if dialect == "sqlite":  # Microseconds there.
        since = (sa.literal(to_epoch_us(at), whole) - sa.type_coerce(_r.updated_at, whole)) // 1000
        since = sa.func.max(since, 0)
    else:
        passed = sa.extract("epoch", sa.literal(at, UTCDateTime()) - _r.updated_at)
        since = sa.func.greatest(sa.cast(passed * 1000, whole), 0, type_=whole())
    return sa.case((_IS_LIVE, stored + since), else_=stored)


def _has_code(code: str) -> sa.ColumnElement[bool]:
    """`runs.failures.code_of`, as SQL."""
    text = _r.error_message
    given_up = sa.or_(text.startswith(GIVEN_UP[0]), text.contains(GIVEN_UP[1], autoescape=True))
    if code == "given_up":
        return given_up
    said = text.contains(f" failed ({code}): ", autoescape=True)
    if code == "run_failed":
        said = sa.or_(said, text.not_like("% failed (%): %"))
    return sa.and_(said, sa.not_(given_up))


def _fields(row: JsonObject) -> JsonObject:
    """The fields of `AnyRun`."""
    fields = {name: row[name] for name in (*_NAMES, "tenant", "thread_id")}
    ending: JsonObject = fields.pop("ending") or {}
    fields["worker"] = ending.get("worker")
    if row["status"] is RunStatus.CREATED:
        fields["started_at"] = None
    code = code_of(row["error_message"])
    return {**fields, "user": row["user_id"], "seconds": row["milliseconds"] / 1000, "error_code": code}


def _shown(row: JsonObject) -> AnyRun:
    return AnyRun(**_fields(row))


def errors(session: Session, of: Wanted, tenant: str | None, limit: int) -> list[ErrorGroup]:
    """Return in which ways runs of which teams have failed, the most frequent first; of the newest 100,000."""
    query, _ = _query(session, replace(of, status=RunStatus.ERROR), tenant, utcnow())
    query = query.with_only_columns(_r.error_message, _r.created_at, _r.team, _r.run_id)
    groups, hidden = dict[tuple[str, str], ErrorGroup](), _hidden_code(session, of)
    rows = session.connection().execute(query.order_by(_r.created_at.desc(), _r.id.desc()).limit(MOST_COUNTED))
    for row in rows:
        text, at = row.error_message or "", row.created_at
        code = code_of(text) or ""
        if hidden is not None and code != hidden:
            continue
        if (group := groups.get((code, row.team))) is None:
            named = {"error_code": code, "team": row.team, "run_id": row.run_id, "error_message": text}
            group = groups[code, row.team] = ErrorGroup(**named, runs=0, first_at=at, last_at=at)
        group.runs, group.first_at = group.runs + 1, at
    return sorted(groups.values(), key=lambda each: -each.runs)[:limit]


def note(session: Session, verb: Verb, run_id: str, tenant: str | None, actor: Actor) -> ThreadName:
    """Return the thread of a run that is to be changed, with an entry in the audit log where the verb can change it and
    it was not asked for that yet. Raises NotFound."""
    statuses, more = _CHANGES[verb]
    can = sa.and_(_r.status.in_(statuses), more)
    query = sa.select(*_WHOSE, _r.team, _r.status, _t.control, can.label("can"))
    row = _one(session, query.join(_thread, _r.thread_key == _t.id), run_id, tenant)
    name = ThreadName(row["tenant"], row["user_id"], row["thread_id"])
    if row["can"] and row["control"] != verb:
        detail = {"team": row["team"], "status": row["status"].value}
        audit(session, actor, Action(f"run.{verb}_requested"), run_id, name, detail)
    return name


def changeable(session: Session, verb: Verb, of: Wanted, tenant: str | None, limit: int) -> tuple[int, list[AnyRun]]:
    """Return how many of the wanted runs a verb can change, and the first ones, by their statuses and ages. Where texts
    are encrypted, those with a code are looked for among the 100,000 oldest that have failed."""
    connection, count, found = session.connection(), 0, list[AnyRun]()
    statuses, more = _CHANGES[verb]
    for status in statuses:
        if of.status in (None, status):
            query = _query(session, replace(of, status=status), tenant, utcnow())[0].where(more)
            if (code := _hidden_code(session, of)) is not None:
                texts = query.with_only_columns(_r.id, _r.error_message).order_by(_r.id + 0).limit(MOST_COUNTED)
                ids = [row.id for row in connection.execute(texts) if code_of(row.error_message) == code]
                count, query = count + len(ids), query.where(_r.id.in_(ids[:limit]))
            else:
                counted = query.limit(MOST_COUNTED - count).subquery()
                count += connection.execute(sa.select(sa.func.count()).select_from(counted)).scalar_one()
            rows = connection.execute(query.order_by(_r.id + 0).limit(limit - len(found))).mappings()
            found += [_shown(dict(row)) for row in rows]
    return count, found


def board(session: Session, limit: int) -> Board:
    """Return what is live and what waits, with so many of the live runs: in six statements, however much that is."""
    connection, at = session.connection(), utcnow()

    def some(*columns: sa.ColumnElement[Any], where: sa.ColumnElement[bool]) -> sa.Subquery:
        return sa.select(*columns).where(where).limit(MOST_COUNTED).subquery()

    live, count = some(_r.thread_key, where=_IS_LIVE), sa.func.count()
    waits = some(_r.status, where=IS_WAITING).c.status
    waited = sa.select(waits, count).group_by(waits)
    jobs = some(_job.c.kind, _job.c.next_at, _job.c.created_at, where=sa.true()).c
    is_due = jobs.next_at.is_not(None)
    due, oldest = sa.func.count(jobs.next_at), sa.func.min(sa.case((is_due, jobs.created_at)))
    events = some(_delivery.c.created_at, where=_delivery.c.next_at.is_not(None)).c.created_at
    query, _ = _query(session, Wanted(status=RunStatus.RUNNING), None, at, _t.lease_owner.label("worker"), _t.control)
    first = connection.execute(query.order_by(_r.started_at, _r.id).limit(limit)).mappings()
    held = sa.select(_t.lease_owner, count).join(live, live.c.thread_key == _t.id).group_by(_t.lease_owner)
    holds = {row[0]: row[1] for row in connection.execute(held)}
    workers = sa.select(_worker).where(_worker.c.seen_at > at - GAP).order_by(_worker.c.since, _worker.c.worker_id)
    kinds = sa.select(jobs.kind, due.label("due"), (count - due).label("failed"), oldest.label("oldest_at"))
    sent, sent_oldest = connection.execute(sa.select(count, sa.func.min(events)).select_from(events.table)).one()
    return Board(
        at=at,
        live=sum(holds.values()),
        waiting={row[0]: row[1] for row in connection.execute(waited)},
        runs=[LiveRun(**_fields(dict(row)) | {name: row[name] for name in ("worker", "control")}) for row in first],
        workers=[
            Holder(worker=row.worker_id, seen_at=row.seen_at, since=row.since, runs=holds.get(row.worker_id, 0))
            for row in connection.execute(workers)
        ],
        jobs=[JobQueue(**row) for row in connection.execute(kinds.group_by(jobs.kind).order_by(jobs.kind)).mappings()],
        webhooks=sent,
        webhooks_oldest_at=sent_oldest,
    )
