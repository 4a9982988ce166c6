"""A server that is killed and started again, on a scripted model that outlives it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support import invariants
from tests.support.commands import ROOT, Command, Commands
from tests.support.effects import Site
from tests.support.model_server import ModelServer
from tests.support.teams.equipped import PROFILES

TEAMS = ROOT / "tests/support/teams/served.py"


class Serving:
    """`drsai serve` on the test's database and model, started as often as wanted."""

    def __init__(
        self, commands: Commands, model: ModelServer, database_url: str, folder: Path, teams: Path = TEAMS
    ) -> None:
        self._teams = teams
        self._commands = commands
        self._model = model
        self.database_url = database_url
        self._folder = folder
        self.effects = folder / "effects"
        """A line for each time that a tool took effect (see `support.teams.served`)."""
        profiles = folder / "models.json"
        profiles.write_text(json.dumps(PROFILES))
        self.environment: dict[str, str] = {"DRSAI_MODELS": str(profiles)}
        """Settings of the processes that are started from now on."""
        self._url = ""
        self.process: Command

    def launch(self) -> None:
        """Start a process, ready or not."""
        environment = {
            "OPENAI_BASE_URL": self._model.base_url,
            "DRSAI_DATABASE_URL": self.database_url,
            "CHAOS_TOOLS": str(self.effects),
            **self.environment,
        }
        self.process = self._commands.start("serve", str(self._teams), "--port", "0", cwd=self._folder, env=environment)

    def start(self) -> None:
        """Start a process and wait until it answers."""
        self.launch()
        self.until_up()

    def until_up(self) -> None:
        """Wait until the process answers."""
        self._url = self.process.base_url()

    def restart(self) -> None:
        """SIGKILL, and another process."""
        self.process.die()
        self.start()

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=self._url, api_key="unused", max_retries=0, timeout=30)

    def http(self) -> httpx.Client:
        """For what OpenAI's client has no words for."""
        return httpx.Client(base_url=self._url.removesuffix("/v1"), timeout=30)

    def say(self, thread_id: str, text: str, model: str = "pair") -> Any:
        """Send a message and wait for the whole answer."""
        with self.client() as client:
            return client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": text}], extra_body={"thread_id": thread_id}
            )

    def get(self, path: str) -> Any:
        answer = httpx.get(f"{self._url}{path}", timeout=30)
        answer.raise_for_status()
        return answer.json()

    def thread(self, thread_id: str) -> Any:
        return self.get(f"/threads/{thread_id}")

    def settled(self, thread_id: str, seconds: float = 60) -> Any:
        """The thread, once its run is over or waits."""
        end = time.monotonic() + seconds
        while (thread := self.thread(thread_id))["status"] == "running":
            assert time.monotonic() < end, "the run does not come to an end"
            time.sleep(0.05)
        return thread

    def messages(self, thread_id: str) -> list[tuple[int, str, str]]:
        """(seq, source, text) of the stored messages."""
        data = self.get(f"/threads/{thread_id}/messages")["data"]
        return [(item["seq"], item["source"], item["content"]) for item in data]


@pytest.fixture
def model() -> Iterator[ModelServer]:
    # What agents are told is compared message by message with a run that was not killed.
    with ModelServer(strict=False) as server:
        yield server


@pytest.fixture
def serving(commands: Commands, model: ModelServer, database_url: str, tmp_path: Path) -> Iterator[Serving]:
    """A running server; the test runs once on SQLite and once on PostgreSQL."""
    serving = Serving(commands, model, database_url, tmp_path)
    with Site(serving.effects) as site:
        serving.environment["CHAOS_SITE"] = site.url
        serving.start()
        yield serving
        serving.process.die()
    invariants.check(database_url)
