"""Databases for tests: every storage test runs on SQLite and on a real PostgreSQL, through the real migrations."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import certifi
import hypothesis
import pytest
from pydantic import SecretStr

from drsai_backend.database import DatabaseManager, migrations
from tests.support import postgres, quick_apps
from tests.support.commands import Commands

gc.disable()  # until all is imported
pytest_plugins = ["tests.support.tiers"]
SECRET = SecretStr("the tests' secret")

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("drsai", deadline=None)
hypothesis.settings.load_profile("drsai")


def pytest_addoption(parser: pytest.Parser) -> None:
    chaos = parser.getgroup("chaos", "the short part of the chaos suite (tests/chaos)")
    chaos.addoption("--chaos-kills", type=int, default=4, help="SIGKILLs per database")
    chaos.addoption("--chaos-seconds", type=float, default=2, help="how long there is load")
    chaos.addoption("--chaos-seed", type=int, default=1)
    parser.addoption("--write-golden", action="store_true", help="write the files of tests/golden anew")
    parser.addoption("--write-pictures", action="store_true", help="take the pictures of tests/console anew")


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are processors: tests wait for processes, sockets and clocks for much of their time."""
    return (os.cpu_count() or 1) + 2


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL database whose owner may create others."""
    if url := os.environ.get("DRSAI_TEST_DATABASE_URL"):
        yield url
        return
    with postgres.own_server() as server:
        url = server.get_uri()
        for setting in ("fsync", "full_page_writes", "synchronous_commit", "autovacuum"):  # Its data lives for minutes.
            postgres.query(url, f"ALTER SYSTEM SET {setting} = off")
        postgres.query(url, "SELECT pg_reload_conf()")
        yield url


@pytest.fixture
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """The commands of the release before (`tests.chaos.rollout`)."""
    from tests.chaos.rollout import NoRelease, release_before

    try:
        with release_before(tmp_path_factory.mktemp("before")) as commands:
            yield commands
    except NoRelease as error:
        if os.environ.get("DRSAI_TEST_RELEASE") == "required":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A PostgreSQL server of the test file's own, whose settings may be changed."""
    with postgres.own_server() as server:
        yield server


@pytest.fixture
def own(server: Any) -> Iterator[str]:
    """A migrated database of that server."""
    databases = postgres.Databases(server.get_uri())
    with databases.empty() as url:
        migrations.upgrade(url)
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


class Template(bytes):
    """Has a short `repr`: hypothesis shows the arguments of a test that fails."""

    def __repr__(self) -> str:
        return "<a migrated SQLite file>"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a migrated SQLite file."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrations.upgrade(f"sqlite:///{path}")
    return Template(path.read_bytes())


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


def pytest_configure() -> None:
    """One authority is trusted, since to read all of certifi's takes each of thousands of clients 20 ms."""
    first, end, _ = Path(certifi.where()).read_text(encoding="ascii").partition("-----END CERTIFICATE-----")
    path = Path(tempfile.mkdtemp(prefix="drsai-tests-")) / "authority.pem"
    path.write_text(first + end + "\n", encoding="ascii")
    os.environ["SSL_CERT_FILE"] = str(path)


def pytest_unconfigure() -> None:
    shutil.rmtree(Path(os.environ["SSL_CERT_FILE"]).parent, ignore_errors=True)


def pytest_collection_finish() -> None:
    """What is imported stays: the garbage collector need not look at it again and again."""
    quick_apps.install()
    gc.collect()
    gc.freeze()
    gc.enable()
