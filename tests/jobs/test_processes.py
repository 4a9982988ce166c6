"""`drsai worker` in a process of its own, on a database that a server shares."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa

from tests.support.commands import Command, Commands

TIMES = {"DRSAI_LEASE_SECONDS": "4", "DRSAI_HEARTBEAT_SECONDS": "1", "DRSAI_SWEEP_SECONDS": "1"}


class Rows:
    """What the database says of the thread."""

    def __init__(self, url: str) -> None:
        plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._connection = psycopg.connect(plain, autocommit=True)

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def one(self, query: str) -> Any:
        row = self._connection.execute(query.encode()).fetchone()
        return None if row is None else row[0]


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def worker(commands: Commands, folder: Path, env: dict[str, str]) -> Command:
    started = commands.start("worker", cwd=folder, env=env)
    until(lambda: "Ctrl-C" in started.stdout or not started.running)
    assert started.running, started.stderr
    return started


def begin(server: Command, thread_id: str) -> str:
    """Begin a run in the background; its id."""
    body = {
        "model": "assistant",
        "thread_id": thread_id,
        "background": True,
        "messages": [{"role": "user", "content": "My name is Ada."}],
    }
    answer = httpx.post(f"{server.base_url()}/chat/completions", json=body, timeout=10)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_worker_goes_on_with_what_a_server_began(database_url: str, commands: Commands, tmp_path: Path):
    env = {"DRSAI_DATABASE_URL": database_url, "DRSAI_DEMO_DELAY": "0.3", **TIMES}
    server = commands.start("serve", "--port", "0", cwd=tmp_path, env=env)
    run_id = begin(server, "t")
    with Rows(database_url) as rows:
        until(lambda: rows.one("SELECT status FROM thread") == "running")
        working = worker(commands, tmp_path, env)
        # Stopped and not killed: as on another machine, nothing proves that it is dead, and its lease must run out.
        server.kill(signal.SIGSTOP)
        try:
            assert rows.one("SELECT epoch FROM thread") == 1
            until(lambda: rows.one("SELECT epoch FROM thread") == 2)
            until(lambda: rows.one("SELECT status FROM thread") == "completed")
        finally:
            server.kill(signal.SIGCONT)
        assert rows.one(f"SELECT status FROM run WHERE run_id = '{run_id}'") == "completed"
        working.kill(signal.SIGTERM)
        assert working.wait() == 0, working.stderr
        assert "Stopping" in working.stderr
        # The server, which woke up late, changed nothing of it.
        assert httpx.get(f"{server.base_url()}/runs/{run_id}", timeout=10).json()["status"] == "completed"
        assert rows.one("SELECT count(*) FROM autogenmessage") == 2
        assert rows.one("SELECT epoch FROM thread") == 2
    server.die()


def test_a_worker_on_sqlite(commands: Commands, tmp_path: Path):
    """It looks by itself, at a file that it shares with a server."""
    env = {"DRSAI_DATABASE_URL": f"sqlite:///{tmp_path}/drsai.db", "DRSAI_DEMO_DELAY": "0.3", **TIMES}
    server = commands.start("serve", "--port", "0", cwd=tmp_path, env=env)
    run_id = begin(server, "t")
    working = worker(commands, tmp_path, env)
    assert "by looking" in working.stdout
    server.die()
    with contextlib.closing(sqlite3.connect(tmp_path / "drsai.db")) as connection:
        query = f"SELECT status FROM run WHERE run_id = '{run_id}'"
        until(lambda: connection.execute(query).fetchone() == ("completed",))
    working.kill(signal.SIGINT)
    assert working.wait() == 0, working.stderr


def test_a_worker_that_cannot_begin(commands: Commands, tmp_path: Path):
    failed = commands.run("worker", "--teams", "nowhere.py", cwd=tmp_path)
    assert failed.wait() == 1
    assert "nowhere.py" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_second_signal_ends_a_worker_at_once(commands: Commands, tmp_path: Path):
    env = {"DRSAI_DATABASE_URL": f"sqlite:///{tmp_path}/drsai.db", "DRSAI_DEMO_DELAY": "5"}
    server = commands.start("serve", "--port", "0", cwd=tmp_path, env=env)
    begin(server, "t")
    time.sleep(0.5)
    server.die()
    working = worker(commands, tmp_path, env)
    until(lambda: "run taken over" in working.stderr)
    working.kill(signal.SIGTERM)
    until(lambda: "Stopping" in working.stderr)
    assert working.running
    working.kill(signal.SIGTERM)
    assert working.wait() == 128 + signal.SIGTERM
