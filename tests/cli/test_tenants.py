from __future__ import annotations

import json
from pathlib import Path

import sqlalchemy as sa

from drsai_backend.database import migrations
from tests.support.commands import Command, Commands


def test_a_tenant_is_moved(commands: Commands, tmp_path: Path, migrated_postgres: str) -> None:
    source = f"sqlite:///{tmp_path}/from.db"
    migrations.upgrade(source)
    columns, values = "created_at, updated_at, version, tenant, user_id, component", "'2026', '2026', '1', 'acme', 'u'"
    with migrations.connecting(source) as connection:
        connection.execute(sa.text(f"INSERT INTO agentjson ({columns}) VALUES ({values}, '{{}}')"))

    def run(*arguments: str) -> Command:
        return commands.run(*arguments, cwd=tmp_path)

    asked = run("tenants", "move", "acme", source, migrated_postgres)
    assert asked.wait() == 1
    assert "It is deleted here when it is there. Nobody is here to be asked: say --yes." in asked.stderr
    missing = run("tenants", "move", "acem", source, migrated_postgres, "--yes")
    assert "the source has nothing of the tenant acem" in missing.stderr
    assert json.loads(run("switches", "--json", "--database-url", source).stdout) == []
    moved = run("tenants", "move", "acme", source, migrated_postgres, "--yes", "--json")
    assert moved.wait() == 0, moved.stderr
    assert {each["table"]: each["rows"] for each in json.loads(moved.stdout) if each["table"] != "auditentry"} == {
        "agentjson": 1
    }
    assert "new runs of acme are refused in" in moved.stderr
    assert "acme is in postgresql" in moved.stderr
    [off] = json.loads(run("switches", "--json", "--database-url", source).stdout)
    assert (off["kind"], off["name"]) == ("tenant", "acme")
    assert json.loads(run("switches", "--json", "--database-url", migrated_postgres).stdout) == []
    again = run("tenants", "move", "acme", source, migrated_postgres, "--yes")
    assert "the source has nothing of the tenant acme" in again.stderr
