"""The platforms beside Linux, as far as they can be told on it: names that they lack are taken from processes, which do
without, or say what cannot be done and what can. docs/deployment.md says that they themselves were never there."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from drsai_backend.cli.address import find_address, listen
from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.errors import ConfigurationError
from drsai_backend.tools.code import tree
from tests.cli.serving import ask
from tests.support.commands import clean_environment
from tests.tools.mcp.conftest import SERVER

IMPORTS = """
import importlib, pkgutil
from tests.support import lacking
lacking.{system}()
import drsai_backend

for module in pkgutil.walk_packages(drsai_backend.__path__, "drsai_backend."):
    if not module.name.startswith(("drsai_backend.migrations.", {but})) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("imported")
"""
LIBRARY = """
import asyncio, os, pathlib, sys
from tests.support import lacking
lacking.{system}()
from drsai_backend import DrSai
from drsai_backend.errors import ConfigurationError
from drsai_backend.tools.apart import apart, wait_apart
from drsai_backend.tools.builtin.files import file_reader
from drsai_backend.tools.code import code_interpreter
from drsai_backend.tools.mcp import McpServers, McpStdio, McpWorkbench
from tests.support.threads import settings

async def main():
    async with DrSai(database_url="sqlite:///one.db", settings=settings()) as drsai:
        done = await drsai.user("ada").run("assistant", "What is 12*7?", thread_id="t")
        print("answer", done.status.value, done.text)
    pathlib.Path("turn.py").absolute().write_text("def main(data):\\n    return data[::-1]\\n")
    pathlib.Path("hang.py").absolute().write_text("import time\\ndef main(data):\\n    time.sleep(60)\\n")
    print("apart", await apart(pathlib.Path("turn.py").absolute(), b"abc", seconds=20, memory=2**30, most=100))
    print("waits", wait_apart(pathlib.Path("turn.py").absolute(), b"abc", seconds=20, memory=2**30))
    try:
        await apart(pathlib.Path("hang.py").absolute(), b"", seconds=0.5, memory=2**30, most=100)
    except Exception as error:
        print("late", error)
    workbench = McpWorkbench([McpStdio(name="n", command=sys.executable, args=({server!r},))])
    print("mcp", (await workbench.call_tool("n__double", {{"number": 21}})).to_text())
    monty = code_interpreter()
    print("monty", (await monty.sandbox.run("print(6 * 7)", None, monty.limits)).stdout, end="")
    for make in (lambda: file_reader(folders=["."]), lambda: code_interpreter("bubblewrap")):
        try:
            print("made", make().name)
        except ConfigurationError as error:
            print("refused", error.message)

asyncio.run(main())
"""
COMMAND = """
import sys
from tests.support import lacking
lacking.as_windows()
from drsai_backend.cli import main
sys.argv = ["drsai", *{arguments}]
main()
"""
# What is imported on Linux or Unix only, where it is used.
UNIX = (
    "drsai_backend.tools.code.bubblewrap",
    *(f"drsai_backend.tools.code.{name}" for name in ("child", "docker", "folders", "tree")),
)


def printed(source: str, cwd: Path) -> str:
    """What a program prints that has imported nothing before; its warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source], cwd=cwd, env=clean_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("system", "but"), [("as_windows", UNIX), ("as_macos", ())])
def test_everything_else_is_imported(tmp_path: Path, system: str, but: tuple[str, ...]) -> None:
    excepted = "".join(f"{name!r}, " for name in but)
    assert printed(IMPORTS.format(system=system, but=excepted), tmp_path).endswith("imported\n")


@pytest.mark.parametrize(
    ("system", "files", "code"),
    [
        (
            "as_windows",
            "refused file_reader works on Linux and macOS only",
            "refused work folders of code need Linux or",
        ),
        ("as_macos", "made file_reader", "refused code cannot be run in bubblewrap: bubblewrap is there on Linux only"),
    ],
)
def test_a_run_its_tools_and_processes(tmp_path: Path, system: str, files: str, code: str) -> None:
    source = LIBRARY.format(system=system, server=str(SERVER))
    lines = printed(source, tmp_path).splitlines()
    assert re.fullmatch("answer completed .* 84", lines[0])
    assert lines[1:-2] == ["apart b'cba'", "waits b'cba'", "late its time was over", "mcp 42", "monty 42"]
    assert lines[-2].startswith(files)
    assert lines[-1].startswith(code)


def started(cwd: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """A command without what Windows lacks."""
    command, pipe = [sys.executable, "-c", COMMAND.format(arguments=arguments)], subprocess.PIPE
    env = clean_environment(**more)
    return subprocess.Popen(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_answers_and_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """By a signal, as which Ctrl-C comes there, too."""
    with started(tmp_path, "serve", "--port", "0") as server:
        assert server.stdout is not None
        try:
            [url] = re.findall(r"serves (\S+)", server.stdout.readline())
            assert all("Ctrl-C stops" not in line for line in iter(server.stdout.readline, "Ctrl-C stops.\n"))
            assert "12" in ask(url, "assistant", "What is 3*4?")
            server.send_signal(number)
            _, errors = server.communicate(timeout=30)
        finally:
            server.kill()
    assert (server.returncode, "Stopping; once more" in errors, "Traceback" in errors) == (0, True, False), errors


def test_a_chat_and_files_and_threads_that_are_written(tmp_path: Path) -> None:
    def said(*arguments: str, typed: str = "", charset: str = "utf-8") -> str:
        with started(tmp_path, *arguments, PYTHONIOENCODING=charset) as command:
            output, errors = command.communicate(typed, timeout=60)
        assert command.returncode == 0, errors
        return output

    (tmp_path / "note.txt").write_text("Buy bread.")
    assert "You said: “你好”" in said("chat", "--thread", "t", typed="你好\n")
    assert "\\u4f60\\u597d" in said("threads", "show", "t", charset="ascii"), "a pipe has the code page of its machine"
    said("threads", "export", "t", "-o", "t.thread")
    assert "2 messages" in said("threads", "import", "t.thread", "--thread-id", "u")
    file = said("files", "add", "note.txt", "--user", "ada").strip()
    said("files", "download", file, "--user", "ada", "-o", "back.txt")
    assert (tmp_path / "back.txt").read_text() == "Buy bread."


async def test_postgresql_is_refused_in_the_event_loop_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "ProactorEventLoop", type(asyncio.get_running_loop()), raising=False)
    database = Database("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(
        ConfigurationError, match=r"cannot be used in the event loop of Windows.*: use SQLite, run this in"
    ):
        await database.read(lambda _: None)
    await database.close()


def test_one_port_has_one_server_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """There SO_REUSEADDR would give it to two."""
    monkeypatch.setattr(sys, "platform", "win32")
    settings = Settings(_env_file=None, port=0)  # pyright: ignore[reportCallIssue]
    with listen(settings, find_address(settings)) as listening:
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 0


def test_a_folder_that_was_closed_is_opened_by_its_name_on_macos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chmod leaves links alone, which that of Linux cannot. Root opens any folder, so the step itself is tried."""
    changed = list[tuple[object, ...]]()

    def change(*given: object, **more: object) -> None:
        changed.append((*given, more))

    monkeypatch.delattr(os, "O_PATH")
    monkeypatch.setattr(os, "chmod", change)
    tree._open_up("closed", 7, 0o700)  # pyright: ignore[reportPrivateUsage]
    assert changed == [("closed", 0o700, {"dir_fd": 7, "follow_symlinks": False})]
