"""Databases for tests: every storage test runs on SQLite and on a real PostgreSQL, through the real migrations."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from drsai_backend.database import DatabaseManager, migrations
from tests.support import postgres
from tests.support.commands import Commands

SECRET = SecretStr("the tests' secret")


def pytest_addoption(parser: pytest.Parser) -> None:
    chaos = parser.getgroup("chaos", "the short part of the chaos suite (tests/chaos)")
    chaos.addoption("--chaos-kills", type=int, default=6, help="SIGKILLs per database")
    chaos.addoption("--chaos-seconds", type=float, default=3, help="how long there is load")
    chaos.addoption("--chaos-seed", type=int, default=1)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: tests wait for processes, sockets and clocks for much of their time."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL database whose owner may create others."""
    if url := os.environ.get("DRSAI_TEST_DATABASE_URL"):
        yield url
        return
    with postgres.own_server() as server:
        url = server.get_uri()
        postgres.query(url, "ALTER SYSTEM SET fsync = off")
        postgres.query(url, "SELECT pg_reload_conf()")
        yield url


@pytest.fixture(scope="session")
def postgres_databases(postgres_url: str) -> Iterator[postgres.Databases]:
    databases = postgres.Databases(postgres_url)
    yield databases
    databases.close()


@pytest.fixture
def empty_postgres(postgres_databases: postgres.Databases) -> Iterator[str]:
    """The URL of a PostgreSQL database without tables."""
    with postgres_databases.empty() as url:
        yield url


@pytest.fixture
def migrated_postgres(postgres_databases: postgres.Databases) -> Iterator[str]:
    """The URL of a migrated PostgreSQL database with nothing in it."""
    with postgres_databases.migrated() as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a migrated SQLite file."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrations.upgrade(f"sqlite:///{path}")
    return path.read_bytes()


@pytest.fixture
def migrated_sqlite(sqlite_template: bytes, tmp_path: Path) -> str:
    """The URL of a migrated SQLite file with nothing in it."""
    path = tmp_path / "drsai.db"
    path.write_bytes(sqlite_template)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a migrated database with nothing in it; the test runs once on SQLite and once on PostgreSQL."""
    url: str = request.getfixturevalue("migrated_sqlite" if request.param == "sqlite" else "migrated_postgres")
    return url


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[DatabaseManager]:
    """A manager of a fresh database. It has no state store; see `tests/state` for threads with one."""
    async with DatabaseManager(database_url, secret_key=SECRET) as manager:
        yield manager


@pytest.fixture(scope="session")
def all_commands() -> Iterator[Commands]:
    with Commands() as commands:
        yield commands


@pytest.fixture
def commands(all_commands: Commands) -> Iterator[Commands]:
    """The command line as a user has it. What a test has started and not ended is killed at its end."""
    yield all_commands
    all_commands.kill()
