"""The tool around the sandboxes: whose folder it is, what becomes of a result, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall

from drsai_backend import DrSai, DrSaiAgent
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.teams.replay.steps import ToolFinished
from drsai_backend.tools import call_tool
from drsai_backend.tools.code import CodeFile, CodeLimits, CodeResult, code_interpreter
from drsai_backend.tools.code.bubblewrap import BubblewrapSandbox
from drsai_backend.tools.code.folders import WorkFolders
from tests.support.repeated import Story
from tests.support.scripted import ScriptedClient


class Noted:
    """Runs nothing, and notes what it was given."""

    name = "noted"
    knows = "Nothing."
    has_folder = True

    def __init__(self, *, repeatable: bool = False, why: str | None = None) -> None:
        self.repeatable, self.why = repeatable, why
        self.ran: list[str] = []
        self.at_once = self.most = 0

    def missing(self) -> str | None:
        return None

    async def probe(self) -> str | None:
        return self.why

    async def run(self, code: str, folder: Path | None, limits: CodeLimits) -> CodeResult:
        assert folder is not None
        self.ran.append(code)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.02)
        self.at_once -= 1
        return CodeResult(stdout=code, files=(CodeFile("a.txt", code.encode()),))


def answer(messages: Sequence[Any], options: dict[str, Any]) -> Any:
    """Runs what the user says, and repeats what comes of it."""
    last = messages[-1]
    if type(last).__name__ == "FunctionExecutionResultMessage":
        return last.content[0].content
    return [FunctionCall("c", json.dumps({"code": last.content}), "code_interpreter")]


def agent(sandbox: Any, folder: Path) -> DrSaiAgent:
    tool = code_interpreter(sandbox, folder=folder)
    return DrSaiAgent("coder", ScriptedClient(answer), tools=[tool], max_tool_iterations=2)


async def test_each_thread_has_a_folder_of_its_own_and_its_files_are_kept(
    database_url: str, bubblewrap: BubblewrapSandbox, root: Path
) -> None:
    def coder() -> DrSaiAgent:
        return agent(bubblewrap, root)

    write, look = "open('a.txt', 'w').write('secret')", "import os\nos.listdir()"
    async with DrSai({"coder": coder}, database_url) as drsai:
        made = await drsai.user("ann", tenant="one").run("coder", write, thread_id="t")
        [kept] = (await drsai.files.list(Owner("one", "ann"))).items
        assert (kept.filename, await drsai.files.read(Owner("one", "ann"), kept.file_id)) == ("a.txt", b"secret")
        assert kept.file_id in made.text
        for user, tenant, thread, found in (
            ("ann", "one", "t", "['a.txt']"),
            ("ann", "two", "t", "[]"),
            ("bob", "one", "t", "[]"),
            ("ann", "one", "../t", "[]"),
        ):
            result = await drsai.user(user, tenant=tenant).run("coder", look, thread_id=thread)
            assert result.text == found, (user, tenant, thread)
        await drsai.user("ann", tenant="one").delete_thread("t")
        again = await drsai.user("ann", tenant="one").run("coder", look, thread_id="t")
        assert again.text == "[]", "a thread that is made again is another one"
    assert all(len(name) == 64 for name in os.listdir(root) if name != ".pruned")


@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize("crash_at", [None, 1, 2])
async def test_code_is_not_run_again_after_a_crash(crash_at: int | None, repeatable: bool, root: Path) -> None:
    sandbox = Noted(repeatable=repeatable)
    words = {"tool_retry": "run"}  # It was not run: its result would be the next write.

    def build() -> RoundRobinGroupChat:
        return RoundRobinGroupChat([agent(sandbox, root)], max_turns=1)

    story = await Story(build, lambda question: words[question.kind], crash_at=crash_at, durable=True).run()
    assert len(sandbox.ran) == 1
    [result] = {event.result for event in story.events if isinstance(event, ToolFinished)}
    assert result.startswith(sandbox.ran[0])


async def test_a_sandbox_that_does_not_work_runs_nothing(root: Path) -> None:
    sandbox = Noted(why="it is broken")
    tool = code_interpreter(sandbox, folder=root)
    result = await call_tool(tool, {"code": "1"})
    assert result.is_error
    assert "cannot be run on this server, as its sandbox does not work: it is broken" in result.to_text()
    with pytest.raises(ToolError, match="broken"):
        await tool.validate_credentials()
    assert not sandbox.ran
    with pytest.raises(ConfigurationError, match="monty, bubblewrap, docker"):
        code_interpreter("local")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["bubblewrap", "docker"])
async def test_what_is_not_installed_is_said_when_the_tool_is_made(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="there is no program"):
        code_interpreter(name)


async def test_bubblewrap_that_cannot_make_namespaces_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = root.parent / "programs"
    programs.mkdir()
    (programs / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (programs / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    result = await call_tool(code_interpreter("bubblewrap", folder=root), {"code": "1"})
    assert result.is_error
    assert "No permissions to create new namespace" in result.to_text()


async def test_code_of_one_thread_runs_one_at_a_time_and_of_many_a_few_at_a_time(root: Path) -> None:
    sandbox, folders = Noted(), WorkFolders(root)

    async def one() -> None:
        async with folders.held("k", 5) as folder:
            await sandbox.run("", folder, CodeLimits())

    await asyncio.gather(*(one() for _ in range(4)))
    assert sandbox.most == 1
    async with folders.held("k", 1):
        with pytest.raises(ToolError, match="still running"):
            async with folders.held("k", 0):
                pass
    tool = code_interpreter(sandbox, folder=root)
    await asyncio.gather(*(call_tool(tool, {"code": "1"}) for _ in range(12)))
    assert sandbox.most == max(2, os.cpu_count() or 1)


async def test_old_folders_and_those_of_dead_processes_are_removed(root: Path) -> None:
    folders = WorkFolders(root, keep_days=1, most_bytes=50_000)
    for key in ("old", "used", "large", "new"):
        async with folders.held(key, 1) as folder:
            (folder / "a").write_bytes(b"x" * (100_000 if key == "large" else 10))
    for name, hours in (("old", 30), ("used", 30), ("large", 2), ("new", 1)):
        os.utime(root / name / "lock", (time.time() - 3600 * hours,) * 2)
    (root / "once-1" / "work").mkdir(parents=True)
    async with folders.held("used", 1):
        assert folders.prune() == 3
    assert sorted(os.listdir(root)) == [".pruned", "new", "used"]


async def test_a_root_of_somebody_else_is_refused(root: Path) -> None:
    os.symlink("/tmp", root)
    with pytest.raises(ConfigurationError, match="no folder of this user's"):
        async with WorkFolders(root).held(None, 1):
            pass


async def test_limits_that_cannot_work_are_named() -> None:
    with pytest.raises(ConfigurationError, match="seconds=0"):
        CodeLimits(seconds=0)
    with pytest.raises(ConfigurationError, match="memory=5: the least is 1048576"):
        CodeLimits(memory=5)
