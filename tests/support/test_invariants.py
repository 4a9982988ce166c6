"""Each invariant is seen to break, and none of them breaks by itself."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.datamodel.owner import Owner
from tests.support.invariants import INVARIANTS, broken
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
    "a file has bytes, and bytes have a file": "DELETE FROM filecontent",
    "the newest version of a name is the one that is served, if any is": (
        "INSERT INTO storeddefinition (tenant, user_id, name, version, definition, created_at, created_by, ended_at) "
        "SELECT 'default', 'u', 'n', 1, '{}', created_at, 'u', NULL FROM thread "
        "UNION ALL SELECT 'default', 'u', 'n', 2, '{}', created_at, 'u', created_at FROM thread"
    ),
}


ORPHAN = "DELETE FROM thread"


def test_each_has_its_break() -> None:
    assert BREAKS.keys() == INVARIANTS.keys()


async def filled(url: str) -> None:
    """A run, and a file."""
    async with DrSai({"crew": Crew()}, url, settings=settings()) as drsai:
        await drsai.run("crew", "x", thread_id="t")
        await drsai.files.create(Owner("default", "u"), "a.txt", b"x")


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
