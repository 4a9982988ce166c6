"""Bubblewrap holds real Python: in namespaces, with a read-only root, a filter of system calls, limits, and a work
folder.

Two programs stand between this process and the code. The first, in Python, is tied to this process's life, becomes an
unprivileged user where this one is root, sets limits and becomes bubblewrap. The second (`inside`) runs in the sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from drsai_backend.tools.code import tree
from drsai_backend.tools.code.base import MIB, CodeLimits, CodeResult
from drsai_backend.tools.code.child import Child, excess, through
from drsai_backend.tools.code.folders import NOBODY, WorkFolders
from drsai_backend.tools.code.seccomp import seccomp_filter
from drsai_backend.tools.threads import in_thread

# Linux kills it when the thread that has started it ends; if that had happened before it asked to be, its parent is
# another one by now. It asks after it has become another user, as that ends what was asked before.
_BEFORE: Final = """
import ctypes, os, resource, sys
parent, user, limits = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.nice(10)
try: open("/proc/self/oom_score_adj", "w").write("900")
except OSError: pass
for pair in limits.split(","):
    name, value = pair.split("=")
    kind = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(kind)[1]
    most = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
    resource.setrlimit(kind, (most, most))
if user:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != parent: os._exit(1)
os.execv(sys.argv[4], sys.argv[4:])
"""
INSIDE: Final = Path(__file__).with_name("inside.py")
"""The program that runs the code."""
KNOWS: Final = (
    "Real Python with its standard library and the packages that are installed, without network. The current folder "
    "keeps its files between calls; new and changed files and matplotlib figures are handed out. No variable is kept."
)
"""What code in a real Python may use, for its model."""
WORK: Final = "/mnt/data"
"""The work folder, as the code sees it: models know it by this name."""
_SHARED_MEMORY: Final = 32 * MIB
_TMP: Final = 64 * MIB
_OPEN_FILES: Final = 128
_START_SECONDS: Final = 10.0
_FAILED_SECONDS: Final = 60.0
_SYSTEM_FOLDERS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES: Final = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives", "/etc/mime.types", "/etc/fonts")
_PREFIXES: Final = (
    "import json, sys\n"
    "paths = [p for p in sys.path if p.rsplit('/', 1)[-1] in ('site-packages', 'dist-packages')]\n"
    "print(json.dumps([sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *paths]))"
)
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2",
}  # fmt: skip
_PROBE: Final = """
import os, socket
assert os.listdir("/mnt/data") == [], "the work folder is not empty"
open("/mnt/data/a", "w").close()
for path in ("/a", "/usr/a", "/dev/a"):
    try: open(path, "w")
    except OSError: continue
    raise AssertionError(path + " can be written")
try: socket.socket(socket.AF_INET, socket.SOCK_STREAM)
except OSError: pass
else: raise AssertionError("there are sockets")
children = []
try:
    for _ in range(16):
        child = os.fork()
        if not child:
            import time; time.sleep(60)
        children.append(child)
except OSError: pass
else: raise AssertionError("the number of processes is not limited: Linux 5.14 and newer do that")
assert children, "no process can be started"
print("works", flush=True)
os._exit(0)
"""


class _Python(NamedTuple):
    """An interpreter, and the folders that it needs besides those of the system."""

    program: str
    paths: tuple[str, ...]


class _Probed(NamedTuple):
    """The interpreter that works, or why none does, and when that was found out."""

    found: _Python | str
    at: float


_probed: dict[object, _Probed] = {}


class BubblewrapSandbox:
    """See the module.

    Args:
        folders: where work folders are; None: in the folder for temporary files.
        python: the interpreter; None: the server's own, or the system's where the code could not reach that.
    """

    name = "bubblewrap"
    knows = KNOWS
    has_folder = True
    repeatable = False

    def __init__(self, folders: WorkFolders | None = None, python: str | None = None) -> None:
        self.folders = folders or WorkFolders()
        self._pythons = (python,) if python else (sys.executable, "/usr/bin/python3")
        self._python = _Python("", ())

    def missing(self) -> str | None:
        """See `CodeSandbox.missing`."""
        if sys.platform != "linux":
            return "bubblewrap is there on Linux only; use sandbox='monty' or 'docker'"
        if shutil.which("bwrap") is None:
            return "there is no program bwrap: install the package bubblewrap"
        if seccomp_filter() is None:
            return f"there is no filter of system calls for {os.uname().machine}"
        return None

    async def probe(self) -> str | None:
        """See `CodeSandbox.probe`. Code is run, which looks whether it is held; what comes of it is known to the whole
        process, a failure for a minute."""
        if (why := self.missing()) is not None:
            return why
        key = (shutil.which("bwrap"), self._pythons, self.folders.root)
        known = _probed.get(key)
        if known is None or (isinstance(known.found, str) and time.monotonic() - known.at > _FAILED_SECONDS):
            known = _probed[key] = _Probed(await self._probe(), time.monotonic())
        if isinstance(known.found, str):
            return known.found
        self._python = known.found
        return None

    async def _probe(self) -> _Python | str:
        why = ""
        for python in self._pythons:
            try:
                self._python = _Python(python, await _paths_of(python, self.folders.root))
                async with self.folders.held(None, 10) as folder:
                    result = await self.run(_PROBE, folder, CodeLimits(seconds=20, processes=8))
            except (OSError, ValueError) as error:
                why = str(error)
                continue
            if result.stdout.strip() == "works":
                return self._python
            why = (result.stderr or result.stopped or f"exit code {result.exit_code}").strip()[-500:]
        return f"a first run of bwrap with {' or '.join(self._pythons)} failed: {why}"

    async def run(self, code: str, folder: Path | None, limits: CodeLimits) -> CodeResult:
        """See `CodeSandbox.run`. The folder has its lock."""
        assert folder is not None
        _, found = await in_thread(lambda: tree.before_run(folder, limits))
        ours, theirs = socket.socketpair()
        with ours, _data(self._arguments(limits)) as arguments, contextlib.ExitStack() as stack:
            with theirs:
                child = await self._started(theirs, arguments, limits)
            try:
                pid = _pid_of(child.first) if child.first is not None else None
                work = None if pid is None or child.stopped else await _ready(ours, pid)
                if work is None or pid is None:
                    child.stopped = child.stopped or "The sandbox did not start."
                    await child.end()
                    return child.result((), [found], _killed(child.process.returncode))
                inside = f"/proc/self/fd/{work}/."
                stack.callback(os.close, work)
                before = await through(in_thread(lambda: tree.filled(inside, folder)))
                with contextlib.suppress(ConnectionError):  # It has died.
                    await asyncio.get_running_loop().sock_sendall(ours, code.encode("utf-8", "replace"))
                    ours.shutdown(socket.SHUT_WR)
                await child.watch(lambda: excess(pid, inside, limits))
            finally:
                if child.first is not None:
                    os.close(child.first)
            # Also when this is cancelled: the folder's lock ends with this call.
            files, notes = await through(in_thread(lambda: tree.kept(inside, folder, before, limits)))
        return child.result(files, [found, *notes], _killed(child.process.returncode))

    async def _started(self, source: socket.socket, arguments: int, limits: CodeLimits) -> Child:
        found = shutil.which("bwrap")
        if found is None:
            raise OSError("there is no program bwrap any more")
        rules = seccomp_filter()
        assert rules is not None
        with _data(rules) as filtered:
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            try:
                bwrap = [found, "--seccomp", str(filtered), "--info-fd", str(theirs), "--args", str(arguments)]
                # The first process in there is one more.
                bwrap += [
                    self._python.program,
                    "-I",
                    "-B",
                    "-X",
                    "utf8",
                    "-c",
                    INSIDE.read_text(),
                    str(limits.processes + 1),
                ]
                process = await asyncio.create_subprocess_exec(
                    *_before(limits), *bwrap,
                    stdin=source.fileno(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                    env={}, cwd="/", pass_fds=(filtered, theirs, arguments), start_new_session=True,
                )  # fmt: skip
            except BaseException:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
        child = Child(process, limits)
        try:
            async with asyncio.timeout(_START_SECONDS):
                child.first = await _first_process(ours)
        except TimeoutError:
            child.stopped = f"The sandbox did not start within {_START_SECONDS:g} seconds."
        except BaseException:
            await child.end()
            raise
        return child

    def _arguments(self, limits: CodeLimits) -> bytes:
        """Return the arguments of bubblewrap, in a file: the command line of a process can be read in the sandbox."""
        given = [
            "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
            "--unshare-cgroup-try", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox",
            "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
        ]  # fmt: skip
        for name, value in _ENVIRONMENT.items():
            given += ["--setenv", name, value]
        given += ["--ro-bind", "/usr", "/usr"]
        for path in _SYSTEM_FOLDERS:
            if os.path.islink(path):
                given += ["--symlink", os.readlink(path), path]
            else:
                given += ["--ro-bind-try", path, path]
        for path in _SYSTEM_FILES:
            given += ["--ro-bind-try", path, path]
        tmp = str(min(_TMP, limits.disk))
        given += [
            # Who may write there says by himself whom the kernel ends first where memory runs out.
            "--proc", "/proc", "--remount-ro", "/proc",
            "--dev", "/dev", "--size", str(_SHARED_MEMORY), "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
            "--size", tmp, "--tmpfs", "/tmp",
        ]  # fmt: skip
        for path in self._python.paths:
            given += ["--ro-bind", path, path]
        # In memory, with a size: what is mapped, has no name any more or is on its way to another process counts, too.
        given += ["--size", str(limits.disk), "--tmpfs", WORK, "--chdir", WORK, "--remount-ro", "/"]
        return b"".join(each.encode() + b"\0" for each in given)


def _before(limits: CodeLimits) -> Sequence[str]:
    # A core of 0 bytes would be written where the system hands cores to a program; one of 1 byte never is.
    most = {
        "CORE": 1, "AS": limits.memory, "FSIZE": max(limits.disk // 2, 4096), "NOFILE": _OPEN_FILES, "MSGQUEUE": 0,
        "CPU": int(limits.seconds) + 1, "MEMLOCK": 65_536, "SIGPENDING": 256,
    }  # fmt: skip
    listed = ",".join(f"{name}={value}" for name, value in most.items())
    user = NOBODY if os.getuid() == 0 else 0
    return [sys.executable, "-I", "-S", "-c", _BEFORE, str(os.getpid()), str(user), listed]


@contextlib.contextmanager
def _data(content: bytes) -> Generator[int]:
    """A file in memory that nobody can change."""
    file = os.memfd_create("drsai", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(file, "wb", closefd=False) as writing:
            writing.write(content)
        os.lseek(file, 0, os.SEEK_SET)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        yield file
    finally:
        os.close(file)


async def _first_process(info: int) -> int | None:
    """A handle of the sandbox's first process, of which bubblewrap tells; None: it came to none."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(info, "rb"))
    try:
        told = await reader.read()
    finally:
        transport.close()
    try:
        return os.pidfd_open(json.loads(told)["child-pid"])
    except (ValueError, KeyError, ProcessLookupError):
        return None


async def _ready(ours: socket.socket, pid: int) -> int | None:
    """The work folder in the sandbox, opened, as soon as the program in there runs; None: it came to none."""
    ours.setblocking(False)
    try:
        async with asyncio.timeout(_START_SECONDS):
            if not await asyncio.get_running_loop().sock_recv(ours, 1):
                return None
        return os.open(f"/proc/{pid}/root{WORK}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # A time-out is one, too.
        return None


def _pid_of(handle: int) -> int | None:
    for line in Path(f"/proc/self/fdinfo/{handle}").read_text().splitlines():
        if line.startswith("Pid:") and int(line.split()[1]) > 0:
            return int(line.split()[1])
    return None


def _killed(code: int | None) -> str:
    if code == 128 + 24:
        return "It was stopped, as its time on the processor was over."
    return f"It was ended by signal {code - 128}." if code is not None and 128 < code < 160 else ""


async def _paths_of(python: str, root: Path) -> tuple[str, ...]:
    """The folders that an interpreter needs besides those of the system.

    Raises:
        ValueError: one of them would show the code what it must not see.
        OSError: the interpreter does not start.
    """
    asked = await asyncio.create_subprocess_exec(
        python, "-I", "-c", _PREFIXES, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, env={},
    )  # fmt: skip
    try:
        async with asyncio.timeout(20):
            told, _ = await asked.communicate()
    finally:
        if asked.returncode is None:
            asked.kill()
            await asked.wait()
    found = list[Path]()
    # The longest last: one that is in another one that is shown needs no place of its own.
    for path in sorted({Path(each) for each in json.loads(told)}, key=lambda each: len(each.parts)):
        if path.is_dir() and not any(path.is_relative_to(other) for other in (Path("/usr"), *found)):
            found.append(path)
    for path in found:
        if path.is_relative_to(WORK) or Path(WORK).is_relative_to(path):
            raise ValueError(f"{python} is installed in {path}, where the work folder is in the sandbox")
        for private in (Path.home(), root, Path("/etc"), Path("/var"), Path("/tmp")):
            if private.resolve().is_relative_to(path.resolve()):
                raise ValueError(f"{python} is installed in {path}, which has more in it than Python")
    return tuple(str(path) for path in found)
