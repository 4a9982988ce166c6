"""The real command line, and Python programs, in processes of their own, without seconds of imports for each.

::

    with Commands() as commands:
        server = commands.start("serve", "--port", "0", cwd=folder, env={"OPENAI_BASE_URL": ...})
        url = server.base_url()
        server.kill(signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL

A mother process (this file, run as a program) imports the package once and forks for every command. The children are
ordinary processes: own pid, own connections, and they die of the signals they are sent.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import re
import resource
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def clean_environment(**more: str) -> dict[str, str]:
    """Nothing of the machine's that changes what the commands do. One process serves: the one that a test kills."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "DRSAI_DEMO_DELAY": "0", "NO_COLOR": "1", "DRSAI_WORKERS": "1", **more}


class Command:
    """A command under way. Output goes to files, so that it is there whatever happens to the process."""

    def __init__(self, pid: int, out: Path, err: Path) -> None:
        self.pid = pid
        self._out = out
        self._err = err
        self._code: int | None = None
        self._ended = threading.Event()

    @property
    def stdout(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return self._err.read_text(encoding="utf-8")

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    def kill(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, timeout: float = 30) -> int:
        """The exit code; a signal's number, negative, when it died of it."""
        if not self._ended.wait(timeout):
            raise TimeoutError(f"still running after {timeout} s:\n{self.stdout}\n{self.stderr}")
        assert self._code is not None
        return self._code

    def die(self) -> None:
        """SIGKILL, and wait until nothing of the process is left."""
        self.kill()
        self.wait()

    def base_url(self, timeout: float = 30) -> str:
        """Of `serve`: the URL that it prints when it answers."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            printed = self.stdout
            found = re.search(r"serves (https?://\S+)\n", printed)
            if found is not None and "Ctrl-C" in printed:
                return found.group(1)
            if not self.running:
                break
            time.sleep(0.01)
        raise AssertionError(f"the server did not start:\n{self.stdout}\n{self.stderr}")

    def ended(self, code: int) -> None:
        self._code = code
        self._ended.set()


class Commands:
    """Starts commands; those that still run at the end are killed.

    Args:
        root: of the checkout whose they are.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._mother: subprocess.Popen[str]
        self._commands: dict[int, Command] = {}
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._started = threading.Condition(self._lock)
        self._pids: list[int] = []
        self._count = 0
        self._folder = tempfile.TemporaryDirectory(prefix="drsai-programs-")

    def __enter__(self) -> Commands:
        self._mother = subprocess.Popen(
            [sys.executable, self.root / "tests/support/commands.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(PYTHONPATH=str(self.root)),
            bufsize=1,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def kill(self) -> None:
        """Kill the commands that still run."""
        for command in list(self._commands.values()):
            if command.running:
                command.die()

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._mother.stdin.close()
        self._mother.wait(60)
        self._reader.join(10)
        self._mother.stdout.close()
        self._folder.cleanup()

    def start(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        files: tuple[int, int] | None = None,
    ) -> Command:
        """Start `drsai ARGUMENTS`. `files`: how many it may have open, and how many it may raise that to."""
        return self._start(arguments, cwd, clean_environment(**(env or {})), stdin, files)

    def program(self, *arguments: str, cwd: Path, env: Mapping[str, str], stdin: str | None = None) -> Command:
        """Start `python ARGUMENTS`: a file, `-m` and a module, or `-c` and source, with what it is given. `env` is its
        whole environment, of whose PYTHON… variables it has PYTHONWARNINGS=error only."""
        return self._start(arguments, cwd, env, stdin, program=True)

    def _start(
        self,
        arguments: tuple[str, ...],
        cwd: Path,
        environment: Mapping[str, str],
        stdin: str | None = None,
        files: tuple[int, int] | None = None,
        *,
        program: bool = False,
    ) -> Command:
        self._count += 1
        folder = Path(self._folder.name) if program else cwd  # A program's own folder has what it makes, and no more.
        while (folder / f"out{self._count}.txt").exists():  # Other commands are started in it, too.
            self._count += 1
        out, err, given = (folder / f"{name}{self._count}.txt" for name in ("out", "err", "in"))
        given.write_text(stdin or "", encoding="utf-8")
        for file in (out, err):
            file.touch()
        order = {
            "arguments": arguments,
            "program": program,
            "cwd": str(cwd),
            "environment": dict(environment),
            "files": [str(given), str(out), str(err)],
            "file_limit": files,
        }
        assert self._mother.stdin is not None
        with self._started:
            self._mother.stdin.write(json.dumps(order) + "\n")
            self._mother.stdin.flush()
            while not self._pids:
                if not self._started.wait(60):
                    raise TimeoutError("the mother process does not answer")
            pid = self._pids.pop(0)
            command = self._commands[pid] = Command(pid, out, err)
            if pid in self._codes:
                command.ended(self._codes.pop(pid))
        return command

    def run(
        self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str | None = None
    ) -> Command:
        """Run `drsai ARGUMENTS` to its end."""
        command = self.start(*arguments, cwd=cwd, env=env, stdin=stdin)
        command.wait()
        return command

    def _read(self) -> None:
        assert self._mother.stdout is not None
        for line in self._mother.stdout:
            word, pid, code = line.split()
            with self._started:
                if word == "started":
                    self._pids.append(int(pid))
                    self._started.notify_all()
                elif int(pid) in self._commands:
                    self._commands[int(pid)].ended(int(code))
                else:
                    self._codes[int(pid)] = int(code)


# --- the mother process ---------------------------------------------------------------------------------------------


_USED = ("mcp.server", "uvicorn.lifespan.off", "uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto")
"""What commands and programs import when they run, besides the package."""


def _prepare() -> None:
    """Import what commands import when they run, and make an application, for what is found out about its routes. None
    of it may start a thread or open anything: it is forked."""
    from drsai_backend import DrSai, cli
    from drsai_backend.config import Settings
    from tests.support import quick_apps

    for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        importlib.import_module(module.name)
    for name in _USED:
        importlib.import_module(name)
    quick_apps.install()
    DrSai(None, "sqlite://", settings=Settings(_env_file=None)).app()


def _mother() -> None:
    gc.disable()
    _prepare()
    gc.freeze()  # or each child copies all of it at its first collection
    gc.enable()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pending = b""
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
            _reap()
        if 0 in readable:
            data = os.read(0, 65536)
            if not data:
                return
            pending += data
            *lines, pending = pending.split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    os.close(woken)
                    os.close(wake)
                    _child(order)
                _tell(f"started {pid} 0")


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _tell(f"ended {pid} {os.waitstatus_to_exitcode(status)}")


def _tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def _child(order: dict[str, Any]) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["environment"])
        for number, path in enumerate(order["files"]):
            file = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY)
            os.dup2(file, number)
            os.close(file)
        if order["file_limit"]:
            resource.setrlimit(resource.RLIMIT_NOFILE, tuple(order["file_limit"]))
        try:
            if order["program"]:
                _run_program(order["arguments"])
            else:
                from drsai_backend.cli import main

                sys.argv = ["drsai", *order["arguments"]]
                main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001  # a forked process must not go on in its mother's code
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _run_program(arguments: list[str]) -> None:
    """As the interpreter does it, to the end of its threads and what it does at exit."""
    if os.environ.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    first, *rest = arguments
    try:
        if first == "-m":
            sys.argv, sys.path[0] = rest, os.getcwd()
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
            sys.modules["__main__"] = main = types.ModuleType("__main__")
            exec(compile(rest[0], "<string>", "exec"), main.__dict__)
        else:
            sys.argv, sys.path[0] = arguments, str(Path(first).parent.absolute())
            runpy.run_path(first, run_name="__main__")
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()


if __name__ == "__main__":
    _mother()
