"""Processes on one database: real `drsai serve` and `drsai worker`, started, killed, stopped and continued."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.chaos.databases import query
from tests.chaos.model import Models
from tests.chaos.tenants import store_keys
from tests.support.commands import ROOT, Command, Commands
from tests.support.effects import Site
from tests.support.teams.equipped import PROFILES

_TEAMS = Path("tests/support/teams/served.py")
TEAMS = ROOT / _TEAMS

QUICK = {"DRSAI_LEASE_SECONDS": "4", "DRSAI_HEARTBEAT_SECONDS": "1", "DRSAI_SWEEP_SECONDS": "1"}
"""Settings that save time."""


@dataclass(eq=False)
class Process:
    """One process. `key` is that which it asks models with; `base` is its URL once it answers, None for a worker."""

    command: Command
    key: str
    base: str | None = None
    up: bool = False


@dataclass(eq=False)
class World:
    """A database and its processes.

    Args:
        settings: environment of the processes.
        teams: the file of what they serve, below the root of their code where it is part of it.
    """

    name: str
    url: str
    models: Models
    commands: Commands
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    teams: Path = _TEAMS
    processes: list[Process] = field(default_factory=list)
    started: int = 0
    _all: list[Process] = field(default_factory=list)
    _killed: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        store_keys(self.url)
        self._site = Site(self.tools)
        self._site.__enter__()
        self._profiles = self.folder / "models.json"
        self._profiles.write_text(json.dumps(PROFILES))

    @property
    def tools(self) -> Path:
        """Where the tools' effects are written."""
        return self.folder / "tools.jsonl"

    async def start(self, *, serve: bool = True) -> Process:
        """Start a process; returns when it is up."""
        process = self.launch(serve=serve)
        await self.until_up(process)
        return process

    def launch(self, *, serve: bool = True) -> Process:
        """Start a process, ready or not."""
        self.started += 1
        key = f"key-{self.started}"
        environment = {
            "OPENAI_BASE_URL": self.models.base_url,
            "OPENAI_API_KEY": key,
            "DRSAI_DATABASE_URL": self.url,
            "CHAOS_TOOLS": str(self.tools),
            "CHAOS_SITE": self._site.url,
            "DRSAI_MODELS": str(self._profiles),
            "DRSAI_AUTH": "required",
            **self.settings,
        }
        teams = str(self.commands.root / self.teams)
        arguments = ("serve", teams, "--port", "0") if serve else ("worker", "--teams", teams)
        process = Process(self.commands.start(*arguments, cwd=self.folder, env=environment), key)
        self._all.append(process)
        self.processes.append(process)
        return process

    async def until_up(self, process: Process, timeout: float = 60) -> bool:
        """Wait until a process answers. False: it was killed before."""
        command = process.command
        async with asyncio.timeout(timeout):
            while command.running:
                printed = command.stdout
                if "Ctrl-C" in printed:
                    found = re.search(r"serves (http://\S+)/v1\n", printed)
                    process.base = found.group(1) if found else None
                    process.up = True
                    return True
                await asyncio.sleep(0.02)
        return False

    def serving(self) -> list[Process]:
        """The processes that answer."""
        return [process for process in self.processes if process.up and process.base]

    async def pick(self, chance: Random, avoid: str | None = None) -> str:
        """The URL of some process that answers; another one than `avoid` where there is one."""
        while True:
            bases = [process.base or "" for process in self.serving()]
            if bases:
                return chance.choice([base for base in bases if base != avoid] or bases)
            await asyncio.sleep(0.02)

    def kill(self, process: Process) -> None:
        """SIGKILL."""
        process.up = False
        self._killed.add(process.key)
        process.command.kill()
        self.processes.remove(process)

    def freeze(self, process: Process) -> None:
        """SIGSTOP."""
        process.up = False
        process.command.kill(signal.SIGSTOP)

    def thaw(self, process: Process) -> None:
        """SIGCONT."""
        process.command.kill(signal.SIGCONT)
        process.up = True

    def held(self, process: Process) -> int:
        """How many runs a process holds."""
        pattern = f"%:{process.command.pid}:%"
        text = "SELECT count(*) AS n FROM thread WHERE status = 'running' AND lease_owner LIKE ?"
        return query(self.url, text, pattern)[0]["n"]

    def died(self) -> set[str]:
        """The keys of the processes that were killed, or had lost a run to another one: what those had not stored yet
        of their model calls is asked again."""
        return self._killed | {each.key for each in self._all if "run lost" in each.command.stderr}

    def complaints(self) -> list[str]:
        """What all processes' logs say that nobody should ever read: of a traceback, the error that it ends with."""
        return [f"pid {each.command.pid}: {line}" for each in self._all for line in _complaints(each.command.stderr)]

    async def close(self) -> None:
        """Kill what runs."""
        for process in list(self.processes):
            process.command.kill(signal.SIGCONT)
            self.kill(process)
            await asyncio.to_thread(process.command.wait)
        self._site.__exit__()


_BAD = re.compile(r"never retrieved|unhandled|internal_error", re.IGNORECASE)


def _complaints(log: str) -> list[str]:
    found: list[str] = []
    traced = False
    for line in log.splitlines():
        if traced and not line.startswith((" ", "Traceback")) and line.strip():
            traced = False
            found.append(line)
        elif line.startswith("Traceback"):
            traced = True
        elif _BAD.search(line):
            found.append(line)
    return found
