"""A program that is forked runs as one that the interpreter starts."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.commands import Commands, clean_environment

FILE = """
import atexit, sys, threading, time
from pathlib import Path
import beside

def late():
    time.sleep(0.01)
    print("thread")

atexit.register(print, "exit")
threading.Thread(target=late).start()
print(__name__, Path(__file__).name, sys.argv[1:], beside.name, sys.stdin.read())
"""


def test_a_file(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "beside.py").write_text("name = 'beside'")
    (tmp_path / "program" / "file.py").write_text(FILE)
    done = commands.program("program/file.py", "a", "b", cwd=tmp_path, env=clean_environment(), stdin="in")
    assert done.wait() == 0, done.stderr
    assert done.stdout == "__main__ file.py ['a', 'b'] beside in\nthread\nexit\n"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("1 / 0", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import warnings; warnings.warn('x')", 1),
    ],
)
def test_how_it_ends(commands: Commands, tmp_path: Path, source: str, code: int) -> None:
    done = commands.program("-c", source, cwd=tmp_path, env=clean_environment(PYTHONWARNINGS="error"))
    assert done.wait() == code
    assert ("Traceback" in done.stderr) == (code == 1)
    assert list(tmp_path.iterdir()) == []
