"""Processes of the release before beside today's on one PostgreSQL: the schema is upgraded under them, they work on,
and each that is killed is replaced by one of today's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from drsai_backend.database import migrations
from tests.chaos.databases import query
from tests.chaos.kills import Killing
from tests.chaos.schedule import Schedule
from tests.chaos.world import World
from tests.support.commands import ROOT, Commands

RELEASE = "3fc5aee"
"""The release before: a commit, whose schema is `REVISION`."""
REVISION = "0020"


class NoRelease(Exception):
    """Its code is not at hand; the text says why."""


@contextmanager
def release_before(folder: Path) -> Iterator[Commands]:
    """The commands of that release, with today's Python and packages. Its code comes from the repository that this file
    is in, or from that of `DRSAI_TEST_REPOSITORY`.

    Raises:
        NoRelease: neither is one, or it is shallow and has not that commit.
    """
    repository = os.environ.get("DRSAI_TEST_REPOSITORY", str(ROOT))
    archive = subprocess.run(["git", "-C", repository, "archive", RELEASE], capture_output=True, check=False)
    if archive.returncode:
        said = archive.stderr.decode().strip()
        raise NoRelease(f"the code of {RELEASE} is not in {repository} (DRSAI_TEST_REPOSITORY): {said}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    with Commands(folder) as commands:
        yield commands


class RollingOut(Killing):
    """`Killing` in a world whose processes are of the release before at first. They are killed before any other.

    Args:
        before: their commands.
    """

    def __init__(self, world: World, schedule: Schedule, before: Commands, *, kills: int, clients: int) -> None:
        super().__init__(world, schedule, kills=kills, clients=clients)
        self._today, world.commands = world.commands, before
        self.outcome.name = f"rollout, {world.name}"
        migrations.downgrade(world.url, REVISION)

    async def _kill_all(self) -> None:
        old = self._world.serving()
        await self._begun.wait()
        await asyncio.to_thread(migrations.upgrade, self._world.url)
        self._world.commands = self._today
        chance = self._schedule.stream("old")
        assert query(self._world.url, "SELECT worker_id FROM worker") == [], "the release before announces nothing"
        for victim in old:
            for _ in range(2):  # Runs that began after the upgrade are among those that are cut.
                await self._moment(chance)
            assert victim.command.running, victim.command.stderr
            await self._kill(victim, chance)
            self.outcome.add("old processes replaced")
        await self._waiting
        await super()._kill_all()
