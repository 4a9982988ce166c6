"""Hooks: each end of a run is told once, in the transaction that stores it, and whoever fails harms nobody else."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.database import hooks, migrations
from drsai_backend.database.audit import audit
from drsai_backend.database.runs import writes
from drsai_backend.datamodel import Run, StoredFile, table_of, utcnow
from drsai_backend.datamodel.audit import PROGRAM, Action
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import NotFound
from drsai_backend.features.extensions import schemas_of
from drsai_backend.state.portable.archive import export_user
from drsai_backend.state.travel import Place
from tests.features.conftest import Extended
from tests.features.kinds import Binder, End, Ends, Failing, Large, Leaf, Leaves, Outside, Plain
from tests.support.commands import Commands, clean_environment
from tests.support.teams.crew import Asker, Crew

ME = Principal()
ANN = Owner("acme", "ann")


async def told(drsai: DrSai, by: str = "ends") -> list[tuple[str, str]]:
    """Thread and status of each end that was told, in order of the threads' epochs."""
    rows = await drsai.db.get(End, filters={"told_by": by}, order=["thread_id", "epoch"])
    return [(row.thread_id, row.status) for row in rows]


async def test_each_end_of_a_run_that_is_run(extended: Extended) -> None:
    crew, asker = Crew(), Asker()
    drsai = await extended({"crew": crew, "asker": asker}, Ends)
    await drsai.run("crew", "x", thread_id="done")
    await drsai.run("asker", "x", thread_id="asked")
    await drsai.run("asker", "an answer", thread_id="asked")
    crew.ann.hold()
    handle = await drsai.start("crew", "x", thread_id="stopped")
    await drsai.engine.cancel(ME, "stopped")
    assert (await handle.wait()).status is RunStatus.STOPPED
    assert await told(drsai) == [
        ("asked", "awaiting_input"),
        ("asked", "completed"),
        ("done", "completed"),
        ("stopped", "stopped"),
    ]
    assert {(row.run_id, row.epoch) for row in await drsai.db.get(End)} >= {
        (row.run_id, row.epoch) for row in await drsai.db.get(Run)
    }


async def test_each_end_of_a_run_that_nobody_holds(extended: Extended) -> None:
    crew, asker = Crew(), Asker()
    drsai = await extended({"crew": crew, "asker": asker}, Ends)
    for thread in ("stopped", "rewound", "replaced"):
        await drsai.run("asker", "x", thread_id=thread)
    await drsai.engine.cancel(ME, "stopped")
    await drsai.load_history("replaced", [{"role": "user", "content": "Hello"}], model="crew", mode="replace")
    await drsai.engine.rewind(ME, "rewound", Place(at=0))
    crew.ann.hold()
    await drsai.start("crew", "x", thread_id="busy")
    queued = await drsai.start("crew", "y", thread_id="busy")
    await drsai.engine.cancel_run(ME, queued.run_id)
    assert await told(drsai) == [
        ("busy", "stopped"),
        ("replaced", "awaiting_input"),
        ("replaced", "stopped"),
        ("rewound", "awaiting_input"),
        ("rewound", "stopped"),
        ("stopped", "awaiting_input"),
        ("stopped", "stopped"),
    ]
    crew.ann.release()


async def test_inputs_of_a_deleted_user_are_told_before_they_are_gone(extended: Extended) -> None:
    crew = Crew()
    drsai = await extended({"crew": crew}, Ends)
    crew.ann.hold()
    for _ in range(2):
        await drsai.user(ANN.user_id, tenant=ANN.tenant).start("crew", "x", thread_id="t")
    await drsai.users.delete(ANN)
    assert sorted(await told(drsai)) == [("t", "stopped"), ("t", "stopped")]


@pytest.mark.parametrize(
    "how", [ZeroDivisionError, "INSERT INTO nothing VALUES (1)", "INSERT INTO ends_end SELECT * FROM ends_end"]
)
@pytest.mark.parametrize("order", [[Failing, Ends], [Ends, Failing]])
async def test_one_that_fails_harms_no_run_and_no_other(
    extended: Extended,
    how: Any,
    order: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Failing, "how", how)
    drsai = await extended({"crew": Crew()}, *order)
    with caplog.at_level(logging.ERROR, "drsai.extensions"):
        assert (await drsai.run("crew", "x", thread_id="t")).status is RunStatus.COMPLETED
    assert await told(drsai) == [("t", "completed")]
    assert await told(drsai, "failing") == [], "what it had written is undone"
    [record] = [each for each in caplog.records if each.name == "drsai.extensions"]
    assert record.getMessage() == "the extension failing has missed the end of a run"
    assert record.exc_info is not None


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from drsai_backend import DrSai
from tests.features.kinds import Ends, keep
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, settings

mark = Path("killed")

class Killed(Ends):
    def run_ended(self, session, run):
        keep(session, run, "killed")
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with DrSai({"crew": Crew()}, sys.argv[1], settings=settings(**QUICK), extensions=[Killed]) as drsai:
        if not mark.exists():
            await drsai.run("crew", "x", thread_id="t")
        while not (await drsai.get_thread("anonymous", "t")).status.is_final:
            await asyncio.sleep(0.05)

asyncio.run(main())
"""


def test_an_end_is_told_once_though_the_process_is_killed_in_it(
    commands: Commands, database_url: str, tmp_path: Path
) -> None:
    migrations.upgrade(database_url, extensions=schemas_of([Ends]))
    environment = clean_environment()
    for expected in (-signal.SIGKILL, 0):
        ran = commands.program("-c", KILLED, database_url, cwd=tmp_path, env=environment)
        assert ran.wait(60) == expected, ran.stderr
    with migrations.connecting(database_url, write=False) as connection:
        rows = [*connection.execute(sa.select(table_of(End).c.told_by, table_of(End).c.status))]
    assert rows == [("killed", "completed")]


@pytest.mark.parametrize(("kinds", "expected"), [([], 0), ([Plain], 0), ([Outside], 0), ([Ends], 1)])
async def test_what_an_extension_does_not_use_costs_a_run_no_call(
    extended: Extended, kinds: list[Any], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a call that finds nothing to do: the last write stays one list of statements."""
    calls: list[str] = []
    tell, guarded = hooks.Hooks.tell_end, writes.run_guarded

    def told_end(self: Any, *args: Any) -> None:
        calls.append("told")
        tell(self, *args)

    def run(*args: Any, is_last: bool = False, **more: Any) -> Any:
        calls.append("last" if is_last else "not last")
        return guarded(*args, is_last=is_last, **more)

    drsai = await extended({"crew": Crew()}, *kinds)
    monkeypatch.setattr(hooks.Hooks, "tell_end", told_end)
    monkeypatch.setattr(writes, "run_guarded", run)
    await drsai.run("crew", "x", thread_id="t")
    assert calls.count("told") == expected
    # Behind the hook comes what the run is charged.
    assert calls[-3:] == ["not last", "told", "last"] if expected else calls[-1] == "last"


async def test_all_that_is_a_users_goes_and_nothing_of_others(extended: Extended, tmp_path: Path) -> None:
    from notes import Notes

    drsai = await extended({"crew": Crew()}, Notes, Outside)
    notes, bob = drsai.extension(Notes), Owner("acme", "bob")
    Outside.kept.update({ANN: 3, bob: 4})
    for owner in (ANN, bob):
        for number in range(3):
            await notes.add(owner, f"note {number}")
        await drsai.user(owner.user_id, tenant=owner.tenant).run("crew", "x", thread_id="t")
    page = await drsai.users.list("acme")
    assert [item.user_id for item in page.items] == ["ann", "bob"]
    await asyncio.to_thread(export_user, drsai.files, ANN, tmp_path / "ann.zip", PROGRAM, drsai.engine.hooks)
    with ZipFile(tmp_path / "ann.zip") as archive:
        assert archive.read("notes/notes.json") == b'["note 0", "note 1", "note 2"]'
        assert archive.read("outside/count.txt") == b"3"
        assert archive.read("rows/notes.jsonl").count(b"\n") == 3
        assert b'"count":1' in archive.read("rows/notes_ended_runs.jsonl")
    drsai.keys.stale_seconds = 0
    deleted = await drsai.users.delete(ANN)
    assert (deleted["notes"], deleted["notes_ended_runs"], deleted["outside"]) == (3, 1, 3)
    assert (await notes.list(ANN), await notes.ended_runs(ANN), Outside.kept.get(ANN)) == ([], 0, None)
    assert (len(await notes.list(bob)), await notes.ended_runs(bob), Outside.kept.get(bob)) == (3, 1, 4)
    Outside.kept.clear()


async def test_somebody_who_has_rows_of_an_extension_alone_is_a_user(extended: Extended) -> None:
    from notes import Notes

    drsai = await extended({"crew": Crew()}, Notes)
    await drsai.extension(Notes).add(ANN, "x")
    assert [item.user_id for item in (await drsai.users.list("acme")).items] == ["ann"]
    assert await drsai.users.delete(ANN) == {"notes": 1}


async def test_whoever_has_a_row_that_refers_to_another_one_is_a_user(extended: Extended) -> None:
    drsai = await extended({"crew": Crew()}, Leaves)
    await drsai.db.upsert(Binder(name="red"))
    await drsai.db.upsert(Leaf(**ANN._asdict(), binder="red"))
    assert [item.user_id for item in (await drsai.users.list("acme")).items] == ["ann"]
    assert await drsai.users.delete(ANN) == {"leaves": 1}
    assert len(await drsai.db.get(Binder)) == 1


async def test_what_is_kept_elsewhere_goes_though_a_deletion_was_cut_off_when_the_keys_were_gone(
    extended: Extended, monkeypatch: pytest.MonkeyPatch
) -> None:
    drsai = await extended({"crew": Crew()}, Outside)
    drsai.keys.stale_seconds = 0
    for owner in (ANN, Owner("acme", "boss")):
        await drsai.keys.create(owner, ["user"])
    monkeypatch.setattr(Outside, "kept", {ANN: 2})
    with monkeypatch.context() as cut:
        cut.setattr(Outside, "is_away", True)
        with pytest.raises(ConnectionError):
            await drsai.users.delete(ANN)
    assert [item.user_id for item in (await drsai.users.list("acme")).items] == ["boss"]
    assert await drsai.users.delete(ANN) == {"outside": 2}
    with pytest.raises(NotFound, match="nothing belongs to a user 'ann' here"):
        await drsai.users.delete(ANN)


async def test_an_extension_forgets_keys_in_the_transaction_that_deletes_them(
    extended: Extended, monkeypatch: pytest.MonkeyPatch
) -> None:
    drsai = await extended({"crew": Crew()}, Outside)
    drsai.keys.stale_seconds = 0
    await drsai.keys.create(Owner("acme", "boss"), ["user"])
    made = [(await drsai.keys.create(ANN, ["user"])).info.key_id for _ in range(2)]
    monkeypatch.setattr(Outside, "of_keys", {})
    with monkeypatch.context() as cut:
        cut.setattr(Outside, "keeps_keys", True)
        with pytest.raises(ConnectionError):
            await drsai.users.delete(ANN)
    assert len((await drsai.keys.list("acme", "ann")).items) == 2, "none was deleted"
    assert await drsai.users.delete(ANN) == {"api_keys": 2}
    assert [(owner, sorted(keys)) for owner, keys in Outside.of_keys.items()] == [(ANN, sorted(made))]


async def test_what_an_extension_exports_is_in_memory_a_piece_at_a_time(
    extended: Extended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    monkeypatch.setattr(Large, "held", held)
    drsai = await extended({"crew": Crew()}, Large)
    path, hooks = tmp_path / "a.zip", drsai.engine.hooks
    await asyncio.to_thread(export_user, drsai.files, ANN, path, PROGRAM, hooks)
    with ZipFile(path) as archive:
        assert [archive.read(f"large/{number}.txt") for number in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert len(held) == 5
    assert max(held) <= 1
    # What fails in the middle is no trouble of the file, and leaves the one of before.
    monkeypatch.setattr(Large, "fails", True)
    with pytest.raises(ConnectionError, match="it is away"):
        await asyncio.to_thread(export_user, drsai.files, ANN, path, PROGRAM, hooks)
    with ZipFile(path) as archive:
        assert archive.read("large/4.txt") == b"4"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


async def test_a_deletion_that_an_extension_cannot_do_is_not_done(
    extended: Extended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drsai = await extended({"crew": Crew()}, Outside)
    await drsai.user(ANN.user_id, tenant=ANN.tenant).run("crew", "x", thread_id="t")
    monkeypatch.setattr(Outside, "kept", {ANN: 2})
    monkeypatch.setattr(Outside, "is_away", True)
    for work in (
        lambda: drsai.users.delete(ANN),
        lambda: asyncio.to_thread(export_user, drsai.files, ANN, tmp_path / "a.zip", PROGRAM, drsai.engine.hooks),
    ):
        with pytest.raises(ConnectionError, match="it is away"):
            await work()
    assert not any(name.startswith("a.zip") for name in os.listdir(tmp_path))
    assert [item.user_id for item in (await drsai.users.list("acme")).items] == ["ann"], "the rest is there"
    monkeypatch.setattr(Outside, "is_away", False)
    assert (await drsai.users.delete(ANN))["outside"] == 2
    assert (await drsai.users.list("acme")).items == []


async def test_an_extension_that_keeps_a_file_whose_time_is_over_keeps_no_other(
    extended: Extended, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drsai = await extended({"crew": Crew()}, Outside)
    # More than one transaction deletes: they are passed over.
    held = {(await drsai.files.create(ANN, f"{at}.txt", b"x")).file_id for at in range(12)}
    for owner in (ANN, Owner("acme", "bob"), Owner("acme", "aaa")):
        await drsai.files.create(owner, "x.txt", b"x")
    over = sa.update(table_of(StoredFile)).values(expires_at=utcnow() - timedelta(hours=1))
    await drsai.database.write(lambda session: session.connection().execute(over).rowcount)
    monkeypatch.setattr(Outside, "holds", held)
    await drsai.engine.prune()
    assert {row.file_id for row in await drsai.db.get(StoredFile)} == held
    assert "it is away" in caplog.text
    monkeypatch.setattr(Outside, "holds", set[str]())
    await drsai.engine.prune()
    assert await drsai.db.get(StoredFile) == []


async def test_what_is_over_goes_though_an_extension_cannot_delete_a_user(
    extended: Extended, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the users whom an earlier release has deleted, it tries again each time."""
    drsai = await extended({"crew": Crew()}, Outside, retention_days=1e-9)
    await drsai.files.create(ANN, "x.txt", b"x")
    told = partial(audit, actor=PROGRAM, action=Action.USER_DELETED, subject="ann", owner=ANN, detail={"files": 1})
    await drsai.database.write(told)
    await drsai.run("crew", "x", thread_id="t")
    monkeypatch.setattr(Outside, "is_away", True)
    with pytest.raises(ConnectionError, match="it is away"):
        await drsai.engine.prune()
    assert await drsai.db.get(Run) == []
