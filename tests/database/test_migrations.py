"""The schema: made by migrations alone, the same as the models, and torn down again."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command as alembic_command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from autogen_agentchat.agents import UserProxyAgent
from sqlmodel import SQLModel

from drsai_backend import DrSai, DrSaiAgent, RoundRobinGroupChat, RunContext
from drsai_backend.access.principal import Principal
from drsai_backend.database import Database, DatabaseManager, migrations, schemas
from drsai_backend.datamodel import RunStatus, Thread
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, DatabaseError, DatabaseUnavailable, InvalidRequest, SchemaOutdated
from tests.database.tables import Note
from tests.support.commands import Command, Commands, clean_environment
from tests.support.threads import settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
    else:
        yield request.getfixturevalue("empty_postgres")


def tables(url: str) -> set[str]:
    with migrations.connecting(url) as connection:
        return set(sa.inspect(connection).get_table_names()) - {schemas.VERSION_TABLE}


def alembic(commands: Commands, url: str, *arguments: str) -> Command:
    done = commands.program("-m", "alembic", "-x", f"url={url}", *arguments, cwd=ROOT, env=clean_environment())
    done.wait(60)
    return done


def test_up_and_down(empty_url: str):
    assert migrations.current(empty_url) is None
    handlers = list(logging.getLogger().handlers)
    migrations.upgrade(empty_url)
    migrations.upgrade(empty_url)
    assert logging.getLogger().handlers == handlers
    assert migrations.current(empty_url) == migrations.head()
    assert tables(empty_url) == schemas.own_tables()
    migrations.downgrade(empty_url, "base")
    assert tables(empty_url) == set()
    migrations.upgrade(empty_url)
    assert tables(empty_url) == schemas.own_tables()


def test_the_migrations_make_what_the_models_say(empty_url: str):
    """Autogenerate finds no difference, and neither does a look at what `create_all` makes."""
    migrations.upgrade(empty_url)
    own = schemas.own_tables()
    with migrations.connecting(empty_url) as connection:
        options = {"include_name": lambda name, kind, _: kind != "table" or name in own}
        dialect = connection.dialect.name
        options["include_object"] = lambda item, name, kind, *_: (
            item.info.get("dialect", dialect) == dialect and (kind != "table" or name in own)
        )
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, SQLModel.metadata) == []
        if connection.dialect.name == "sqlite":
            migrated = _schema(connection)
            for table in own:
                connection.execute(sa.text(f"DROP TABLE {table}"))
            SQLModel.metadata.create_all(connection, tables=[SQLModel.metadata.tables[name] for name in own])
            assert migrated == _schema(connection)


def _schema(connection: sa.Connection) -> set[str]:
    """Statements with their parts in one order: alembic and create_all list constraints differently, and a column that
    was added later stands at the end."""
    rows = connection.execute(
        sa.text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name NOT LIKE 'drsai%'")
    )
    # At line ends, and at commas outside of parentheses, but for those around the whole. SQLite quotes the name of a
    # table that was made anew.
    sqls = (re.sub(r'^CREATE TABLE "?(\w+)"?(.*?)\)?$', r"CREATE TABLE \1\2", sql, flags=re.DOTALL) for (sql,) in rows)
    parts = (re.split(r"\n|,(?![^(]*\))", sql) for sql in sqls)
    return {" ".join(sorted(part.strip(" ,()\t\n") for part in each if part.strip(" ,()\t\n"))) for each in parts}


def test_alembic_from_a_checkout(commands: Commands, empty_url: str):
    assert alembic(commands, empty_url, "upgrade", "head").wait() == 0
    Note.__table__.create(engine := sa.create_engine(empty_url.replace("postgresql:", "postgresql+psycopg:")))  # pyright: ignore
    engine.dispose()
    check = alembic(commands, empty_url, "check")
    assert "No new upgrade operations" in check.stdout, check.stderr
    assert alembic(commands, empty_url, "downgrade", "base").wait() == 0
    assert tables(empty_url) == {"user_note"}


def test_alembic_prints_sql(commands: Commands, empty_url: str):
    printed = alembic(commands, empty_url, "upgrade", "head", "--sql")
    assert "CREATE TABLE thread" in printed.stdout, printed.stderr
    if empty_url.startswith("postgresql"):
        assert "fillfactor" in printed.stdout
        assert "JSONB" in printed.stdout


def test_an_installed_package_finds_its_scripts(tmp_path: Path):
    """As the wheel lays it out: `migrations` inside the package, nothing beside it."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "drsai_backend", tmp_path / "site" / "drsai_backend", ignore=ignore)
    shutil.copytree(ROOT / "migrations", tmp_path / "site" / "drsai_backend" / "migrations", ignore=ignore)
    script = (
        "import drsai_backend; from drsai_backend.database import migrations as m;"
        f"url = 'sqlite:///{tmp_path}/x.db'; m.upgrade(url); print(m.current(url), list(drsai_backend.__path__))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert migrations.head() in done.stdout, done.stderr
    assert str(tmp_path / "site") in done.stdout


def test_a_schema_that_is_behind(empty_url: str):
    database = Database(empty_url)
    with pytest.raises(SchemaOutdated, match="drsai db upgrade"):
        migrations.check_schema(database)
    if database.dialect == "postgresql":
        with pytest.raises(SchemaOutdated, match="drsai db upgrade"):
            migrations.ensure_schema(database)
        assert tables(empty_url) == set()
        migrations.upgrade(empty_url)
    migrations.ensure_schema(database)
    migrations.check_schema(database)
    migrations.ensure_schema(empty_url)
    database.close_sync()


def test_a_schema_of_a_later_version(empty_url: str):
    migrations.upgrade(empty_url)
    with migrations.connecting(empty_url) as connection:
        connection.execute(sa.text(f"UPDATE {schemas.VERSION_TABLE} SET version_num = '9999'"))
    for call in (migrations.ensure_schema, migrations.upgrade):
        with pytest.raises(SchemaOutdated, match="later version"):
            call(empty_url)


def test_a_step_that_is_not_there_is_refused_in_those_words(empty_url: str):
    with pytest.raises(InvalidRequest, match="-1"):
        migrations.downgrade(empty_url, "-1")
    migrations.upgrade(empty_url, "0010")
    for call, revision in (
        (migrations.downgrade, "0020"),
        (migrations.downgrade, "-99"),
        (migrations.upgrade, "+99"),
    ):
        with pytest.raises(InvalidRequest, match=revision.strip("-+")):
            call(empty_url, revision)
        assert migrations.current(empty_url) == "0010"
    migrations.downgrade(empty_url, "-1")
    assert migrations.current(empty_url) == "0009"


def test_a_file_that_cannot_be_made():
    with pytest.raises(
        DatabaseUnavailable, match=r"/proc/nope/x\.db cannot be made or changed: No such file or directory"
    ):
        migrations.upgrade("sqlite:////proc/nope/x.db")


LATER = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = {revision!r}, {before!r}, None, None


def upgrade() -> None:
    op.add_column("run", sa.Column({column!r}, sa.String()))


def downgrade() -> None:
    op.drop_column("run", {column!r})
"""


def upgrade_to_later(url: str, folder: Path, *revisions: str) -> None:
    """As a later release does it, whose migrations are those of this one and more."""
    shutil.copytree(ROOT / "migrations", folder)
    before = migrations.head()
    for number, revision in enumerate(revisions):
        text = LATER.format(revision=revision, before=before, column=f"later_{number}")
        (folder / "versions" / f"{revision}.py").write_text(text)
        before = revision
    with migrations.connecting(url) as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(folder))
        alembic_command.upgrade(config, "head")


def number(revision: str, more: int = 0) -> str:
    return f"{int(revision[:4]) + more:04}"


async def test_a_worker_starts_on_a_later_schema_that_only_adds(empty_url: str, tmp_path: Path):
    """A rollout: the release after this one has upgraded the schema, and an old process restarts. It works."""
    head = number(migrations.head())
    later = [f"{number(head, 1)}_from_{head}", f"{number(head, 2)}_from_{head}"]
    upgrade_to_later(empty_url, tmp_path / "later", *later)
    assert migrations.current(empty_url) == later[-1]
    migrations.ensure_schema(empty_url)
    migrations.upgrade(empty_url)  # A deployment's step, of the release before.
    assert migrations.current(empty_url) == later[-1]
    async with DrSai(None, empty_url, settings=settings()) as drsai:
        result = await drsai.run("assistant", "Hello.", thread_id="t")
        assert result.status is RunStatus.COMPLETED
        assert (await drsai.get_thread("t")).message_count == 2


@pytest.mark.parametrize("after", ["{1}", "{1}_from_{0}|{2}", "{1}|{2}_from_{1}"])
def test_a_worker_refuses_a_later_schema_that_does_more(empty_url: str, tmp_path: Path, after: str):
    head = number(migrations.head())
    later = after.format(head, number(head, 1), number(head, 2)).split("|")
    upgrade_to_later(empty_url, tmp_path / "later", *later)
    for call in (migrations.ensure_schema, migrations.upgrade, migrations.check_schema):
        with pytest.raises(SchemaOutdated, match="later version"):
            call(empty_url)
    assert migrations.current(empty_url) == later[-1]


def test_a_worker_refuses_an_earlier_schema_whatever_that_serves(empty_url: str):
    migrations.upgrade(empty_url)
    head = migrations.head()
    assert migrations.serves(head)
    for found in (
        None,
        number(head, -1),
        f"{number(head, -1)}_from_{number(head, -2)}",
        f"{number(head, 2)}_from_{number(head, 1)}",
    ):
        assert not migrations.serves(found), found


def test_the_head_is_known_without_alembic():
    assert migrations.head() == ScriptDirectory(str(ROOT / "migrations")).get_current_head()


def test_each_migration_says_whom_it_serves():
    """Numbers count up; one that only adds names the earliest that it serves, which is none from before one that did
    more."""
    scripts = ScriptDirectory(str(ROOT / "migrations")).walk_revisions()
    oldest = ""
    for count, script in enumerate(reversed([*scripts]), 1):
        mine, _, serves = script.revision.partition("_from_")
        assert mine == f"{count:04}"
        assert not serves or oldest <= serves < mine, script.revision
        oldest = oldest if serves else mine


def test_a_failed_upgrade_leaves_nothing(empty_url: str):
    with migrations.connecting(empty_url) as connection:
        connection.execute(sa.text("CREATE TABLE userinput (x INTEGER)"))  # In the way, after several tables.
    with pytest.raises(DatabaseError):
        migrations.upgrade(empty_url)
    assert tables(empty_url) == {"userinput"}


def test_many_processes_upgrade_at_once(commands: Commands, empty_url: str):
    script = f"from drsai_backend.database import migrations; migrations.upgrade({empty_url!r})"
    running = [commands.program("-c", script, cwd=ROOT, env=clean_environment()) for _ in range(3)]
    for process in running:
        assert process.wait(60) == 0, process.stderr
    assert migrations.current(empty_url) == migrations.head()


def test_an_upgrade_that_cannot_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "locked.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(migrations, "BUSY_TIMEOUT", 0.1)
    with pytest.raises(DatabaseUnavailable):
        migrations.upgrade(f"sqlite:///{path}")
    holder.close()
    with pytest.raises(DatabaseUnavailable):
        migrations.current(f"sqlite:///{tmp_path}/missing/x.db")
    with pytest.raises(ConfigurationError):
        migrations.upgrade("sqlite://")
    with pytest.raises(ConfigurationError):
        migrations.ensure_schema("sqlite://")


async def test_the_manager_makes_its_own_sqlite_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    async with DatabaseManager() as db:
        monkeypatch.chdir("/")
        await db.upsert(Thread(user_id="u", thread_id="t"))
    assert (tmp_path / "drsai.db").is_file()
    async with DatabaseManager("sqlite://") as db:
        await db.upsert(Thread(user_id="u", thread_id="t"))
        assert len(await db.get(Thread)) == 1


async def test_the_manager_leaves_postgres_alone(empty_postgres: str):
    async with DatabaseManager(empty_postgres) as db:
        with pytest.raises(SchemaOutdated):
            await db.get(Thread)


async def test_rows_of_the_release_before(empty_url: str):
    """A database taken back to revision 0016, with a thread in it: upgraded, the thread continues, and what is new
    works. Taken back, its rows are as they were."""
    names = ["run", "thread", "journalentry"]

    def rows() -> dict[str, list[str]]:
        with migrations.connecting(empty_url) as connection:
            found = {name: sa.inspect(connection).get_columns(name) for name in names}
            columns = {
                name: [each["name"] for each in found[name] if each["name"] not in ("calls", "definition", "ending")]
                for name in names
            }
            query = {name: sa.text(f"SELECT {', '.join(columns[name])} FROM {name}") for name in names}
            return {name: sorted(str(row) for row in connection.execute(query[name])) for name in names}

    migrations.upgrade(empty_url)
    async with DrSai(settings=settings(database_url=empty_url)) as drsai:
        first = await drsai.run("assistant", "My name is Ada.", thread_id="t")
    migrations.downgrade(empty_url, "0026_from_0024")  # It writes short forms out.
    before = rows()
    assert all(before.values())
    migrations.downgrade(empty_url, "0016")
    assert rows() == before
    later = {"storedfile", "filecontent", "filechunk", "storedanswer", "registeredtool", "storeddefinition"}
    assert not tables(empty_url) & later
    migrations.upgrade(empty_url)
    assert rows() == before
    owner = Owner("default", "anonymous")
    async with DrSai(settings=settings(database_url=empty_url)) as drsai:
        assert (await drsai.run("assistant", "What is my name?", thread_id="t")).status == first.status
        assert len(rows()["run"]) == 2
        kept = await drsai.files.create(owner, "a.txt", b"a")
        assert await drsai.files.read(owner, kept.file_id) == b"a"
        assert (await drsai.engine.tools.list(Principal("ann", "acme"))).items == []
        assert (await drsai.engine.agents.list(Principal("ann", "acme"))).items == []


def crew(context: RunContext) -> RoundRobinGroupChat:
    """As `crew` of the recorded database."""
    named = [DrSaiAgent(name, context.model_client(), system_message=f"You are {name}.") for name in ("ann", "bob")]
    return RoundRobinGroupChat([*named], max_turns=2)


def asking(context: RunContext) -> RoundRobinGroupChat:
    """As `asking` of the recorded database."""
    return RoundRobinGroupChat([DrSaiAgent("ann", context.model_client()), UserProxyAgent("person")], max_turns=2)


def fill_with_the_recorded(url: str, scratch: Path) -> None:
    """Bring what `database_0016.sql` has into a database."""
    recorded = sqlite3.connect(scratch)
    recorded.executescript((ROOT / "tests" / "recordings" / "database_0016.sql").read_text())
    recorded.close()
    if url.startswith("sqlite"):
        return
    migrations.upgrade(url, "0016")
    with migrations.connecting(f"sqlite:///{scratch}") as source, migrations.connecting(url) as target:
        there = sa.inspect(target)
        for table in SQLModel.metadata.sorted_tables:
            if table.name not in there.get_table_names() or table.name == "note":
                continue
            known = {each["name"] for each in there.get_columns(table.name)}
            columns = [column for column in table.columns if column.name in known]
            rows = [dict(row) for row in source.execute(sa.select(*columns)).mappings()]
            if rows:
                target.execute(sa.insert(table), rows)
                if "id" in known:
                    sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
                    target.execute(sa.text(f"SELECT setval({sequence}, (SELECT max(id) FROM {table.name}))"))


async def test_a_database_that_an_earlier_release_has_written(empty_url: str, tmp_path: Path) -> None:
    """Written by the code of revision 0016, not by today's: a thread that is done continues, with what its agents
    know, and the one that waits for a person takes the answer."""
    fill_with_the_recorded(empty_url, tmp_path / "empty.db")
    migrations.upgrade(empty_url)
    async with DrSai({"crew": crew, "asking": asking}, settings=settings(database_url=empty_url)) as drsai:
        messages = await drsai.user("ada").list_messages("done")
        assert [each.source for each in messages] == ["user", "ann", "bob", "user", "ann", "bob"]
        third = await drsai.user("ada").run("crew", "What is my name?", thread_id="done")
        assert third.status is RunStatus.COMPLETED
        assert third.usage["prompt_tokens"] > 200, "the agents know the two runs before"
        assert [each.thread_id for each in (await drsai.user("bob").list_shared_threads()).items] == ["done"]
        waiting = await drsai.user("ada").get_thread("waits")
        assert waiting.input_request is not None
        answered = await drsai.user("ada").run("asking", "Here I am.", thread_id="waits")
        assert (answered.status, answered.text) == (RunStatus.COMPLETED, "Here I am.")
