"""The store has the state of a thread: it is read, written and compacted by synchronous functions of a `Session`.

A snapshot is written when the journal has outgrown twice the last one. Both are in reference form, so a snapshot is a
few bytes per message and the total ever written for snapshots stays linear in the length of the thread.
`Thread.journal_debt` keeps the account: the size of the entries since the last snapshot, less twice its size.

The journal is kept, so any turn can be rebuilt (`travel`); the state as it is now takes the last snapshot and the
entries after it, however long the thread is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.runs.paths import Line, on_path
from drsai_backend.database.runs.reads import StoredState, read_snapshot, read_state
from drsai_backend.database.runs.statements import insert_entry, insert_snapshot
from drsai_backend.database.runs.values import LEAST_DEBT
from drsai_backend.datamodel import JournalEntry, Thread, ThreadSnapshot, table_of, utcnow
from drsai_backend.state.codec import decode_state, encode_state
from drsai_backend.state.journal import Document, Entry, ResumeRecord, decode_document, encode_document, expand, fold

COMPACT_ABOVE: Final = 8 * 1024
"""Bytes of `Thread.journal_debt` from which a snapshot is due."""

_thread = table_of(Thread)
_journal = table_of(JournalEntry)
_snapshot = table_of(ThreadSnapshot)


def decode_stored(stored: StoredState) -> Document | None:
    """The document of what is stored, or None for a thread without a state. StateError: damaged, or of later format."""
    document = None if stored.snapshot is None else decode_document(stored.snapshot)
    return fold(document, (Entry.decode(payload) for payload in stored.entries))


def compact(session: Session, key: int) -> int | None:
    """Store a snapshot of a thread as it is now; safe while a run is live. The journal stays, and of older snapshots a
    few, at growing distances. StateError leaves all as it is.

    Returns the thread's new `journal_debt`; None: there was nothing to fold.
    """
    connection = session.connection()
    # Two workers may both find that a snapshot is due.
    query = sa.select(_thread.c.branch, _thread.c.tenant).where(_thread.c.id == key).with_for_update()
    found = connection.execute(query).first()
    if found is None:
        return None
    line = Line(key, found.branch)
    turn, old = read_snapshot(session, line)
    columns = (_journal.c.turn, _journal.c.payload)
    query = on_path(_journal, line, "turn", *columns).where(_journal.c.turn > turn).order_by(_journal.c.turn)
    rows = connection.execute(query).all()
    if not rows:
        return None
    document = fold(None if old is None else decode_document(old), (Entry.decode(payload) for _, payload in rows))
    assert document is not None
    payload, turn = encode_document(document), rows[-1].turn
    insert_snapshot.run(connection, {"thread_key": key, "turn": turn, "payload": payload, "tenant": found.tenant})
    _thin(connection, key, turn)
    statement = sa.update(_thread).where(_thread.c.id == key).returning(_thread.c.journal_debt)
    return connection.execute(statement.values(journal_debt=debt_of(payload, ()))).scalar_one()


def debt_of(snapshot: str | None, entries: Iterable[str]) -> int:
    """`Thread.journal_debt` where these entries follow that snapshot."""
    return sum(max(len(each), LEAST_DEBT) for each in entries) - (0 if snapshot is None else 2 * len(snapshot))


def _thin(connection: sa.Connection, key: int, newest: int) -> None:
    """Delete a snapshot where the gap that this leaves is at most half as long as its distance from the newest one. So
    their number grows with the logarithm of the number of turns, and what it takes to rebuild a turn at most in
    proportion to how long ago it was.

    What is folded into nothing else stays: earlier versions deleted the entries, and neither forks nor imported threads
    begin with any.
    """
    has_entry = sa.exists().where(_journal.c.thread_key == key, _journal.c.turn == _snapshot.c.turn).label("has_entry")
    query = sa.select(_snapshot.c.turn, has_entry).where(_snapshot.c.thread_key == key, _snapshot.c.turn < newest)
    rows = connection.execute(query.order_by(_snapshot.c.turn.desc())).all()
    kept, surplus = newest, list[int]()
    for index, row in enumerate(rows, 1):
        before = rows[index].turn if index < len(rows) else 0
        if row.has_entry and kept - before <= (newest - kept) // 2:
            surplus.append(row.turn)
        else:
            kept = row.turn
    if surplus:
        connection.execute(sa.delete(_snapshot).where(_snapshot.c.thread_key == key, _snapshot.c.turn.in_(surplus)))


class JournalStateStore:
    """`Thread.state` as the database manager reads and writes it: always the complete state."""

    def read_state(self, session: Session, thread: Thread) -> str | None:
        """The complete state as `encode_state` gives it, or None.

        Raises:
            StateError: damaged, or written by a later version.
        """
        assert thread.id is not None
        stored = read_state(session, Line(thread.id, thread.branch))
        document = decode_stored(stored)
        return None if document is None else encode_state(expand(document, stored.configs)[0])

    def write_state(self, session: Session, thread: Thread, encoded: str | None) -> None:
        """Replace the state, as one more turn. None: the next run starts with a fresh team, and no turn before it can
        be rebuilt any more.

        Raises:
            StateError: `encoded` is not what `encode_state` gives.
        """
        assert thread.id is not None
        connection = session.connection()
        if encoded is None:
            for table in (_journal, _snapshot):
                connection.execute(sa.delete(table).where(table.c.thread_key == thread.id))
            thread.journal_debt = 0
            return
        resume = ResumeRecord(last_seq=thread.last_seq)
        document = Document({"state": decode_state(encoded), "extras": {}}, [], {}, resume)
        payload = Entry(resume, doc=document).encode()
        thread.turn += 1
        thread.journal_debt += len(payload)
        row: dict[str, object] = {
            "thread_key": thread.id,
            "turn": thread.turn,
            "created_at": utcnow(),
            "run_id": thread.run_id or "",
            "epoch": thread.epoch,
            "first_seq": thread.last_seq + 1,
            "last_seq": thread.last_seq,
            "payload": payload,
            "tenant": thread.tenant,
        }
        insert_entry.run(connection, row)
