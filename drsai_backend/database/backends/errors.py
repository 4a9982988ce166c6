"""Errors of the database libraries become errors of this package here, and nowhere else."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Mapping
from typing import Final

import sqlalchemy.exc

from drsai_backend.errors import Conflict, DatabaseError, DatabaseUnavailable, DrSaiError, InvalidRequest

# Primary result codes: https://www.sqlite.org/rescode.html
_SQLITE_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "the database is locked by another process",
    sqlite3.SQLITE_LOCKED: "the database is locked",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
    sqlite3.SQLITE_READONLY: "the database is read-only",
    sqlite3.SQLITE_IOERR: "the disk of the database failed",
    sqlite3.SQLITE_FULL: "the disk of the database is full",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
}
_SQLITE_UNIQUE = {
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
}

_UNIQUE = "a row with the same unique values exists already"
_NEEDED = "a row that this one needs is not there, or was deleted at the same moment; or others need this one"
_MISSING = "a table or column is missing: create_table makes one's own, `drsai db upgrade` those of this package"
READ_ONLY: Final = (
    "the database takes no writes now: it is a standby, or default_transaction_read_only is on; name all hosts in "
    "DRSAI_DATABASE_URL, so that the primary is found"
)
_FULL = (
    "PostgreSQL has no connection left for this process (max_connections): give it more, run fewer processes, or put "
    "PgBouncer in between"
)
# By a part of what libpq says. Where a connection is refused it gives no SQLSTATE, only the server's words; those that
# are not English say no more than that the database cannot be reached, and are in the log.
_REFUSALS: Final = {
    "too many": _FULL,
    "connection slots": _FULL,
    "read-only": READ_ONLY,
    "hot standby": READ_ONLY,
    "not accepting connections": READ_ONLY,
    "support SSL": "the database server has no TLS, which sslmode in DRSAI_DATABASE_URL asks for",
    "certificate": "no trust in the database server's certificate: see sslmode and sslrootcert in DRSAI_DATABASE_URL",
    "authentication": "the database refuses the user or password of DRSAI_DATABASE_URL",
    "pg_hba.conf": "pg_hba.conf of the database server does not let this user in from here: it has no entry for it, or "
    "one that wants TLS (?sslmode=require in DRSAI_DATABASE_URL) or none (disable)",
    "does not exist": "the database server has no such user or database as DRSAI_DATABASE_URL names",
}
_TAKEN = (
    "others use names of this package's here; give it a database of its own, or a schema, "
    "with CREATE SCHEMA drsai and ?options=-csearch_path%3Ddrsai in DRSAI_DATABASE_URL"
)
RACES = ("40001", "40P01")
"""PostgreSQL's codes of what it does not do because of another transaction, and would do now."""
_RACE = "another writer got in the way; nothing was written, try again"
_BY_STATE: Final[Mapping[str, tuple[type[DrSaiError], str]]] = {
    **dict.fromkeys(RACES, (Conflict, _RACE)),
    "23505": (Conflict, _UNIQUE),
    "23503": (Conflict, _NEEDED),
    "55P03": (DatabaseUnavailable, "another transaction holds the row for too long"),
    "53300": (DatabaseUnavailable, _FULL),
    "42P01": (DatabaseError, _MISSING),
    "42703": (DatabaseError, _MISSING),
}


def translate(error: BaseException) -> BaseException:
    """The error to raise in place of `error`.

    Errors of SQLAlchemy and of the drivers become `DatabaseUnavailable`, `Conflict`, `InvalidRequest` or
    `DatabaseError` with a text that holds no SQL, parameter or password. They keep the traceback but not the original
    as their cause: PostgreSQL's messages quote whole rows, and tracebacks end in logs. Anything else is returned as it
    is.
    """
    translated = _translate(error)
    if translated is not error:
        translated = translated.with_traceback(error.__traceback__)
        translated.__cause__ = None
        translated.__suppress_context__ = True
        if details := _details(getattr(error, "orig", error)):
            translated.add_note(details)
    return translated


def sqlstate_of(error: object) -> str | None:
    """PostgreSQL's code of an error of its driver, or SQLAlchemy's of it; None: it is another error, or has none."""
    return getattr(getattr(error, "orig", error), "sqlstate", None)


def is_lost(error: BaseException) -> bool:
    """Whether an error of PostgreSQL's driver, or SQLAlchemy's of it, says that the connection is gone."""
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        return error.connection_invalidated
    state = sqlstate_of(error)
    if state == "25P03":
        return True  # It was idle in a transaction for too long.
    if not _is_of_psycopg(error, "OperationalError"):
        return False
    # Without an SQLSTATE it comes from the connection and not from the server; 57P0x: the server is shut down.
    return state is None or state.startswith("57P0")


def _is_of_psycopg(error: object, kind: str) -> bool:
    """Whether an error is of a class of psycopg's, which is not imported to tell: who has such an error has done it."""
    driver = sys.modules.get("psycopg")
    return driver is not None and isinstance(error, getattr(driver, kind))


def _translate(error: BaseException) -> BaseException:
    if isinstance(error, DrSaiError):
        return error
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return DatabaseUnavailable("no connection to the database became free in time")
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        return _from_driver(error.orig, connection_lost=error.connection_invalidated)
    if isinstance(error, sqlite3.Error) or _is_of_psycopg(error, "Error"):
        return _from_driver(error)
    if isinstance(error, sqlalchemy.exc.StatementError) and isinstance(error.orig, DrSaiError):
        return error.orig
    if isinstance(error, sqlalchemy.exc.StatementError | UnicodeEncodeError):
        # The value was refused before it reached the database: a type that does not fit the column, a lone surrogate.
        return InvalidRequest("a value cannot be stored in its column")
    if isinstance(error, sqlalchemy.exc.SQLAlchemyError):
        return DatabaseError(f"the database layer failed: {type(error).__name__}")
    if isinstance(error, StopIteration):
        # A future refuses StopIteration, and the caller would wait for ever.
        return RuntimeError("the storage function raised StopIteration")
    return error


def _details(error: object) -> str:
    """Return which constraint or column it was about or why there is no connection, for readers of logs; never a
    value."""
    if isinstance(error, sqlite3.Error):
        return str(error) if " constraint failed" in str(error) else ""
    if _is_of_psycopg(error, "OperationalError") and sqlstate_of(error) is None:
        return str(error)
    found = getattr(error, "diag", None)
    names = [getattr(found, f"{kind}_name", None) for kind in ("table", "column", "constraint")]
    return ", ".join(name for name in names if name)


def _from_driver(error: object, *, connection_lost: bool = False) -> DrSaiError:
    if isinstance(error, sqlite3.Error):
        return _from_sqlite(error)
    state: str | None = getattr(error, "sqlstate", None)
    if state is None:
        if connection_lost or type(error).__name__ in ("OperationalError", "ConnectionTimeout", "InterfaceError"):
            reasons = (text for part, text in _REFUSALS.items() if part in str(error))
            return DatabaseUnavailable(next(reasons, "the database cannot be reached"))
        if type(error).__name__ == "DataError":
            return InvalidRequest("a value cannot be stored in its column")
        return DatabaseError(f"the database failed: {type(error).__name__}")
    if state in _BY_STATE:
        kind, text = _BY_STATE[state]
        return kind(text)
    if state[:2] in ("08", "53", "57") or state[:2] == "28" or state == "3D000":
        # Connection lost, out of resources, shut down; or no such role, password or database.
        return DatabaseUnavailable(f"the database cannot be used now (SQLSTATE {state})")
    if state in ("42P06", "42P07", "42710"):
        primary: str = error.diag.message_primary  # type: ignore[attr-defined]  # Names, and no value.
        return DatabaseError(f"{primary}: {_TAKEN}")
    return DatabaseError(f"the database refused: {type(error).__name__} (SQLSTATE {state})")


def _from_sqlite(error: sqlite3.Error) -> DrSaiError:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code in _SQLITE_UNIQUE:
        return Conflict(_UNIQUE)
    if code == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
        return Conflict(_NEEDED)
    if code is not None and (text := _SQLITE_UNAVAILABLE.get(code & 0xFF)):
        return DatabaseUnavailable(text)
    if str(error).startswith(("no such table", "no such column")):
        return DatabaseError(_MISSING)
    return DatabaseError(f"the database refused: {getattr(error, 'sqlite_errorname', type(error).__name__)}")
