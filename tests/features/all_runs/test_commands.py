"""`drsai runs` over all users, and `drsai top`: what is printed, and how little is read for it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa
from rich.console import Console
from sqlalchemy.orm import Session

from drsai_backend import RunStatus
from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import WebhookDelivery, Worker, WorkJob, table_of, utcnow
from drsai_backend.features.all_runs import rows
from drsai_backend.features.all_runs.commands import runs as listing
from drsai_backend.features.all_runs.commands.top import _screen
from tests.features.all_runs.conftest import THREAD, store
from tests.support.commands import Command, Commands, clean_environment

NOW = utcnow()
LIVE = 120


def test_statuses_are_those_there_are() -> None:
    assert [*get_args(listing.Status)] == [*RunStatus]


async def full(db: DatabaseManager) -> None:
    """Live runs of a worker, others that wait, one that has failed, jobs and webhooks."""
    live = [
        {
            "tenant": "acme",
            "user": "a.user.with.a.long.name@example.org",
            "thread": f"t{number}",
            "team": "a-team-with-quite-a-long-name",
            "status": RunStatus.RUNNING,
            "created_at": NOW - timedelta(minutes=LIVE - number),
        }
        for number in range(LIVE)
    ]
    waiting = [
        {"tenant": "default", "user": "bob", "thread": status.value, "status": status}
        for status in (RunStatus.CREATED, RunStatus.PAUSED, RunStatus.AWAITING_INPUT)
    ]
    failed = {"error_message": "Team 'crew' failed (model_timeout): [bold]no[/bold]\nanswer", "status": RunStatus.ERROR}
    worker = "a-host-with-a-long-name.example.org:4711:t1:abcd"

    def write(session: Session) -> None:
        store(session, [*live, *waiting, {"tenant": "default", "user": "bob", "thread": "f", **failed}])
        session.execute(sa.update(THREAD).where(THREAD.c.tenant == "acme").values(lease_owner=worker))
        seen = {"since": NOW - timedelta(hours=3), "seen_at": utcnow()}
        session.execute(sa.insert(table_of(Worker)).values(worker_id=worker, **seen))
        job = {"tenant": "acme", "user_id": "ann", "kind": "knowledge_file", "payload": {}, "version": 1}
        jobs = ({"key": "1", "next_at": NOW}, {"key": "2", "next_at": NOW}, {"key": "3", "next_at": None})
        session.execute(sa.insert(table_of(WorkJob)), [{**job, "created_at": NOW, **each} for each in jobs])
        key = session.execute(sa.select(THREAD.c.id).limit(1)).scalar_one()
        event = {
            "event_id": "e",
            "created_at": NOW,
            "thread_key": key,
            "run_id": "r",
            "tenant": "acme",
            "user_id": "ann",
        }
        event |= {
            "subscriber": "ann",
            "kind": "run",
            "type": "run.completed",
            "url": "u",
            "endpoint": "e",
            "next_at": NOW,
        }
        session.execute(sa.insert(table_of(WebhookDelivery)).values(event))

    await db.database.write(write)


async def test_the_board_says_what_is_live_and_what_waits_in_few_statements(db: DatabaseManager) -> None:
    await full(db)

    def read(session: Session) -> tuple[Any, int]:
        count = 0

        @sa.event.listens_for(session.connection(), "before_cursor_execute")
        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        return rows.board(session, 50), count

    board, statements = await db.database.read(read)
    assert statements <= 6
    assert (board.live, len(board.runs), board.runs[0].run_id) == (LIVE, 50, "run_000000")
    assert all(run.worker and run.worker.startswith("a-host") for run in board.runs)
    assert board.waiting == {RunStatus.CREATED: 1, RunStatus.PAUSED: 1, RunStatus.AWAITING_INPUT: 1}
    assert [(worker.runs, worker.worker) for worker in board.workers] == [(LIVE, board.runs[0].worker)]
    assert [(job.kind, job.due, job.failed) for job in board.jobs] == [("knowledge_file", 2, 1)]
    assert (board.webhooks, board.webhooks_oldest_at) == (1, NOW)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 10), (200, 50)])
async def test_the_screen_fits_into_its_terminal(db: DatabaseManager, width: int, height: int) -> None:
    await full(db)
    board = await db.database.read(lambda session: rows.board(session, height))
    console = Console(width=width, height=height, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(_screen(board, height))
    lines = capture.get().splitlines()
    assert len(lines) <= height, capture.get()
    assert max(map(len, lines)) <= width
    shown = re.findall(r"run_\d{6}", capture.get())
    assert shown[0] == "run_000000"
    assert len(shown) == len(set(shown)) >= 3
    assert f"{LIVE} live" in lines[0]
    assert f"and {LIVE - len(shown)} more" in lines[-1]


@pytest.fixture
def typed(commands: Commands, database_url: str, tmp_path: Path) -> Any:
    def run(*words: str, code: int = 0) -> Command:
        command = commands.run(*words, cwd=tmp_path, env={"DRSAI_DATABASE_URL": database_url})
        assert command.wait() == code, command.stderr
        return command

    return run


async def test_what_is_printed(db: DatabaseManager, typed: Any) -> None:
    await full(db)

    def ids(*words: str) -> list[str]:
        return [row["run_id"] for row in json.loads(typed("runs", *words, "--json").stdout)]

    assert len(ids("list", "--all-users", "--limit", "1000")) == LIVE + 4
    assert ids("list", "--all-users", "--status", "error") == [f"run_{LIVE + 3:06}"]
    assert ids("list", "f", "--all-users") == ids("list", "f", "--user", "bob")
    assert ids("list", "--all-users", "--user", "bob", "--status", "paused") == [f"run_{LIVE + 1:06}"]
    assert ids("list", "--all-users", "--text", "hello", "--tool", "look") == []
    assert ids("list", "--all-users", "--tenant", "default", "--error", "NO[", "--error-code", "model_timeout") == [
        f"run_{LIVE + 3:06}"
    ]
    assert len(ids("slow", "--limit", "3")) == 3
    assert ids("slow", "--last", "1m", "--team", "x") == []
    text = typed("runs", "list", "--all-users", "--limit", "2").stdout
    assert "There are more: --after " in text
    [group] = json.loads(typed("runs", "errors", "--json").stdout)
    assert (group["error_code"], group["runs"], group["run_id"]) == ("model_timeout", 1, f"run_{LIVE + 3:06}")
    assert r"[bold]no[/bold]\nanswer" in typed("runs", "errors").stdout
    assert "no run has failed within 1m" in typed("runs", "errors", "--last", "1m", "--team", "x").stdout
    assert "say --all-users" in typed("runs", "list", "--status", "error", code=2).stderr
    dry = typed("runs", "all", "cancel", "--status", "paused", "--dry-run")
    assert "1 runs are such; 1 are listed" in dry.stdout
    assert "Nobody is here to be asked" in typed("runs", "all", "cancel", "--status", "paused", code=1).stderr
    done = json.loads(typed("runs", "all", "cancel", "--status", "paused", "--yes", "--json").stdout)
    assert (done["found"], [run["outcome"] for run in done["runs"]]) == (1, ["refused"]), "its thread has no such run"
    board = json.loads(typed("top", "--json").stdout)
    assert (board["live"], board["webhooks"]) == (LIVE, 1)
    assert f"{LIVE} live" in typed("top", "--once").stdout
    assert f"{LIVE} live" in typed("top").stdout, "where there is no terminal, it is printed once"


async def test_a_time_that_was_typed_is_utc_or_says_its_offset(db: DatabaseManager, typed: Any) -> None:
    run = {"tenant": "acme", "user": "ann", "team": "crew", "status": RunStatus.PAUSED}
    at = datetime(2026, 11, 1, 10, tzinfo=UTC)
    made = [{**run, "thread": f"t{hour}", "created_at": at + timedelta(hours=hour)} for hour in range(3)]
    await db.database.write(lambda session: store(session, made))

    def ids(verb: str, *words: str) -> list[str]:
        found = json.loads(typed("runs", *verb.split(), *words, "--json").stdout)
        return [each["run_id"] for each in (found["runs"] if "cancel" in verb else found)]

    for since in ("2026-11-01T11:00:00", "2026-11-01T19:00:00+08:00", "2026-11-01T06:00:00-05:00"):
        assert ids("list --all-users", "--from", since) == ["run_000002", "run_000001"]
        assert ids("list --all-users", "--to", since) == ["run_000000"]
        assert ids("all cancel --dry-run", "--from", since) == ["run_000001", "run_000002"]


async def test_what_was_given_up_is_listed_with_who_held_it_last(db: DatabaseManager, typed: Any) -> None:
    text = "The run was given up: 3 processes that ran nothing else died in its turn (SIGKILL)."
    ended = {"tenant": "acme", "user": "ann", "team": "crew", "status": RunStatus.ERROR, "attempt": 5}
    given_up = {**ended, "thread": "t", "error_message": text, "ending": {"worker": "host:4711:t1:abcd"}}
    other = {**ended, "thread": "s", "error_message": "Team 'crew' failed (timeout): No.", "ending": None}
    await db.database.write(lambda session: store(session, [given_up, other]))
    [run] = json.loads(typed("runs", "stopped", "--json").stdout)
    assert (run["run_id"], run["error_code"], run["worker"]) == ("run_000000", "given_up", "host:4711:t1:abcd")
    shown = " ".join(typed("runs", "stopped", "--tenant", "acme").stdout.split())
    assert text in shown
    assert "attempt 5, held last by host:4711:t1:abcd" in shown
    assert "no run was given up here" in typed("runs", "stopped", "--team", "pair").stdout


def test_top_ends_at_ctrl_c(migrated_sqlite: str, tmp_path: Path) -> None:
    main, side = pty.openpty()
    environment = clean_environment(DRSAI_DATABASE_URL=migrated_sqlite, TERM="xterm", COLUMNS="80", LINES="24")
    program = [sys.executable, "-m", "drsai_backend", "top", "--every", "0.2"]
    # Who runs these tests in the background of a script has signals of Ctrl+C ignored, and programs inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(program, stdin=side, stdout=side, stderr=side, cwd=tmp_path, env=environment)
    signal.signal(signal.SIGINT, before)
    os.close(side)
    shown, end = b"", time.monotonic() + 60
    while shown.count(b"0 live") < 2:
        assert time.monotonic() < end, shown
        if select.select([main], [], [], 0.5)[0]:
            shown += os.read(main, 4096)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # The other side is closed.
        # It is read until then: a full terminal would keep the program in its last lines.
        while select.select([main], [], [], 20)[0] and (more := os.read(main, 4096)):
            shown += more
    assert process.wait(20) == 0
    assert shown.rindex(b"\x1b[?1049l") > shown.rindex(b"0 live"), "the screen of before is back"
    assert b"Traceback" not in shown
