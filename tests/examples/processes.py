"""Run a program of a reader: as a process, in an empty directory, without a key."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.commands import Commands

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 120


def clean_environment() -> dict[str, str]:
    """This environment without what would lead to a real model or another database. The demo model does not wait."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "DRSAI_"))}
    return {**kept, "DRSAI_DEMO_DELAY": "0", "PYTHONWARNINGS": "error"}


def run_python(commands: Commands, arguments: list[str], directory: Path) -> str:
    """What a Python program prints. Fails the test, with all that it said, unless it ends with 0."""
    done = commands.program(*arguments, cwd=directory, env=clean_environment())
    code = done.wait(_SECONDS)
    assert code == 0, f"exit {code}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout
