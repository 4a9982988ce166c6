"""A whole database is copied into another one, from SQLite to PostgreSQL and back, and is the same there."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.database import migrations
from drsai_backend.database.copying import Copied, copy_database, left_behind
from drsai_backend.database.migrations import connecting
from drsai_backend.database.schemas import Schema
from drsai_backend.datamodel import AgentJson, AuditEntry, FileContent, RunStatus, Thread, Worker, table_of
from drsai_backend.datamodel.base import StatusType, UTCDateTime
from drsai_backend.errors import Conflict, DatabaseError, InvalidRequest, SchemaOutdated
from tests.support.every_row import EMPTY, TABLES, fill

Rows = dict[str, list[dict[str, Any]]]


def _rows(url: str) -> Rows:
    with connecting(url, write=False) as connection:
        return {
            table.name: [
                dict(row)
                for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns)).mappings()
            ]
            for table in TABLES
        }


def _is_dead(worker: str) -> bool:
    return True


def test_every_table_is_the_same(urls: list[str]) -> None:
    source, target = urls
    fill(source)
    before = _rows(source)
    assert {name for name, rows in before.items() if not rows} == EMPTY
    copied = list(copy_database(source, target))
    assert [each.table for each in copied] == [table.name for table in TABLES]
    assert {each.table: each.rows for each in copied} == {name: len(rows) for name, rows in before.items()}
    assert _rows(target) == before == _rows(source)
    migrations.check_schema(target)
    assert {each.table for each in copied if each == Copied(each.table)} == EMPTY
    with connecting(target) as connection:  # a new row has a number that no other one had
        values = {"tenant": "acme", "user_id": "eve", "thread_id": "new"}
        key = connection.execute(sa.insert(Thread).values(**values).returning(table_of(Thread).c.id)).scalar_one()
        seen = connection.execute(sa.text("SELECT count(*) FROM drsai_messages")).scalar_one()
    assert key > max(row["id"] for row in before["thread"])
    assert seen == len(before["autogenmessage"])


def test_numbers_of_rows_that_are_gone_do_not_come_again(urls: list[str]) -> None:
    """Where somebody may hold them: that of the highest row, and that of the only one."""
    source, target = urls
    fill(source)
    thread, component = table_of(Thread), table_of(AgentJson)

    def add(connection: sa.Connection) -> list[int]:
        values = {"tenant": "acme", "user_id": "eve"}
        one = sa.insert(thread).values(thread_id="t", **values).returning(thread.c.id)
        other = sa.insert(component).values(component={}, **values).returning(component.c.id)
        return [connection.execute(each).scalar_one() for each in (one, other)]

    with connecting(source) as connection:
        connection.execute(sa.delete(component))
        gone = add(connection)
        for table in (thread, component):
            connection.execute(sa.delete(table).where(table.c.user_id == "eve"))
    list(copy_database(source, target))
    with connecting(target) as connection:
        assert connection.execute(sa.select(component)).all() == []
        assert add(connection) == [key + 1 for key in gone]


async def test_a_conversation_goes_on_in_the_copy(urls: list[str], tmp_path: Path) -> None:
    source, target = urls
    settings = Settings(_env_file=None, demo=True)  # pyright: ignore[reportCallIssue]
    async with DrSai(database_url=source, settings=settings) as drsai:
        await drsai.user("ada").run("assistant", "My name is Ada.", thread_id="t")
        with pytest.raises(Conflict, match=rf":{os.getpid()}:.* works on the database"):
            next(copy_database(source, target))
    assert list(copy_database(source, target, is_dead=_is_dead))
    async with DrSai(database_url=target, settings=settings) as drsai:
        assert (await drsai.user("ada").run("assistant", "Again.", thread_id="t")).status is RunStatus.COMPLETED
        assert len(await drsai.user("ada").list_messages("t")) == 4


# --- values that the two hold differently ----------------------------------------------------------------------------

_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
_integers = st.integers(-(2**63), 2**64 - 1)
_floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e16, 1e19, -1e19, 1e22, -0.0, 5e-324])
_json = st.recursive(
    st.none() | st.booleans() | _integers | _floats | _text | st.sampled_from(["\\u0000", "\x7f\u2028", "1.0", "nan"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_times = st.datetimes(timezones=st.just(UTC)) | st.just(datetime.max.replace(tzinfo=UTC))


def _values(column: sa.Column[Any]) -> st.SearchStrategy[Any]:
    kind: st.SearchStrategy[Any]
    match column.type:
        case UTCDateTime():
            kind = _times
        case StatusType():
            kind = st.sampled_from(RunStatus)
        case sa.JSON():
            kind = _json.filter(lambda value: isinstance(value, str | list | dict))  # no column holds a bare number
        case sa.Boolean():
            kind = st.booleans()
        case sa.LargeBinary():
            kind = st.binary(max_size=40)
        case sa.BigInteger():
            kind = st.integers(-(2**63), 2**63 - 1)
        case sa.Integer():
            kind = st.integers(-(2**31), 2**31 - 1)
        case sa.Float():
            kind = _floats
        case _:
            length = getattr(column.type, "length", None)
            kind = _text.map(lambda text: text[:length])
    return kind | st.none() if column.nullable else kind


_FREE = ("thread", "auditentry", "apikey", "storedfile", "agentjson", "userinput", "worker")


def _written(value: Any) -> Any:
    """A value with its whole numbers as they are written: to PostgreSQL's JSON, 1e3 is 1000."""
    match value:
        case float() if value.is_integer():
            return int(Decimal(repr(value)))
        case list():
            return [_written(each) for each in cast("list[Any]", value)]
        case dict():
            return {name: _written(each) for name, each in cast("dict[str, Any]", value).items()}
        case _:
            return value


@settings(
    max_examples=10,
    phases=[Phase.explicit, Phase.generate],  # To shrink takes minutes.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_whatever_is_stored_comes_back(
    sqlite_template: bytes, migrated_postgres: str, tmp_path: Path, data: st.DataObject
) -> None:
    here, back = (tmp_path / name for name in ("here.db", "back.db"))
    for path in (here, back):
        for each in tmp_path.glob(f"{path.name}*"):
            each.unlink()
        path.write_bytes(sqlite_template)
    with connecting(migrated_postgres) as connection:
        for table in reversed(TABLES):
            connection.execute(sa.delete(table))
        connection.execute(sa.text(f"UPDATE drsai_alembic_version SET version_num = '{migrations.head()}'"))
    with connecting(f"sqlite:///{here}") as connection:
        for table in TABLES:
            if table.name in _FREE:
                row = {
                    column.name: 1 + number if column.name == "id" else data.draw(_values(column), label=str(column))
                    for number, column in enumerate(table.c)
                }
                connection.execute(sa.insert(table).values(**row))
    there = list(copy_database(f"sqlite:///{here}", migrated_postgres, is_dead=_is_dead))
    again = list(copy_database(migrated_postgres, f"sqlite:///{back}", is_dead=_is_dead))
    assert there == again
    urls = (f"sqlite:///{here}", migrated_postgres, f"sqlite:///{back}")
    first, second, third = (_written(_rows(url)) for url in urls)
    assert first == second == third


def test_what_postgresql_cannot_hold_is_named(migrated_sqlite: str, migrated_postgres: str, tmp_path: Path) -> None:
    with connecting(migrated_sqlite) as connection:
        values = {"tenant": "t", "user_id": "u", "thread_id": "t", "id": 7, "error_message": "a\x00b"}
        connection.execute(sa.insert(Thread).values(**values))
    words = "thread cannot be copied: error_message of the row 7 must not hold the character NUL"
    with pytest.raises(InvalidRequest, match=words):
        list(copy_database(migrated_sqlite, migrated_postgres))
    with pytest.raises(SchemaOutdated, match="not finished"):
        migrations.check_schema(migrated_postgres)
    other = f"sqlite:///{tmp_path}/other.db"  # where such a text is one like others
    list(copy_database(migrated_sqlite, other))
    assert _rows(other) == _rows(migrated_sqlite)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_target_that_is_not_empty(urls: list[str]) -> None:
    source, target = urls
    fill(source)
    fill(target)
    before = _rows(target)
    for again in (False, True):
        with pytest.raises(Conflict, match="the target is not empty: there are rows in "):
            list(copy_database(source, target, again=again))
    assert _rows(target) == before
    migrations.check_schema(target)


def test_a_live_run(database_url: str, tmp_path: Path) -> None:
    with connecting(database_url) as connection:
        values = {"tenant": "t", "user_id": "u", "thread_id": "t", "status": RunStatus.RUNNING}
        lease = {"lease_owner": "host:1:t:x", "lease_expires_at": datetime.now(UTC) + timedelta(minutes=1)}
        connection.execute(sa.insert(Thread).values(**values, **lease))
    target = f"sqlite:///{tmp_path}/copy.db"
    with pytest.raises(Conflict, match="host:1:t:x works on the database"):
        list(copy_database(database_url, target))
    assert not (tmp_path / "copy.db").exists()


def test_a_worker_that_comes_meanwhile(database_url: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/copy.db"
    copying = copy_database(database_url, target)
    next(copying)
    with connecting(database_url) as connection:
        now = datetime.now(UTC)
        connection.execute(sa.insert(Worker).values(worker_id="host:1:t:x", since=now, seen_at=now))
    with pytest.raises(Conflict, match="host:1:t:x works"):
        list(copying)
    with pytest.raises(SchemaOutdated, match="not finished"):
        migrations.ensure_schema(target)


def test_schemas_that_are_not_of_this_release(migrated_sqlite: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/copy.db"
    with pytest.raises(SchemaOutdated, match="run `drsai db upgrade`"):
        list(copy_database(f"sqlite:///{tmp_path}/nothing.db", target))
    with connecting(migrated_sqlite) as connection:
        connection.execute(sa.text("CREATE TABLE drsai_alembic_version_notes (version_num VARCHAR(32))"))
    with pytest.raises(InvalidRequest, match="not in DRSAI_EXTENSIONS: notes"):
        list(copy_database(migrated_sqlite, target))
    with connecting(migrated_sqlite) as connection:
        later = f"9999_from_{migrations.head()[:4]}"
        connection.execute(sa.text(f"UPDATE drsai_alembic_version SET version_num = '{later}'"))
    with pytest.raises(SchemaOutdated, match=f"are at {later}: copy them with the release of that one"):
        list(copy_database(migrated_sqlite, target))


def test_a_table_that_is_not_the_same(migrated_sqlite: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/copy.db"
    fill(migrated_sqlite)
    migrations.upgrade(target)
    with connecting(target) as connection:
        statement = "UPDATE agentjson SET user_id = 'eve'"
        connection.execute(sa.text(f"CREATE TRIGGER lies AFTER INSERT ON agentjson BEGIN {statement}; END"))
    with pytest.raises(DatabaseError, match="agentjson is not the same in the copy"):
        list(copy_database(migrated_sqlite, target))


# --- killed in its middle --------------------------------------------------------------------------------------------

_KILLED = """
import os, sys
from drsai_backend.database import copying

parts = copying.in_parts
def some(rows, **options):
    for number, part in enumerate(parts(rows, **options)):
        if number == 2:
            os.kill(os.getpid(), 9)
        yield part

copying._ROWS, copying.in_parts = 10, some
list(copying.copy_database(*sys.argv[1:]))
"""


async def test_a_copy_that_was_killed(urls: list[str]) -> None:
    source, target = urls
    with connecting(source) as connection:
        rows = [{"by": "cli", "action": "a", "kind": "k", "subject": str(number)} for number in range(50)]
        connection.execute(sa.insert(AuditEntry), rows)
    before = _rows(source)
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, source, target)
    assert await killed.wait() == -9
    assert _rows(source) == before
    assert len(_rows(target)["auditentry"]) == 20
    said = "a copy that was not finished: `drsai db copy FROM TO --again` empties it"
    settings = Settings(_env_file=None, demo=True)  # pyright: ignore[reportCallIssue]
    with pytest.raises(SchemaOutdated, match=said):
        await DrSai(database_url=target, settings=settings).open()
    for refused in (lambda: migrations.upgrade(target), lambda: list(copy_database(source, target))):
        with pytest.raises(SchemaOutdated, match=said):
            refused()
    with pytest.raises(SchemaOutdated, match=said):  # and it is no source
        next(copy_database(target, source))
    list(copy_database(source, target, again=True))
    assert _rows(target) == before
    migrations.check_schema(target)


# --- what else there is ----------------------------------------------------------------------------------------------


def test_what_stays_behind_is_told(migrated_sqlite: str) -> None:
    assert left_behind(migrated_sqlite) == []
    fill(migrated_sqlite)
    with connecting(migrated_sqlite) as connection:
        connection.execute(sa.text("CREATE TABLE mine (id INTEGER)"))
        connection.execute(sa.text("CREATE TABLE searchhnsw (index_id INTEGER)"))  # It is made again.
        connection.execute(sa.update(table_of(FileContent)).values(in_folder=True))
    key = Path(f"{migrated_sqlite.removeprefix('sqlite:///')}.key")
    key.write_text("secret")
    tables, files, secrets = left_behind(migrated_sqlite)
    assert tables.endswith("stay behind: mine")
    assert files.startswith("the bytes of 1 files are in the folder of DRSAI_FILES_FOLDER")
    assert f"what {key} holds in DRSAI_SECRET_KEY" in secrets
    assert left_behind(migrated_sqlite, [Schema("mine", None, frozenset({"mine"}))])[0] == files
