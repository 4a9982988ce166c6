"""PgBouncer and HAProxy, as Debian has them, in front of a PostgreSQL server's socket."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

_PGBOUNCER = """
[databases]
* = host={folder} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
# A server that is asked for more than this connection: what PgBouncer cannot keep, it must not refuse.
ignore_startup_parameters = options
user = {user}
"""

_HAPROXY = """
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
listen postgres
    bind 127.0.0.1:{port}
    option pgsql-check user postgres
    default-server inter 200ms fall 1 rise 1 on-marked-down shutdown-sessions
{servers}
"""


@contextmanager
def pgbouncer(url: str) -> Iterator[str]:
    """The URL of a database through a PgBouncer in transaction mode, of any release: without prepared statements."""
    made = sa.make_url(url)
    folder = str(made.query["host"])
    # It does not run as root, and has to get at the socket.
    settings = {"folder": folder, "user": Path(folder).owner() if os.getuid() == 0 else ""}
    with _running([str(PGBOUNCER)], "pgbouncer.ini", _PGBOUNCER, **settings) as port:
        yield f"postgresql://postgres@127.0.0.1:{port}/{made.database}?prepare_threshold=none"


@contextmanager
def haproxy(*urls: str) -> Iterator[str]:
    """The URL of the first of these databases whose server can be reached, through HAProxy."""
    made = [sa.make_url(url) for url in urls]
    lines = [f"    server s{number} unix@{url.query['host']}/.s.PGSQL.5432 check" for number, url in enumerate(made)]
    servers = "\n".join([*lines[:1], *(f"{line} backup" for line in lines[1:])])
    with _running([str(HAPROXY), "-f"], "haproxy.cfg", _HAPROXY, servers=servers) as port:
        yield f"postgresql://postgres@127.0.0.1:{port}/{made[0].database}"


def _running(program: list[str], name: str, text: str, **values: object) -> AbstractContextManager[int]:
    return running(program, name, lambda port: text.format(port=port, **values))


@contextmanager
def running(program: list[str], name: str, text: Callable[[int], str]) -> Iterator[int]:
    """The port on which a program listens, with the configuration that there is for it, in a file of that name."""
    with tempfile.TemporaryDirectory(prefix="drsai-pooler-") as folder:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        Path(folder).chmod(0o755)
        written = Path(folder) / name
        written.write_text(text(port))
        with (
            (Path(folder) / "log").open("wb") as log,
            subprocess.Popen([*program, str(written)], stdout=log, stderr=log) as process,
        ):
            try:
                _until_it_listens(port, process, Path(folder) / "log")
                yield port
            finally:
                process.kill()


def _until_it_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise AssertionError(f"it does not listen: {log.read_text()}")
