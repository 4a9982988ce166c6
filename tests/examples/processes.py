"""Run a program of a reader: as a process, in an empty directory, without a key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 120


def clean_environment() -> dict[str, str]:
    """This environment without what would lead to a real model or another database. The demo model does not wait."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "DRSAI_"))}
    return {**kept, "DRSAI_DEMO_DELAY": "0", "PYTHONWARNINGS": "error"}


def run_python(arguments: list[str], directory: Path, *, stdin: str | None = None) -> str:
    """What a Python program prints. Fails the test, with all that it said, unless it ends with 0."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=clean_environment(),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout
