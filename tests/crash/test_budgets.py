"""Real processes share budgets: one that is killed between what it reserves and what it settles leaves nothing used
that was not, and nothing reserved once its run has ended."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.crash.test_usage import query
from tests.support.commands import Commands, clean_environment

HELD = """
import asyncio, os, signal, sys
from drsai_backend import DrSai
from drsai_backend.models import ModelParams
from drsai_backend.errors import BudgetReached
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, settings

async def main(url, killed):
    crew = Crew()
    if killed == "yes":
        crew.bob.hold()
    given = settings(**QUICK, budget_user={"tokens_day": 20_000})
    async with DrSai({"crew": crew}, url, settings=given) as drsai:
        me = drsai.user("ann")
        if killed == "yes":
            await me.start("crew", "x" * 2000, thread_id="t", params=ModelParams(max_tokens=1000))
            await crew.bob.asked.wait()
            # As long as it is under way, what it may use is nobody else's.
            try:
                await me.start("crew", "y" * 2000, thread_id="u", params=ModelParams(max_tokens=19_000))
            except BudgetReached:
                print("refused", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        while (await me.get_thread("t")).status.value != "completed":
            await asyncio.sleep(0.05)
        await me.run("crew", "y", thread_id="u")
        print("passed")

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_process_that_is_killed_leaves_nothing_used_up(commands: Commands, database_url: str, tmp_path: Path) -> None:
    """The run that it had is resumed, and what is used is what all calls that are stored have used."""
    env = clean_environment()
    died = commands.program("-c", HELD, database_url, "yes", cwd=tmp_path, env=env)
    assert died.wait(60) == -signal.SIGKILL, died.stderr
    assert died.stdout.split() == ["refused"]
    [held] = query(database_url, "SELECT tokens FROM budgetstate WHERE holder <> ''")
    assert held.tokens
    ran = commands.program("-c", HELD, database_url, "no", cwd=tmp_path, env=env)
    assert ran.wait(120) == 0, ran.stderr
    assert ran.stdout.split() == ["passed"]
    [counted] = query(database_url, "SELECT sum(prompt_tokens + completion_tokens) AS tokens FROM usageentry")
    [used] = query(database_url, "SELECT tokens FROM budgetstate WHERE holder = ''")
    assert used.tokens == counted.tokens
    assert used.tokens


PAUSED = """
import asyncio, os, signal, sys
from drsai_backend import DrSai
from drsai_backend.features.budgets import extension
from drsai_backend.models import ModelParams
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, settings

async def main(url, part):
    extension.EVERY = 0.1
    most = 120 if part == "pause" else 100_000
    async with DrSai({"crew": Crew()}, url, settings=settings(**QUICK, budget_user={"tokens_day": most})) as drsai:
        me = drsai.user("ann")
        if part == "pause":
            run = await me.run("crew", "x", thread_id="t", params=ModelParams(max_tokens=90))
            print(run.status.value)
            return
        if part == "kill":
            # Its row says that it runs, and nobody has taken it up. The queue of jobs may look at it before.
            look_at = drsai.engine.look_at
            async def die(key):
                if (await me.get_thread("t")).status.value == "running":
                    os.kill(os.getpid(), signal.SIGKILL)
                await look_at(key)
            drsai.engine.look_at = die
            await asyncio.sleep(60)
        while (await me.get_thread("t")).status.value != "completed":
            await asyncio.sleep(0.05)
        print("passed")

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_process_that_is_killed_as_it_resumes_a_paused_run_loses_nothing(
    commands: Commands, database_url: str, tmp_path: Path
) -> None:
    env = clean_environment()
    paused = commands.program("-c", PAUSED, database_url, "pause", cwd=tmp_path, env=env)
    assert paused.wait(60) == 0, paused.stderr
    assert paused.stdout.split() == ["paused"]
    died = commands.program("-c", PAUSED, database_url, "kill", cwd=tmp_path, env=env)
    assert died.wait(60) == -signal.SIGKILL, died.stderr
    [run] = query(database_url, "SELECT status FROM run")
    assert run.status == "running"
    ran = commands.program("-c", PAUSED, database_url, "end", cwd=tmp_path, env=env)
    assert ran.wait(120) == 0, ran.stderr
    assert ran.stdout.split() == ["passed"]
    [counted] = query(database_url, "SELECT sum(prompt_tokens + completion_tokens) AS tokens FROM usageentry")
    [used] = query(database_url, "SELECT tokens FROM budgetstate WHERE holder = ''")
    assert used.tokens == counted.tokens
