"""A process is killed while it rewinds and forks, again and again: each has happened, or nothing of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from drsai_backend import DrSai
from tests.support.commands import clean_environment
from tests.support.threads import settings

# Imports once, and forks for each line that it reads.
TRAVELLERS = """
import asyncio, os, sys
from drsai_backend import DrSai

async def travel(url):
    async with DrSai(None, url, worker=False) as drsai:
        print(f"travels {os.getpid()}", flush=True)
        for number in range(10_000):
            await drsai.rewind("anonymous", "t", turn=1 + number % 3)
            await drsai.fork("anonymous", "t", turn=1 + number % 3)
            print("travelled", flush=True)

while sys.stdin.readline():
    child = os.fork()
    if child == 0:
        asyncio.run(travel(sys.argv[1]))
    os.waitpid(child, 0)
    print("died", flush=True)
"""


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_killed_while_it_travels(database_url: str) -> None:
    async with DrSai(None, database_url, settings=settings()) as drsai:
        for number in range(3):
            await drsai.run("assistant", f"question {number}", thread_id="t")
        said = [each.content for each in await drsai.list_messages("t")]
    await asyncio.to_thread(_kill_travellers, database_url)
    async with DrSai(None, database_url, settings=settings()) as drsai:
        thread = await drsai.get_thread("t")
        branches = (await drsai.branches("t", limit=100_000)).items
        assert [each.number for each in branches if each.is_current] == [thread.branch]
        assert [each.number for each in branches] == list(range(len(branches)))
        here = [each.content for each in await drsai.list_messages("t")]
        assert here == said[: len(here)]
        assert [each.content for each in await drsai.list_messages("t", branch=0)] == said
        forks = (await drsai.list_threads(limit=100)).items
        assert len(forks) > 1
        for fork in forks[:20]:
            copied = [each.content for each in await drsai.list_messages(fork.thread_id)]
            assert copied == said[: len(copied)]
            assert len(copied) in (2, 4, 6)
        await drsai.run("assistant", "continues", thread_id="t")


def _kill_travellers(url: str) -> None:
    command, pipe = [sys.executable, "-c", TRAVELLERS, url], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=clean_environment()) as mother:
        assert mother.stdin is not None
        assert mother.stdout is not None
        for kill in range(8):
            print("on", file=mother.stdin, flush=True)
            pid = int(mother.stdout.readline().removeprefix("travels "))
            assert mother.stdout.readline() == "travelled\n"
            time.sleep(0.003 * kill)
            os.kill(pid, signal.SIGKILL)
            while mother.stdout.readline() != "died\n":
                pass
        mother.stdin.close()
