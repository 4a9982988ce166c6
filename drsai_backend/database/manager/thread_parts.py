"""Parts of a thread have rules of their own: its lease, single messages, the view of its user input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.manager.model import Values, model_info
from drsai_backend.database.manager.rows import Change, RowWriter, observe
from drsai_backend.database.owned import NAME, any_of_threads, of_thread
from drsai_backend.database.runs.statements import lease_ends
from drsai_backend.database.values import batches
from drsai_backend.datamodel import RunStatus, Thread, UserInput, UTCDateTime, table_of, utcnow
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import Conflict, InvalidRequest, NotFound, ThreadBusy

_thread = table_of(Thread)


def is_live(dialect: str) -> sa.ColumnElement[bool]:
    """True for the row of a thread that a worker holds a lease on, by the clock that leases go by."""
    now = sa.func.clock_timestamp() if dialect == "postgresql" else sa.literal(utcnow(), UTCDateTime())
    return sa.and_(_thread.c.status == RunStatus.RUNNING, lease_ends(dialect) > now)


def refuse_live(session: Session, dialect: str, thread_key: int, param: str) -> None:
    """Raise `ThreadBusy` when a run is live on the thread."""
    if session.scalar(sa.select(sa.literal(1)).where(_thread.c.id == thread_key, is_live(dialect))):
        raise ThreadBusy(f"a run is live on the thread: its {param} cannot be changed now", param=param)


def store_message(session: Session, rows: RowWriter, change: Change) -> Values:
    """Appends a new message to its thread, or changes `message_meta` of a stored one.

    Raises:
        NotFound: there is no such thread.
        ThreadBusy: a run is live on it.
        Conflict: another field of a stored message changed.
        InvalidRequest: a new message brings its own number.
    """
    stored = rows.lock(session, change)
    if stored is not None:
        differences = rows.differences(change, stored)
        if not differences:
            return stored
        refuse_live(session, rows.dialect, stored["thread_key"], "messages")
        return rows.update(session, change.info, stored, differences)
    if change.loaded is not None:
        return rows.store(session, change)[0]  # Raises: it was deleted, with its thread.
    for name in ("seq", "thread_key"):
        if change.initial.get(name) is not None:
            raise InvalidRequest(f"{name} of a new message is given by the database", param=name)
    named = ThreadName(*(change.initial[name] for name in NAME))
    query = sa.select(_thread.c.id, _thread.c.last_seq).where(*of_thread(_thread, named))
    thread = session.execute(query.with_for_update()).first()
    if thread is None:
        raise NotFound("the user has no thread of that thread_id", param="thread_id")
    refuse_live(session, rows.dialect, thread.id, "messages")
    seq = thread.last_seq + 1
    change.initial.update(thread_key=thread.id, seq=seq)
    result, _ = rows.store(session, change)
    counted = {"last_seq": seq, "revision": _thread.c.revision + 1, "updated_at": utcnow()}
    session.execute(sa.update(_thread).where(_thread.c.id == thread.id).values(counted))
    return result


# Shown by the view; a change of them in it means nothing.
_VIEW_ONLY: Final = frozenset({"id", "created_at", "updated_at", "version", *NAME})


class UserInputView:
    """Storage functions for the view."""

    def __init__(self, rows: RowWriter) -> None:
        self._rows = rows
        self._info = model_info(UserInput)
        # The key's column is never even read.
        self._fields = {name: item for name, item in self._info.fields.items() if name != "api_key"}
        self._all = sa.select(*(item.column for item in self._fields.values()))
        self._views_of = self._all.where(any_of_threads(self._info.table))

    def read(self, session: Session, threads: Sequence[ThreadName]) -> dict[ThreadName, Values]:
        """The views of threads, as JSON; threads without user input are left out."""
        connection = session.connection()
        result: dict[ThreadName, Values] = {}
        for part in batches(threads):
            for row in connection.execute(self._views_of, {"threads": part}).mappings():
                values = {name: row[item.column] for name, item in self._fields.items()}
                named = ThreadName(*(values[column] for column in NAME))
                result[named] = UserInput(**values).model_dump(mode="json")
        return result

    def fingerprints(self, view: Values | None) -> Values:
        """Return what to remember of a view, field by field; empty when there was no row."""
        return {name: self._fields[name].fingerprint(view[name]) for name in self._changeable(view)} if view else {}

    def write(self, session: Session, name: ThreadName, view: Values | None, loaded: Values | None) -> bool:
        """Writes what differs from the view as it was read (`loaded`; None: it was not). True: something did.

        Raises:
            InvalidRequest: an unknown field, or an api_key: that belongs into `UserInput`, whose row encrypts it.
            Conflict: somebody else changed one of the fields since.
        """
        if view is None:
            return self._delete(session, name, loaded)
        for field in view:
            if field not in self._fields:
                where = "UserInput, whose row encrypts it" if field == "api_key" else "extra_requests"
                raise InvalidRequest(
                    f"user_input.{field} is no field of the view: it belongs into {where}", param="user_input"
                )
        given: Values = {field: view[field] for field in self._changeable(view)}
        if loaded is not None:
            given = {**dict.fromkeys(loaded), **given}  # A field that was taken out of the dict is None.
        change = observe(UserInput(**name._asdict(), **given))
        change.changed = {field: change.initial[field] for field in given}
        if loaded is not None:
            changed = {n: v for n, v in change.changed.items() if self._fields[n].fingerprint(v) != loaded.get(n)}
            change.changed, change.loaded = changed, loaded
        if not change.changed and loaded:
            return False
        return self._rows.store(session, change)[1]

    def _delete(self, session: Session, thread: ThreadName, loaded: Values | None) -> bool:
        table = self._info.table
        owned = of_thread(table, thread)
        row = session.execute(self._all.where(*owned).with_for_update()).mappings().first()
        if row is None:
            return False
        for name, item in self._fields.items():
            if loaded and name in loaded and item.fingerprint(row[item.column]) != loaded[name]:
                raise Conflict(f"user_input.{name} was changed by somebody else since it was read", param="user_input")
        session.execute(sa.delete(table).where(*owned))
        return True

    def _changeable(self, view: Values | None) -> list[str]:
        return [name for name in view or {} if name in self._fields and name not in _VIEW_ONLY]
