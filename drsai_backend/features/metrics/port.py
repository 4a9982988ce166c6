"""The port is metrics' own address (`DRSAI_METRICS_PORT`), for networks that only operators reach: nobody needs a key.

All processes of a server listen there, and whichever is reached answers for all.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final, TypeAlias

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError, DrSaiError

Text: TypeAlias = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Returns what is answered, and its content type, by what the request accepts."""
_PREFIX: Final = "drsai-metrics-"
_YOUNG: Final = 60.0
"""Seconds for which the folder of a server may have no lock, as it was just made."""
_SECONDS: Final = 10.0
"""How long a request and its answer may take."""


@contextmanager
def shared(settings: Settings) -> Generator[Settings]:
    """Count, unless that is off, in a folder that all processes of a server share, and which is gone after it.

    Raises:
        ConfigurationError: the port of metrics cannot be had, or their folder is none.
    """
    folder = settings.metrics_folder
    if settings.metrics is False:
        yield settings
        return
    if settings.metrics_port is not None:
        _bind(settings, shared=False).close()  # So it is said once, and at once; and of another server's port, too.
    if folder is not None and not folder.is_dir():
        raise ConfigurationError(f"DRSAI_METRICS_FOLDER: {folder} is no folder: make one")
    _remove_old()
    with TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as made, _kept(made):
        yield settings.model_copy(update={"metrics": True, "metrics_folder": folder or Path(made)})


def _remove_old() -> None:
    """Remove the folders of servers that were killed."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # Another user's, or its server lives.
            if time.time() - folder.stat().st_mtime > _YOUNG:
                opened = os.open(folder, os.O_RDONLY)
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
                finally:
                    os.close(opened)


@contextmanager
def _kept(folder: str) -> Generator[None]:
    """Keep those who clean up temporary folders (`_remove_old`, systemd-tmpfiles) from one whose files are old."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(opened)


async def listen(settings: Settings, text: Text) -> asyncio.Server:
    """Answer at the port. Raises ConfigurationError: it cannot be had."""
    bound = _bind(settings, shared=settings.metrics_folder is not None)
    return await asyncio.start_server(partial(_serve, settings, text), sock=bound, limit=16 * 1024)


def _bind(settings: Settings, *, shared: bool) -> socket.socket:
    """Take the port. `shared`: with those who do so, too."""
    host, port = settings.metrics_host, settings.metrics_port
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            made = stack.enter_context(socket.socket(family, kind))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared and hasattr(socket, "SO_REUSEPORT"):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.bind(where)
            stack.pop_all()
    except OSError as error:
        name = "DRSAI_METRICS_PORT" if error.errno == errno.EADDRINUSE else "DRSAI_METRICS_HOST, DRSAI_METRICS_PORT"
        raise ConfigurationError(f"{name}: {host}, port {port}, cannot be had: {error.strerror}") from None
    return made


async def _serve(settings: Settings, text: Text, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer), suppress(OSError, EOFError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_SECONDS):
            status, body, kind = await _answer(settings, text, await reader.readuntil(b"\r\n\r\n"))
            head = (
                f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()


async def _answer(settings: Settings, text: Text, request: bytes) -> tuple[str, bytes, str]:
    from drsai_backend.api.http.middleware import Hosts

    first, *lines = request.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    is_local = settings.metrics_host in ("127.0.0.1", "::1", "localhost")
    # A page of a browser on this machine may have made a name point here.
    if is_local and not Hosts(settings.allowed_hosts).allow(headers.get("host", "")):
        return "403 Forbidden", b"this host is not served here\n", "text/plain"
    if first.split(" ")[:2] != ["GET", "/metrics"]:
        return "404 Not Found", b"there is GET /metrics\n", "text/plain"
    try:
        return "200 OK", *await text(headers.get("accept", ""))
    except DrSaiError as error:
        return "503 Service Unavailable", f"{error.message}\n".encode(), "text/plain"
