"""Files as programs and tools keep them, in the database and in a folder."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest
from sqlalchemy.orm import Session

from drsai_backend.database import DatabaseManager, migrations
from drsai_backend.database import files as rows
from drsai_backend.datamodel.audit import CLI
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, DatabaseError, NotFound
from drsai_backend.files import Files
from drsai_backend.files.store import new_file
from drsai_backend.state.portable.archive import export_user
from drsai_backend.teams.replay.tool_calls import RunFiles
from tests.support.backup import fall_back
from tests.support.calls import Outage
from tests.support.threads import settings

ANN = Owner("default", "ann")
BIG = bytes(range(256)) * 2500


def stored_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("in_folder", [False, True])
async def test_same_content_is_kept_once_and_goes_with_its_last_file(
    db: DatabaseManager, tmp_path: Path, in_folder: bool
) -> None:
    folder = tmp_path / "files"
    files = Files(db.database, settings(files_folder=folder if in_folder else None))
    first = await files.create(ANN, "a.bin", BIG)
    second = await files.create(ANN, "b.bin", BIG)
    assert len(stored_in(folder)) == (1 if in_folder else 0)
    await files.delete(ANN, first.file_id)
    assert await files.read(ANN, second.file_id) == BIG
    await files.delete(ANN, second.file_id)
    assert not stored_in(folder)
    with pytest.raises(NotFound):
        await files.read(ANN, second.file_id)


@pytest.mark.parametrize("in_folder", [False, True])
async def test_an_export_of_their_user_has_the_bytes_once(db: DatabaseManager, tmp_path: Path, in_folder: bool) -> None:
    folder, target = tmp_path / "files", tmp_path / "ann.zip"
    files = Files(db.database, settings(files_folder=folder if in_folder else None))
    for name, data in (("a.bin", BIG), ("b.bin", BIG), ("c.txt", b"c"), ("empty", b"")):
        await files.create(ANN, name, data)
    await files.create(Owner("default", "bob"), "bob.txt", b"bob's")
    await (await files.begin(ANN)).add(BIG)  # never finished
    await asyncio.to_thread(export_user, files, ANN, target, CLI)
    with ZipFile(target) as archive:
        rows = [json.loads(line) for line in archive.read("rows/storedfile.jsonl").splitlines()]
        found = {row["filename"]: archive.read(f"files/{row['sha256']}") for row in rows}
        assert found == {"a.bin": BIG, "b.bin": BIG, "c.txt": b"c", "empty": b""}
        assert len([name for name in archive.namelist() if name.startswith("files/")]) == 3
    if in_folder:
        with pytest.raises(DatabaseError, match="DRSAI_FILES_FOLDER"):
            await asyncio.to_thread(export_user, Files(db.database, settings()), ANN, target, CLI)


@pytest.mark.parametrize("in_folder", [False, True])
async def test_an_upload_that_nobody_continues_is_swept(db: DatabaseManager, tmp_path: Path, in_folder: bool) -> None:
    folder = tmp_path / "files"
    files = Files(db.database, settings(files_folder=folder if in_folder else None))
    await (await files.begin(ANN)).add(BIG)
    assert (await files.list(ANN)).items == []
    assert await files.sweep() == 0
    assert await files.sweep(abandoned=timedelta(0)) >= 1
    assert not stored_in(folder)


def run_files(files: Files, call: str) -> RunFiles:
    return RunFiles(files, ANN.thread("t"), ANN, call, lambda _: None)


async def test_a_repeated_call_keeps_the_same_files(db: DatabaseManager) -> None:
    files = Files(db.database, settings())
    kept = [await run_files(files, "run/agent/call").save("plot.png", b"1", "image/png") for _ in range(2)]
    assert kept[0] == kept[1]
    other = run_files(files, "run/agent/other")
    assert (await other.save("plot.png", b"1", "image/png")).id != kept[0].id
    assert await other.read(kept[0].id) == b"1"
    assert len((await files.list(ANN)).items) == 2
    # Of a guest who asks in a shared thread: what the tool keeps is its owner's, who has shown them nothing else.
    guest = RunFiles(files, ANN.thread("t"), Owner("default", "bob"), "run/agent/guest", lambda _: None)
    with pytest.raises(NotFound):
        await guest.read(kept[0].id)
    own = await files.create(Owner("default", "bob"), "b.txt", b"2")
    assert await guest.read(own.file_id) == b"2"


@pytest.mark.parametrize(
    ("call", "fail"),
    [
        ("read", ["before"]),
        ("write", ["before"]),
        ("write", ["works", "after"]),
        ("write", ["works", "works", "after"]),
    ],
)
async def test_a_tools_file_waits_for_the_database(db: DatabaseManager, call: str, fail: list[str]) -> None:
    """Also where its COMMIT was cut off and went through."""
    files = Files(db.database, settings())
    outage = Outage(db.database, call, fail)
    kept = await run_files(files, "run/agent/call").save("plot.png", b"1", "image/png")
    assert outage.fail == []
    assert [each.file_id for each in (await files.list(ANN)).items] == [kept.id]
    assert await files.read(ANN, kept.id) == b"1"


async def test_after_a_failover_bytes_go_into_no_other_upload_and_come_from_no_other_file(db: DatabaseManager) -> None:
    """A standby that was behind gives the keys of contents once more."""
    files, bob = Files(db.database, settings()), Owner("default", "bob")
    _, place = await files.open(ANN, (await files.create(ANN, "a.bin", BIG)).file_id)
    reading = files.stream(place, 0, len(BIG))
    begun = BIG.startswith(await anext(reading))
    arriving = await files.begin(ANN)
    await fall_back(db.database)
    await files.create(bob, "b.bin", bytes(len(BIG)))
    theirs = await files.begin(bob)
    assert begun
    with pytest.raises(DatabaseError):
        await anext(reading)
    with pytest.raises(Conflict):
        await arriving.add(BIG)
    with pytest.raises(Conflict):
        await arriving.finish(new_file("a.bin", "user_data", None, None))
    await arriving.give_up()
    await theirs.add(b"bob's")
    made = await theirs.finish(new_file("c.bin", "user_data", None, None))
    assert await files.read(bob, made.file_id) == b"bob's"


async def test_an_upload_that_is_given_up_while_it_is_finished_makes_no_file_without_bytes(db: DatabaseManager) -> None:
    """A run that is stopped while its tool keeps a file: the call's transaction is under way, and its end is not
    waited for. Whoever is first decides; the other waits for it."""
    files = Files(db.database, settings())
    await files.create(ANN, "a.txt", b"another one's")
    upload = await db.database.write(partial(rows.begin, owner=ANN, token="t", in_folder=False))
    await db.database.write(partial(rows.arrived, upload=upload, start=0, data=b"bytes", size=5))
    deleted = threading.Event()

    def give_up_slowly() -> None:
        with migrations.connecting(db.database.url) as connection, Session(connection) as session:
            rows.give_up(session, upload)
            deleted.set()
            time.sleep(0.5)

    giving_up = asyncio.create_task(asyncio.to_thread(give_up_slowly))
    await asyncio.to_thread(deleted.wait)
    new = new_file("b.txt", "user_data", None, None, None)
    finish = partial(rows.finish, upload=upload, new=new, sha256="5" * 64, limit=1000)
    with pytest.raises(Conflict):
        await db.database.write(finish)
    await giving_up
    assert [item.filename for item in (await files.list(ANN)).items] == ["a.txt"]


@pytest.mark.parametrize("in_folder", [False, True])
async def test_what_was_finished_when_it_is_given_up_keeps_its_bytes(
    db: DatabaseManager, tmp_path: Path, in_folder: bool
) -> None:
    """Whoever keeps a file was cancelled while that was stored, and cannot know that it was."""
    files = Files(db.database, settings(files_folder=tmp_path / "files" if in_folder else None))
    arriving = await files.begin(ANN)
    await arriving.add(b"bytes")
    info = await arriving.finish(new_file("a.txt", "user_data", None, None, None))
    await arriving.give_up()
    assert await files.read(ANN, info.file_id) == b"bytes"


async def test_an_upload_is_left_to_the_sweep_while_the_database_is_away(db: DatabaseManager) -> None:
    """Who was keeping it hears what has happened to them, and no task of it fails where nobody looks."""
    files, outages = Files(db.database, settings()), list[Outage]()

    async def break_off() -> None:
        async with files.arriving(ANN) as arriving:
            await arriving.add(b"bytes")
            outages.append(Outage(db.database, "write", ["before"]))
            raise ValueError("the client broke off")

    with pytest.raises(ValueError, match="the client broke off"):
        await break_off()
    assert outages[0].fail == []
    assert (await files.list(ANN)).items == []
