"""A turn that is cut at each of its writes, of each kind of team."""

from __future__ import annotations

import pytest

from tests.support.teams.working import TEAMS
from tests.teams.test_steps import Build, crash_at_every_write, crash_before_every_write

pytestmark = pytest.mark.usefixtures("spotless")

each_team = pytest.mark.parametrize("build", TEAMS, ids=lambda build: build.__name__)


@each_team
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_crash_at_every_write(build: Build, stream: bool) -> None:
    await crash_at_every_write(build, stream=stream)


@each_team
async def test_a_crash_before_every_write(build: Build) -> None:
    await crash_before_every_write(build)
