"""The stored state of a thread, read, written and compacted: synchronous functions of a `Session`.

A snapshot is written when the journal has outgrown twice the last one. Both are in reference form, so a snapshot is a
few bytes per message and the total ever written for snapshots stays linear in the length of the thread.
`Thread.journal_debt` keeps the account: a turn adds the size of its entry, a snapshot takes twice its own size off.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.runs.reads import StoredState, read_state
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
    """Fold the journal of a thread into a new snapshot; safe while a run is live. StateError leaves all as it is.

    Returns the thread's new `journal_debt`; None: there was nothing to fold.
    """
    connection = session.connection()
    # Two workers may both find that a snapshot is due.
    connection.execute(sa.select(_thread.c.id).where(_thread.c.id == key).with_for_update())
    old = connection.execute(sa.select(_snapshot).where(_snapshot.c.thread_key == key)).first()
    rows = connection.execute(
        sa.select(_journal.c.turn, _journal.c.payload)
        .where(_journal.c.thread_key == key, _journal.c.turn > (0 if old is None else old.turn))
        .order_by(_journal.c.turn)
    ).all()
    if not rows:
        return None
    document = fold(
        None if old is None else decode_document(old.payload), (Entry.decode(payload) for _, payload in rows)
    )
    assert document is not None
    payload = encode_document(document)
    turn = rows[-1].turn
    if old is None:
        connection.execute(sa.insert(_snapshot).values(thread_key=key, turn=turn, payload=payload))
    else:
        connection.execute(sa.update(_snapshot).where(_snapshot.c.thread_key == key).values(turn=turn, payload=payload))
    connection.execute(sa.delete(_journal).where(_journal.c.thread_key == key, _journal.c.turn <= turn))
    folded = sum(len(row.payload) for row in rows)
    # What the last snapshot took off is closed with it.
    earned = 0 if old is None else 2 * len(old.payload)
    debt = _thread.c.journal_debt
    statement = sa.update(_thread).where(_thread.c.id == key).returning(debt)
    return connection.execute(statement.values(journal_debt=debt - folded - 2 * len(payload) + earned)).scalar_one()


class JournalStateStore:
    """`Thread.state` as the database manager reads and writes it: always the complete state."""

    def read_state(self, session: Session, thread: Thread) -> str | None:
        """The complete state as `encode_state` gives it, or None.

        Raises:
            StateError: damaged, or written by a later version.
        """
        assert thread.id is not None
        stored = read_state(session, thread.id)
        document = decode_stored(stored)
        return None if document is None else encode_state(expand(document, stored.configs)[0])

    def write_state(self, session: Session, thread: Thread, encoded: str | None) -> None:
        """Replace the state, as one more turn. None: the next run starts with a fresh team.

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
        connection.execute(
            sa.insert(_journal).values(
                thread_key=thread.id,
                turn=thread.turn,
                created_at=utcnow(),
                run_id=thread.run_id or "",
                epoch=thread.epoch,
                first_seq=thread.last_seq + 1,
                last_seq=thread.last_seq,
                payload=payload,
            )
        )
