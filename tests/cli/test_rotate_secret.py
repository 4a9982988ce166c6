"""`drsai keys rotate-secret` beside a server at work, killed and begun anew."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from drsai_backend.database import migrations
from tests.support.commands import Commands
from tests.support.model_server import ModelRequest, ModelServer

TEAMS = """
from drsai_backend import AssistantAgent
teams = {"parrot": lambda context: AssistantAgent("parrot", context.model_client())}
"""


def stored(url: str) -> set[str]:
    """The prefixes of all ciphertexts."""
    query = "SELECT api_key FROM userinput UNION ALL SELECT api_key FROM queuedinput"
    with migrations.connecting(url, write=False) as connection:
        return {sealed.rpartition(":")[0] for sealed in connection.scalars(sa.text(query)) if sealed}


def test_a_server_at_work_reads_on(commands: Commands, tmp_path: Path, database_url: str) -> None:
    (tmp_path / "teams.py").write_text(TEAMS)
    released = threading.Event()

    async def hold(_: ModelRequest) -> str:
        while not released.is_set():  # noqa: ASYNC110  # the test's thread sets it
            await asyncio.sleep(0.01)
        return "Said."

    with ModelServer(hold) as model:
        common = {"DRSAI_DATABASE_URL": database_url, "OPENAI_BASE_URL": model.base_url}
        served, rotating = dict(common), dict(common)
        if database_url.startswith("postgresql"):
            # The server was told of the new secret before it is used.
            served |= {"DRSAI_SECRET_KEY": "old", "DRSAI_SECRET_KEY_OLD": "new"}
            rotating |= {"DRSAI_SECRET_KEY": "new", "DRSAI_SECRET_KEY_OLD": "old"}
        server = commands.start("serve", "teams.py", "--port", "0", cwd=tmp_path, env=served)
        with httpx.Client(base_url=server.base_url(), timeout=20) as client:

            def ask(thread_id: str, key: str) -> None:
                body: Any = {"model": "parrot", "messages": [{"role": "user", "content": "Hello."}], "background": True}
                headers = {"X-Model-Api-Key": key}
                assert client.post(
                    "/chat/completions", json={**body, "thread_id": thread_id}, headers=headers
                ).is_success

            for number in range(3):
                ask(f"t{number}", f"sk-live-{number}")
                ask(f"t{number}", f"sk-queued-{number}")
            [before] = stored(database_url)

            if database_url.startswith("sqlite"):
                rotate_a_key_file(commands, tmp_path, rotating, database_url)
            else:
                done = commands.run("keys", "rotate-secret", cwd=tmp_path, env=rotating)
                assert (done.wait(), done.stdout.splitlines()) == (
                    0,
                    [
                        "6 stored secrets re-encrypted, 0 left",
                        "All stored secrets are under the new secret: what was DRSAI_SECRET_KEY before can go from "
                        "DRSAI_SECRET_KEY_OLD.",
                    ],
                )
            [after] = stored(database_url)
            assert after != before

            released.set()
            end = time.monotonic() + 30
            while any(client.get(f"/threads/t{number}").json()["status"] != "completed" for number in range(3)) or (
                len(model.requests) < 6
            ):
                assert time.monotonic() < end
                time.sleep(0.05)
    keys = sorted(request.api_key for request in model.requests)
    assert keys == sorted(f"sk-{what}-{number}" for what in ("live", "queued") for number in range(3))


def rotate_a_key_file(commands: Commands, folder: Path, environment: dict[str, str], url: str) -> None:
    key_file, old_file = folder / "drsai.db.key", folder / "drsai.db.key.old"
    old = key_file.read_text()
    killed = commands.start("keys", "rotate-secret", cwd=folder, env=environment)
    while not old_file.exists() and killed.running:
        time.sleep(0.001)
    killed.die()
    assert old_file.read_text() == old
    os.utime(key_file, (time.time() + 3600,) * 2)  # However slow this machine is, it has not waited long enough.
    waiting = commands.start("keys", "rotate-secret", cwd=folder, env=environment)
    end = time.monotonic() + 30
    while "waiting" not in waiting.stdout:
        assert waiting.running, waiting.stderr
        assert time.monotonic() < end
        time.sleep(0.01)
    waiting.die()
    new = key_file.read_text()
    assert (old_file.read_text(), len(stored(url))) == (old, 1)
    os.utime(key_file, (0, 0))  # It has waited long enough.
    done = commands.run("keys", "rotate-secret", cwd=folder, env=environment)
    assert (done.wait(), done.stdout.splitlines()) == (
        0,
        [
            "0 stored secrets re-encrypted, 0 left",
            "All stored secrets are under the new secret: the old secret was deleted.",
        ],
    )
    assert key_file.read_text() == new != old
    assert {file.name for file in folder.glob("*.key*")} == {"drsai.db.key", "drsai.db.key.lock"}


@pytest.mark.parametrize("secrets", [{"DRSAI_SECRET_KEY": "new"}, {}])
def test_what_cannot_be_rotated(
    commands: Commands, tmp_path: Path, migrated_postgres: str, secrets: dict[str, str]
) -> None:
    insert = "INSERT INTO userinput (tenant, user_id, thread_id, created_at, updated_at, version, api_key) VALUES "
    with migrations.connecting(migrated_postgres) as connection:
        connection.execute(sa.text(insert + "('default', 'u', 't', now(), now(), '1', 'v2:00000000:AAAA')"))
    environment = {"DRSAI_DATABASE_URL": migrated_postgres, **secrets}
    refused = commands.run("keys", "rotate-secret", cwd=tmp_path, env=environment)
    assert refused.wait() == 1
    if secrets:
        assert refused.stdout == "0 stored secrets re-encrypted, 1 left\n"
        assert "1 stored secrets can be decrypted with none of the secrets here" in refused.stderr
    else:
        assert refused.stderr == "Error: to store API keys or webhook secrets on PostgreSQL, set DRSAI_SECRET_KEY\n"
