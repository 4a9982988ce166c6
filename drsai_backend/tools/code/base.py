"""The base of sandboxes is `CodeSandbox`: it runs code that a model wrote, within limits, and gives a result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from drsai_backend.errors import ConfigurationError

MIB = 1 << 20
_LEAST = {"memory": MIB, "processes": 1, "disk": 4096, "files": 1, "output": 100, "recursion": 10}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLimits:
    """What one run of code may use. Docs say which sandbox holds to which, and how exactly.

    Attributes:
        seconds: from its start to its end, waiting included.
        memory: bytes of all its processes together.
        processes: processes and threads at a time.
        disk, files: bytes, and files and folders, in the work folder; a file may have half of the bytes.
        output: bytes of what it prints that are kept, of each stream.
        kept_files: how many files that it wrote become results.
        kept_bytes: of those together.
        recursion: depth of calls, in a sandbox that is no CPython.

    Raises ConfigurationError: a value cannot work; the text names it.
    """

    seconds: float = 20.0
    memory: int = 1024 * MIB
    processes: int = 64
    disk: int = 256 * MIB
    files: int = 5_000
    output: int = 40_000
    kept_files: int = 16
    kept_bytes: int = 32 * MIB
    recursion: int = 500

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= 3600:
            raise ConfigurationError(f"seconds={self.seconds}: code may run for up to 3600 seconds")
        for name, value in _LEAST.items():
            if getattr(self, name) < value:
                raise ConfigurationError(f"{name}={getattr(self, name)}: the least is {value}")


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A file that the code wrote; `name` is its path in the work folder."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeResult:
    """What came of a run.

    Attributes:
        stdout, stderr: what was printed, cut at `CodeLimits.output`. What is no UTF-8 is replaced.
        exit_code: 0: it ran to its end; None: it was stopped.
        stopped: why it was stopped, a sentence for the model; "": it was not.
        files, notes: new and changed files; sentences on what was cut or left out.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = 0
    stopped: str = ""
    files: tuple[CodeFile, ...] = ()
    notes: tuple[str, ...] = ()


class CodeSandbox(Protocol):
    """Runs code so that it reaches nothing but its work folder.

    Attributes:
        name, knows: what operators call it; what code may use, for the tool's description.
        has_folder: code finds a work folder, with the files of earlier calls.
        repeatable: a run changes nothing that lasts: one that was cut off may be made again.
    """

    name: str
    knows: str
    has_folder: bool
    repeatable: bool

    def missing(self) -> str | None:
        """Return what has to be installed, as far as that is seen at once; None: nothing."""
        ...

    async def probe(self) -> str | None:
        """Return why it cannot be used here, a sentence for operators; None: it can. Found out once."""
        ...

    async def run(self, code: str, folder: Path | None, limits: CodeLimits) -> CodeResult:
        """Run code. When this returns, or is cancelled, nothing of it is alive."""
        ...
