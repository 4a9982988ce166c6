"""Docker holds real Python in containers, by its command line: one container for each run.

The daemon runs it, so it outlives this process, if that is killed: at most until its time is over, which it watches
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import uuid
from pathlib import Path
from typing import Final

from drsai_backend.tools.code import tree
from drsai_backend.tools.code.base import MIB, CodeLimits, CodeResult
from drsai_backend.tools.code.bubblewrap import INSIDE, KNOWS, WORK
from drsai_backend.tools.code.child import Child, excess_of_folder, through
from drsai_backend.tools.code.folders import NOBODY, WorkFolders
from drsai_backend.tools.threads import in_thread

_ANSWER_SECONDS: Final = 20.0
_START_SECONDS: Final = 10.0
"""How much longer than its code a container may be there."""
# The command line finds its daemon by these. Nothing else of this process is shown to it, and nothing to the container.
_KEPT: Final = (
    "PATH",
    "HOME",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
)


class DockerSandbox:
    """See the module.

    Args:
        folders: where work folders are. The daemon must see the same ones.
        image: with `python` and `timeout`. It is not pulled.
    """

    name = "docker"
    knows = KNOWS
    has_folder = True
    repeatable = False

    def __init__(self, folders: WorkFolders, image: str) -> None:
        self.folders = folders
        self.image = image
        self._works = False

    def missing(self) -> str | None:
        """See `CodeSandbox.missing`."""
        return None if shutil.which("docker") else "there is no program docker"

    async def probe(self) -> str | None:
        """See `CodeSandbox.probe`. A container is run. A daemon that gives no answer is asked again the next time."""
        why = None if self._works else self.missing() or await self._probe()
        self._works = why is None
        return why

    async def _probe(self) -> str | None:
        async with self.folders.held(None, 10) as folder:
            try:
                result = await self.run("print('works')", folder, CodeLimits(seconds=_ANSWER_SECONDS))
            except OSError as error:
                return str(error)
        if result.stdout.strip() == "works":
            return None
        why = (result.stderr or result.stopped or f"exit code {result.exit_code}").strip()[-500:]
        return f"a first container of {self.image} failed: {why}"

    async def run(self, code: str, folder: Path | None, limits: CodeLimits) -> CodeResult:
        """See `CodeSandbox.run`. The folder has its lock."""
        assert folder is not None
        before, found = await in_thread(lambda: tree.before_run(folder, limits))
        name = f"drsai-code-{uuid.uuid4().hex}"
        process = await asyncio.create_subprocess_exec(
            *self._command(name, folder, limits), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=_environment(), cwd="/", start_new_session=True,
        )  # fmt: skip
        # Also where the command line has ended: the container may have not.
        child = Child(process, limits, lambda: _end(name))
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.write(code.encode("utf-8", "replace"))
            process.stdin.close()
        await child.watch(lambda: excess_of_folder(folder, limits))
        files, notes = await through(in_thread(lambda: tree.after_run(folder, before, limits)))
        killed = "It was killed, for its time or its memory." if process.returncode == 137 else ""
        return child.result(files, [found, *notes], killed)

    def _command(self, name: str, folder: Path, limits: CodeLimits) -> list[str]:
        user = NOBODY if os.getuid() == 0 else os.getuid()
        group = NOBODY if os.getuid() == 0 else os.getgid()
        seconds = f"{limits.seconds + _START_SECONDS:g}"
        return [
            "docker", "run", "--name", name, "--label", "drsai-code", "--rm", "--init", "--interactive",
            "--pull", "never", "--network", "none", "--read-only", "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--user", f"{user}:{group}", "--ipc", "private",
            "--memory", str(limits.memory), "--memory-swap", str(limits.memory), "--cpus", "1",
            "--pids-limit", str(limits.processes + 3), "--ulimit", f"fsize={limits.disk // 2}",
            "--ulimit", "nofile=128", "--ulimit", "core=0", "--log-driver", "none", "--shm-size", str(32 * MIB),
            "--tmpfs", f"/tmp:rw,nosuid,nodev,size={min(64 * MIB, limits.disk)}",
            "--mount", f"type=bind,source={folder},target={WORK}", "--workdir", WORK,
            "--env", "HOME=/tmp", "--env", "LANG=C.UTF-8", "--env", "MPLBACKEND=Agg", "--env", "MPLCONFIGDIR=/tmp",
            self.image, "timeout", "--signal=KILL", seconds,
            # The container counts its processes itself: 0.
            "python", "-I", "-B", "-X", "utf8", "-c", INSIDE.read_text(), "0",
        ]  # fmt: skip


async def _end(name: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "docker", "rm", "--force", name, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL, env=_environment(), cwd="/",
    )  # fmt: skip
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()  # The container ends by its own clock.
        await process.wait()


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}
