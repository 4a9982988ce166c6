"""Indexing: how fast a server reads and stores documents, beside reading them alone; what it takes; and what others
wait for meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import httpx
import psutil

from benchmarks.beside import loop_seconds
from benchmarks.databases import Postgres, sqlite
from benchmarks.load import request
from benchmarks.measure import Spent
from benchmarks.report import Section
from benchmarks.serving import CHAT, server
from drsai_backend.documents import Reader
from tests.documents.made import make_pdf, simple_page

PAGES, FILES = 1_000, 10
BOUND: Final = 64 * 2**20
"""Bytes that a server may take for what is searched."""
_BYSTANDERS, _PAUSE = 2, 0.05
"""Others who chat, and seconds between two chats of each."""
_WARM = 1.0
"""Seconds of chats before those that are measured: the first one of a process takes several times as long."""
_LINES = 17
_MB = 1_000_000


def documents(pages: int, files: int) -> list[bytes]:
    """PDFs, each with its share of pages of some 250 words, as frequent as those of a language."""
    chance = random.Random(1)
    words = [f"{chr(97 + at % 26)}{chr(97 + at // 26 % 26)}{chr(97 + at // 676)}er" for at in range(15_000)]
    weights = [1 / (at + 1) for at in range(len(words))]

    def page() -> list[tuple[float, float, float, str]]:
        chosen = chance.choices(words, weights, k=15 * _LINES)
        return simple_page(*(" ".join(chosen[at : at + 15]) for at in range(0, len(chosen), 15)))

    return [make_pdf([page() for _ in range(pages // files)]) for _ in range(files)]


@dataclass(slots=True)
class _Server:
    """A server, and what is measured of it: pages a second, its growth in bytes, and seconds that others waited."""

    port: int
    process: psutil.Process
    file_ids: list[str] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    growth: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    """Seconds of its processor, and of its readers', a page."""
    alone: list[list[Spent]] = field(default_factory=list)
    beside: list[list[Spent]] = field(default_factory=list)
    reading: list[list[Spent]] = field(default_factory=list)
    """While files are only read, by this process: what processors that are shared do to others is no less than that."""

    async def upload(self, client: httpx.AsyncClient, made: Sequence[bytes]) -> None:
        for number, content in enumerate(made):
            files = {"file": (f"{number}.pdf", content, "application/pdf")}
            answer = await client.post("/v1/files", data={"purpose": "assistants"}, files=files)
            self.file_ids.append(answer.raise_for_status().json()["id"])

    async def index(self, client: httpx.AsyncClient, pages: int) -> None:
        """Have all files read into a new store, beside a bystander."""
        store = (await client.post("/v1/vector_stores", json={})).raise_for_status().json()["id"]
        rest, most, before, start = self._memory(), 0, self._spent(), time.perf_counter()
        async with self.bystander() as waited:
            batches = f"/v1/vector_stores/{store}/file_batches"
            batch = (await client.post(batches, json={"file_ids": self.file_ids})).raise_for_status().json()
            while batch["status"] == "in_progress":
                await asyncio.sleep(0.1)
                most = max(most, self._memory())
                batch = (await client.get(f"{batches}/{batch['id']}")).json()
            seconds = time.perf_counter() - start
        if batch["file_counts"]["completed"] != len(self.file_ids):
            raise RuntimeError(f"not all files were read: {batch}")
        self.rates.append(pages / seconds)
        self.growth.append(most - rest)
        spent, before = self._spent() - before, self._spent()
        self.beside.append(waited)
        async with self.bystander() as waited:
            await asyncio.sleep(seconds)
        self.alone.append(waited)
        chats = (self._spent() - before) / len(self.alone[-1]) * len(self.beside[-1])
        self.spent.append((spent - chats) / pages)

    async def read(self, made: Sequence[bytes]) -> None:
        """Read the files beside a bystander, and store nothing."""
        async with self.bystander() as waited:
            for number, content in enumerate(made):
                await Reader().read(f"{number}.pdf", content)
        self.reading.append(waited)

    @asynccontextmanager
    async def bystander(self) -> AsyncGenerator[list[Spent]]:
        """Chats of somebody else, at a pace; how long each took."""
        waited: list[Spent] = []

        async def chat() -> None:
            start, before = time.perf_counter(), loop_seconds(self.process.pid)
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(request(CHAT, "hello").replace(b"Host:", b"Connection: close\r\nHost:"))
            answer = await reader.read()
            writer.close()
            if b"[DONE]" not in answer:
                raise RuntimeError(f"no answer: {answer[-200:]!r}")
            waited.append(Spent(time.perf_counter() - start, loop_seconds(self.process.pid) - before))

        async def ask() -> None:
            while not over.is_set():
                await chat()
                await asyncio.sleep(_PAUSE)

        over = asyncio.Event()
        async with asyncio.TaskGroup() as asking:
            for _ in range(_BYSTANDERS):
                asking.create_task(ask())
            try:
                yield waited
            finally:
                over.set()

    def _memory(self) -> int:
        return self.process.memory_info().rss

    def _spent(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system + times.children_user + times.children_system


def _p99(waited: Sequence[Spent], at: int) -> float:
    """On the clock, or (1) of the processor."""
    return sorted(each[at] for each in waited)[len(waited) * 99 // 100]


def _range(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


async def measure(postgres: Postgres | None, rounds: int, pages: int = PAGES, files: int = FILES) -> Section:
    made = documents(pages, files)
    section = Section(
        "Indexing",
        f"{pages:,} pages of 250 words in {files} PDFs, attached to a new store of `drsai serve`, without an\n"
        "embedding model, and read alone (`Reader.read`, a file after the other, each in a process of its own), in\n"
        f"turns. {_BYSTANDERS} others chat with an instant model meanwhile, and as long afterwards, when nothing is\n"
        "indexed; both after a second of chats. *CPU*: processor time a page, of the server and what reads, without\n"
        "that of the chats; in brackets that of reading alone. *beside reading*: p99 while files are read alone, and\n"
        "nothing is indexed, which is what sharing the processors costs. ÷ *CPU* of a chat: by the processor time\n"
        "that the server's event loop has had from question to answer, which other programs change little. Medians\n"
        f"of {rounds} rounds.",
        (
            "database",
            "pages/s",
            "alone",
            "÷",
            "CPU ms a page",
            "grows by, MB",
            "p99 of a chat, ms",
            "alone, ms",
            "beside reading, ms",
            "÷",
            "÷ CPU",
        ),
    )
    for name, fresh in [("SQLite", sqlite), *([] if postgres is None else [("PostgreSQL", postgres.database)])]:
        arguments = ("-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url")
        with fresh() as url, server(*arguments, url) as at:
            found, reading, spent = _Server(*at), list[float](), list[float]()
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{found.port}", timeout=60) as client:
                await found.upload(client, made)
                async with found.bystander():
                    await asyncio.sleep(_WARM)
                for _ in range(rounds):
                    before, start = psutil.Process().cpu_times(), time.perf_counter()
                    for number, content in enumerate(made):
                        await Reader().read(f"{number}.pdf", content)
                    reading.append(pages / (time.perf_counter() - start))
                    after = psutil.Process().cpu_times()
                    spent.append(sum(map(float.__sub__, map(float, after[:4]), map(float, before[:4]))) / pages)
                    await found.index(client, pages)
                    await found.read(made)
        _tell(section, name, found, reading, spent)
    return section


def _tell(section: Section, name: str, found: _Server, reading: list[float], spent: list[float]) -> None:
    rates = [mine / alone for mine, alone in zip(found.rates, reading, strict=True)]
    waits, cpu = ([_p99(a, at) / _p99(b, at) for a, b in zip(found.beside, found.alone, strict=True)] for at in (0, 1))
    growth = max(found.growth)
    kinds = (found.beside, found.alone, found.reading)
    times = (f"{median(_p99(of, 0) for of in each) * 1000:.0f}" for each in kinds)
    floor = _range([_p99(a, 0) / _p99(b, 0) for a, b in zip(found.reading, found.alone, strict=True)])
    pace = (f"{median(found.rates):.0f}", f"{median(reading):.0f}", _range(rates))
    page = f"{median(found.spent) * 1000:.1f} ({median(spent) * 1000:.1f})"
    section.rows.append((name, *pace, page, f"{growth / _MB:.0f}", *times, _range(waits), _range(cpu)))
    shown = f"{_range(rates)}, CPU {median(b / a for a, b in zip(found.spent, spent, strict=True)):.2f}"
    section.at_least(f"pages indexed in a second ÷ read alone, {name}", 0.5, median(rates), shown)
    section.at_most(f"what a server grows by ÷ 64 MiB, {name}", 1, growth / BOUND)
    shown = f"{_range(waits)}, CPU {median(cpu):.2f}"
    section.at_most(f"p99 of others' chats while it indexes ÷ without, {name}", 2, median(waits), shown)
    section.reported(f"p99 of others' chats while the files are only read ÷ without, {name}", floor)
