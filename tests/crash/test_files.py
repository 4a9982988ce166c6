"""A server is killed in the middle of an upload: nothing of it is seen, and what was stored of it is swept."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import sqlalchemy as sa

from drsai_backend.database import Database
from drsai_backend.datamodel import FileContent, table_of, utcnow
from tests.crash.conftest import TEAMS
from tests.support.commands import Command, Commands
from tests.support.model_server import ModelServer

CONTENT = table_of(FileContent)
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_killed_in_the_middle_of_an_upload(
    commands: Commands, model: ModelServer, database_url: str, tmp_path: Path
) -> None:
    environment = {"OPENAI_BASE_URL": model.base_url, "DRSAI_DATABASE_URL": database_url, "DRSAI_SWEEP_SECONDS": "0.1"}

    def serve() -> Command:
        return commands.start("serve", str(TEAMS), "--port", "0", cwd=tmp_path, env=environment)

    process, database = serve(), Database(database_url)

    def stored() -> int:
        return database.read_sync(
            lambda session: session.execute(sa.select(sa.func.sum(CONTENT.c.bytes))).scalar() or 0
        )

    place = urlsplit(process.base_url())
    with socket.create_connection((place.hostname or "", place.port or 0)) as client:
        lines = "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n"
        client.sendall(f"{lines}Content-Type: multipart/form-data; boundary=x\r\n\r\n".encode())
        client.sendall(HEAD + bytes(600_000))
        until(lambda: stored() >= 262_144)
        process.die()
    old = sa.update(CONTENT).values(touched_at=utcnow() - timedelta(hours=1))
    database.write_sync(lambda session: session.execute(old))
    process = serve()
    url = process.base_url()
    assert httpx.get(f"{url}/files").raise_for_status().json()["data"] == []
    if database.dialect == "sqlite":  # on PostgreSQL a periodic job does so
        until(lambda: stored() == 0)
    database.close_sync()
