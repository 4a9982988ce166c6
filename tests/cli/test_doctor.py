"""`drsai doctor`: what it says of a deployment that is well, and of each thing that is not."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.database.standing import standing
from drsai_backend.datamodel import Worker, table_of, utcnow
from tests.cli.serving import TEAMS, ask
from tests.support.commands import Command, Commands
from tests.support.model_server import Failure, ModelServer
from tests.support.teams.crew import Crew
from tests.support.threads import LATE, settings

SERVERS = """
mcpServers:
  here: {command: COMMAND, args: ["-c", "import sys; sys.exit(3)"]}
"""


@pytest.fixture
def environment(tmp_path: Path, database_url: str) -> dict[str, str]:
    """One team, on a database on which it has answered."""
    (tmp_path / "mine.py").write_text(TEAMS)
    return {"DRSAI_DATABASE_URL": database_url, "DRSAI_SECRET_KEY": "a secret that is long enough"}


@pytest.fixture
def talked(commands: Commands, tmp_path: Path, environment: dict[str, str]) -> None:
    server = commands.start("serve", "mine.py", "--port", "0", cwd=tmp_path, env=environment)
    for team in ("parrot", "pair"):
        ask(server.base_url(), team, extra_body={"thread_id": f"of-{team}"})
    server.die()


def found(command: Command, subject: str) -> list[tuple[str, str]]:
    findings = json.loads(command.stdout)["findings"]
    return [(each["status"], each["text"]) for each in findings if each["subject"] == subject]


def examine(commands: Commands, folder: Path, environment: dict[str, str], **more: str) -> Command:
    return commands.run("doctor", "mine.py", "--json", cwd=folder, env={**environment, **more})


@pytest.mark.usefixtures("talked")
def test_what_is_well_and_what_is_not(commands: Commands, tmp_path: Path, environment: dict[str, str]) -> None:
    with ModelServer(lambda _: "ok") as model:
        command = examine(commands, tmp_path, environment, OPENAI_BASE_URL=model.base_url)
        assert command.wait() == 0, command.stderr
        assert len(model.requests) == 1
        assert found(command, "threads") == [("ok", "2 load as they are")]
        assert "answers in" in found(command, "model")[0][1]
        assert json.loads(command.stdout)["ok"]
        model.script(None, lambda _: Failure(401, "no such key"))
        failing = examine(commands, tmp_path, environment, OPENAI_BASE_URL=model.base_url)
    assert failing.wait() == 1
    assert found(failing, "model")[0][0] == "failed"
    # A team that was changed, one that is gone, one that cannot be built, and a server that does not begin.
    changed = TEAMS.replace('("ann", "bob")', '("ann", "eve")').replace('"parrot": parrot, ', "")
    (tmp_path / "mine.py").write_text(changed)
    (tmp_path / "servers.yaml").write_text(SERVERS.replace("COMMAND", sys.executable))
    command = examine(commands, tmp_path, environment, DRSAI_MCP_SERVERS="servers.yaml")
    assert command.wait() == 1
    threads = found(command, "threads")
    assert [status for status, _ in threads] == ["ok", "warning", "failed"]
    assert "pair: left out is" in threads[1][1]
    assert "bob" in threads[1][1]
    assert "unknown model 'parrot'" in threads[2][1]
    assert "(of-parrot)" in threads[2][1]
    assert found(command, "mcp")[0][0] == "failed"
    assert found(command, "model")[0][0] == "warning", "the demo model is none"


@pytest.mark.usefixtures("talked")
def test_nothing_is_changed(commands: Commands, tmp_path: Path, environment: dict[str, str], database_url: str) -> None:
    url = database_url.replace("postgresql://", "postgresql+psycopg://")

    def rows() -> dict[str, Any]:
        engine, metadata = sa.create_engine(url), sa.MetaData()
        with engine.connect() as connection:
            metadata.reflect(connection)
            told = {name: connection.execute(sa.select(table)).all() for name, table in metadata.tables.items()}
        engine.dispose()
        return told

    before = rows()
    assert examine(commands, tmp_path, environment).wait() == 0
    assert rows() == before


def test_files_of_definitions_that_are_not_here_are_told(
    commands: Commands, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "here.md").write_text("Here.")
    (tmp_path / "team.yaml").write_text(
        "agents: {ann: {knowledge: {files: [here.md, gone/*.md, 'https://example.invalid/']}}}"
    )
    command = commands.run("doctor", "team.yaml", "--json", "--no-model", cwd=tmp_path, env=environment)
    assert command.wait() == 0, command.stderr
    assert found(command, "files") == [("warning", "agent ann: gone/*.md names no file here")]


def test_a_damaged_state_is_told(commands: Commands, tmp_path: Path, migrated_sqlite: str) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    environment = {"DRSAI_DATABASE_URL": migrated_sqlite}
    server = commands.start("serve", "mine.py", "--port", "0", cwd=tmp_path, env=environment)
    ask(server.base_url(), "parrot", extra_body={"thread_id": "t"})
    server.die()
    engine = sa.create_engine(migrated_sqlite)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE journalentry SET payload = 'nonsense'"))
    engine.dispose()
    command = examine(commands, tmp_path, environment)
    assert command.wait() == 1
    assert [status for status, _ in found(command, "threads")] == ["ok", "failed"]


def test_no_database_an_old_schema_and_a_wrong_team(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    none = examine(commands, tmp_path, {"DRSAI_DATABASE_URL": "sqlite:///none.db"})
    assert none.wait() == 1
    assert not (tmp_path / "none.db").exists()
    assert "there is no database" in found(none, "database")[0][1]
    for arguments in (("db", "upgrade"), ("db", "downgrade", "base", "--yes")):
        assert commands.run(*arguments, "--database-url", "sqlite:///old.db", cwd=tmp_path).wait() == 0
    old = examine(commands, tmp_path, {"DRSAI_DATABASE_URL": "sqlite:///old.db"})
    assert "run `drsai db upgrade`" in found(old, "database")[0][1]
    (tmp_path / "mine.py").write_text("nothing = ")
    wrong = examine(commands, tmp_path, {"DRSAI_DATABASE_URL": "sqlite:///old.db"})
    assert [(status, "SyntaxError" in text) for status, text in found(wrong, "teams")] == [("failed", True)]


def test_secrets_of_another_key(commands: Commands, tmp_path: Path, database_url: str) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    environment = {"DRSAI_DATABASE_URL": database_url}
    one, other = "first-of-two", "other-of-two"
    with_one = {**environment, "DRSAI_SECRET_KEY": one}
    made = commands.run("webhooks", "secret", "--user", "ann", cwd=tmp_path, env=with_one)
    assert made.wait() == 0, made.stderr
    told = [
        found(examine(commands, tmp_path, environment, **keys), "secrets")[0][0]
        for keys in (
            {"DRSAI_SECRET_KEY": one},
            {"DRSAI_SECRET_KEY": other, "DRSAI_SECRET_KEY_OLD": one},
            {"DRSAI_SECRET_KEY": other},
        )
    ]
    assert told == ["ok", "warning", "failed"]


async def test_an_idle_worker_is_alive(database_url: str) -> None:
    """Its leases are not renewed while it has none."""
    worker = table_of(Worker)
    async with DrSai({"crew": Crew()}, database_url, settings=settings(**LATE)) as drsai:
        over = sa.update(worker).values(alive_until=utcnow() - timedelta(minutes=1))
        await drsai.database.write(lambda session: session.execute(over))
        assert (await drsai.database.read(standing)).workers == 1
        gone = sa.update(worker).values(seen_at=utcnow() - timedelta(minutes=1))
        await drsai.database.write(lambda session: session.execute(gone))
        assert (await drsai.database.read(standing)).workers == 0
