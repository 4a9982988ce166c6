"""PostgreSQL servers that do not let us in, take no writes, or hold what this package cannot use: the error says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import Database, migrations
from drsai_backend.errors import ConfigurationError, DatabaseError, DatabaseUnavailable
from drsai_backend.jobs._queue import JobQueue
from tests.database.functions import add, names
from tests.jobs.looker import Looker, until
from tests.support import postgres
from tests.support.relay import Relay
from tests.support.standby import standby_of


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_an_encoding_that_does_not_hold_every_text(server: Any, encoding: str) -> None:
    url = sa.make_url(server.get_uri()).set(database=encoding.lower()).render_as_string()
    create = f"CREATE DATABASE {encoding} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    postgres.query(server.get_uri(), create)
    for call in (migrations.upgrade, migrations.ensure_schema):
        with pytest.raises(ConfigurationError, match=f"has the encoding {encoding} .*ENCODING 'UTF8'"):
            call(url)


@pytest.mark.parametrize("taken", ["TABLE run (x INT)", "VIEW drsai_threads AS SELECT 1", "SCHEMA drsai_jobs"])
def test_tables_of_others_with_our_names(empty_postgres: str, taken: str) -> None:
    postgres.query(empty_postgres, f"CREATE {taken}")
    with pytest.raises(DatabaseError, match=f'"{taken.split()[1]}" already exists: others use .*a schema'):
        migrations.upgrade(empty_postgres)
    if "SCHEMA" not in taken:
        postgres.query(empty_postgres, "CREATE SCHEMA drsai")
        migrations.upgrade(f"{empty_postgres}&options=-csearch_path%3Ddrsai")


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres, MDY"])
async def test_dates_are_read_whatever_the_server_writes(migrated_postgres: str, style: str) -> None:
    name = sa.make_url(migrated_postgres).database
    postgres.query(migrated_postgres, f"ALTER DATABASE {name} SET DateStyle = '{style}'")
    try:
        async with Database(migrated_postgres) as database:
            found = await database.read(lambda session: session.scalar(sa.text("SELECT now()")))
            assert found.tzinfo is not None
    finally:
        postgres.query(migrated_postgres, f"ALTER DATABASE {name} RESET DateStyle")


@pytest.mark.parametrize(
    ("user", "query", "why"),
    [
        ("few", "", r"no connection left for this process \(max_connections\)"),
        ("nobody", "", "no such user or database"),
        ("locked_out", "", "does not let this user in from here"),
        ("postgres", "?sslmode=require", "has no TLS, which sslmode .* asks for"),
    ],
)
def test_who_is_not_let_in_is_told_why(server: Any, user: str, query: str, why: str) -> None:
    url = server.get_uri()
    if user == "few":
        postgres.query(url, "CREATE ROLE few LOGIN CONNECTION LIMIT 0")
    if user == "locked_out":
        postgres.query(url, "CREATE ROLE locked_out LOGIN")
        rules = Path(postgres.query(url, "SHOW hba_file")[0][0])
        rules.write_text("local all locked_out reject\n" + rules.read_text())
        postgres.query(url, "SELECT pg_reload_conf()")
    with Relay(url) as relay:
        there = relay.url(query=query).replace("postgres@", f"{user}@")
        for call in (migrations.current, Database(there).read_sync):
            with pytest.raises(DatabaseUnavailable, match=why) as caught:
                call(there) if call is migrations.current else call(names)
            assert "127.0.0.1" not in str(caught.value)


async def test_a_server_that_takes_no_writes_is_left(own: str) -> None:
    """Its connections are there still, and believed no more; reads in a read-only transaction are refused as ever."""
    async with Database(own) as database:
        assert await database.write(add("a")) == "a"
        database.write_sync(lambda _: None)
        with pytest.raises(DatabaseError) as caught:
            await database.read(said("DELETE FROM userinput"))
        assert not isinstance(caught.value, DatabaseUnavailable)
        postgres.read_only(own, True)
        try:
            for _ in range(2):
                with pytest.raises(DatabaseUnavailable, match="takes no writes now"):
                    await database.write(add("b"))
                with pytest.raises(DatabaseUnavailable, match="takes no writes now"):
                    database.write_sync(add("b"))
        finally:
            postgres.read_only(own, False)
        assert await database.write(add("c")) == "c"
        assert database.write_sync(add("d")) == "d"
        assert await database.read(names) == ["a", "c", "d"]


async def test_of_a_primary_and_its_standby_the_primary_is_used(server: Any, own: str) -> None:
    """Also by connections that were made to the other one: a proxy, or a name, that led there is believed anew."""
    with standby_of(server) as standby, Relay(own) as primary:
        mine = sa.make_url(standby).set(database=sa.make_url(own).database)
        with Relay(mine.render_as_string()) as second:
            both = primary.url(f"{second.host},{primary.host}")
            for _ in range(3):
                async with Database(both) as database:
                    assert await database.write(add("a")) == "a"
                    await database.write(lambda session: session.execute(sa.text("DELETE FROM userinput")))
            async with Database(second.url()) as database:
                with pytest.raises(DatabaseUnavailable, match="takes no writes now: it is a standby"):
                    await database.read(names)
            async with Database(second.url(query="?target_session_attrs=any")) as database:
                assert await database.read(names) == []
                with pytest.raises(DatabaseUnavailable, match="takes no writes now"):
                    await database.write(add("b"))
                for words in ("SET TRANSACTION READ WRITE", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"):
                    with pytest.raises(DatabaseUnavailable, match="takes no writes now"):
                        await database.write(said(words))
                second.to = sa.make_url(own)
                assert await database.write(add("b")) == "b"
                with pytest.raises(DatabaseError) as caught:
                    await database.write(said("SELECT count(*) FROM userinput FOR UPDATE"))
                assert not isinstance(caught.value, DatabaseUnavailable)


def said(words: str) -> Any:
    def fn(session: Session) -> None:
        session.execute(sa.text(words))
        session.execute(sa.text("SELECT 1 FROM userinput"))

    return fn


async def test_a_queue_that_reached_a_standby_leaves_it(own: str) -> None:
    looker = Looker()
    queue = JobQueue(own, looker, sweep_seconds=1)
    await queue.open()
    try:
        postgres.read_only(own, True)
        assert not await queue.wake(1)
        swept = looker.swept
        postgres.read_only(own, False)
        await until(lambda: looker.swept > swept)
        assert await queue.wake(2)
        await until(lambda: 2 in looker.looked)
    finally:
        postgres.read_only(own, False)
        await queue.close()
