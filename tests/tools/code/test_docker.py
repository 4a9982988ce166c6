"""The docker command line: what it is asked for, and what becomes of containers. A program that notes its arguments
and runs Python stands for it: there is no daemon here."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drsai_backend.tools import call_tool
from drsai_backend.tools.code import CodeLimits, code_interpreter
from drsai_backend.tools.code.docker import DockerSandbox
from drsai_backend.tools.code.folders import WorkFolders
from tests.tools.code.test_bubblewrap import until

# `run`: what comes after the image, in the folder that is mounted, as a child that `rm` kills.
STAND_IN = f"""#!{sys.executable} -IS
import json, os, signal, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "asked"), "a") as file:
    file.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
arguments = sys.argv[1:]
if os.path.exists(os.path.join(here, "no-daemon")):
    sys.exit("Cannot connect to the Docker daemon")
if arguments[0] == "rm":
    try:
        os.killpg(int(open(os.path.join(here, arguments[-1])).read()), signal.SIGKILL)
    except (OSError, ValueError):
        pass
    sys.exit(0)
name = arguments[arguments.index("--name") + 1]
folder = arguments[arguments.index("--mount") + 1].split("source=")[1].split(",")[0]
command = arguments[arguments.index("timeout"):]
command[command.index("python")] = sys.executable
child = subprocess.Popen(command, cwd=folder, start_new_session=True, env={{}})
with open(os.path.join(here, name), "w") as file:
    file.write(str(child.pid))
sys.exit(child.wait() % 256)
"""


@pytest.fixture
def docker(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = root.parent / "programs"
    programs.mkdir()
    (programs / "docker").write_text(STAND_IN)
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    return programs


def asked(programs: Path) -> list[Any]:
    return [json.loads(line) for line in (programs / "asked").read_text().splitlines()]


async def test_a_container_is_closed_and_ends_with_its_code(docker: Path, root: Path) -> None:
    tool = code_interpreter("docker", folder=root, image="images/python:3", limits=CodeLimits(seconds=7, processes=9))
    result = await call_tool(tool, {"code": "open('a.txt', 'w').write('one')\nprint('done')"})
    assert result.to_text().startswith("done\n")
    assert "a.txt" in result.to_text()
    assert [each[0][0] for each in asked(docker)] == ["run", "rm"] * 2, "the first run is the probe"
    given, environment = asked(docker)[2]
    assert "SECRET_KEY" not in environment
    assert environment["DOCKER_HOST"] == "unix:///nowhere"
    user = "65534:65534" if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"
    for pair in (
        ("--network", "none"), ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges"), ("--user", user),
        ("--pull", "never"), ("--memory", str(1 << 30)), ("--memory-swap", str(1 << 30)), ("--pids-limit", "12"),
        ("--ipc", "private"), ("--workdir", "/mnt/data"),
    ):  # fmt: skip
        assert given[given.index(pair[0]) + 1] == pair[1]
    assert {"--read-only", "--rm", "--init"} < set(given)
    assert not {"--privileged", "--volume", "-v", "--env-file", "--device"} & set(given)
    after = given[given.index("images/python:3") + 1 :]
    assert after[:3] == ["timeout", "--signal=KILL", "17"]
    assert asked(docker)[3][0] == ["rm", "--force", given[given.index("--name") + 1]]


@pytest.mark.parametrize("how", ["time", "cancel"])
async def test_a_container_that_does_not_end_is_removed(docker: Path, root: Path, how: str) -> None:
    sandbox = DockerSandbox(WorkFolders(root), "python")
    seconds = 2 if how == "time" else 60
    began = time.monotonic()

    async def run() -> str:
        async with sandbox.folders.held("k", 1) as folder:
            code = "import time\nopen('up', 'w')\ntime.sleep(100)"
            return (await sandbox.run(code, folder, CodeLimits(seconds=seconds))).stopped

    task = asyncio.create_task(run())
    if how == "cancel":
        await until(lambda: (root / "k/work/up").exists())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert "stopped after 2 seconds" in await task
    assert time.monotonic() - began < 30
    [name] = [docker / name for name in os.listdir(docker) if name.startswith("drsai-code-")]
    await until(lambda: not _alive(int(name.read_text())))
    assert asked(docker)[-1][0] == ["rm", "--force", name.name]


async def test_without_a_daemon_nothing_runs(docker: Path, root: Path) -> None:
    (docker / "no-daemon").touch()
    tool = code_interpreter("docker", folder=root)
    result = await call_tool(tool, {"code": "open('/tmp/x', 'w')"})
    assert result.is_error
    assert "Cannot connect to the Docker daemon" in result.to_text()
    (docker / "no-daemon").unlink()
    assert not (await call_tool(tool, {"code": "1"})).is_error, "it is there by now"


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False
