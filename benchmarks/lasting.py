"""A server that lasts: what it takes at rest, and what more after a quarter of an hour of long threads."""

from __future__ import annotations

import asyncio
import time

import orjson

from benchmarks.databases import sqlite
from benchmarks.load import TIMEOUT
from benchmarks.report import Section
from benchmarks.serving import CHAT, server
from benchmarks.teams import Texts

CLIENTS = 12
CHATS = 4200
SECONDS = 900.0
WARM = 64 * 2**20
"""Bytes that warm threads may take: the setting's default."""
_MB = 1_000_000


def _request(thread: str, text: str) -> bytes:
    asked = {"model": "pair", "stream": True, "thread_id": thread, "messages": [{"role": "user", "content": text}]}
    body = orjson.dumps(asked)
    lines = (f"POST {CHAT} HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    return "\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode() + body


async def _chat(port: int, number: int, chats: int, seconds: float) -> int:
    """One client's thread, its chats spread over the time; how many were answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    texts, start, answered = Texts(), time.monotonic(), 0
    for chat in range(chats):
        await asyncio.sleep(start + seconds * chat / chats - time.monotonic())
        async with asyncio.timeout(TIMEOUT):
            writer.write(_request(f"long-{number}", texts.next()))
            answered += b"data: [DONE]" in await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
    return answered


async def measure(chats: int = CHATS, seconds: float = SECONDS) -> Section:
    section = Section(
        "Memory of a server",
        f"`drsai serve` on SQLite: {CLIENTS} clients with a thread each, {chats:,} chats in {seconds / 60:g} minutes.",
        ("when", "MB"),
    )
    with sqlite() as url:
        arguments = ("-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url", url)
        with server(*arguments) as (port, process):
            await asyncio.sleep(2)
            rest = process.memory_info().rss
            section.rows.append(("at rest", f"{rest / _MB:.0f}"))
            first = await _chat(port, CLIENTS, 5, 1)
            begun = process.memory_info().rss
            found = await asyncio.gather(*(_chat(port, number, chats // CLIENTS, seconds) for number in range(CLIENTS)))
            end = process.memory_info().rss
    section.rows += [("after five chats", f"{begun / _MB:.0f}"), (f"after {chats:,}", f"{end / _MB:.0f}")]
    section.at_least("chats that were answered", 5 + chats // CLIENTS * CLIENTS, first + sum(found))
    section.at_most("memory of a server at rest", 140, rest / _MB, unit=" MB")
    section.at_most(f"what {chats:,} chats add ÷ what may be warm", 1.5, (end - begun) / WARM)
    return section
