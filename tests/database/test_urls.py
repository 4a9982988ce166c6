"""URLs of PostgreSQL with several hosts: in each spelling, for everything that connects."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from drsai_backend.database import Database, migrations
from drsai_backend.database.urls import connect_args, parse_url
from drsai_backend.errors import ConfigurationError
from drsai_backend.jobs import make_queue
from drsai_backend.jobs._queue import JobQueue
from tests.database.functions import add, names
from tests.jobs.looker import Looker, until
from tests.support.commands import Commands, clean_environment
from tests.support.relay import Relay

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://u:p@a:1,b:2/d", "a,b", "1,2"),
        ("postgresql://u:p@a,b:2/d", "a,b", ",2"),
        ("postgresql://u:p@a,b/d", "a,b", None),
        ("postgresql+psycopg://a:1,[::1]:2/d?connect_timeout=9", "a,::1", "1,2"),
        ("postgresql://u:p@/d?host=a,b&port=1,2", "a,b", "1,2"),
        ("postgresql://u:p@/d?host=a,b&port=1", "a,b", "1"),
        ("postgresql://u:p@/d?host=a:1&host=b:2", "a,b", "1,2"),
        ("postgresql://u:p@/d?host=a&host=b&port=1&port=2", "a,b", "1,2"),
        ("postgresql://u:p@/d?host=/run/pg", "/run/pg", None),
        ("postgresql://u:p@localhost:7/d?host=/run/pg", "/run/pg", 7),
        ("postgresql://u:p@[::1]:7/d", "::1", 7),
        ("postgresql://u:p%40,x/y@a:1/d", "a", 1),
        ("postgresql://a/d?options=-cx%3Dy@z,z", "a", None),
        ("postgres:///d", None, None),
    ],
)
def test_hosts_in_each_spelling(url: str, host: str | None, port: str | int | None) -> None:
    args = connect_args(parse_url(url), "x")
    assert (args.get("host"), args.get("port") and str(args["port"])) == (host, port and str(port))
    assert args["dbname"] == "d"
    if "u:p" in url:
        assert (args["user"], args["password"]) == ("u", "p@,x/y" if "%40" in url else "p")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://u:hunter2@a:1,host:2:3/d", "a host that is none"),
        ("postgresql://u:hunter2@a:port/d", "a host that is none"),
        ("postgresql://u:hunter2@a,/d", "a host that is none"),
        ("postgresql://u:hunter2@a:0,b/d", "no number from 1 to 65535"),
        ("postgresql://u:hunter2@/d?host=a,b&port=1,x", "no number from 1 to 65535"),
        ("postgresql://u:hunter2@/d?host=a,b,c&port=1,2", "3 hosts and 2 ports"),
        ("postgresql://u:hunter2@/d?host=a:1&host=b:2&port=3", "write them once"),
        ("mysql://u:hunter2@h/d", "is of 'mysql'"),
        ("nonsense", "is none"),
    ],
)
def test_what_is_wrong_is_said(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        Database(url)
    assert "DRSAI_DATABASE_URL" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="DRSAI_QUEUE_URL"):
        make_queue("postgresql://h/d", Looker(), queue_url=url)


def test_a_queue_is_on_the_same_database() -> None:
    for urls in (("sqlite://", "postgresql://h/d"), ("postgresql://h/d", "sqlite://")):
        with pytest.raises(ConfigurationError, match="DRSAI_QUEUE_URL must be of the same PostgreSQL"):
            make_queue(urls[0], Looker(), queue_url=urls[1])


@pytest.fixture
def relay(migrated_postgres: str) -> Iterator[Relay]:
    with Relay(migrated_postgres) as relay:
        yield relay


@pytest.fixture
def nobody() -> Iterator[str]:
    """A host at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("spelling", ["{0},{1}", "?host={0}&host={1}", "?host={0},{1}", "?host={2},{4}&port={3},{5}"])
async def test_whatever_connects_finds_the_host_that_is_there(relay: Relay, nobody: str, spelling: str) -> None:
    written = spelling.format(nobody, relay.host, *nobody.split(":"), *relay.host.split(":"))
    url = relay.url("", written) if "?" in written else relay.url(written)
    assert migrations.current(url) == migrations.head()
    async with Database(url) as database:
        assert await database.write(add("a")) == "a"
        apart = database.apart()  # The heartbeat's.
        assert apart.read_sync(names) == ["a"]
        apart.close_sync()
        assert sa.make_url(database.url_safe).query["host"] == "127.0.0.1,127.0.0.1"
    looker = Looker()
    queue = JobQueue(url, looker)
    await queue.open()
    assert await queue.wake(7)
    await until(lambda: looker.looked == [7])
    await queue.close()


def test_commands_connect_so_too(relay: Relay, nobody: str, commands: Commands, tmp_path: Path) -> None:
    where = {"DRSAI_DATABASE_URL": relay.url(f"{nobody},{relay.host}")}
    assert migrations.head() in commands.run("db", "show", cwd=tmp_path, env=where).stdout
    alembic = [str(Path(sys.executable).with_name("alembic")), "current"]
    ran = subprocess.run(alembic, cwd=ROOT, env=clean_environment(**where), capture_output=True, text=True, check=True)
    assert migrations.head() in ran.stdout
