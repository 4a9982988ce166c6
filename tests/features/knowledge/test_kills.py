"""Processes that read files are killed again and again: each chunk is stored once, and nothing is lost or left."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend.database import Database
from drsai_backend.datamodel import KnowledgeFile, SearchEntry, SearchIndex, WorkJob, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.base import Chunking, NewFile, NewStore
from drsai_backend.features.knowledge.rows import files as rows
from drsai_backend.files import Files
from tests.support.commands import Command, Commands, clean_environment
from tests.support.threads import settings

ANN = Owner("acme", "ann")
FILES, PARTS = 6, 24


def _text(number: int) -> str:
    return "\n\n".join(f"# Part {part}\n\n" + f"Word{number}x{part} is here. " * 100 for part in range(PARTS))


def test_killed_at_any_moment(
    commands: Commands, database_url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills = 3 * int(str(pytestconfig.getoption("--chaos-kills")))
    chance = random.Random(pytestconfig.getoption("--chaos-seed"))
    asyncio.run(_fill(database_url))
    database = Database(database_url)

    def read(query: sa.Select[Any]) -> list[Any]:
        return database.read_sync(lambda session: [*session.execute(query).all()])

    def start() -> Command:
        program = "tests.features.knowledge.program"
        process = commands.program("-m", program, database_url, cwd=tmp_path, env=clean_environment())
        _until(lambda: "at work" in process.stdout or not process.running)
        return process

    for _ in range(kills):
        process = start()
        time.sleep(chance.uniform(0.1, 1.5))
        process.die()
    process = start()
    jobs, file, entry, index = (table_of(each) for each in (WorkJob, KnowledgeFile, SearchEntry, SearchIndex))
    _until(lambda: read(sa.select(jobs.c.id)) == [])
    process.die()
    assert [(row.status, row.chunks, row.done) for row in read(sa.select(file))] == [
        ("completed", PARTS, PARTS)
    ] * FILES
    assert Counter(row.family for row in read(sa.select(entry.c.family))) == {
        str(row.id): PARTS for row in read(sa.select(file.c.id))
    }
    words = Counter(row.text.split("\n\n")[1].split()[0] for row in read(sa.select(entry.c.text)))
    assert words == {f"Word{number}x{part}": 1 for number in range(FILES) for part in range(PARTS)}
    assert [row.entries for row in read(sa.select(index.c.entries))] == [FILES * PARTS]
    database.close_sync()


async def _fill(url: str) -> None:
    database = Database(url)
    files = Files(database, settings())
    chunking = Chunking(size=512, overlap=0)
    given = [
        NewFile(file_id=(await files.create(ANN, f"{number}.md", _text(number).encode())).file_id, chunking=chunking)
        for number in range(FILES)
    ]
    await database.write(partial(rows.create_with, owner=ANN, new=NewStore(name="many"), files=given))
    await database.close()


def _until(true: Any, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
