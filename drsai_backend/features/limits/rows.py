"""Rows of limits are read and written here: what was set, and how far each limit is used up.

`TAKE` takes all that a request costs, or nothing, in one statement: with PostgreSQL it travels with the first write of
a run. It locks its rows in one order, so none of two requests waits for the other. On SQLite, where a write is alone,
`READ` reads them, and `PUT` stores them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import orjson
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared, Step
from drsai_backend.database.upserts import Insert, insert_into
from drsai_backend.datamodel import LimitRule, LimitState, table_of
from drsai_backend.datamodel.audit import Action
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.limits.base import BUCKETS, MINUTE, Bound, LimitInfo
from drsai_backend.features.rules.base import Who
from drsai_backend.features.rules.rows import RuleRows

RULES: Final = RuleRows(table_of(LimitRule), LimitInfo.model_validate, (Action.LIMIT_SET, Action.LIMIT_REMOVED))
_state = table_of(LimitState)
# A thread has one run at a time: what waits behind another one makes no run more. Whose runs they are is looked at only
# where all together are as many as somebody may have: that was most of what a limit of runs cost a request.
_LIVE: Final = """
    CASE WHEN (SELECT count(*) FROM run WHERE run.status = 'running') + (SELECT count(*) FROM queuedinput) < b.most
    THEN 0 ELSE (SELECT count(DISTINCT live.thread_key) FROM (
        SELECT run.thread_key, run.principal FROM run WHERE run.status = 'running'
        UNION ALL
        SELECT queuedinput.thread_key, run.principal FROM queuedinput JOIN run ON run.run_id = queuedinput.run_id
    ) live JOIN thread ON thread.id = live.thread_key
    WHERE live.thread_key <> n.thread_key AND (b.kind = 'all' OR thread.tenant = b.tenant AND (
        b.kind = 'tenant'
        OR b.kind = 'user' AND coalesce(live.principal ->> 'user_id', thread.user_id) = b.name
        OR b.kind = 'key' AND live.principal ->> 'key_id' = b.name
    ))) END
"""
_NOW: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) * 1000"
"""The database's clock, which all workers share."""
_NOW_OF_STATEMENT: Final = "(CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint) * 1000)"
# Requests are never taken beyond a minute, so what is twice as far ahead was stored before the clock was set back. What
# calls have used may take tokens of any time.
_ASTRAY: Final = f"limitstate.subject LIKE 'requests/%' AND limitstate.tat > (SELECT n.now FROM n) + {2 * MINUTE}"
_TAKE: Final = f"""
    WITH w AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(CAST(:wanted AS jsonb)) AS w(subject text, cost bigint, period bigint)
    ), n AS MATERIALIZED (
        SELECT {_NOW} AS now,
            CAST(:thread_key AS bigint) AS thread_key
    ), o AS MATERIALIZED (
        SELECT limitstate.subject, limitstate.tat FROM limitstate
        WHERE limitstate.subject IN (SELECT w.subject FROM w) AND NOT ({_ASTRAY})
        ORDER BY limitstate.subject FOR UPDATE
    ), s AS MATERIALIZED (
        SELECT w.subject, w.cost, greatest(coalesce(o.tat, 0), n.now) AS tat, n.now + w.period AS latest
        FROM w CROSS JOIN n LEFT JOIN o ON o.subject = w.subject
    ), b AS MATERIALIZED (
        SELECT b.place, b.most, {_LIVE} AS live FROM n CROSS JOIN
        jsonb_to_recordset(CAST(:bounds AS jsonb)) AS b(place int, kind text, tenant text, name text, most int)
    ), p AS MATERIALIZED (
        SELECT coalesce(current_setting('drsai.held', true), '') <> '0'
            AND NOT EXISTS (SELECT 1 FROM s WHERE s.tat + s.cost > s.latest)
            AND NOT EXISTS (SELECT 1 FROM b WHERE b.live >= b.most) AS passes
    ), u AS (
        INSERT INTO limitstate (subject, tat)
        SELECT s.subject, s.tat + s.cost FROM s CROSS JOIN p WHERE p.passes ORDER BY s.subject
        ON CONFLICT (subject) DO UPDATE SET tat = CASE WHEN {_ASTRAY} THEN excluded.tat ELSE greatest(
            excluded.tat, limitstate.tat + (SELECT s.cost FROM s WHERE s.subject = excluded.subject)
        ) END
    )
    SELECT n.now, (SELECT CAST(jsonb_object_agg(o.subject, o.tat) AS text) FROM o),
        (SELECT CAST(jsonb_object_agg(b.place, b.live) AS text) FROM b),
        set_config('drsai.held', CASE WHEN p.passes THEN '1' ELSE '0' END, true)
    FROM n CROSS JOIN p
"""
_READ: Final = f"""
    WITH n AS (SELECT :now AS now, :thread_key AS thread_key), b AS (
        SELECT value ->> 'place' AS place, value ->> 'kind' AS kind, value ->> 'tenant' AS tenant,
            value ->> 'name' AS name, value ->> 'most' AS most FROM json_each(:bounds)
    )
    SELECT n.now, (
        SELECT json_group_object(limitstate.subject, limitstate.tat) FROM limitstate
        WHERE limitstate.subject IN (SELECT value ->> 'subject' FROM json_each(:wanted)) AND NOT ({_ASTRAY})
    ), (SELECT json_group_object(CAST(b.place AS TEXT), {_LIVE}) FROM b) FROM n
"""
TAKE: Final = Prepared(lambda dialect: sa.text(_READ if dialect == "sqlite" else _TAKE))
MAKE: Final = Prepared(
    lambda _: sa.text(
        "INSERT INTO limitstate (subject, tat) SELECT value, 0 FROM "
        "jsonb_array_elements_text(CAST(:subjects AS jsonb)) ORDER BY value ON CONFLICT DO NOTHING"
    )
)
"""Make rows where this process has seen none: what is not there cannot be locked."""


@Prepared
def put(dialect: str) -> sa.ClauseElement:
    """Store what buckets are full at (SQLite)."""
    statement = _inserted(dialect, "tats", sa.literal_column("u.value ->> 'tat'", sa.BigInteger))
    return statement.on_conflict_do_update(index_elements=["subject"], set_={"tat": statement.excluded.tat})


@Prepared
def settle(dialect: str) -> sa.ClauseElement:
    """Take what calls have used, whatever is left; give back where a cost is negative."""
    is_sqlite = dialect == "sqlite"
    # The same in all of a statement.
    now = sa.bindparam("now", type_=sa.BigInteger) if is_sqlite else sa.literal_column(_NOW_OF_STATEMENT, sa.BigInteger)
    cost = sa.literal_column("u.value ->> 'cost'" if is_sqlite else "u.cost", sa.BigInteger)
    statement = _inserted(dialect, "costs", now + cost)
    later = sa.func.max if is_sqlite else sa.func.greatest
    taken = statement.excluded.tat - now
    tat = sa.case((taken < 0, _state.c.tat + taken), else_=later(_state.c.tat, now) + taken)
    return statement.on_conflict_do_update(index_elements=["subject"], set_={"tat": tat})


def settling(costs: Sequence[tuple[str, int]]) -> Step:
    """Return what settles calls: by how much each bucket is moved, in the order of their subjects."""
    given = [{"subject": subject, "cost": cost} for subject, cost in costs]
    return settle, {"costs": orjson.dumps(given).decode(), "now": time.time_ns()}


def _inserted(dialect: str, values: str, tat: sa.ColumnElement[int]) -> Insert:
    """Return what inserts rows of a JSON list, in the order in which all lock them."""
    if dialect == "sqlite":
        name, given = "u.value ->> 'subject'", f"json_each(:{values}) AS u"
    else:
        name, given = "u.subject", f"jsonb_to_recordset(CAST(:{values} AS jsonb)) AS u(subject text, cost bigint)"
    subject = sa.literal_column(name, sa.String)
    found = sa.select(subject, tat).select_from(sa.text(given)).order_by(subject)
    return insert_into(_state, dialect).from_select(["subject", "tat"], found)


def forget_states(session: Session, before: int) -> int:
    """Delete the rows of buckets that are full since before a moment; returns how many."""
    return session.connection().execute(sa.delete(_state).where(_state.c.tat < before)).rowcount


def forget_user(session: Session, owner: Owner) -> int:
    """Delete what was set for a user, and their buckets; returns how many."""
    who = Who("user", *owner)
    subjects = [Bound(who, measure, 1).subject for measure in BUCKETS]
    gone = session.connection().execute(sa.delete(_state).where(_state.c.subject.in_(subjects))).rowcount
    return gone + RULES.forget(session, who)
