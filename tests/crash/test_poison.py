"""A run that kills whatever process it is in, among others that only share it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.crash.conftest import Serving
from tests.support.commands import ROOT, Command, Commands

INNOCENT = 20
TEAMS = str(ROOT / "tests/support/teams/poisoned.py")


def until(condition: Callable[[], object], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


class Poisoned(Serving):
    """Servers with one poisonous run among innocent ones."""

    def __init__(self, commands: Commands, database_url: str, folder: Path) -> None:
        self.word = folder / "poison"
        self.database_url = database_url
        self._commands, self._folder = commands, folder
        self.environment = {"DRSAI_MAX_ATTEMPTS": "2", "DRSAI_SWEEP_SECONDS": "0.5", "POISON": str(self.word)}
        self.others: list[Command] = []

    def launch(self) -> None:
        environment = {"DRSAI_DATABASE_URL": self.database_url, **self.environment}
        self.process = self._commands.start("serve", TEAMS, "--port", "0", cwd=self._folder, env=environment)

    def begin(self) -> None:
        """Have all runs stand in their second turn."""
        for number in range(INNOCENT + 1):
            team = "poison" if number == 7 else "innocent"
            with self.http() as http:
                body = {"model": team, "thread_id": f"{team}{number}", "background": True}
                body |= {"messages": [{"role": "user", "content": "Work."}]}
                assert http.post("/v1/chat/completions", json=body).status_code == 202
        self.on_board(self.process)

    def seen(self) -> list[list[str]]:
        """The process and the kind of each second turn that was begun."""
        file = self.word.with_suffix(".seen")
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def on_board(self, process: Command) -> None:
        """Wait until a process has all of them."""
        until(lambda: sum(pid == str(process.pid) for pid, _ in self.seen()) == INNOCENT + 1)

    def runs(self) -> dict[str, Any]:
        """The runs by their threads."""
        return {run["thread_id"]: run for run in self.get("/runs?limit=100")["data"]}


@pytest.fixture
def poisoned(commands: Commands, database_url: str, tmp_path: Path) -> Iterator[Poisoned]:
    made = Poisoned(commands, database_url, tmp_path)
    made.start()
    yield made
    made.process.die()


def test_only_the_run_that_kills_is_given_up(poisoned: Poisoned) -> None:
    poisoned.begin()
    for _ in range(2):
        first = poisoned.process
        poisoned.word.write_text("kill")
        assert first.wait() == -signal.SIGABRT
        poisoned.word.unlink()
        poisoned.start()
        if _ == 0:
            poisoned.on_board(poisoned.process)
    # The third process resumes them all apart: it is not harmed.
    server = poisoned.process
    poisoned.word.write_text("work")
    until(lambda: all(run["status"] in ("completed", "error") for run in poisoned.runs().values()))
    assert server.running
    runs = poisoned.runs()
    ended = {name: run["error_message"] for name, run in runs.items() if run["status"] != "completed"}
    assert list(ended) == ["poison7"]
    assert "given up" in ended["poison7"]
    assert "SIGABRT" in ended["poison7"]
    assert len(runs) == INNOCENT + 1
    for name in ended.keys() ^ runs.keys():
        assert [text for _, source, text in poisoned.messages(name)][1:] == [
            f"{n} has spoken" for n in ("first", "second", "third")
        ]
    assert not any(pid == str(server.pid) for pid, _ in poisoned.seen())
    # Nothing of the processes stays, even where the server is killed.
    children = psutil.Process(server.pid).children(recursive=True)
    poisoned.process.die()
    assert psutil.wait_procs(children, timeout=10)[1] == []
