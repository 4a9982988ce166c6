"""What a run has opened is closed at its end, however it ends; what runs share stays open."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent, SocietyOfMindAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.tools import Workbench
from pydantic import BaseModel

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.errors import RunFailed, StateError
from drsai_backend.teams import resources
from drsai_backend.teams.context import RunContext
from drsai_backend.tools.mcp import McpStdio, McpWorkbench
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import Make, until

pytestmark = pytest.mark.filterwarnings("ignore:No approval function set for CodeExecutorAgent")
SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"


def numbers() -> McpWorkbench:
    return McpWorkbench([McpStdio(name="numbers", command=sys.executable, args=(str(SERVER),))])


def servers() -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if any("mcp_server" in part for part in child.cmdline()):
                found.append(child)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


async def one_left(drsai: DrSai) -> None:
    """Runs share a connection, which closes with the pool."""
    assert len(servers()) == 1
    await drsai.mcp.pool.close()
    await none_left()


async def none_left() -> None:
    async def gone() -> bool:
        return not servers()

    await until(gone)


def calling(then: Answer = "done") -> ScriptedClient:
    """Calls `double` once, then gives an answer."""

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if type(messages[-1]).__name__ == "UserMessage":
            return [FunctionCall(id=f"c{len(messages)}", name="numbers__double", arguments='{"number": 21}')]
        assert "42" in str(messages[-1].content)
        return then

    return ScriptedClient(rule)


def counter(workbench: Workbench, then: Any = "done") -> AssistantAgent:
    return AssistantAgent("counter", calling(then), workbench=workbench, reflect_on_tool_use=True)


async def started() -> AssistantAgent:
    """A factory that starts what it makes."""
    workbench = numbers()
    await workbench.start()
    return counter(workbench)


@pytest.mark.parametrize("factory", [lambda: counter(numbers()), started])
async def test_requests_leave_one_process(make: Make, factory: Any) -> None:
    drsai = await make({"counter": factory})
    assert (await drsai.run("counter", "x", thread_id="t")).text == "done"
    await asyncio.gather(*(drsai.run("counter", "x") for _ in range(2)))
    await drsai.run("counter", "y", thread_id="t")
    await one_left(drsai)


async def test_a_run_that_fails_leaves_one_process(make: Make) -> None:
    drsai = await make({"counter": lambda: counter(numbers(), ValueError("no"))})
    for _ in range(2):
        with pytest.raises(RunFailed):
            await drsai.run("counter", "x")
    await one_left(drsai)


async def test_a_run_that_is_cancelled_leaves_one_process(make: Make) -> None:
    reached = asyncio.Event()

    class Waiting(ScriptedClient):
        async def create(self, messages: Any, **options: Any) -> Any:
            if type(messages[-1]).__name__ != "UserMessage":
                reached.set()
                await asyncio.Event().wait()
            return await super().create(messages, **options)

    def team() -> AssistantAgent:
        return AssistantAgent("counter", Waiting(calling().rule), workbench=numbers(), reflect_on_tool_use=True)

    drsai = await make({"counter": team})
    for way in ("cancel", "stop"):
        handle = await drsai.start("counter", "x", thread_id=way)
        await reached.wait()
        reached.clear()
        assert servers()
        if way == "cancel":
            await drsai.engine.cancel_run(Principal(), handle.run_id)
        else:
            await drsai.stop(way)
        assert (await handle.wait()).status is RunStatus.STOPPED
    await one_left(drsai)


# --- whose it is ----------------------------------------------------------------------------------------------------


class Executor(CodeExecutor):
    """Says when it is started and stopped; started by its factory or, if `lazy`, when it is used."""

    component_type = "code_executor"

    def __init__(self, *, lazy: bool = False, hang: bool = False, fail: bool = False) -> None:
        self._started = not lazy
        self.stops = 0
        self.hang, self.fail = hang, fail

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        self._started = True
        return CodeResult(exit_code=0, output="ran")

    async def start(self) -> None:
        self._started = True

    async def stop(self) -> None:
        self.stops += 1
        if self.hang:
            await asyncio.Event().wait()
        if self.fail:
            raise RuntimeError("not now")
        self._started = False

    async def restart(self) -> None: ...

    @classmethod
    def _from_config(cls, config: Any) -> Executor:
        return cls()

    def _to_config(self) -> BaseModel:
        return BaseModel()


CODE = "```python\nprint(1)\n```"


def runner(executor: Executor, name: str = "runner") -> CodeExecutorAgent:
    return CodeExecutorAgent(name, executor)


def quiet() -> ScriptedClient:
    return ScriptedClient(lambda messages, options: "fine")


HOLDERS: dict[str, Callable[[Executor], Any]] = {
    "lone": runner,
    "team": lambda it: RoundRobinGroupChat([runner(it)], max_turns=1),
    "nested": lambda it: RoundRobinGroupChat([RoundRobinGroupChat([runner(it)], max_turns=1)], max_turns=1),
    "society": lambda it: SocietyOfMindAgent("mind", RoundRobinGroupChat([runner(it)], max_turns=1), quiet()),
    "agent tool": lambda it: AssistantAgent("a", quiet(), tools=[AgentTool(runner(it))]),
    "team tool": lambda it: AssistantAgent(
        "a", quiet(), tools=[TeamTool(RoundRobinGroupChat([runner(it)], max_turns=1), "crew", "a crew")]
    ),
}


@pytest.mark.parametrize("holder", HOLDERS)
async def test_what_every_run_has_anew_is_closed_wherever_it_is_held(make: Make, holder: str) -> None:
    made: list[Executor] = []

    def factory() -> Any:
        made.append(Executor())
        return HOLDERS[holder](made[-1])

    drsai = await make({"team": factory})
    for _ in range(3):
        await drsai.run("team", CODE, thread_id="t")

    async def closed() -> bool:
        return [each.stops for each in made] == [1, 1, 1]

    await until(closed)


@pytest.mark.parametrize("lazy", [False, True])
async def test_what_runs_share_stays_open(make: Make, lazy: bool) -> None:
    shared = Executor(lazy=lazy)
    drsai = await make({"team": lambda: runner(shared)})
    await drsai.run("team", CODE)  # Nobody knows yet; one that starts when it is used can be stopped.
    for _ in range(3):
        await asyncio.gather(*(drsai.run("team", CODE) for _ in range(3)))
        assert shared._started
    assert shared.stops == (1 if lazy else 0)
    await drsai.engine.close()
    assert shared.stops == (2 if lazy else 0)


async def test_what_another_run_uses_is_not_closed(make: Make) -> None:
    """Neither an object that two live runs have, nor a model client that all have."""
    closes = 0

    class Client(ScriptedClient):
        async def close(self) -> None:
            nonlocal closes
            closes += 1

    shared = Client(lambda messages, options: "fine")
    drsai = await make({"one": lambda: AssistantAgent("a", shared), "two": lambda: AssistantAgent("a", shared)})
    for team in ("one", "two", "one"):
        await drsai.run(team, "x")
    assert closes == 0
    made: list[Client] = []

    def factory() -> AssistantAgent:
        made.append(Client(lambda messages, options: "fine"))
        return AssistantAgent("a", made[-1])

    other = await make({"own": factory})
    for _ in range(3):
        await other.run("own", "x")

    async def closed() -> bool:
        return closes == 3

    await until(closed)


async def test_a_team_whose_state_cannot_be_loaded_is_closed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Executor] = []

    class Stubborn(CodeExecutorAgent):
        async def load_state(self, state: Any) -> None:
            raise ValueError("no")

        async def save_state(self) -> dict[str, Any]:
            return {"a": 1}

    def factory() -> Any:
        made.append(Executor())
        return Stubborn("runner", made[-1])

    await (await make({"team": factory})).run("team", CODE, thread_id="t")
    drsai = await make({"team": factory}, warm_threads=0)
    for _ in range(2):
        with pytest.raises(StateError):
            await drsai.run("team", CODE, thread_id="t")

    async def closed() -> bool:
        return [each.stops for each in made[1:]] == [1, 1]

    await until(closed)


async def test_closing_delays_nobody_and_says_when_it_fails(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resources, "CLOSE_SECONDS", 0.2)
    caplog.set_level(logging.WARNING, "drsai.run")
    made: list[Executor] = []

    def factory() -> Any:
        made.append(Executor(lazy=True, hang=len(made) % 2 == 0, fail=True))
        return runner(made[-1])

    drsai: DrSai = await make({"team": factory})
    for _ in range(4):
        assert (await drsai.run("team", CODE, thread_id="t")).text == "ran"

    async def logged() -> bool:
        return len(caplog.records) == 4

    await until(logged)
    told = sorted(record.getMessage() for record in caplog.records)
    assert told[0] == "not closed within 0.2 s: Executor of team 'team', agent 'runner'"
    assert told[2] == "not closed: Executor of team 'team', agent 'runner': RuntimeError"


async def test_a_run_leaves_nothing_of_its_context(make: Make) -> None:
    """What was said and the client's key, which the context has: cancelled timers, of limits a day away, keep for so
    long the context variables of the task that has set them up."""

    def crew(context: RunContext) -> AssistantAgent:
        return AssistantAgent("a", ScriptedClient(lambda *_: "hi"))

    drsai = await make({"crew": crew}, warm_threads=0)
    runs = {(await drsai.run("crew", "x")).run_id for _ in range(3)}

    async def gone() -> bool:
        # Other tests of this process leave contexts of theirs, and `isinstance` wakes what loads itself when asked.
        gc.collect()
        return not any(type(each) is RunContext and each.run_id in runs for each in gc.get_objects())

    await until(gone)
    loop: Any = asyncio.get_running_loop()
    assert all(each.when() - loop.time() < 3600 for each in loop._scheduled if each.cancelled())
