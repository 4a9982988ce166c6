"""`drsai threads turns | branches | rewind | fork | export | import | prune`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai, Thread
from drsai_backend.config import Settings
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.datamodel.base import table_of
from tests.support.commands import Command, Commands, clean_environment

Threads = Callable[..., Command]


@pytest.fixture
def threads(commands: Commands, tmp_path: Path) -> Threads:
    """`threads(arguments…)` runs `drsai threads` on `home.db`, or on the database of `at`."""

    def run(*arguments: str, at: str = "sqlite:///home.db") -> Command:
        return commands.run("threads", *arguments, cwd=tmp_path, env={"DRSAI_DATABASE_URL": at})

    return run


def _work(url: str, *texts: str, **changes: object) -> None:
    """Ada says the texts on the thread "first"; then columns of the thread's row are set."""

    async def work() -> None:
        settings = Settings(_env_file=None, demo_delay=0, openai_api_key=None, openai_base_url=None)  # pyright: ignore
        async with DrSai(database_url=url, settings=settings) as drsai:
            for text in texts:
                await drsai.user("ada").run("assistant", text, thread_id="first")
            if changes:
                change = sa.update(table_of(Thread)).values(**changes)
                await drsai.database.write(lambda session: session.execute(change))

    asyncio.run(work())


@pytest.fixture
def home(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'home.db'}"
    _work(url, "My name is Ada.")
    return url


def test_a_thread_moves_into_another_database(
    threads: Threads, commands: Commands, home: str, tmp_path: Path, database_url: str
) -> None:
    exported = threads("export", "first", "--user", "ada", "--output", "moved.thread")
    assert exported.wait() == 0, exported.stderr
    assert exported.stdout.startswith("exported first to moved.thread (")
    imported = threads("import", "moved.thread", at=database_url)
    assert (imported.wait(), imported.stdout) == (0, "imported first of ada: 2 messages, completed\n")
    again = threads("import", "moved.thread", at=database_url)
    assert again.wait() == 1
    assert again.stderr == "Error: ada has a thread 'first' here already; give it another thread_id\n"
    copied = threads("import", "moved.thread", "--thread-id", "copy", "--user", "eve", at=database_url)
    assert copied.stdout == "imported copy of eve: 2 messages, completed\n"
    there = {"DRSAI_DATABASE_URL": database_url}
    told = commands.run("chat", "-t", "copy", "--user", "eve", cwd=tmp_path, env=there, stdin="What is my name?\n")
    assert "Your name is Ada." in told.stdout


def test_the_past_of_a_thread(threads: Threads, home: str) -> None:
    """It goes back, continues elsewhere, and moves with all of its branches."""
    _work(home, "I live in Rome.")
    of_ada = ("--user", "ada")
    listed = threads("turns", "first", *of_ada, "--json")
    assert [(each["turn"], each["last_seq"]) for each in json.loads(listed.stdout)] == [(1, 2), (2, 4)]
    assert "messages 4" in threads("turns", "first", *of_ada).stdout
    forked = threads("fork", "first", "--turn", "1", "--thread-id", "copy", *of_ada)
    assert forked.stdout == "first is forked: copy, 2 messages\n"
    back = threads("rewind", "first", "--at", "2", *of_ada)
    assert back.stdout.startswith("first continues after turn 1, message 2;")
    _work(home, "What is my name?")
    branches = json.loads(threads("branches", "first", *of_ada, "--json").stdout)
    assert [(each["number"], each["is_current"], each["last_seq"]) for each in branches] == [
        (0, False, 4),
        (1, True, 6),
    ]
    assert "left 0 after turn 1, message 2" in threads("branches", "first", *of_ada).stdout

    assert threads("export", "first", *of_ada, "--output", "moved.thread").wait() == 0
    moved = threads("import", "moved.thread", "--thread-id", "moved", *of_ada)
    assert (moved.wait(), moved.stdout.partition(":")[0]) == (0, "imported moved of ada")
    there = json.loads(threads("branches", "moved", *of_ada, "--json").stdout)
    assert [(each["number"], each["is_current"], each["last_seq"]) for each in there] == [(0, False, 4), (1, True, 6)]
    cleared = threads("clear", "first", *of_ada)
    assert cleared.stdout == "first begins anew; `drsai threads branches` shows what it left.\n"
    assert "left 0 after turn 0, message 0" in threads("branches", "first", *of_ada).stdout
    refused = threads("rewind", "first", "--at", "9", *of_ada)
    assert (refused.wait(), refused.stderr) == (1, "Error: the thread has no message 9: the newest is 6\n")


def test_through_a_pipe_into_a_database_that_is_not_there_yet(home: str, tmp_path: Path) -> None:
    drsai = f"'{sys.executable}' -m drsai_backend threads"
    line = f"{drsai} export first --user ada --database-url {home} | {drsai} import - --database-url sqlite:///new.db"
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "imported first of ada: 2 messages, completed\n", "")


def test_what_cannot_be_moved(threads: Threads, home: str, tmp_path: Path) -> None:
    def complaint(*arguments: str) -> str:
        command = threads(*arguments)
        assert command.wait() == 1
        assert command.stdout == ""
        return command.stderr

    missing = "Error: bob has no thread 'first' here; `drsai threads list --user bob` shows those there are\n"
    assert complaint("export", "first", "--user", "bob") == missing
    assert complaint("export", "first", "--user", "ada", "-o", "no/where").startswith("Error: no/where cannot be")
    assert complaint("import", "nothing") == "Error: nothing cannot be read: No such file or directory\n"
    assert threads("export", "first", "--user", "ada", "-o", "whole").wait() == 0
    data = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-1])
    wanted = f"Error: the file cannot be imported: it is cut short: {len(data) - 1} of {len(data)} bytes\n"
    assert complaint("import", "cut", "--thread-id", "cut") == wanted
    assert complaint("show", "cut", "--user", "ada").startswith("Error: ada has no thread 'cut' here")
    live = {"status": RunStatus.RUNNING, "lease_owner": "elsewhere", "lease_expires_at": utcnow() + timedelta(hours=1)}
    _work(home, **live)
    busy = "Error: a run is live on thread 'first': it cannot be exported now\n"
    assert complaint("export", "first", "--user", "ada") == busy


def test_old_threads_are_pruned(threads: Threads, home: str) -> None:
    _work(home, updated_at=utcnow() - timedelta(days=3))
    assert threads("export", "first", "--user", "ada", "-o", "file").wait() == 0
    assert threads("import", "file", "--user", "bob").wait() == 0
    assert threads("prune", "--older-than", "1w").stdout == "0 threads of all users to delete\n"
    assert threads("prune", "--older-than", "2d", "--dry-run").stdout == "2 threads of all users to delete\n"
    refused = threads("prune", "--older-than", "48h", "--user", "ada")
    assert refused.wait() == 1
    assert refused.stderr == "Error: Delete 1 thread of ada? Nobody is here to be asked: say --yes.\n"
    waiting = threads("prune", "--older-than", "2d", "--status", "paused, awaiting_input")
    assert waiting.stdout == "0 threads of all users to delete\n"
    pruned = threads("prune", "--older-than", "2d", "--user", "ada", "--yes")
    assert (pruned.wait(), pruned.stdout) == (0, "deleted 1 thread of ada\n")
    assert threads("list", "--user", "ada").stdout == "ada has no threads here.\n"
    assert len(json.loads(threads("list", "--user", "bob", "--json").stdout)) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--older-than", "30"], "--older-than 30: a time is a number with m, h, d or w, such as 30d"),
        (["--older-than", "-1d"], "--older-than -1d: a time"),
        (["--older-than", "9999999999999w"], "--older-than 9999999999999w: a time"),
        (["--older-than", "999999w"], "--older-than reaches back before the first year"),
        (["--older-than", "1d", "--status", "gone"], "--status 'gone': there is created, running, "),
    ],
)
def test_ages_and_statuses_that_are_none(threads: Threads, home: str, arguments: list[str], words: str) -> None:
    command = threads("prune", *arguments, "--yes")
    assert command.wait() == 2
    assert command.stderr.startswith(f"Error: {words}")
    assert command.stderr.count("\n") == 1
