"""The changes of the package in docs/extending.md apply to it, touch few files, and do what they are for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.processes import ROOT, clean_environment
from tests.examples.test_extending import CHANGES

MOST_FILES = 3
"""That a change of a common kind may touch, besides tests and docs."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, of which a test makes a changed one."""
    made = tmp_path_factory.mktemp("copy")
    for folder in ("drsai_backend", "migrations"):
        shutil.copytree(ROOT / folder, made / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return made


@pytest.mark.parametrize(("diff", "program", "printed"), [pytest.param(*rest, id=name) for name, *rest in CHANGES])
def test_a_change_touches_few_files_and_works(
    diff: str, program: str, printed: str, tmp_path: Path, copy: Path
) -> None:
    assert len(re.findall(r"^\+\+\+ b/", diff, re.MULTILINE)) <= MOST_FILES
    changed, work = tmp_path / "changed", tmp_path / "work"
    shutil.copytree(copy, changed)
    work.mkdir()
    # The temporary folder may lie in a repository, whose paths git would take them for.
    environment = {**clean_environment(), "GIT_CEILING_DIRECTORIES": str(tmp_path), "PYTHONPATH": str(changed)}
    applied = subprocess.run(
        ["git", "apply", "-"], input=diff, text=True, cwd=changed, env=environment, capture_output=True
    )
    assert applied.returncode == 0, applied.stderr
    # A process of its own: the fork server has the package as it is.
    done = subprocess.run(
        [sys.executable, "-c", program], text=True, cwd=work, env=environment, capture_output=True, timeout=120
    )
    assert done.stdout == printed, done.stderr
