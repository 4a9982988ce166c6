"""Processes that learn are killed (SIGKILL) again and again: each fact is stored once, none is lost or an orphan."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from drsai_backend import DrSai
from drsai_backend.database import Database
from drsai_backend.datamodel import SearchEntry, StoredMemory, WorkJob, table_of
from tests.features.memory.scripted import DECIDE, FIND, decide, find
from tests.support.commands import Command, Commands, clean_environment
from tests.support.model_server import ModelServer
from tests.support.threads import LATE, settings

FACTS = 12


def test_killed_while_it_learns(
    commands: Commands, database_url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills: int = pytestconfig.getoption("--chaos-kills") or 1
    chance = random.Random(pytestconfig.getoption("--chaos-seed"))
    with ModelServer() as model:
        model.script(FIND, find)
        model.script(DECIDE, decide)
        asyncio.run(_said(database_url, model))
        database = Database(database_url)

        def rows(query: sa.Select[str]) -> list[str]:
            return sorted(database.read_sync(lambda session: [*session.execute(query).scalars()]))

        def start() -> Command:
            program = ("-m", "tests.features.memory.program", database_url, model.base_url)
            process = commands.program(*program, cwd=tmp_path, env=clean_environment())
            _until(lambda: "at work" in process.stdout or not process.running)
            return process

        jobs = sa.select(table_of(WorkJob).c.key)
        assert len(rows(jobs)) == FACTS
        for _ in range(kills):
            process = start()
            time.sleep(chance.uniform(0.0, 0.2))
            process.die()
        process = start()
        _until(lambda: rows(jobs) == [])
        process.die()
        memory = table_of(StoredMemory)
        texts = [f"The user is allergic to nut{number}." for number in range(FACTS)]
        assert rows(sa.select(memory.c.text)) == sorted(texts)
        assert rows(sa.select(table_of(SearchEntry).c.ref)) == rows(sa.select(memory.c.memory_id))
        database.close_sync()


async def _said(url: str, model: ModelServer) -> None:
    endpoint = {"openai_base_url": model.base_url, "openai_api_key": SecretStr("k")}
    async with DrSai(None, url, settings=settings(**LATE, **endpoint, memory=True)) as drsai:
        for number in range(FACTS):
            await drsai.user("ann").run("assistant", f"I am allergic to nut{number}.", thread_id=f"t{number}")


def _until(true: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not (callable(true) and true()):
        assert time.monotonic() < end
        time.sleep(0.02)
