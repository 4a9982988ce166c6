"""Processes that do jobs are killed or stand still again and again: each step of a job is there once, and each end."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend.database import Database
from drsai_backend.datamodel import WorkJob, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.work.jobs import enqueue
from drsai_backend.work.kinds import NewJob
from tests.support.commands import Command, Commands, clean_environment
from tests.work.program import EFFECTS, ENDS, FAST, TABLES

JOBS, STEPS, PROCESSES = 24, 30, 2
LEASE = 3 * FAST["lease_seconds"]


def test_killed_at_any_moment(
    commands: Commands, database_url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills = 5 * pytestconfig.getoption("--chaos-kills")
    chance = random.Random(pytestconfig.getoption("--chaos-seed"))
    database = Database(database_url)
    for text in TABLES:
        database.write_sync(lambda session, text=text: session.execute(sa.text(text)))
    keys = [f"{owner} {number}" for number in range(JOBS // 2) for owner in ("ann", "bob")]

    def put(key: str) -> None:
        new = NewJob("test", key, {"steps": STEPS})
        database.write_sync(lambda session: enqueue(session, Owner("default", key.split()[0]), new))

    def rows(query: sa.Select[Any]) -> list[Any]:
        return database.read_sync(lambda session: [*session.execute(query).all()])

    def start() -> Command:
        process = commands.program("-m", "tests.work.program", database_url, cwd=tmp_path, env=clean_environment())
        until(lambda: "at work" in process.stdout or not process.running)
        return process

    left = [*keys]
    processes = [start() for _ in range(PROCESSES)]
    for kill in range(kills):
        # Jobs come all the time, so that there is always one to be killed in.
        while len(left) > JOBS * (kills - 1 - kill) // kills:
            put(left.pop())
        time.sleep(chance.uniform(0.02, 0.15))
        process = processes.pop(chance.randrange(PROCESSES))
        if kill % 4 == 3:
            # Others take its jobs up, and then it resumes what it was about to store.
            process.kill(signal.SIGSTOP)
            time.sleep(2 * LEASE)
            process.kill(signal.SIGCONT)
            processes.append(process)
        else:
            process.die()
            processes.append(start())
    until(lambda: rows(sa.select(table_of(WorkJob).c.key)) == [])
    for process in processes:
        process.die()
    ends = Counter(row.key for row in rows(sa.select(ENDS.c.key)))
    assert ends == dict.fromkeys(keys, 1)
    effects = Counter((row.key, row.step) for row in rows(sa.select(EFFECTS.c.key, EFFECTS.c.step)))
    assert effects == {(key, step): 1 for key in keys for step in range(STEPS)}
    database.close_sync()


def until(true: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
