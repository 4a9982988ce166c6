"""A database is backed up while runs are under way, and restored beside it, with the commands of docs/backup.md: what
was acknowledged before is there, what was under way is resumed, and a copy that was told to be still is still."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import sqlalchemy as sa

from drsai_backend.database import migrations
from drsai_backend.database.engine import parse_url
from tests.crash.conftest import TEAMS, Serving
from tests.support import invariants, postgres
from tests.support.commands import ROOT, Commands, clean_environment
from tests.support.model_server import ModelRequest, ModelServer
from tests.support.peer import Peer

NOTES = b"What was noted."
SETTINGS = {
    "DRSAI_ALLOWED_ADDRESSES": "127.0.0.1",
    "DRSAI_LEASE_SECONDS": "30",
    "DRSAI_SWEEP_SECONDS": "0.2",
    "OPENAI_API_KEY": "unused",
}


def blocks(heading: str) -> list[str]:
    """The blocks below a heading of the page."""
    page = (ROOT / "docs/backup.md").read_text("utf-8")
    part = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```\w+\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def shell(block: str, folder: Path, environment: dict[str, str], user: str | None = None) -> str:
    """Do what a block of the page says; what it prints. `BIN` in the environment: where programs are looked for first.
    `user`: as whom."""
    path = (environment.get("BIN", ""), str(Path(sys.executable).parent), os.environ["PATH"])
    done = subprocess.run(
        ["bash", "-ec", block],
        cwd=folder,
        env=clean_environment(**{**environment, "PATH": os.pathsep.join(filter(None, path))}),
        user=user,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Chats:
    """A server with chats that are over, one whose second agent speaks until it is told to end, and a file.

    Args:
        folder: where it works, with its files and backups.
        models: answers it. That of the original is not that of what was restored.
    """

    def __init__(self, commands: Commands, url: str, folder: Path, models: ModelServer) -> None:
        self.url, self.folder, self.models = url, folder, models
        self.is_held = False
        self._speaks = threading.Event()
        models.script("You are ann.", lambda request: f"ann heard: {request.messages[-1]['content']}")
        models.script("You are bob.", self._bob)
        shutil.copy(TEAMS, folder / "team.py")
        self.serving = Serving(commands, models, url, folder)
        self.serving.environment |= SETTINGS | {"DRSAI_FILES_FOLDER": str(folder / "files")}
        if url.startswith("postgresql"):
            self.serving.environment["DRSAI_SECRET_KEY"] = "the secret of the backup"

    async def _bob(self, request: ModelRequest) -> str:
        self._speaks.set()
        is_live = any("Live." in str(message["content"]) for message in request.messages)
        while is_live and self.is_held and not request.disconnected:  # noqa: ASYNC110 - the server has a loop of its own
            await asyncio.sleep(0.02)
        return "bob answers"

    def begin(self, peer: Peer) -> tuple[str, str]:
        """Thread `before` is over, the run of thread `live` is under way; its id, and that of a file."""
        self.serving.start()
        self.serving.say("before", "First.")
        with self.serving.http() as http:
            http.post("/v1/webhooks/secret", json={}).raise_for_status()
            notes = {"file": ("notes.txt", NOTES)}
            file = http.post("/v1/files", files=notes, data={"purpose": "user_data"}).raise_for_status().json()["id"]
        self._speaks.clear()
        self.is_held = True
        run = self.ask_live(peer)
        assert self._speaks.wait(60)
        until(lambda: len(self.serving.messages("live")) == 2)
        return run, file

    def ask_live(self, peer: Peer) -> str:
        """The run of the request of `live`, whether it is new or was there."""
        body = {"model": "pair", "messages": [{"role": "user", "content": "Live."}], "thread_id": "live"}
        told = {"background": True, "webhook_url": peer.url()}
        with self.serving.http() as http:
            asked = http.post("/v1/chat/completions", json=body | told, headers={"Idempotency-Key": "live"})
            return asked.raise_for_status().json()["id"]

    def go_on(self, peer: Peer) -> None:
        """Do what no backup from before has. Then nobody serves."""
        self.serving.say("before", "Lost.")
        self.serving.say("after", "Lost.")
        self.is_held = False
        assert self.serving.settled("live")["status"] == "completed"
        until(lambda: len(peer.told) == 1)
        self.serving.process.die()

    def run(self, block: str, **more: str) -> str:
        """Do what a block of the page says, beside the server; what it prints."""
        settings = {"OPENAI_BASE_URL": self.models.base_url, "DRSAI_DATABASE_URL": self.url, **self.serving.environment}
        return shell(block, self.folder, {**settings, "CHAOS_TOOLS": str(self.serving.effects), **more})

    def has_all(self, file: str) -> None:
        """What was acknowledged before the moment is there, and nothing after it."""
        assert [text for _, _, text in self.serving.messages("before")] == [
            "First.",
            "ann heard: First.",
            "bob answers",
        ]
        with self.serving.http() as http:
            assert http.get("/v1/threads/after").status_code == 404
            assert http.get(f"/v1/files/{file}/content").content == NOTES

    def resumes(self, run: str, peer: Peer) -> None:
        """The run that was under way is resumed where it was, its key is known, and chats go on."""
        assert self.serving.settled("live")["status"] == "completed"
        assert [text for _, _, text in self.serving.messages("live")] == ["Live.", "ann heard: Live.", "bob answers"]
        assert [request.system for request in self.models.requests] == ["You are bob."]
        assert self.ask_live(peer) == run
        assert self.serving.get("/threads/live/runs")["data"][0]["attempt"] == 2
        until(lambda: len(peer.told) == 2)
        assert {told.event["data"]["id"] for told in peer.told} == {run}, "by the original, and by the copy"
        self.serving.say("before", "Second.")
        assert len(self.serving.messages("before")) == 6
        self.serving.process.die()
        invariants.check(self.url)


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as peer:
        yield peer


@pytest.fixture
def others() -> Iterator[ModelServer]:
    """The models of what was restored."""
    with ModelServer(strict=False) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, dict[str, str]]:
    """The URLs of a database and of what is restored of it, and the environment of the page's commands."""
    (tmp_path / "files").mkdir()
    if request.param == "sqlite":
        return request.getfixturevalue("migrated_sqlite"), f"sqlite:///{tmp_path}/restored/drsai.db", {}
    url, server = request.getfixturevalue("own"), request.getfixturevalue("server")
    restored = request.getfixturevalue("empty_beside")
    return url, restored, {"BIN": str(server.bin_path), "DATABASE": url, "RESTORED": restored}


@pytest.fixture
def empty_beside(server: Any) -> Iterator[str]:
    with postgres.Databases(server.get_uri()).empty() as url:
        yield url


def back_up_and_restore(original: Chats, restored: str, environment: dict[str, str], peer: Peer) -> tuple[str, str]:
    """The original goes on between the two; the ids of the run that was under way and of the file."""
    run, file = original.begin(peer)
    save, restore = blocks("SQLite" if restored.startswith("sqlite") else "PostgreSQL: one moment")
    original.run(save, **environment)
    original.go_on(peer)
    said = original.run(restore, **environment)
    assert "2 load as they are" in said
    assert "can be read" in said
    return run, file


def test_what_was_acknowledged_is_restored_and_what_was_under_way_is_resumed(
    commands: Commands,
    model: ModelServer,
    others: ModelServer,
    peer: Peer,
    place: tuple[str, str, dict[str, str]],
    tmp_path: Path,
) -> None:
    url, restored, environment = place
    original = Chats(commands, url, tmp_path, model)
    run, file = back_up_and_restore(original, restored, environment, peer)
    copy = Chats(commands, restored, tmp_path / "restored", others)
    copy.serving.start()
    copy.has_all(file)
    copy.resumes(run, peer)
    invariants.check(url)


def test_a_copy_beside_the_original_is_still(
    commands: Commands,
    model: ModelServer,
    others: ModelServer,
    peer: Peer,
    place: tuple[str, str, dict[str, str]],
    tmp_path: Path,
) -> None:
    url, restored, environment = place
    original = Chats(commands, url, tmp_path, model)
    _, file = back_up_and_restore(original, restored, environment, peer)
    statements, lines = blocks("A copy beside the original")
    engine = sa.create_engine(parse_url(restored), poolclass=sa.NullPool)
    with engine.begin() as connection:
        assert connection.execute(sa.text("SELECT 1 FROM runwebhook")).all()
        for statement in statements.split(";")[:-1]:
            connection.execute(sa.text(statement))
    engine.dispose()
    copy = Chats(commands, restored, tmp_path / "restored", others)
    copy.run(lines)
    copy.serving.start()
    copy.has_all(file)
    assert copy.serving.settled("live")["status"] == "stopped"
    with pytest.raises(openai.InternalServerError, match="This is a copy"):
        copy.serving.say("before", "Second.")
    copy.serving.process.die()
    assert others.requests == []
    assert len(peer.told) == 1, "by the original"
    invariants.check(restored)


@pytest.fixture
def archiving() -> Iterator[tuple[Any, Path]]:
    """A PostgreSQL server that archives as the page says, and the folder that the page calls /backup."""
    with postgres.own_server() as server, tempfile.TemporaryDirectory(prefix="drsai-backup-") as name:
        folder = Path(name)
        folder.chmod(0o777)  # PostgreSQL does not run as root.
        with (server.pgdata / "postgresql.conf").open("a") as file:
            file.write(blocks("PostgreSQL: any moment")[0].replace("/backup", name))
        by_server(server, folder, f"mkdir {folder}/wal")
        by_server(server, folder, f"pg_ctl -D {server.pgdata} -l {folder}/log -m fast -w restart")
        try:
            yield server, folder
        finally:
            if (folder / "restored/postmaster.pid").exists():
                by_server(server, folder, f"pg_ctl -D {folder}/restored -m immediate -w stop")


def by_server(server: Any, folder: Path, block: str, **more: str) -> None:
    """Do what a block says as the user whose the server is."""
    shell(block, folder, {"BIN": str(server.bin_path), **more}, server.system_user)


def test_postgres_is_restored_to_a_moment(
    commands: Commands,
    model: ModelServer,
    others: ModelServer,
    peer: Peer,
    archiving: tuple[Any, Path],
    tmp_path: Path,
) -> None:
    server, folder = archiving
    page = (each.replace("/backup", str(folder)) for each in blocks("PostgreSQL: any moment"))
    _, save, copy_it, settings, restore = page
    url = server.get_uri()
    migrations.upgrade(url)
    original = Chats(commands, url, tmp_path, model)
    by_server(server, folder, save, DATABASE=url)
    run, file = original.begin(peer)
    [(moment,)] = postgres.query(url, "SELECT clock_timestamp()::text")
    original.go_on(peer)
    [(last,)] = postgres.query(url, "SELECT pg_walfile_name(pg_switch_wal())")
    until(lambda: (folder / "wal" / last).exists())
    by_server(server, folder, copy_it)
    with (folder / "restored/postgresql.conf").open("a") as conf:
        conf.write(re.sub(r"2026-\S+ [^']+", moment, settings))
        conf.write(f"listen_addresses = ''\nunix_socket_directories = '{folder}'\n")
    by_server(server, folder, restore)
    restored = sa.make_url(url).update_query_dict({"host": str(folder)}).render_as_string(hide_password=False)
    until(lambda: postgres.query(restored, "SELECT pg_is_in_recovery()") == [(False,)])
    (tmp_path / "restored").mkdir()
    shutil.copytree(tmp_path / "files", tmp_path / "restored/files")
    copy = Chats(commands, restored, tmp_path / "restored", others)
    copy.serving.start()
    copy.has_all(file)
    copy.resumes(run, peer)
