"""A run that kills whatever process it is in, among others that only share it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.chaos import databases
from tests.crash.conftest import Serving
from tests.support import invariants
from tests.support.commands import ROOT, Commands
from tests.support.postgres import Hold
from tests.support.processes import is_gone

INNOCENT = 20
TEAMS = str(ROOT / "tests/support/teams/poisoned.py")


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


class Poisoned(Serving):
    """Servers whose runs stand in their second turn until the file `word` lets them go on."""

    def __init__(self, commands: Commands, database_url: str, folder: Path) -> None:
        self.word = folder / "poison"
        self.database_url = database_url
        self._commands, self._folder = commands, folder
        self.environment = {"DRSAI_MAX_ATTEMPTS": "2", "DRSAI_SWEEP_SECONDS": "0.5", "POISON": str(self.word)}

    def launch(self) -> None:
        environment = {"DRSAI_DATABASE_URL": self.database_url, **self.environment}
        self.process = self._commands.start("serve", TEAMS, "--port", "0", cwd=self._folder, env=environment)

    def begin(self, thread_id: str) -> None:
        """Begin a run of the team after which the thread is named."""
        body = {"model": thread_id.split("-")[0], "thread_id": thread_id, "background": True}
        with self.http() as http:
            asked = http.post("/v1/chat/completions", json={**body, "messages": [{"role": "user", "content": "Work."}]})
        assert asked.status_code == 202

    def seen(self) -> list[int]:
        """The processes in which a second turn was begun, each time."""
        file = self.word.with_suffix(".seen")
        return [int(line.split()[0]) for line in file.read_text().splitlines()] if file.exists() else []

    def runs(self) -> dict[str, Any]:
        """The runs by their threads."""
        return {run["thread_id"]: run for run in self.get("/runs?limit=100")["data"]}

    def typed(self, *words: str) -> str:
        """What a command prints."""
        environment = {"DRSAI_DATABASE_URL": self.database_url}
        command = self._commands.run(*words, cwd=self._folder, env=environment)
        assert command.wait() == 0, command.stderr
        return command.stdout

    def are_over(self) -> bool:
        return all(run["status"] in ("completed", "error") for run in self.runs().values())


@pytest.fixture
def poisoned(commands: Commands, database_url: str, tmp_path: Path) -> Iterator[Poisoned]:
    made = Poisoned(commands, database_url, tmp_path)
    made.start()
    yield made
    made.process.die()


def test_only_the_run_that_kills_is_given_up(poisoned: Poisoned) -> None:
    for number in range(INNOCENT):
        poisoned.begin(f"innocent-{number}")
        if number == 7:
            poisoned.begin("poison")
    for _ in range(2):
        until(lambda: poisoned.seen().count(poisoned.process.pid) == INNOCENT + 1)
        poisoned.word.write_text("kill")
        assert poisoned.process.wait() == -signal.SIGABRT
        poisoned.word.unlink()
        poisoned.start()
    # The third process has them resumed apart: it is not harmed.
    poisoned.word.write_text("work")
    until(poisoned.are_over)
    assert poisoned.process.running
    assert poisoned.process.pid not in poisoned.seen()
    runs = poisoned.runs()
    ended = {name: run["error_message"] for name, run in runs.items() if run["status"] != "completed"}
    assert list(ended) == ["poison"]
    assert ended["poison"].startswith("The run was given up: 2 processes that ran nothing else died")
    assert "SIGABRT" in ended["poison"]
    assert len(runs) == INNOCENT + 1
    for name in ended.keys() ^ runs.keys():
        said = [text for _, _, text in poisoned.messages(name)]
        assert said == ["Work.", *(f"{who} has spoken" for who in ("first", "second", "third"))]


def test_servers_that_have_suspects_at_once(commands: Commands, migrated_postgres: str, tmp_path: Path) -> None:
    """Each finds those that both know, in the same order, and one that only it knows. They take them at the same
    moment. None harms a server, or is run by two at once."""
    databases.audit(migrated_postgres)
    first, _ = servers = [Poisoned(commands, migrated_postgres, tmp_path) for _ in range(2)]
    for number, server in enumerate(servers):
        server.environment["POISON_OWN"] = f"own{number}"
        server.start()
    names = [*(f"innocent-{number}" for number in range(4)), "poison-0", "poison-1", "own0", "own1"]
    for number, name in enumerate(names):
        servers[number % 2].begin(name)
    for deaths in (1, 2):
        until(lambda deaths=deaths: len(first.seen()) == len(names) * deaths)
        for server in servers:
            server.process.kill()  # Before one finds that the other is gone.
        for server in servers:
            server.process.wait()
        with Hold(migrated_postgres, "thread", "EXCLUSIVE") if deaths == 2 else nullcontext() as hold:
            for server in servers:
                server.launch()
            for server in servers:
                server.until_up()
            if hold is not None:
                asyncio.run(hold.until_wait(4))  # Each wants the first run of both halves of what it has found.
    until(lambda: len(first.seen()) == len(names) * 3)
    taken = [int(count) for each in servers for count in re.findall(r"(\d+) suspects are resumed", each.process.stderr)]
    assert sum(taken) == len(names), "both have taken the same"
    apart = {psutil.Process(pid) for pid in first.seen()[-len(names) :]}
    assert {server.process.pid for server in servers} <= {each.pid for child in apart for each in child.parents()}
    first.word.write_text("work")
    until(first.are_over)
    assert all(server.process.running and server.process.pid not in first.seen() for server in servers)
    ended = {name: run["error_message"] for name, run in first.runs().items() if run["status"] != "completed"}
    assert ended.keys() == {"poison-0", "poison-1"}
    assert all(text.startswith("The run was given up: 2 processes that ran nothing") for text in ended.values())
    held: dict[tuple[int, int], list[str]] = {}
    for row in databases.query(migrated_postgres, "SELECT * FROM chaos_lease WHERE owner IS NOT NULL ORDER BY id"):
        held.setdefault((row["thread_key"], row["epoch"]), []).append(row["owner"])
    for owners in held.values():
        once = [owner for owner, _ in groupby(owners)]
        assert len(once) == len(set(once)), "one who had lost the lease had it again"
    turns = databases.query(migrated_postgres, "SELECT thread_key, turn FROM chaos_turn")
    assert len(turns) == len({tuple(turn.values()) for turn in turns})
    invariants.check(migrated_postgres)


def test_a_run_whose_servers_are_killed_is_never_given_up(poisoned: Poisoned) -> None:
    """It runs alone since the second of them, in a process that ends after its server, and did nothing wrong."""
    poisoned.environment["DRSAI_SHUTDOWN_GRACE_SECONDS"] = "1"
    poisoned.restart()
    poisoned.begin("innocent")
    for number in range(4):
        until(lambda number=number: len(poisoned.seen()) > number)
        *_, worker = poisoned.seen()
        assert (worker == poisoned.process.pid) == (number < 2)
        poisoned.process.die()
        until(lambda worker=worker: is_gone(worker), 10)
        poisoned.start()
    until(lambda: len(poisoned.seen()) > 4)
    poisoned.word.write_text("work")
    until(poisoned.are_over)
    (run,) = poisoned.runs().values()
    assert (run["status"], run["error_message"]) == ("completed", None)


def test_a_suspect_comes_through_its_turn_though_its_server_is_killed(poisoned: Poisoned) -> None:
    """Where servers are killed one after the other, it would come through none otherwise."""
    poisoned.begin("innocent")
    for number in range(2):
        until(lambda number=number: len(poisoned.seen()) > number)
        poisoned.restart()
    until(lambda: len(poisoned.seen()) == 3)
    worker = psutil.Process(poisoned.seen()[-1])
    poisoned.process.die()
    time.sleep(0.5)  # It knows by now.
    poisoned.word.write_text("work")
    worker.wait(20)
    poisoned.start()
    until(poisoned.are_over)
    assert len(poisoned.seen()) == 3
    assert [text for _, _, text in poisoned.messages("innocent")][1:] == [
        f"{who} has spoken" for who in ("first", "second", "third")
    ]


def test_what_a_server_has_asked_for_is_done_though_it_is_killed_at_once(poisoned: Poisoned) -> None:
    """The process that is to resume its suspect has not even been begun then."""
    poisoned.begin("innocent")
    for number in range(2):
        until(lambda number=number: len(poisoned.seen()) > number)
        poisoned.restart()
    until(psutil.Process(poisoned.process.pid).children)
    time.sleep(0.2)  # It takes seconds to import what it needs.
    assert len(poisoned.seen()) == 2
    poisoned.process.die()
    poisoned.word.write_text("work")
    until(lambda: len(poisoned.seen()) == 3, 20)
    worker = poisoned.seen()[-1]
    until(lambda: is_gone(worker), 20)
    poisoned.start()
    until(poisoned.are_over)
    assert len(poisoned.seen()) == 3
    assert [text for _, _, text in poisoned.messages("innocent")][1:] == [
        f"{who} has spoken" for who in ("first", "second", "third")
    ]


def test_a_run_that_kills_while_it_is_loaded_is_given_up(poisoned: Poisoned) -> None:
    """It stores nothing in the processes that it kills, and is counted all the same."""
    poisoned.begin("loaded")
    until(poisoned.seen)
    poisoned.process.die()
    poisoned.word.write_text("load")
    poisoned.launch()
    assert poisoned.process.wait() == -signal.SIGABRT
    poisoned.start()
    until(poisoned.are_over)
    assert poisoned.process.running
    (run,) = poisoned.runs().values()
    assert run["error_message"].startswith("The run was given up: 2 processes that ran nothing else died")
    assert len(poisoned.seen()) == 1
    # Once what killed them is repaired, an operator has it tried again.
    [stopped] = json.loads(poisoned.typed("runs", "stopped", "--json"))
    assert (stopped["run_id"], stopped["error_code"]) == (run["id"], "given_up")
    assert int(stopped["worker"].rsplit(":", 3)[1]) != poisoned.process.pid
    poisoned.word.write_text("work")
    poisoned.typed("runs", "all", "retry", "--error-code", "given_up", "--yes")
    until(lambda: [each["status"] for each in poisoned.runs().values()] == ["completed"])
    assert poisoned.process.running


def test_an_input_that_kills_before_its_run_has_begun_is_given_up(poisoned: Poisoned) -> None:
    """It waits in the queue all the time."""
    poisoned.begin("loaded")
    until(poisoned.seen)
    poisoned.begin("loaded")
    poisoned.word.write_text("load")
    for _ in range(3):  # The first is one that it found at work: counted are those that find it waiting.
        assert poisoned.process.wait() == -signal.SIGABRT
        poisoned.launch()
    assert poisoned.process.wait() == -signal.SIGABRT
    poisoned.start()
    until(poisoned.are_over)
    assert poisoned.process.running
    given_up, completed = poisoned.get("/runs?limit=100")["data"]
    assert completed["status"] == "completed"
    assert given_up["status"] == "error"
    assert "it was given up: 3 processes died when its team was built" in given_up["error_message"]
    assert len(poisoned.seen()) == 1


def test_a_server_that_is_stopped_has_its_suspects_handed_over(poisoned: Poisoned) -> None:
    poisoned.environment["DRSAI_SHUTDOWN_GRACE_SECONDS"] = "1"
    poisoned.begin("innocent")
    for number in range(3):
        until(lambda number=number: len(poisoned.seen()) > number)
        if number < 2:
            poisoned.restart()
    worker = poisoned.seen()[-1]
    poisoned.process.kill(signal.SIGTERM)
    assert poisoned.process.wait() == 0, poisoned.process.stderr
    assert "run handed over" in poisoned.process.stderr
    assert "suspects are handed over" in poisoned.process.stderr
    assert "suspects are not resumed" not in poisoned.process.stderr
    assert not psutil.pid_exists(worker)
    poisoned.word.write_text("work")
    poisoned.start()
    until(poisoned.are_over)
    assert poisoned.runs()["innocent"]["status"] == "completed"
