"""Real processes share limits: together they let through what one would, and one that is killed leaves nothing used
up."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from drsai_backend.features.limits.base import Bound, Who
from tests.crash.test_usage import query
from tests.support.commands import Commands, clean_environment

MOST = 300
ASKING = """
import asyncio, json, sys, time
from drsai_backend import DrSai
from drsai_backend.errors import TooManyRequests
from tests.support.teams.crew import Crew
from tests.support.threads import LATE, settings

async def main(url, name, most, seconds):
    passed = refused = 0
    given = settings(**LATE, limit_tenant={"requests": int(most)})
    async with DrSai({"crew": Crew()}, url, settings=given) as drsai:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        begun = time.time()

        async def ask(number):
            nonlocal passed, refused
            while time.time() < begun + float(seconds):
                try:
                    handle = await drsai.user(f"{name}{number}").start("crew", "x")
                except TooManyRequests:
                    refused += 1
                    await asyncio.sleep(0.005)
                else:
                    passed += 1
                    await handle.wait()

        await asyncio.gather(*map(ask, range(8)))
    print(json.dumps([passed, refused, begun, time.time()]))

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_let_through_what_one_would(commands: Commands, database_url: str, tmp_path: Path) -> None:
    """At most 2 % more than the bucket holds and what flows in meanwhile, and at least 2 % less."""
    env = clean_environment()
    running = [
        commands.program("-c", ASKING, database_url, name, str(MOST), "12", cwd=tmp_path, env=env, stdin="\n")
        for name in ("a", "b")
    ]
    told: list[tuple[int, int, float, float]] = []
    for each in running:
        assert each.wait(120) == 0, each.stderr
        told.append(tuple(json.loads(each.stdout.splitlines()[-1])))
    passed, refused = sum(each[0] for each in told), sum(each[1] for each in told)
    seconds = max(each[3] for each in told) - min(each[2] for each in told)
    assert refused
    assert all(each[0] for each in told)
    allowed = MOST + seconds * MOST / 60
    assert passed <= allowed * 1.02, (passed, allowed)
    # Both asked until the end of the twelve seconds.
    assert passed >= (MOST + 10 * MOST / 60) * 0.9, (passed, allowed)


HELD = """
import asyncio, os, signal, sys
from drsai_backend import DrSai
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, settings

async def main(url, killed):
    crew = Crew()
    if killed == "yes":
        crew.ann.hold()
    limits = {"limit_user": {"runs": 1, "tokens": 1000}}
    async with DrSai({"crew": crew}, url, settings=settings(**QUICK, **limits)) as drsai:
        me = drsai.user("ann")
        if killed == "yes":
            await me.start("crew", "x" * 2000, thread_id="t")
            await crew.ann.asked.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        from drsai_backend.errors import TooManyRequests
        refused = 0
        while True:
            try:
                await me.run("crew", "y", thread_id="u")
                break
            except TooManyRequests as error:
                refused += 1
                await asyncio.sleep(0.05)
        assert (await me.get_thread("t")).status.value == "completed"
        print("passed")

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_process_that_is_killed_leaves_nothing_used_up(commands: Commands, database_url: str, tmp_path: Path) -> None:
    """Its run counts until another process has ended it, and no longer; the tokens that it took and never used are free
    again with time."""
    env = clean_environment()
    died = commands.program("-c", HELD, database_url, "yes", cwd=tmp_path, env=env)
    assert died.wait(60) == -signal.SIGKILL, died.stderr
    subject = Bound(Who("user", "default", "ann"), "tokens", 1000).subject
    [row] = query(database_url, f"SELECT tat FROM limitstate WHERE subject = '{subject}'")
    assert row.tat
    ran = commands.program("-c", HELD, database_url, "no", cwd=tmp_path, env=env)
    assert ran.wait(120) == 0, ran.stderr
    assert ran.stdout.split() == ["passed"]
