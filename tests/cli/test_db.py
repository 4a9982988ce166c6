from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from drsai_backend.database import migrations, schemas
from tests.support.commands import Command, Commands


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database without tables. The SQLite one is relative to the folder of the command."""
    return "sqlite:///mine.db" if request.param == "sqlite" else request.getfixturevalue("empty_postgres")


def test_up_and_down(commands: Commands, tmp_path: Path, empty_url: str) -> None:
    head = migrations.head()

    def db(*arguments: str) -> Command:
        return commands.run("db", *arguments, "--database-url", empty_url, cwd=tmp_path)

    where = f"sqlite:///{tmp_path / 'mine.db'}" if empty_url.startswith("sqlite") else "postgresql://"
    upgraded = db("upgrade")
    assert upgraded.wait() == 0, upgraded.stderr
    assert upgraded.stdout.startswith(where)
    assert upgraded.stdout.endswith(f": {head} (head)\n")
    assert db("upgrade").stdout == upgraded.stdout
    assert db("current").stdout == upgraded.stdout

    refused = db("downgrade", "base")
    assert refused.wait() == 1
    assert "say --yes" in refused.stderr
    assert db("current").stdout == upgraded.stdout

    down = db("downgrade", "base", "--yes")
    assert down.wait() == 0, down.stderr
    assert f"no tables of this package; `drsai db upgrade` makes those of {head}" in down.stdout
    assert db("upgrade", head).stdout == upgraded.stdout


def test_one_step_back(commands: Commands, tmp_path: Path, empty_url: str) -> None:
    assert commands.run("db", "upgrade", "0010", "--database-url", empty_url, cwd=tmp_path).wait() == 0
    stepped = commands.run("db", "downgrade", "-1", "--yes", "--database-url", empty_url, cwd=tmp_path)
    assert stepped.wait() == 0, stepped.stderr
    assert ": 0009; this version needs" in stepped.stdout
    wrong = commands.run("db", "downgrade", "-99", "--yes", "--database-url", empty_url, cwd=tmp_path)
    assert wrong.wait() == 1
    assert "99" in wrong.stderr
    assert "later version" not in wrong.stderr
    misspelt = commands.run("db", "downgrade", "--jso", "--database-url", empty_url, cwd=tmp_path)
    assert "there is no revision '--jso'" in misspelt.stderr


def test_a_file_that_cannot_be_made(commands: Commands, tmp_path: Path) -> None:
    nowhere, source = "sqlite:////proc/nope/x.db", f"sqlite:///{tmp_path}/from.db"
    migrations.upgrade(source)
    for arguments in (("upgrade", "--database-url", nowhere), ("copy", source, nowhere)):
        command = commands.run("db", *arguments, cwd=tmp_path)
        assert command.wait() == 1
        assert command.stderr == "Error: /proc/nope/x.db cannot be made or changed: No such file or directory\n"


def test_a_revision_that_is_not_there(commands: Commands, tmp_path: Path) -> None:
    command = commands.run("db", "upgrade", "nonsense", cwd=tmp_path)
    assert command.wait() == 2
    assert command.stderr.startswith("Error: REVISION: there is no revision 'nonsense', but 0001, 0002, ")
    assert command.stderr.count("\n") == 1


def test_a_later_schema_that_serves_this_version(commands: Commands, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/later.db"
    migrations.upgrade(url)
    later = f"{int(migrations.head()[:4]) + 1:04}_from_{migrations.head()[:4]}"
    with migrations.connecting(url) as connection:
        connection.execute(sa.text(f"UPDATE {schemas.VERSION_TABLE} SET version_num = '{later}'"))
    for action in ("current", "upgrade"):
        said = commands.run("db", action, "--database-url", url, cwd=tmp_path)
        assert said.wait() == 0, said.stderr
        assert f"{later}; this version needs {migrations.head()}, and all of it is there" in said.stdout


def test_a_later_schema_that_does_not(commands: Commands, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/later.db"
    migrations.upgrade(url)
    with migrations.connecting(url) as connection:
        connection.execute(sa.text(f"UPDATE {schemas.VERSION_TABLE} SET version_num = '9999'"))
    said = commands.run("db", "show", "--database-url", url, cwd=tmp_path)
    assert said.wait() == 0, said.stderr
    assert said.stdout.endswith("/later.db: 9999, of a later version: upgrade the package\n")


def test_a_whole_database_is_copied(commands: Commands, tmp_path: Path, empty_url: str) -> None:
    source = f"sqlite:///{tmp_path}/from.db"
    migrations.upgrade(source)
    with migrations.connecting(source) as connection:
        values = "'2026', '2026', '1', 'default', 'u', '{}'"
        columns = "created_at, updated_at, version, tenant, user_id, component"
        connection.execute(sa.text(f"INSERT INTO agentjson ({columns}) VALUES ({values})"))
        connection.execute(sa.text("CREATE TABLE mine (id INTEGER)"))
    copied = commands.run("db", "copy", source, empty_url, "--json", cwd=tmp_path)
    assert copied.wait() == 0, copied.stderr
    assert "mine" in copied.stderr
    told = {each["table"]: each for each in json.loads(copied.stdout)}
    assert told.keys() == schemas.own_tables()
    assert told["agentjson"]["rows"] == 1
    assert len(told["agentjson"]["digest"]) == 64
    again = commands.run("db", "copy", source, empty_url, "--again", cwd=tmp_path)
    assert again.wait() == 1
    assert "the target is not empty: there are rows in agentjson" in again.stderr
    missing = commands.run("db", "copy", "sqlite:///nothing.db", empty_url, cwd=tmp_path)
    assert "there is no database" in missing.stderr
