"""Real MCP servers: processes over stdio, and one over HTTP for a module."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from drsai_backend.tools.mcp import McpHttp, McpStdio
from drsai_backend.tools.mcp.host import pool

SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"


def stdio(**more: Any) -> McpStdio:
    return McpStdio(**{"name": "n", "command": sys.executable, "args": (str(SERVER),), **more})


def processes() -> list[psutil.Process]:
    """The server processes of this one."""
    return [each for each in psutil.Process().children(recursive=True) if each.is_running() and _is_server(each)]


def _is_server(process: psutil.Process) -> bool:
    try:
        return str(SERVER) in process.cmdline() and "http" not in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    """Nothing is left of a test."""
    yield
    await pool().close()
    assert processes() == []
    assert pool().count == 0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where a server listens over HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SERVER), "http", str(number)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", number)) == 0:
                    break
            time.sleep(0.05)
        yield number
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def http(port: int) -> McpHttp:
    return McpHttp(name="web", url=f"http://127.0.0.1:{port}/mcp")  # pyright: ignore[reportArgumentType]


async def soon(true: Any) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the system tells
            await asyncio.sleep(0.02)


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    return number


def started(port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(SERVER), "http", str(port)], stderr=subprocess.DEVNULL)


async def serving(port: int) -> subprocess.Popen[bytes]:
    """A server that listens."""
    process = started(port)

    def listens() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    await soon(listens)
    return process
