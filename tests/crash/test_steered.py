"""Real processes steer runs: a message that was taken reaches its run, whenever the process that took it dies."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.commands import Commands, clean_environment

STEERED = """
import asyncio, os, signal, sys
from drsai_backend import DrSai
from tests.runs.test_busy import paused
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, request, settings, sources, thread_of

async def main(url, part):
    crew = Crew()
    async with DrSai({"crew": crew}, url, settings=settings(**QUICK)) as drsai:
        if part == "pause":
            await paused(drsai, crew)
            print((await thread_of(drsai)).status.value)
        elif part == "kill":
            async def die(*_, **__):
                os.kill(os.getpid(), signal.SIGKILL)
            # The message is stored, and nothing was done about it yet.
            drsai.engine._commands._begin = drsai.engine._commands._hurry = die
            await drsai.engine.start(*request("and y"))
        else:
            while (await thread_of(drsai)).status.value != "completed":
                await asyncio.sleep(0.05)
            print(*sources(await thread_of(drsai)))

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_message_to_a_paused_run_resumes_it_though_its_process_is_killed(
    commands: Commands, database_url: str, tmp_path: Path
) -> None:
    env = clean_environment()

    def run(part: str, ends_with: int) -> str:
        process = commands.program("-c", STEERED, database_url, part, cwd=tmp_path, env=env)
        assert process.wait(60) == ends_with, process.stderr
        return process.stdout.strip()

    assert run("pause", 0) == "paused"
    assert run("kill", -signal.SIGKILL) == ""
    assert run("end", 0) == "user ann bob user eve"
