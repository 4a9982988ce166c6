"""What others wait for in one process while many answers stream from a model over HTTP: each part in a process of its
own."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import orjson
from websockets.asyncio.client import connect

from benchmarks.databases import Postgres, sqlite
from benchmarks.load import request
from benchmarks.measure import Spent
from benchmarks.report import Section
from benchmarks.serving import CHAT, server

COUNTS = (100, 400, 1000)
_PIECES = 80
"""Of an answer of the flood, at least. Fewer answers have more, so that as many bystanders wait beside them: the worst
of many waits is worse than that of few."""
_MORE = 5
"""Times as many pieces have those of the fewest answers."""
_PER_SECOND = 20
_PAUSE = 0.5
"""Seconds between bystanders."""
_FEW = 5
"""Pieces of a bystander's answer, which come at once."""
_FLOOD = "flood"
_TEXT = b'"content":"w'
_WAYS = ("first text", "whole chat", "task over a WebSocket", "/healthz", "list of threads")


def _event(delta: dict[str, str], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    data = b"data: %b\n\n" % orjson.dumps(chunk)
    return b"%x\r\n%b\r\n" % (len(data), data)


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_PIECE = _event({"content": "word word "})
_END = _event({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class _Endpoint:
    """Streams an answer at a pace to each chat of the flood, and one that comes at once to all others."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces
        self._left: dict[asyncio.StreamWriter, int] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                body = await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
                writer.write(_HEAD)
                if _FLOOD.encode() in body:
                    self._left[writer] = self._pieces
                else:
                    writer.write(_PIECE * _FEW + _END)
        self._left.pop(writer, None)
        writer.close()

    async def pace(self) -> None:
        at = time.monotonic()
        while True:
            at = max(at + 1 / _PER_SECOND, time.monotonic())
            for writer, left in [*self._left.items()]:
                writer.write(_PIECE if left else _END)
                self._left[writer] = left - 1
                if not left:
                    del self._left[writer]
            await asyncio.sleep(at - time.monotonic())


async def _endpoint(pieces: int) -> None:
    endpoint = _Endpoint(pieces)
    listening = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0, backlog=4096, limit=1 << 22)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await endpoint.pace()


def _chat(text: str, user: str) -> bytes:
    head, _, body = request(CHAT, text, "answering").partition(b"\r\n\r\n")
    body = body.replace(b'"user":"bench"', b'"user":"%b"' % user.encode())
    head = head.rpartition(b" ")[0] + b" %d" % len(body)
    return head + b"\r\nConnection: close\r\n\r\n" + body


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


async def _asked(
    port: int, data: bytes, mark: bytes | None = None, begun: Callable[[float], None] | None = None
) -> tuple[float, float]:
    """Seconds until the mark and to the end of the answer."""
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    first, read = None, b""
    while part := await reader.read(1 << 16):
        read = read[-200:] + part
        if first is None and mark is not None and mark in read:
            first = time.perf_counter() - start
            if begun is not None:
                begun(first)
    writer.close()
    whole = time.perf_counter() - start
    if mark is not None and (first is None or b"[DONE]" not in read):
        raise RuntimeError(f"no answer: {read!r}")
    return first or whole, whole


async def _flood(port: int, count: int, users: int) -> None:
    """The clients of the flood. Tells when they begin, when all have had their first text, and when all have ended."""
    firsts: list[float] = []
    start = time.perf_counter()

    def begun(seconds: float) -> None:
        firsts.append(seconds)
        if len(firsts) == count:
            print(time.perf_counter() - start, flush=True)

    print(0.0, flush=True)
    chats = [_chat(f"{_FLOOD} {number}", f"{_FLOOD}-{number % users}") for number in range(count)]
    await asyncio.gather(*(_asked(port, chat, _TEXT, begun) for chat in chats))
    print(time.perf_counter() - start, flush=True)


@dataclass(slots=True)
class Waits:
    """Seconds that bystanders waited, by what for, while the others start and while they stream."""

    starting: dict[str, list[Spent]] = field(default_factory=lambda: {way: [] for way in _WAYS})
    streaming: dict[str, list[Spent]] = field(default_factory=lambda: {way: [] for way in _WAYS})
    began: float = 0.0
    """Seconds after which all of the flood had their first text."""
    ended: float = 0.0
    spent: float = 0.0
    """Seconds of the server's processor."""


@asynccontextmanager
async def _process(*arguments: object) -> AsyncGenerator[asyncio.StreamReader]:
    command = (sys.executable, "-m", "benchmarks.beside", *map(str, arguments))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def cell(url: str, count: int, users: int = 1, pieces: int = _PIECES) -> Waits:
    """What bystanders wait for beside so many streams of so many users."""
    arguments = ("-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url", url)
    found = Waits()
    async with _process("endpoint", pieces) as told:
        address = f"http://127.0.0.1:{int(await told.readline())}/v1"
        limits = {"DRSAI_MAX_RUNS": "2000", "DRSAI_MAX_RUNS_PER_USER": "0"}
        with server(*arguments, OPENAI_BASE_URL=address, **limits) as (port, process):
            for _ in range(5):
                await _asked(port, _chat("hello", "bystander"), _TEXT)
            async with _process("flood", port, count, users) as told:
                await _watch(port, process.pid, told, found)
    return found


def loop_seconds(pid: int) -> float:
    """Seconds that the server's event loop has had a processor. While one waits, other programs take none of them."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def _watch(port: int, pid: int, told: asyncio.StreamReader, found: Waits) -> None:
    """Ask at a pace, whatever becomes of what was asked before."""

    async def chat(waits: dict[str, list[Spent]]) -> None:
        before = loop_seconds(pid)
        spent: list[float] = []
        first, whole = await _asked(port, _chat("hello", "bystander"), _TEXT, lambda _: spent.append(loop_seconds(pid)))
        waits["first text"].append(Spent(first, spent[0] - before))
        waits["whole chat"].append(Spent(whole, loop_seconds(pid) - before))

    async def get(waits: dict[str, list[Spent]], way: str, path: str) -> None:
        before = loop_seconds(pid)
        waited = (await _asked(port, _get(path)))[1]
        waits[way].append(Spent(waited, loop_seconds(pid) - before))

    async def task(waits: dict[str, list[Spent]]) -> None:
        start, before = time.perf_counter(), loop_seconds(pid)
        async with connect(f"ws://127.0.0.1:{port}/api/v1/agent/ws?user=bystander", open_timeout=None) as socket:
            await socket.send('{"type": "execute", "mode": "simple", "task": "hello"}')
            async for told in socket:
                if orjson.loads(told)["type"] == "final":
                    break
            waits["task over a WebSocket"].append(Spent(time.perf_counter() - start, loop_seconds(pid) - before))

    async def ask() -> None:
        async with asyncio.TaskGroup() as asking:
            while True:
                await asyncio.sleep(_PAUSE)
                waits = found.streaming if found.began else found.starting
                asking.create_task(chat(waits))
                asking.create_task(task(waits))
                asking.create_task(get(waits, "/healthz", "/healthz"))
                asking.create_task(get(waits, "list of threads", "/v1/threads?user=bystander"))
                if found.ended:
                    return

    await told.readline()
    found.spent = -loop_seconds(pid)
    asking = asyncio.create_task(ask())
    found.began = float(await told.readline())
    found.ended = float(await told.readline())
    found.spent += loop_seconds(pid)
    await asking


async def measure(
    postgres: Postgres | None, rounds: int, counts: tuple[int, ...] = COUNTS, least: int = _PIECES
) -> Section:
    section = Section(
        "Beside many streams",
        f"One `drsai serve`, and one user's chats at once, each answered by a model over HTTP in {least} pieces\n"
        f"or more, {_PER_SECOND} a second: what another user waits for, of which the model takes nothing, while they\n"
        f"start and while they stream; beside more of them ÷ beside {counts[0]}. Server, endpoint, flood and\n"
        "bystander each have a process. *CPU*: by the processor time that the server has had meanwhile, which other\n"
        "programs change little. "
        f"Medians of {rounds} rounds.",
        ("database", "streams", "what", "while they", "median, ms", "÷", "CPU", "worst, ms", "÷", "CPU"),
    )
    for name, fresh in [("SQLite", sqlite), *([] if postgres is None else [("PostgreSQL", postgres.database)])]:
        cells: dict[int, list[Waits]] = {count: [] for count in counts}
        for _ in range(rounds):
            for count in counts:
                with fresh() as url:
                    pieces = max(least, least * _MORE * counts[0] // count)
                    cells[count].append(await cell(url, count, pieces=pieces))
        for count in counts[1:]:
            _compare(section, (name, f"{count:,}"), cells[counts[0]], cells[count])
    return section


def _compare(section: Section, of: tuple[str, str], few: list[Waits], many: list[Waits]) -> None:
    for phase in ("starting", "streaming"):
        for way in _WAYS:
            waits = [(getattr(a, phase)[way], getattr(b, phase)[way]) for a, b in zip(few, many, strict=True)]
            pairs = [tuple([*zip(*waited, strict=True)] for waited in both) for both in waits if all(both)]
            if not pairs:
                continue
            row = [*of, way, {"starting": "start", "streaming": "stream"}[phase]]
            clock = cpu = 0.0
            for of_all in (median, max):
                clock, cpu = (median(of_all(b[at]) / of_all(a[at]) for a, b in pairs) for at in (0, 1))
                shown = median(of_all(many[0]) for _, many in pairs) * 1000
                row += [f"{shown:,.0f}", f"{clock:.2f}", f"{cpu:.2f}"]
            section.rows.append(row)
            what = f"{way} while {of[1]} {row[3]}, worst ÷ beside few, {of[0]}"
            section.at_most(what, 2, clock, f"{clock:.2f}, CPU {cpu:.2f}")


if __name__ == "__main__":
    if sys.argv[1] == "endpoint":
        asyncio.run(_endpoint(int(sys.argv[2])))
    else:
        asyncio.run(_flood(*map(int, sys.argv[2:])))
