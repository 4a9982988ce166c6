"""API keys: readable for who has the secret, ciphertext in the row, absent everywhere else."""

from __future__ import annotations

import base64
import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from drsai_backend.database import DatabaseManager, SecretBox
from drsai_backend.database.manager.key_file import KeyFile
from drsai_backend.datamodel import Thread, UserInput
from drsai_backend.errors import ConfigurationError, Conflict, InvalidRequest
from tests.support.commands import Commands, clean_environment

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
    assert sealed.startswith(db.secrets.prefix())
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


def test_processes_agree_on_the_key_file(commands: Commands, tmp_path: Path):
    script = f"""
from pathlib import Path
from drsai_backend.database import SecretBox
print(SecretBox(key_file=Path({str(tmp_path / "k")!r})).encrypt("text"))
"""
    running = [commands.program("-c", script, cwd=tmp_path, env=clean_environment()) for _ in range(4)]
    box = SecretBox(key_file=tmp_path / "k")
    assert [process.wait(60) for process in running] == [0] * 4
    assert [box.decrypt(process.stdout.strip()) for process in running] == ["text"] * 4


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
    _, key_id, body = sealed.split(":")
    flipped = bytearray(base64.urlsafe_b64decode(body))
    flipped[-1] ^= 1
    damaged = ["v1:", "v1:!", "v2:", f"v2:{key_id}:", f"v2:{key_id}:!", f"v2:{key_id}:AAAA", "plain", ""]
    damaged += [f"v1:{body}", f"v2:{body}", f"v2:0{key_id[1:]}:{body}", f"v3:{key_id}:{body}"]
    damaged += [f"v2:{key_id}:{base64.urlsafe_b64encode(flipped).decode()}", SecretBox.random().encrypt("text")]
    for text in damaged:
        with pytest.raises(ConfigurationError):
            box.decrypt(text)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True), st.text(max_size=20), st.data())
def test_the_first_of_a_ring_encrypts_and_all_decrypt(ring: list[str], text: str, data: st.DataObject):
    first, *old = map(SecretStr, ring)
    box = SecretBox(first, old=old)
    assert box.encrypt(text).startswith(SecretBox(first).prefix())
    maker = data.draw(st.sampled_from(ring))
    sealed = SecretBox(SecretStr(maker)).encrypt(text)
    assert box.decrypt(sealed) == text
    others = [SecretStr(secret) for secret in ring if secret != maker]
    with pytest.raises(ConfigurationError, match="DRSAI_SECRET_KEY_OLD"):
        SecretBox(SecretStr(f"{maker} "), old=others).decrypt(sealed)


def test_a_key_file_that_is_exchanged(tmp_path: Path):
    """A process that has it open notices; an exchange that was interrupted is completed, and made once only."""
    path = tmp_path / "k"
    box, file = SecretBox(key_file=path), KeyFile(path)
    before = box.encrypt("text")
    old = path.read_text()
    os.link(path, file.old)  # where a process was killed
    (tmp_path / "k.new").write_text("")
    for _ in range(2):
        file.exchange()
        assert file.old.read_text() == old != path.read_text()
        assert [stat.S_IMODE(each.stat().st_mode) for each in (path, file.old)] == [0o600] * 2
    after = box.encrypt("text")
    assert (box.decrypt(before), box.decrypt(after), box.prefix() == SecretBox(key_file=path).prefix()) == (
        *("text",) * 2,
        True,
    )
    assert not before.startswith(box.prefix())
    file.forget_old()
    assert box.decrypt(after) == "text"
    with pytest.raises(ConfigurationError):
        box.decrypt(before)
    assert {each.name for each in tmp_path.iterdir()} == {"k", "k.lock"}


def test_processes_exchange_a_key_file_once(tmp_path: Path):
    path = tmp_path / "k"
    SecretBox(key_file=path).encrypt("text")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: KeyFile(path).exchange(), range(8)))
    assert SecretBox(key_file=path).decrypt(SecretBox(SecretStr(path.read_text().strip())).encrypt("text")) == "text"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["k", "k.lock", "k.old"]


def test_a_secret_that_is_set_reads_what_the_key_file_encrypted(tmp_path: Path):
    path = tmp_path / "k"
    sealed = SecretBox(key_file=path).encrypt("text")
    box = SecretBox(SecretStr("set"), key_file=path)
    assert box.decrypt(sealed) == "text"
    assert not box.encrypt("text").startswith(SecretBox(key_file=path).prefix())
    path.write_text("")
    assert box.decrypt(box.encrypt("more")) == "more"


def test_what_was_stored_by_the_first_version_still_opens():
    """The format of `v1:` is stored in databases: it may gain successors, but not change."""
    stored = "v1:CwwNB3EPThrEfw4ctoHUQTXSSJFhkVnfpb6mY0coebF7lQfvjgc="
    assert SecretBox(SecretStr("fixture")).decrypt(stored) == "sk-fixture"
