"""Prepared statements are compiled once per dialect.

A run makes eleven statements, and SQLAlchemy's way to one that it knows already (cache key, parameters by name, an
execution context) takes four times as long as SQLite takes to carry it out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.util import await_only

from drsai_backend.datamodel.encrypted import Encrypting, Keys

Build = Callable[[str], sa.ClauseElement]
Row: TypeAlias = tuple[Any, ...]


class _Compiled:
    """SQL text of one dialect, and how its parameters are made from named values."""

    __slots__ = ("_constants", "_encrypted", "_given", "_names", "_pick", "_positional", "_processed", "sql")

    def __init__(self, statement: sa.ClauseElement, dialect: Dialect) -> None:
        compiled = cast("SQLCompiler", statement.compile(dialect=dialect))
        self.sql = compiled.string
        self._positional = compiled.positiontup is not None
        # Not `binds`, which lists some constants under two names.
        named = {name: bind for bind, name in compiled.bind_names.items()}
        self._names = list(compiled.positiontup or named)
        processors = cast("dict[str, Callable[[object], object]]", compiled._bind_processors)  # pyright: ignore[reportPrivateUsage]
        constants = {name: bind.value for name, bind in named.items() if not bind.required}
        given = [name for name in self._names if name not in constants]
        self._pick = itemgetter(*given) if len(given) > 1 else None
        self._given = given
        processed = [(position, processors[name]) for position, name in enumerate(given) if name in processors]
        self._encrypted = [(position, each) for position, each in processed if isinstance(each, Encrypting)]
        self._processed = [each for each in processed if not isinstance(each[1], Encrypting)]
        # What goes in between, from left to right; converted once.
        self._constants = [
            (position, processors[name](constants[name]) if name in processors else constants[name])
            for position, name in enumerate(self._names)
            if name in constants
        ]

    def parameters(self, values: Mapping[str, object]) -> tuple[object, ...] | dict[str, object]:
        """Return the parameters as the driver takes them: what is encrypted, for the `tenant` of the values, or that of
        `texts_of`. A KeyError names one that is missing."""
        made = [values[name] for name in self._given] if self._pick is None else list(self._pick(values))
        for position, processor in self._processed:
            made[position] = processor(made[position])
        for position, encrypting in self._encrypted:
            value = made[position]
            made[position] = encrypting.of(value, values["tenant"]) if "tenant" in values else encrypting(value)
        for position, constant in self._constants:
            made.insert(position, constant)
        return tuple(made) if self._positional else dict(zip(self._names, made, strict=True))


class Prepared:
    """A statement with named `bindparam`s.

    Args:
        build: makes the statement for a dialect, by its name. Result columns come as the driver gives them: only
            statements whose results need no conversion belong here.
    """

    __slots__ = ("_build", "_compiled")

    def __init__(self, build: Build) -> None:
        self._build = build
        self._compiled: dict[str, _Compiled] = {}

    def run(self, connection: sa.Connection, values: Mapping[str, object]) -> sa.CursorResult[Any]:
        """Execute with one set of values; those that the statement does not name are passed over.

        Raises:
            KeyError: a value is missing.
        """
        compiled = self.for_dialect(connection.dialect)
        return connection.exec_driver_sql(compiled.sql, compiled.parameters(values))

    def for_dialect(self, dialect: Any) -> _Compiled:
        try:
            keys: Keys | None = dialect.drsai_text_keys
        except AttributeError:  # of an engine that is no backend's
            keys = None
        known: dict[str, _Compiled] = self._compiled if keys is None else keys.statements.setdefault(self, {})
        compiled = known.get(dialect.name)
        if compiled is None:
            compiled = known[dialect.name] = _Compiled(self._build(dialect.name), dialect)
        return compiled

    def if_held(self, dialect: Any) -> _Compiled:
        """The statement, changing nothing where the guard sent before it has changed no row (PostgreSQL)."""
        keys: Keys | None = dialect.drsai_text_keys
        known: dict[str, _Compiled] = self._compiled if keys is None else keys.statements.setdefault(self, {})
        compiled = known.get("if held")
        if compiled is None:
            compiled = known["if held"] = _Compiled(_if_held(self._build(dialect.name)), dialect)
        return compiled


def _if_held(statement: Any) -> sa.ClauseElement:
    if not isinstance(statement, sa.Insert):
        return statement.where(_HELD)
    made: Any = copy(statement)
    if made.select is None:
        values, made._values = made._values, None
        made = made.from_select(list(values), sa.select(*values.values()), include_defaults=False)
    made.select = made.select.where(_HELD)
    return made


# A setting of the transaction. Every statement of a pipeline is sent before the guard's outcome is known, and an error,
# which would undo them all, is a line in the server's log: somebody else was faster, and that happens all the time.
_HELD: Final = sa.text("current_setting('drsai.held') = '1'")

Step = tuple[Prepared, Mapping[str, object]]


class Charge(Protocol):
    """What a request is charged in the transaction that stores it: all of it, or the request is refused, and nothing of
    it is stored.

    Attributes:
        is_paid: it was taken, and is stored, although the request was not: another try of that owes nothing.
    """

    is_paid: bool

    def steps(self, thread_key: int, run_id: str) -> Sequence[Step]:
        """Return the statements that take it, of which the last one gives a row. On PostgreSQL that sets `drsai.held`
        to 1, or to 0 where it refuses, or finds a 0 there, and takes nothing then: what follows is done after a 1.

        Args:
            thread_key: the thread's; 0: it is new, and not stored yet.
            run_id: the run that the request begins, or resumes.
        """
        ...

    def check(self, row: Row) -> Sequence[Step]:
        """Return what is still to be stored, on SQLite alone, by the row that the last statement gave.

        Raises:
            DrSaiError: the request is refused.
        """
        ...


Due: TypeAlias = "tuple[Sequence[Step], Charge]"
"""The statements of a charge, and the charge."""


def due(charges: Sequence[Charge], thread_key: int, run_id: str) -> Sequence[Due]:
    """Return what is to be paid of charges for a request; arguments as those of `Charge.steps`."""
    return [(each.steps(thread_key, run_id), each) for each in charges if not each.is_paid]


def pay(connection: sa.Connection, dues: Sequence[Due]) -> None:
    """Take charges, one after the other. Raises what one of them does that refuses."""
    driver = connection.connection.driver_connection
    for steps, charge in dues:
        *before, last = steps
        for step in before:
            _rows_of(connection, driver, step)
        (row,) = _rows_of(connection, driver, last)
        for step in charge.check(row):
            _rows_of(connection, driver, step)


def _rows_of(connection: sa.Connection, driver: object, step: Step) -> Sequence[Row]:
    """Execute a statement, and return all of its rows."""
    compiled = step[0].for_dialect(connection.dialect)
    if isinstance(driver, sqlite3.Connection):
        return driver.execute(compiled.sql, compiled.parameters(step[1])).fetchall()
    found = connection.exec_driver_sql(compiled.sql, compiled.parameters(step[1]))
    return [tuple(row) for row in found] if found.returns_rows else ()


def run_guarded(
    connection: sa.Connection,
    guard: Step | None,
    rest: Sequence[Step],
    *,
    dues: Sequence[Due] = (),
    is_last: bool = False,
) -> Row | None:
    """Run `rest` if `guard`, a statement with RETURNING, changes a row. Returns what it returned of it; None: it
    changed none, and the caller must roll back. `is_last`: the transaction does nothing else, and may be committed
    here where that spares a round trip. `dues` are taken before the guard, and where one of them refuses, nothing is
    changed, and that is raised.

    With PostgreSQL's async driver all of it is one round trip, sent before the guard's outcome is known. On SQLite the
    statements go to the driver itself: SQLAlchemy's way to it takes longer than they do.
    """
    driver = connection.connection.driver_connection
    returned: Row = ()
    if dues and not connection.dialect.is_async:
        pay(connection, dues)
    if isinstance(driver, sqlite3.Connection):
        if guard is not None:
            compiled = guard[0].for_dialect(connection.dialect)
            # All rows are fetched: a statement that is not at its end holds up the COMMIT.
            rows = driver.execute(compiled.sql, compiled.parameters(guard[1])).fetchall()
            if not rows:
                return None
            returned = rows[0]
        for step, values in rest:
            compiled = step.for_dialect(connection.dialect)
            driver.execute(compiled.sql, compiled.parameters(values))
        return returned
    if connection.dialect.is_async:
        return _run_at_once(connection, driver, guard, rest, dues, is_last=is_last)
    return _run_by_sqlalchemy(connection, guard, rest)


def _run_at_once(
    connection: sa.Connection,
    driver: object,
    guard: Step | None,
    rest: Sequence[Step],
    dues: Sequence[Due],
    *,
    is_last: bool,
) -> Row | None:
    """`run_guarded` with PostgreSQL's async driver."""
    from drsai_backend.database.backends.round_trip import in_one_round_trip  # psycopg comes with it.

    texts: list[tuple[str, object]] = []
    read: list[int] = []
    for steps, _ in dues:
        for step, values in steps:
            compiled = step.for_dialect(connection.dialect)
            texts.append((compiled.sql, compiled.parameters(values)))
        read.append(len(texts) - 1)
    if guard is not None:
        compiled = (guard[0].if_held if dues else guard[0].for_dialect)(connection.dialect)
        read.append(len(texts))
        texts.append((_telling(compiled.sql), compiled.parameters(guard[1])))
    for step, values in rest:
        compiled = (step.for_dialect if guard is None else step.if_held)(connection.dialect)
        texts.append((compiled.sql, compiled.parameters(values)))
    work = in_one_round_trip(cast("Any", driver), texts, read, may_commit=is_last, is_guarded=guard is not None)
    rows, is_committed = await_only(work)
    for (_, charge), row in zip(dues, rows, strict=False):
        charge.check(row)
    if guard is None:
        return ()
    held, *found = rows[-1]
    for _, charge in dues:
        charge.is_paid = is_committed
    return tuple(found) if held else None


def _run_by_sqlalchemy(connection: sa.Connection, guard: Step | None, rest: Sequence[Step]) -> Row | None:
    row = () if guard is None else guard[0].run(connection, guard[1]).first()
    if row is None:
        return None
    for step, values in rest:
        step.run(connection, values)
    return tuple(row)


@cache
def _telling(guard: str) -> str:
    """The guard, which tells the statements after it and the caller whether it has changed a row."""
    held = "set_config('drsai.held', count(*)::text, true) = '1' FROM g"
    return f"WITH g AS ({guard}) SELECT held.*, g.* FROM (SELECT {held}) held LEFT JOIN g ON true"
