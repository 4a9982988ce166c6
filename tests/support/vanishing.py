"""A host that vanishes: a network namespace of its own, to which packets are dropped from one moment to the next."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

ROOT = Path(__file__).parents[2]
_NOBODY = "02:00:00:00:00:99"
_PORT = 5432


def can_vanish() -> bool:
    """Whether this machine lets us make such hosts."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--net", "ip", "link", "add", "name", "a", "type", "veth", "peer", "name", "b"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


class Host:
    """Passes on what comes to a PostgreSQL server's socket, which namespaces do not part."""

    def __init__(self, link: str, there: str) -> None:
        self.address = f"{there}:{_PORT}"
        self._link = link
        self._there = there

    def vanish(self) -> None:
        """No packet arrives there any more, and none says so."""
        _ip("neigh", "replace", self._there, "lladdr", _NOBODY, "nud", "permanent", "dev", self._link)


@contextmanager
def vanishing(url: str) -> Iterator[Host]:
    """A host that leads to the server of `url`."""
    folder = str(sa.make_url(url).query["host"])
    # Of this process alone: others test at the same time.
    pid = os.getpid()
    link, net = f"drsai{pid}"[:13], f"10.{200 + (pid >> 8) % 50}.{pid % 256}"
    program = [sys.executable, "-m", "tests.support.vanishing", folder, f"{net}.2"]
    # The namespace is that of the process; both go together.
    with subprocess.Popen(
        ["unshare", "--net", *program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as there:
        try:
            assert there.stdout is not None
            assert there.stdin is not None
            there.stdout.readline()
            _ip("link", "add", "name", link, "type", "veth", "peer", "name", f"{link}2", "netns", str(there.pid))
            _ip("addr", "add", f"{net}.1/30", "dev", link)
            _ip("link", "set", link, "up")
            there.stdin.write(f"{link}2\n".encode())
            there.stdin.flush()
            assert there.stdout.readline() == b"listening\n"
            yield Host(link, f"{net}.2")
        finally:
            there.kill()
            with suppress(subprocess.CalledProcessError):
                _ip("link", "del", link)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _serve(folder: str, address: str) -> None:
    import asyncio

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    async def main() -> None:
        server = await asyncio.start_server(passed_on, address, _PORT)
        print("listening", flush=True)
        await server.serve_forever()

    print("here", flush=True)
    link = sys.stdin.readline().strip()
    _ip("addr", "add", f"{address}/30", "dev", link)
    _ip("link", "set", link, "up")
    asyncio.run(main())


if __name__ == "__main__":
    _serve(*sys.argv[1:])
