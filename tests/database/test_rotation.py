"""The secret that encrypts model keys is exchanged while others read and write them."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.orm import Session

from drsai_backend.database import DatabaseManager, SecretBox, schemas
from drsai_backend.database.manager.rotation import BATCH, Rotated, rotate
from drsai_backend.datamodel import QueuedInput, Thread, UserInput, table_of, utcnow
from drsai_backend.datamodel.base import is_secret
from drsai_backend.errors import ConfigurationError

OLD, NEW = SecretStr("the old secret"), SecretStr("the new secret")


def read(file: Path) -> str:
    return file.read_text()


async def store_keys(db: DatabaseManager, count: int) -> None:
    """Keys in requests and in queued inputs, one of them as the first version wrote it, and rows without one."""
    sealed = [db.secrets.encrypt(f"sk-{number}") for number in range(count)]
    common = {"tenant": "default", "user_id": "u", "created_at": utcnow(), "updated_at": utcnow(), "version": "1"}
    rows = [{**common, "thread_id": f"t{number}", "api_key": each} for number, each in enumerate([*sealed, None])]
    thread = await db.upsert(Thread(user_id="u", thread_id="queue"))
    queued = [
        {
            "thread_key": thread.id,
            "run_id": f"run_{number}",
            "api_key": each,
            "created_at": utcnow(),
            "policy": "enqueue",
        }
        for number, each in enumerate([*sealed[:3], None])
    ]

    def insert(session: Session) -> None:
        session.connection().execute(sa.insert(table_of(UserInput)), rows)
        session.connection().execute(sa.insert(table_of(QueuedInput)), queued)

    await db.database.write(insert)


async def ciphertexts(db: DatabaseManager) -> list[str]:
    def read_all(session: Session) -> list[str]:
        tables = map(table_of, (UserInput, QueuedInput))
        columns = [table.c.api_key for table in tables]
        return [each for c in columns for each in session.scalars(sa.select(c).where(c.is_not(None)))]

    return await db.database.read(read_all)


async def keys_of(db: DatabaseManager) -> list[str | None]:
    return [row.api_key for row in await db.get(UserInput, order="id")]


async def test_all_that_is_stored_is_encrypted_anew(database_url: str) -> None:
    count = 2 * BATCH + 7
    async with DatabaseManager(database_url, secret_key=OLD) as before:
        await store_keys(before, count)
        first = before.database.write
        sealed = "v1:" + "CwwNB3EPThrEfw4ctoHUQTXSSJFhkVnfpb6mY0coebF7lQfvjgc="  # of the secret `fixture`
        await first(
            lambda session: session.execute(sa.update(UserInput).where(UserInput.id == 1).values(api_key=sealed))
        )  # pyright: ignore[reportArgumentType]
        times = [row.updated_at for row in await before.get(UserInput, {"id": {"gt": 1}})]
    old = [OLD, SecretStr("fixture")]
    async with DatabaseManager(database_url, secret_key=NEW, old_secret_keys=old) as db:
        held = (await db.get(UserInput, {"id": 2}))[0]
        assert await rotate(db.database, db.secrets) == Rotated(count + 3, 0, 0)
        assert all(each.startswith(db.secrets.prefix()) for each in await ciphertexts(db))
        assert await rotate(db.database, db.secrets) == Rotated(0, 0, 0)
        held.n = 3
        await db.upsert(held)  # What was read before is no conflict: the key is the same.
    async with DatabaseManager(database_url, secret_key=NEW) as db:
        assert await keys_of(db) == ["sk-fixture", *(f"sk-{number}" for number in range(1, count)), None]
        assert [row.api_key for row in await db.get(QueuedInput, order="id")] == ["sk-0", "sk-1", "sk-2", None]
        rows = await db.get(UserInput, {"id": {"gt": 1}})
        assert [row.updated_at for row in rows][1:] == times[1:]  # Nobody has touched these threads.
    async with DatabaseManager(database_url, secret_key=OLD) as late:
        with pytest.raises(ConfigurationError):
            await late.get(UserInput)


async def test_what_no_secret_opens_is_counted_and_left(database_url: str) -> None:
    async with DatabaseManager(database_url, secret_key=SecretStr("lost")) as db:
        await store_keys(db, 2)
        stored = await ciphertexts(db)
    async with DatabaseManager(database_url, secret_key=NEW, old_secret_keys=[OLD]) as db:
        assert await rotate(db.database, db.secrets) == Rotated(0, 4, 4)
        assert await ciphertexts(db) == stored


async def test_two_rotations_among_writers_and_a_third_that_was_interrupted(database_url: str) -> None:
    """Writers with either secret, both of which read all: every key that was written last is there at the end."""
    count = BATCH + 20
    async with (
        DatabaseManager(database_url, secret_key=OLD, old_secret_keys=[NEW]) as before,
        DatabaseManager(database_url, secret_key=NEW, old_secret_keys=[OLD]) as after,
        DatabaseManager(database_url, secret_key=NEW, old_secret_keys=[OLD]) as beside,
    ):
        await store_keys(before, count)
        expected = {f"t{number}": f"sk-{number}" for number in range(count)}
        chosen = random.Random(1).sample(sorted(expected), 40)

        async def write(db: DatabaseManager, threads: list[str]) -> None:
            for thread_id in threads:
                [row] = await db.get(UserInput, {"user_id": "u", "thread_id": thread_id})
                row.api_key = expected[thread_id] = f"sk-{thread_id}-written"
                await db.upsert(row)

        interrupted = asyncio.create_task(rotate(after.database, after.secrets))
        await asyncio.sleep(0.002)
        interrupted.cancel()
        await asyncio.gather(
            rotate(after.database, after.secrets),
            rotate(beside.database, beside.secrets),
            write(before, chosen[::2]),
            write(after, chosen[1::2]),
        )
        result = await rotate(after.database, after.secrets)
        assert (result.left, result.unreadable) == (0, 0)
        stored = {row.thread_id: row.api_key for row in await after.get(UserInput) if row.api_key}
        assert stored == expected
        assert all(each.startswith(after.secrets.prefix()) for each in await ciphertexts(after))


async def test_a_key_file_is_exchanged_and_the_old_one_kept_until_all_is_done(migrated_sqlite: str) -> None:
    key_file = Path(migrated_sqlite.removeprefix("sqlite:///") + ".key")
    old_file = key_file.with_name(f"{key_file.name}.old")
    async with DatabaseManager(migrated_sqlite) as db, DatabaseManager(migrated_sqlite) as server:
        await store_keys(server, 5)
        old = read(key_file)
        late = server.secrets.encrypt("sk-late")
        waited: list[float] = []

        def write_late(seconds: float) -> None:
            waited.append(seconds)
            assert read(old_file) == old
            change = sa.update(table_of(UserInput)).where(table_of(UserInput).c.id == 6).values(api_key=late)
            asyncio.get_running_loop().create_task(server.database.write(lambda session: session.execute(change)))

        result = await rotate(db.database, db.secrets, settle=1.0, on_wait=write_late)
        assert result == Rotated(9, 0, 0)
        assert len(waited) == 1
        assert not old_file.exists()
        assert read(key_file) != old
        assert await keys_of(server) == [*(f"sk-{number}" for number in range(5)), "sk-late"]
        with pytest.raises(ConfigurationError):
            SecretBox(key_file=key_file).decrypt(late)


async def test_a_rotation_that_was_killed_continues_with_the_same_secret(migrated_sqlite: str) -> None:
    key_file = Path(migrated_sqlite.removeprefix("sqlite:///") + ".key")
    async with DatabaseManager(migrated_sqlite) as db:
        await store_keys(db, 5)
        killed = asyncio.create_task(rotate(db.database, db.secrets, settle=60))
        first = db.secrets.prefix()
        while (await ciphertexts(db))[0].startswith(first):  # noqa: ASYNC110  # a row says so
            await asyncio.sleep(0.01)
        killed.cancel()
        await asyncio.wait([killed])
        new = read(key_file)
    os.utime(key_file, (0, 0))
    async with DatabaseManager(migrated_sqlite) as db:
        result = await rotate(db.database, db.secrets)
        assert (result.left, read(key_file)) == (0, new)
        assert {each.name for each in key_file.parent.glob("*.key*")} == {"drsai.db.key", "drsai.db.key.lock"}
        assert len(await keys_of(db)) == 6


def test_every_column_that_holds_a_key_is_known() -> None:
    """A new column for a secret is declared with `secret_text`, or this names it."""
    named = ("api_key", "secret", "password", "token")
    tables = (table_of(UserInput).metadata.tables[name] for name in schemas.own_tables())
    columns = [column for table in tables for column in table.columns]
    marked = {str(column) for column in columns if is_secret(column)}
    of_webhooks = {"webhooksecret.secret", "webhooksecret.previous_secret"}
    assert marked == {"userinput.api_key", "queuedinput.api_key", "registeredtool.secrets", *of_webhooks}
    suspicious = {str(column) for column in columns if any(word in column.name for word in named)}
    fences = {"filecontent.token"}  # by which one upload is told from another; nobody outside sees it
    assert {each for each in suspicious if "tokens" not in each} - fences == marked
