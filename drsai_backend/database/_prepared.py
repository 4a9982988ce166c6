"""Statements that are compiled once per dialect.

A run makes eleven statements, and SQLAlchemy's way to one that it knows already (cache key, parameters by name, an
execution context) takes four times as long as SQLite takes to carry it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql.compiler import SQLCompiler

Build = Callable[[str], sa.ClauseElement]


class _Compiled:
    """SQL text of one dialect, and how its parameters are made from named values."""

    __slots__ = ("_constants", "_names", "_positional", "_processors", "sql")

    def __init__(self, statement: sa.ClauseElement, dialect: Dialect) -> None:
        compiled = cast("SQLCompiler", statement.compile(dialect=dialect))
        self.sql = compiled.string
        self._positional = compiled.positiontup is not None
        self._names = list(compiled.positiontup or compiled.binds)
        self._processors = cast("dict[str, Callable[[Any], Any]]", compiled._bind_processors)
        self._constants = {name: bind.value for name, bind in compiled.binds.items() if not bind.required}

    def parameters(self, values: Mapping[str, Any]) -> Any:
        processors, constants = self._processors, self._constants
        made: list[Any] = []
        for name in self._names:
            value = values[name] if name in values else constants[name]
            processor = processors.get(name)
            made.append(value if processor is None else processor(value))
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

    def run(self, connection: sa.Connection, values: Mapping[str, Any]) -> sa.CursorResult[Any]:
        """Execute with one set of values; those that the statement does not name are passed over.

        Raises:
            KeyError: a value is missing.
        """
        compiled = self._for(connection.dialect)
        return connection.exec_driver_sql(compiled.sql, compiled.parameters(values))

    def run_all(self, connection: sa.Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Execute once per row."""
        compiled = self._for(connection.dialect)
        many = [compiled.parameters(row) for row in rows]
        if many:
            connection.exec_driver_sql(compiled.sql, many if len(many) > 1 else many[0])

    def _for(self, dialect: Dialect) -> _Compiled:
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            compiled = self._compiled[dialect.name] = _Compiled(self._build(dialect.name), dialect)
        return compiled
