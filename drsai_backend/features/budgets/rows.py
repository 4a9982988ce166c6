"""Rows of budgets are read and written here: what was set, what is used of each, and what is reserved for whom.

A row of `budgetstate` has what somebody has used in a day or a month, where its `holder` is empty, or else, without a
period, what a run may still use of theirs: its allotment, of the day as of the month. An allotment counts for as long
as its run is under way by the row of that, so a process that is killed leaves nothing reserved once its run is resumed,
or has ended: it is the run's, and the next process replaces it. What its run uses of it stays in it, which is on the
safe side, until the run reserves more or is over. No call counts twice: `spend`, which settles calls, is part of the
write that stores them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import orjson
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared, Step
from drsai_backend.database.runs.commands import revive
from drsai_backend.database.runs.reads import read_head_of, read_run
from drsai_backend.database.upserts import Insert, insert_into
from drsai_backend.datamodel import BudgetRule, BudgetState, Run, RunStatus, Thread, table_of
from drsai_backend.datamodel.audit import Action
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.datamodel.switches import is_moved
from drsai_backend.errors import BudgetReached
from drsai_backend.features.budgets.base import UNITS, BudgetInfo, Spend, periods
from drsai_backend.features.rules.base import Who, of_thread
from drsai_backend.features.rules.rows import RuleRows
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.runs.threads.queries import of_status

AGAIN: Final = timedelta(minutes=10)
"""After so long at least a run is tried again although nobody has set a budget: what others had reserved may be free by
then."""
_state, _rule = table_of(BudgetState), table_of(BudgetRule)
_run, _thread = table_of(Run), table_of(Thread)
_SPENT: Final = Spend._fields
_WANTED: Final = """
    SELECT * FROM jsonb_to_recordset(CAST(:wanted AS jsonb))
    AS w(place int, subject text, period text, tokens bigint, cost bigint)
"""
_WANTED_SQLITE: Final = """
    SELECT value ->> 'place' AS place, value ->> 'subject' AS subject, value ->> 'period' AS period,
        value ->> 'tokens' AS tokens, value ->> 'cost' AS cost FROM json_each(:wanted)
"""
_FOUND: Final = """
    WITH w AS MATERIALIZED ({wanted}), n AS MATERIALIZED (
        SELECT CAST(:tokens AS bigint) AS tokens, CAST(:cost AS bigint) AS cost,
            CAST(:more_tokens AS bigint) AS more_tokens, CAST(:more_cost AS bigint) AS more_cost,
            CAST(:holder AS varchar) AS holder
    ), h AS MATERIALIZED (
        SELECT a.subject, sum(CASE WHEN r.run_id IS NULL THEN 0 ELSE a.tokens END) AS tokens,
            sum(CASE WHEN r.run_id IS NULL THEN 0 ELSE a.cost END) AS cost, count(*) - count(r.run_id) AS ended
        FROM (SELECT DISTINCT w.subject FROM w) u CROSS JOIN n
        JOIN budgetstate a ON a.subject = u.subject AND a.period = '' AND a.holder <> n.holder
        LEFT JOIN run r ON r.run_id = a.holder AND r.status = 'running'
        GROUP BY a.subject
    ), s AS MATERIALIZED (
        SELECT w.place, w.subject, w.tokens AS most_tokens, w.cost AS most_cost,
            coalesce(o.tokens, 0) AS used_tokens, coalesce(o.cost, 0) AS used_cost,
            CAST(coalesce(o.tokens, 0) + coalesce(h.tokens, 0) AS bigint) AS taken_tokens,
            CAST(coalesce(o.cost, 0) + coalesce(h.cost, 0) AS bigint) AS taken_cost
        FROM w LEFT JOIN budgetstate o ON o.subject = w.subject AND o.period = w.period AND o.holder = ''
        LEFT JOIN h ON h.subject = w.subject
    ), g AS MATERIALIZED (
        SELECT n.holder, coalesce((SELECT max(h.ended) FROM h), 0) AS ended,
            min(CASE WHEN s.most_tokens = 0 THEN n.tokens + n.more_tokens ELSE {most}(n.tokens,
                {least}(n.tokens + n.more_tokens, (s.most_tokens - s.taken_tokens) / 16)) END) AS tokens,
            min(CASE WHEN s.most_cost = 0 THEN n.cost + n.more_cost ELSE {most}(n.cost,
                {least}(n.cost + n.more_cost, (s.most_cost - s.taken_cost) / 16)) END) AS cost,
            sum(CASE WHEN s.most_tokens > 0 AND n.tokens > 0 AND s.taken_tokens + n.tokens > s.most_tokens
                OR s.most_cost > 0 AND n.cost > 0 AND s.taken_cost + n.cost > s.most_cost
                THEN 1 ELSE 0 END) AS lacking
        FROM s CROSS JOIN n GROUP BY n.holder
    )
"""
"""What each budget has left for the holder; and what it gets, which is the same of all of them: what it needs, and more
where much is left. `ended`: of how many runs that have ended somebody has allotments."""
FORGOTTEN: Final = 5_000
"""Rows that one transaction deletes of what is long over."""
ENDED: Final = 16
"""So many of them are left to be looked at in vain, and then forgotten together."""
_TAKE: Final = f"""
    {_FOUND.format(wanted=_WANTED, most="greatest", least="least")}, p AS MATERIALIZED (
        SELECT g.lacking = 0 AND coalesce(current_setting('drsai.held', true), '') <> '0' AS passes FROM g
    ), d AS (
        DELETE FROM budgetstate h
        USING (SELECT DISTINCT w.subject, g.holder FROM w CROSS JOIN g WHERE g.ended > {ENDED}) e
        WHERE h.subject = e.subject AND h.holder NOT IN ('', e.holder) AND NOT EXISTS (
            SELECT 1 FROM run WHERE run.run_id = h.holder AND run.status IN ('running', 'created')
        )
    ), u AS (
        INSERT INTO budgetstate (subject, period, holder, tokens, cost)
        SELECT DISTINCT s.subject, '', g.holder, g.tokens, g.cost FROM s CROSS JOIN g CROSS JOIN p
        WHERE p.passes AND g.holder <> '-' ORDER BY s.subject
        ON CONFLICT (subject, period, holder) DO UPDATE SET tokens = excluded.tokens, cost = excluded.cost
    )
    SELECT (
        SELECT CAST(jsonb_agg(jsonb_build_array(
            s.place, s.used_tokens, s.used_cost, s.taken_tokens, s.taken_cost)) AS text) FROM s
    ), g.tokens, g.cost, g.ended, set_config('drsai.held', CASE WHEN p.passes THEN '1' ELSE '0' END, true)
    FROM g CROSS JOIN p
"""
_TOLD: Final = f"""
    {_FOUND.format(wanted=_WANTED_SQLITE, most="max", least="min")} SELECT (
        SELECT json_group_array(json_array(s.place, s.used_tokens, s.used_cost, s.taken_tokens, s.taken_cost)) FROM s
    ), g.tokens, g.cost, g.ended FROM g
"""
_DROP_SQLITE: Final = """
    DELETE FROM budgetstate WHERE subject IN (SELECT value ->> 'subject' FROM json_each(:wanted))
    AND holder NOT IN ('', :holder) AND NOT EXISTS (
        SELECT 1 FROM run WHERE run.run_id = budgetstate.holder AND run.status IN ('running', 'created')
    )
"""
TAKE: Final = Prepared(lambda dialect: sa.text(_TOLD if dialect == "sqlite" else _TAKE))
"""Reserve what a holder needs of all budgets, or nothing, and tell how each stands; on SQLite this tells, and `put`
reserves. The holder `-` gets nothing, and is told."""
DROP: Final = Prepared(lambda _: sa.text(_DROP_SQLITE))
"""Forget what is reserved for runs that have ended."""


def _given(dialect: str) -> tuple[sa.TextClause, Sequence[sa.ColumnElement[Any]]]:
    """Return a JSON list of sums as a table, and its columns: those of `BudgetState`, but for the holder."""
    names = ("subject", "period", *_SPENT)
    if dialect == "sqlite":
        return sa.text("json_each(:sums) AS u"), [sa.literal_column(f"u.value ->> '{name}'") for name in names]
    types = "subject text, period text, tokens bigint, cost bigint"
    table = sa.text(f"jsonb_to_recordset(CAST(:sums AS jsonb)) AS u({types})")
    return table, [sa.literal_column(f"u.{name}") for name in names]


def _inserted(dialect: str, holder: sa.ColumnElement[str]) -> Insert:
    """Return what inserts rows of a holder, in the order in which all lock them."""
    table, (subject, period, *spent) = _given(dialect)
    found = sa.select(subject, period, holder, *spent).select_from(table).order_by(subject, period)
    return insert_into(_state, dialect).from_select(["subject", "period", "holder", *_SPENT], found)


@Prepared
def put(dialect: str) -> sa.ClauseElement:
    """Reserve it for a run, in place of what was."""
    statement = _inserted(dialect, sa.bindparam("holder", type_=sa.String))
    given = {name: statement.excluded[name] for name in _SPENT}
    return statement.on_conflict_do_update(index_elements=["subject", "period", "holder"], set_=given)


@Prepared
def spend(dialect: str) -> sa.ClauseElement:
    """Count what calls have used."""
    statement = _inserted(dialect, sa.literal_column("''"))
    more = {name: _state.c[name] + statement.excluded[name] for name in _SPENT}
    return statement.on_conflict_do_update(index_elements=["subject", "period", "holder"], set_=more)


def settling(used: Mapping[tuple[str, str], Spend]) -> Step:
    """Return what settles calls: what each budget is to count of them."""
    return spend, {"sums": _sums(used)}


def reserving(keys: Iterable[tuple[str, str]], run_id: str, reserved: Spend) -> Step:
    """Return what reserves so much of each budget for a run."""
    return put, {"sums": _sums({(subject, ""): reserved for subject, _ in keys}), "holder": run_id}


def _sums(of: Mapping[tuple[str, str], Spend]) -> str:
    given = [
        {"subject": subject, "period": period, "tokens": tokens, "cost": cost}
        for (subject, period), (tokens, cost) in of.items()
    ]
    return orjson.dumps(given).decode()


def page(session: Session, tenant: str | None, after: str | None, limit: int, at: datetime) -> Page[BudgetInfo]:
    """Return a page of what was set, the newest first, with what is used by then. Raises InvalidRequest where `after`
    is no `next`."""
    found = RULES.page(session, tenant, after, limit)
    tell_used(session, found.items, at)
    return found


def tell_used(session: Session, told: Sequence[BudgetInfo], at: datetime) -> None:
    """Have what is told of rules say what is used by then."""
    c, now = _state.c, periods(at)
    query = sa.select(c.subject, c.period, c.tokens, c.cost).where(
        c.subject.in_([each.who.subject for each in told]), c.period.in_(now.values()), c.holder == ""
    )
    used = {(subject, period): spent for subject, period, *spent in session.connection().execute(query)}
    for each in told:
        for name, period in now.items():
            tokens, cost = used.get((each.who.subject, period), (0, 0))
            each.used |= {f"tokens_{name}": tokens, f"cost_{name}": cost / UNITS}


class PausedRun(NamedTuple):
    """A run that is paused for a budget. `at`: since when; `principal`: who asked, as `Principal.dump` says it;
    `seconds`: how long it has run since `started_at`."""

    name: ThreadName
    thread_key: int
    run_id: str
    epoch: int
    principal: Mapping[str, Any] | None
    at: datetime
    started_at: datetime
    seconds: float

    @property
    def again_at(self) -> datetime:
        """When it is tried again although nothing has changed: after as long as it was paused before, ten minutes at
        least, so that one which needs more than there is is tried ever more seldom."""
        paused = self.at - self.started_at - timedelta(seconds=self.seconds)
        return self.at + max(AGAIN, paused)


def paused(session: Session, after: int, limit: int) -> list[PausedRun]:
    """Return so many runs that are paused for a budget, behind a thread, in the order of their threads. Those that a
    person has paused have no such code, and those of a tenant that is moved are left alone."""
    t, r = _thread.c, _run.c
    columns = (r.run_id, r.epoch, r.principal, r.updated_at, r.started_at, r.seconds)
    query = sa.select(t.tenant, t.user_id, t.thread_id, t.id, *columns)
    query = query.join(_run, r.thread_key == t.id).where(
        of_status(RunStatus.PAUSED), r.stop_code == BudgetReached.code, r.thread_key > after, ~is_moved(t.tenant)
    )
    found = session.connection().execute(query.order_by(r.thread_key).limit(limit))
    return [PausedRun(ThreadName(*row[:3]), *row[3:]) for row in found]


def taken(session: Session, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Spend]:
    """Return what is used of each budget, and reserved for runs that are under way."""
    c = _state.c
    is_live = sa.exists().where(_run.c.run_id == c.holder, _run.c.status == RunStatus.RUNNING)
    sums = [sa.cast(sa.func.sum(c[name]), sa.BigInteger) for name in _SPENT]
    query = sa.select(c.subject, c.period, *sums).where(
        c.subject.in_({subject for subject, _ in keys}),
        c.period.in_({"", *(period for _, period in keys)}),
        sa.or_(c.holder == "", is_live),
    )
    found = session.connection().execute(query.group_by(c.subject, c.period))
    spent = {(subject, period): Spend(*sums) for subject, period, *sums in map(tuple[Any, ...], found)}
    return {key: spent.get(key, Spend()).plus(spent.get((key[0], ""), Spend())) for key in keys}


def resume(session: Session, run: PausedRun) -> bool:
    """Make a run that was found paused one that nobody runs. False: it was resumed or ended meanwhile, or somebody has
    paused it."""
    # The thread's row first: what is read then of its run is as who paused it has left it.
    session.connection().execute(sa.select(_thread.c.id).where(_thread.c.id == run.thread_key).with_for_update())
    head, row = read_head_of(session, run.thread_key), read_run(session, run.run_id)
    if head is None or (head.run_id, head.epoch, head.status) != (run.run_id, run.epoch, RunStatus.PAUSED):
        return False
    return row is not None and row["stop_code"] == BudgetReached.code and revive(session, head)


def forget_before(session: Session, period: str, limit: int = FORGOTTEN) -> int:
    """Delete up to `limit` rows of what was used in days and months before one, and of allotments of runs that have
    ended; returns how many, 0 when it is done."""
    c, key = _state.c, tuple(_state.primary_key.columns)
    is_live = sa.exists().where(_run.c.run_id == c.holder, _run.c.status.in_((RunStatus.RUNNING, RunStatus.CREATED)))
    is_over = sa.case((c.period == "", ~is_live), else_=c.period < period)
    some = sa.select(*key).where(is_over).limit(limit)
    return session.connection().execute(sa.delete(_state).where(sa.tuple_(*key).in_(some))).rowcount


def forget_user(session: Session, owner: Owner) -> int:
    """Delete what was set for a user and their threads, and what they have used; returns how many rows."""
    who, threads = Who("user", *owner), of_thread(owner.thread(""))
    c, rule, connection = _state.c, _rule.c, session.connection()
    gone = connection.execute(
        sa.delete(_state).where(sa.or_(c.subject == who.subject, _begins(c.subject, threads.subject)))
    )
    term = rule.kind == threads.kind, rule.tenant == threads.tenant, _begins(rule.name, threads.name)
    return gone.rowcount + connection.execute(sa.delete(_rule).where(*term)).rowcount + RULES.forget(session, who)


def _begins(column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    """Whether a name begins so; SQLite's LIKE would take Ann for ann."""
    return sa.func.substr(column, 1, len(text)) == text


def _info(row: JsonObject) -> BudgetInfo:
    costs = {name: row[name] / UNITS for name in ("cost_day", "cost_month") if row[name] is not None}
    return BudgetInfo.model_validate({**row, **costs})


RULES: Final = RuleRows(_rule, _info, (Action.BUDGET_SET, Action.BUDGET_REMOVED))
