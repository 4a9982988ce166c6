"""API keys: readable for who has the secret, ciphertext in the row, absent everywhere else."""

from __future__ import annotations

import base64
import logging
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from drsai_backend.database import DatabaseManager, SecretBox
from drsai_backend.datamodel import Thread, UserInput
from drsai_backend.errors import ConfigurationError, Conflict, InvalidRequest

KEY = "sk-planted-5f0c1a"


def user_input(**fields: object) -> UserInput:
    return UserInput(**{"user_id": "u", "thread_id": "t", "api_key": KEY, **fields})


async def raw_key(db: DatabaseManager) -> str | None:
    return await db.database.read(lambda session: session.scalar(sa.text("SELECT api_key FROM userinput")))


async def test_a_key_comes_back_and_is_not_in_the_row(db: DatabaseManager):
    row = await db.upsert(user_input())
    assert row.api_key == KEY
    assert (await db.get(UserInput))[0].api_key == KEY
    sealed = await raw_key(db)
    assert sealed is not None
    assert sealed.startswith("v1:")
    assert KEY not in sealed
    assert db.secrets.decrypt(sealed) == KEY
    row.n = 1
    await db.upsert(row)
    assert await raw_key(db) == sealed  # Not touched, not encrypted anew.
    row.api_key = "sk-another"
    await db.upsert(row)
    assert (await db.get(UserInput))[0].api_key == "sk-another"
    row.api_key = None
    await db.upsert(row)
    assert await raw_key(db) is None
    await db.upsert(user_input())
    await db.upsert(UserInput(user_id="u", thread_id="t", n=2))
    assert (await db.get(UserInput))[0].api_key == KEY


async def test_a_planted_key_is_found_nowhere(db: DatabaseManager, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    row = await db.upsert(user_input(user_last_message="hello"))
    thread = await db.upsert(Thread(user_id="u", thread_id="t"))
    (read,) = await db.get(Thread)
    shown = [repr(row), str(row), row.model_dump_json(), str(row.model_dump()), repr(thread), read.model_dump_json()]
    row.api_key = KEY + "\x00"
    with pytest.raises(InvalidRequest) as invalid:
        await db.upsert(row)
    row.api_key = [KEY]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InvalidRequest) as wrong:
        await db.upsert(row)
    (mine,), (theirs,) = await db.get(UserInput), await db.get(UserInput)
    theirs.api_key = KEY + "-theirs"
    await db.upsert(theirs)
    mine.api_key = KEY + "-mine"
    with pytest.raises(Conflict) as conflict:
        await db.upsert(mine)
    assert conflict.value.param == "api_key"
    for error in (invalid, wrong, conflict):
        shown.append(f"{error.value!r} {error.value.__cause__!r} {error.value.__context__!r}")
    shown.append(caplog.text)
    with pytest.raises(InvalidRequest) as refused:
        await db.upsert(Thread(user_id="u", thread_id="t", user_input={"api_key": KEY}))
    shown.append(str(refused.value))
    assert not [text for text in shown if KEY in text]
    await db.close()
    if db.database.sqlite_path is not None:
        assert not _files_with_key(Path(db.database.sqlite_path).parent)


def _files_with_key(folder: Path) -> list[Path]:
    assert list(folder.glob("*.db"))
    return [path for path in folder.iterdir() if KEY.encode() in path.read_bytes()]


async def test_the_view_of_a_thread_leaves_the_key_alone(db: DatabaseManager):
    await db.upsert(user_input())
    await db.upsert(Thread(user_id="u", thread_id="t"))
    (thread,) = await db.get(Thread)
    thread.user_input = {"n": 3}
    await db.upsert(thread)
    assert (await db.get(UserInput))[0].api_key == KEY


async def test_sqlite_keeps_its_secret_in_a_file(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/x.db"
    key_file = tmp_path / "x.db.key"
    async with DatabaseManager(url) as db:
        await db.upsert(user_input(api_key=None))
        assert not key_file.exists()  # Made when it is needed.
        await db.upsert(user_input())
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        assert not list(tmp_path.glob("x.db.key.*"))  # noqa: ASYNC240
    async with DatabaseManager(url) as db:
        assert (await db.get(UserInput))[0].api_key == KEY
        await db.upsert(Thread(user_id="u", thread_id="t"))
    key_file.rename(tmp_path / "lost")
    async with DatabaseManager(url) as db:
        with pytest.raises(ConfigurationError, match="DRSAI_SECRET_KEY"):
            await db.get(UserInput)
        assert (await db.get(Thread))[0].user_input is not None
        assert not key_file.exists()  # A new one would decrypt nothing.
        row = await db.upsert(user_input(api_key="sk-new"))  # Replacing a lost key must work.
        assert row.api_key == "sk-new"
    key_file.write_text("")
    async with DatabaseManager(url) as db:
        with pytest.raises(ConfigurationError):
            await db.get(UserInput)


def test_processes_agree_on_the_key_file(tmp_path: Path):
    script = f"""
from pathlib import Path
from drsai_backend.database import SecretBox
print(SecretBox(key_file=Path({str(tmp_path / "k")!r})).encrypt("text"))
"""
    running = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    box = SecretBox(key_file=tmp_path / "k")
    assert [box.decrypt(process.communicate(timeout=60)[0].strip()) for process in running] == ["text"] * 4


def test_the_first_key_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another process made it after this one had looked."""
    path = tmp_path / "k"
    path.write_text("theirs\n")
    monkeypatch.setattr(Path, "exists", lambda *_: False)
    sealed = SecretBox(key_file=path).encrypt("text")
    assert SecretBox(SecretStr("theirs")).decrypt(sealed) == "text"
    assert [file.name for file in tmp_path.iterdir()] == ["k"]


async def test_postgres_stores_no_key_without_a_secret(database_url: str):
    async with DatabaseManager(database_url) as db:
        if db.database.dialect == "sqlite":
            await db.upsert(user_input())
            return
        with pytest.raises(ConfigurationError, match="DRSAI_SECRET_KEY"):
            await db.upsert(user_input())
        assert await db.get(UserInput) == []
        await db.upsert(user_input(api_key=None))


async def test_in_memory():
    async with DatabaseManager("sqlite://") as db:
        await db.upsert(user_input())
        assert (await db.get(UserInput))[0].api_key == KEY


def test_a_box():
    box = SecretBox(SecretStr("any string, ünicode too"))
    sealed = box.encrypt("")
    assert box.decrypt(sealed) == ""
    assert box.encrypt("a") != box.encrypt("a")
    assert SecretBox(SecretStr("any string, ünicode too")).decrypt(box.encrypt("ü" * 5000)) == "ü" * 5000
    assert "any string" not in repr(box)
    flipped = bytearray(base64.urlsafe_b64decode(box.encrypt("text")[3:]))
    flipped[-1] ^= 1
    damaged = ["v2:" + sealed[3:], "v1:", "v1:!", "v1:" + base64.urlsafe_b64encode(flipped).decode(), "plain", ""]
    damaged.append(SecretBox.random().encrypt("text"))
    for text in damaged:
        with pytest.raises(ConfigurationError):
            box.decrypt(text)


def test_what_was_stored_by_the_first_version_still_opens():
    """The format of `v1:` is stored in databases: it may gain successors, but not change."""
    stored = "v1:CwwNB3EPThrEfw4ctoHUQTXSSJFhkVnfpb6mY0coebF7lQfvjgc="
    assert SecretBox(SecretStr("fixture")).decrypt(stored) == "sk-fixture"
