"""Runs that call the tools of an MCP server which is killed, stopped and asked to die meanwhile. Nothing may be left.

`python -m benchmarks.mcp_chaos [RUNS]`: 1,000 by default. Exit code 1 where a run fails or hangs, or a process or a
file handle is left.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall

from drsai_backend import DrSai, RunStatus
from drsai_backend.tools.mcp import McpStdio, McpWorkbench
from tests.support.scripted import ScriptedClient
from tests.support.threads import settings

SERVER = Path(__file__).parents[1] / "tests" / "support" / "mcp_server.py"
AT_ONCE = 8


def crew() -> AssistantAgent:
    def rule(messages: Any, options: Any) -> Any:
        if type(messages[-1]).__name__ == "UserMessage":
            return [FunctionCall(id="c1", name="n__double", arguments='{"number": 21}')]
        return "failed" if messages[-1].content[0].is_error else "done"

    server = McpStdio(name="n", command=sys.executable, args=(str(SERVER),), timeout=1.0)
    workbench = McpWorkbench([server])
    return AssistantAgent("crew", ScriptedClient(rule), workbench=workbench, reflect_on_tool_use=True)


def servers() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]


async def disturb() -> None:
    while True:
        await asyncio.sleep(random.uniform(0.5, 4))
        for process in servers():
            os.kill(process.pid, random.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM]))


async def main(runs: int) -> int:
    outcomes = {"done": 0, "failed": 0, "broken": 0}
    slots = asyncio.Semaphore(AT_ONCE)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with DrSai({"crew": crew}, f"sqlite:///{folder}/a.db", settings=settings()) as drsai:
            await drsai.run("crew", "x")
            before = psutil.Process().num_fds()
            disturbing = asyncio.create_task(disturb())

            async def one() -> None:
                async with slots, asyncio.timeout(60):
                    await asyncio.sleep(random.uniform(0, 0.4))  # A run that is refused at once is no test.
                    result = await drsai.run("crew", "x")
                    outcomes[result.text if result.status is RunStatus.COMPLETED else "broken"] += 1

            await asyncio.gather(*(one() for _ in range(runs)))
            disturbing.cancel()
            for process in servers():
                os.kill(process.pid, signal.SIGCONT)
            await drsai.run("crew", "x")
            handles = psutil.Process().num_fds() - before
    left = len(servers())
    print(f"{runs} runs in {time.monotonic() - began:.1f} s: {outcomes}; {left} processes, {handles} more handles left")
    return int(bool(left or handles > 4 or outcomes["broken"]))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)))
