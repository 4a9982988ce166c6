"""What an operator relies on: whether the database takes writes, and who may read its files."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from drsai_backend.database import Database, DatabaseManager
from drsai_backend.datamodel import AgentJson, UserInput
from drsai_backend.errors import DatabaseUnavailable


async def test_a_trial_write_leaves_nothing(db: DatabaseManager) -> None:
    await db.try_write()
    await db.try_write()
    assert await db.get(AgentJson) == []


async def test_a_locked_database_takes_no_writes(tmp_path: Path, migrated_sqlite: str) -> None:
    database = Database(migrated_sqlite, busy_timeout=0.1)
    db = DatabaseManager(database=database)
    other = sqlite3.connect(tmp_path / "drsai.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnavailable, match="locked"):
            await db.try_write()
        other.execute("ROLLBACK")
        await db.try_write()
    finally:
        other.close()
        await database.close()


_FULL = """
import asyncio, resource, signal, sys
from drsai_backend.database import DatabaseManager
from drsai_backend.errors import DatabaseUnavailable

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def work():
    async with DatabaseManager(sys.argv[1]) as db:
        await db.try_write()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        try:
            await db.try_write()
        except DatabaseUnavailable as error:
            print(error.message)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await db.try_write()
        print("ready")

asyncio.run(work())
"""


def test_a_full_disk_takes_no_writes(migrated_sqlite: str) -> None:
    done = subprocess.run([sys.executable, "-c", _FULL, migrated_sqlite], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("the disk of the database"), done.stderr
    assert done.stdout.endswith("\nready\n"), done.stderr


async def test_the_files_of_a_database_are_the_owners_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with DatabaseManager(f"sqlite:///{tmp_path / 'drsai.db'}") as db:
            await db.upsert(UserInput(user_id="ada", thread_id="t", api_key="sk-secret"))
            modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in os.listdir(tmp_path)}
    finally:
        os.umask(before)
    assert {"drsai.db", "drsai.db-wal", "drsai.db-shm", "drsai.db.key"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes
    # What somebody has decided otherwise stays so.
    (tmp_path / "drsai.db").chmod(0o640)
    async with DatabaseManager(f"sqlite:///{tmp_path / 'drsai.db'}", secret_key=SecretStr("x")) as db:
        await db.try_write()
    assert (tmp_path / "drsai.db").stat().st_mode & 0o777 == 0o640
