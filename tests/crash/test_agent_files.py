"""Servers whose agent has files are killed while they put them into its store and read them, two at a time: each file
is there once in the end, whole, and nothing else."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend.database import Database
from drsai_backend.datamodel import KnowledgeFile, KnowledgeStore, SearchEntry, StoredFile, WorkJob, table_of
from drsai_backend.features.knowledge.base import PATH
from tests.support import invariants
from tests.support.commands import Commands

FILES = 12
SETTINGS = {"DRSAI_SWEEP_SECONDS": "0.2", "DRSAI_LEASE_SECONDS": "1", "DRSAI_HEARTBEAT_SECONDS": "0.3"}


def _word(number: int, part: int, version: int) -> str:
    return f"Word{number}x{part}v{version if part == 3 else 0}"


def _text(number: int, version: int) -> str:
    return "\n\n".join(f"# Part {part}\n\n" + f"{_word(number, part, version)} is here. " * 60 for part in range(6))


def test_killed_at_any_moment(
    commands: Commands, database_url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills = 3 * int(str(pytestconfig.getoption("--chaos-kills")))
    chance = random.Random(pytestconfig.getoption("--chaos-seed"))
    folder = tmp_path / "docs"
    folder.mkdir()
    agent = {"prompt": "You are ann.", "knowledge": {"files": ["docs"], "chunk_size": 600, "chunk_overlap": 0}}
    (tmp_path / "team.yaml").write_text(json.dumps({"agents": {"ann": agent}}))
    environment = {"DRSAI_DATABASE_URL": database_url, **SETTINGS}

    def start() -> Any:
        return commands.start("serve", "team.yaml", "--port", "0", cwd=tmp_path, env=environment)

    first = start()
    first.base_url()  # The schema is there.
    first.die()
    version = 0
    for _ in range(kills):
        version += 1
        for number in range(FILES):
            (folder / f"{number}.md").write_text(_text(number, version))
        (folder / "gone.md").write_text("This goes.")
        servers = [start(), start()]
        time.sleep(chance.uniform(0.3, 2.5))
        (folder / "gone.md").unlink()
        for server in servers:
            server.die()
    database = Database(database_url)

    def read(query: sa.Select[Any]) -> list[Any]:
        return database.read_sync(lambda session: [*session.execute(query).mappings().all()])

    jobs, file, entry, store, stored = (
        table_of(each) for each in (WorkJob, KnowledgeFile, SearchEntry, KnowledgeStore, StoredFile)
    )
    last = [start(), start()]
    wanted = {f"docs/{number}.md" for number in range(FILES)}
    words = {_word(number, part, version) for number in range(FILES) for part in range(6)}

    def is_settled() -> bool:
        files = read(sa.select(file))
        found = {each for row in read(sa.select(entry.c.text)) for each in re.findall(r"Word\w+", row["text"])}
        paths = sorted(row["attributes"][PATH] for row in files)
        done = {row["status"] for row in files} == {"completed"} and not read(sa.select(jobs.c.id))
        return done and paths == sorted(wanted) and found == words

    end = time.monotonic() + 120
    while not is_settled():
        assert time.monotonic() < end, [dict(row) for row in read(sa.select(file))]
        time.sleep(0.1)
    for server in last:
        server.die()
    assert len(read(sa.select(store.c.id))) == 1
    texts = [row["text"] for row in read(sa.select(entry.c.text))]
    assert len(texts) == len({*texts}) == len(words)
    kept = read(sa.select(stored.c.file_id).where(stored.c.expires_at.is_(None)))
    assert {row["file_id"] for row in kept} == {row["file_id"] for row in read(sa.select(file.c.file_id))}
    database.close_sync()
    invariants.check(database_url)
