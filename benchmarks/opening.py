"""A fresh process opens a database and answers one turn of a thread, beside LangGraph's with its SQLite saver.

Each is a process of its own, with what it needs imported before the clock starts: `python -m benchmarks.opening FILE
TURNS`, and `langgraph_turns.py` in the environment whose interpreter `LANGGRAPH_PYTHON` names, or in this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import create_connection
from statistics import median
from tempfile import TemporaryDirectory

from autogen_agentchat.base import ChatAgent

import drsai_backend
from benchmarks.databases import sqlite
from benchmarks.load import request
from benchmarks.report import Section
from benchmarks.serving import CHAT, server
from benchmarks.teams import InstantClient, Texts
from drsai_backend.drsai import DrSai

_OTHER = Path(__file__).parent / "langgraph_turns.py"
_CHANNELS = {"whole": "LangGraph", "delta": "its delta channel"}
_OURS = ("made", "opened", "first write", "end")
_TEAM = "ada"
Marks = dict[str, float]


def _agent() -> ChatAgent:
    return drsai_backend.AssistantAgent(_TEAM, InstantClient())


async def _turns(file: str, count: int) -> Marks:
    """Answer so many turns; what the first one took, part by part, in seconds since the beginning."""
    texts, marks = Texts(), Marks()
    DrSai({_TEAM: _agent}, "sqlite://")  # What it is made of is imported by this.
    start, cpu = time.perf_counter(), time.process_time()

    def mark(what: str) -> None:
        marks.setdefault(what, time.perf_counter() - start)

    drsai = DrSai({_TEAM: _agent}, f"sqlite:///{file}")
    mark("made")
    async with drsai:
        mark("opened")
        for _ in range(count):
            handle = await drsai.start(_TEAM, texts.next(), thread_id="thread")
            mark("first write")
            await handle.wait()
            mark("end")
            marks.setdefault("cpu", time.process_time() - cpu)
    return marks


@dataclass(slots=True)
class _Program:
    """A program that makes turns: `times` has what its fresh processes took."""

    command: Sequence[str]
    folder: Path
    times: list[Marks] = field(default_factory=list)

    def turns(self, file: Path, count: int) -> Marks:
        """Make turns in a fresh process. What it has imported is compiled, as it is where it is installed."""
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(self.folder / "cache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [*(each.format(file=file, count=count) for each in self.command)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    def middle(self, what: str) -> float:
        """The median, in milliseconds."""
        return median(each[what] for each in self.times) * 1000


def _programs(folder: Path) -> dict[str, _Program]:
    """Return what is measured, by name: LangGraph where there is one."""
    found = {"ours": _Program([sys.executable, "-m", "benchmarks.opening", "{file}", "{count}"], folder)}
    python = os.environ.get("LANGGRAPH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import langgraph.checkpoint.sqlite"], capture_output=True).returncode == 0:
        for channel, name in _CHANNELS.items():
            found[name] = _Program([python, str(_OTHER), "{file}", "{count}", channel], folder)
    return found


def _measure(section: Section, size: int, rounds: int) -> None:
    with TemporaryDirectory(prefix="drsai-bench-") as temporary:
        programs = _programs(Path(temporary))
        stored = {name: Path(temporary) / f"{name}.db" for name in programs}
        for name, program in programs.items():
            program.turns(stored[name], size)
        for _ in range(rounds):
            for name, program in programs.items():
                # The thread grows by a turn a round. A copy would be of a gigabyte.
                program.times.append(program.turns(stored[name], 1))
        _tell(section, size, programs, {name: file.stat().st_size for name, file in stored.items()})


def _tell(section: Section, size: int, programs: dict[str, _Program], bytes_of: dict[str, int]) -> None:
    ours = programs["ours"]
    spans = [ours.middle(what) for what in _OURS]
    parts = " / ".join(f"{after - before:.1f}" for before, after in zip([0.0, *spans], spans, strict=False))
    for name, program in programs.items():
        ratios = [mine["end"] / theirs["end"] for mine, theirs in zip(ours.times, program.times, strict=True)]
        shown = "" if program is ours else f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        times = [each["end"] * 1000 for each in program.times]
        section.rows.append(
            (
                f"{size:,}",
                name,
                f"{median(times):.1f} ({min(times):.1f}-{max(times):.1f})",
                f"{program.middle('cpu'):.1f}",
                parts if program is ours else "",
                shown,
                f"{bytes_of[name] / 1_000_000:.1f}",
            )
        )
    others = [program.middle("end") for program in programs.values() if program is not ours]
    if others:
        what = f"a fresh process opens and answers one turn, {size:,} turns before, ÷ the better of LangGraph's"
        section.at_most(what, 1, ours.middle("end") / min(others))


def _memory() -> float:
    """Return what a server takes that has answered a chat, in MB of a million bytes."""
    command = ("-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url")
    with sqlite() as url, server(*command, url) as (port, process):
        with create_connection(("127.0.0.1", port)) as chat:
            chat.sendall(request(CHAT, "hello"))
            answer = b""
            while b"[DONE]" not in answer:
                answer += chat.recv(1 << 16)
        return process.memory_info().rss / 1_000_000


async def measure(sizes: Sequence[int], rounds: int) -> Section:
    section = Section(
        "Opening",
        "A fresh process, libraries imported, opens an SQLite file and answers one turn of a thread: one agent and\n"
        "an instant model. LangGraph: a graph of one node on its SQLite saver, where it is installed. *Parts*:\n"
        "making the `DrSai`, opening it, the run's first write, its end. *File*: before that turn.",
        ("turns before", "what", "ms", "CPU", "parts, ms", "ours ÷", "file, MB"),
    )
    for size in sizes:
        await asyncio.to_thread(_measure, section, size, rounds)
    memory = await asyncio.to_thread(_memory)
    section.at_most("memory of `drsai serve` at rest, after a chat on SQLite", 140, memory, unit=" MB")
    return section


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_turns(sys.argv[1], int(sys.argv[2])))))
