"""Each invariant is seen to break, and none of them breaks by itself."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DrSai
from drsai_backend.datamodel import KnowledgeFile, KnowledgeStore, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.base import NewStore
from drsai_backend.features.knowledge.rows.stores import create_store
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from drsai_backend.search import Entry, add, create_index
from tests.support.invariants import COUNTED, INVARIANTS, broken
from tests.support.teams.crew import Crew
from tests.support.threads import settings

BREAKS = {
    "messages are numbered 1 to last_seq, without a gap": "DELETE FROM autogenmessage WHERE seq = 2",
    "turns of the journal follow each other, up to the thread's": "DELETE FROM journalentry WHERE turn = 2",
    "a turn's messages come after those of the turn before it": "UPDATE journalentry SET first_seq = 1 WHERE turn = 2",
    "states take in what is there": "INSERT INTO threadsnapshot SELECT id, turn + 1, '' FROM thread",
    "the current branch is the newest, and begins where the thread has been": "UPDATE thread SET branch = 1",
    "a thread counts the inputs that wait": "UPDATE thread SET queued = 1",
    "an input waits if, and only if, its run is created": "UPDATE run SET status = 'created', finished_at = NULL",
    "a thread has the status of its run": "UPDATE thread SET status = 'running'",
    "a run that is not over is its thread's": "UPDATE run SET status = 'paused', finished_at = NULL",
    "a run has an end if, and only if, it is over": "UPDATE run SET finished_at = NULL",
    "times go forward": "UPDATE run SET started_at = finished_at, finished_at = created_at",
    "only a thread whose run is live is leased": "UPDATE thread SET lease_owner = 'x'",
    "only a turn in flight, or one that has failed, has steps": (
        "INSERT INTO turnstep (thread_key, agent, step, created_at, run_id, turn, epoch, digest, value) "
        "SELECT id, 'a', 's', created_at, run_id, turn, epoch, '', '1' FROM thread"
    ),
    "what names a run names one of its thread": "UPDATE autogenmessage SET run_id = 'x' WHERE seq = 1",
    "the request of a thread goes with it": "UPDATE userinput SET thread_id = 'x'",
    COUNTED: "UPDATE usageentry SET prompt_tokens = prompt_tokens + 1",
    "a file has bytes, and bytes have a file": "DELETE FROM filecontent",
    "the newest version of a name is the one that is served, if any is": (
        "INSERT INTO storeddefinition (tenant, user_id, name, version, definition, created_at, created_by, ended_at) "
        "SELECT 'default', 'u', 'n', 1, '{}', created_at, 'u', NULL FROM thread "
        "UNION ALL SELECT 'default', 'u', 'n', 2, '{}', created_at, 'u', created_at FROM thread"
    ),
    "an index counts what it has": "UPDATE searchindex SET entries = entries + 1",
    "a vector has an entry": "DELETE FROM searchentry",
    "an index is somebody's, or a job drops it": "UPDATE knowledgestore SET index_key = NULL",
    "a file that is read has its chunks": "UPDATE knowledgefile SET chunks = 7",
    "what is remembered now is found, and nothing else": "UPDATE memoryperson SET index_key = NULL",
}


ORPHAN = "DELETE FROM thread"


def test_each_has_its_break() -> None:
    assert BREAKS.keys() == INVARIANTS.keys()


ANN = Owner("default", "u")


def _stored(session: Session) -> None:
    """A store with a file of one chunk."""
    store, file = table_of(KnowledgeStore), table_of(KnowledgeFile)
    create_store(session, ANN, NewStore(name="s"))
    index = create_index(session, ANN, "knowledge", model="m")
    session.execute(sa.update(store).values(index_key=index, model="m"))
    counts = {"status": "completed", "chunks": 1, "done": 1, "chunk_tokens": 800, "overlap_tokens": 0}
    more: dict[str, object] = {"filename": "a.txt", "remarks": [], "attributes": {}, "created_at": utcnow()}
    key = session.execute(sa.select(store.c.id)).scalar_one()
    added = sa.insert(file).values(store_key=key, file_id="file-1", **counts, **more).returning(file.c.id)
    family = str(session.execute(added).scalar_one())
    add(session, index, [Entry(f"{family}:a", "x", family)], [b"\0\0\x80\x3f"])


async def filled(url: str) -> None:
    """A run, a file, a store, and a memory."""
    async with DrSai({"crew": Crew()}, url, settings=settings()) as drsai:
        await drsai.run("crew", "x", thread_id="t")
        await drsai.files.create(ANN, "a.txt", b"x")
        await drsai.extension(Memory).add(ANN, NewMemory(text="Tea is good."))
        await drsai.database.write(_stored)


async def test_a_run_breaks_none(database_url: str) -> None:
    await filled(database_url)
    assert broken(database_url) == []


def test_each_is_seen_to_break(migrated_sqlite: str, tmp_path: Path) -> None:
    asyncio.run(filled(migrated_sqlite))
    whole = Path(str(sa.make_url(migrated_sqlite).database)).read_bytes()
    for what, statement in {**BREAKS, "autogenmessage.thread_key refers to a row": ORPHAN}.items():
        file = tmp_path / "broken.db"
        file.write_bytes(whole)
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(statement)
        assert what in "".join(broken(f"sqlite:///{file}")), what
