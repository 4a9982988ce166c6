"""The examples of docs/extending.md and docs/embedding.md run as they are, and print what the documents say. Changes of
the package that it shows apply, touch few files, and do what they are for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.processes import ROOT, clean_environment, run_python
from tests.support.commands import Commands

_RUN = r"^```python\n(.*?)^```\n+```text\n(.*?)^```$"
_EXAMPLE = rf"^## (.+?)\n.*?{_RUN}"
_CHANGE = rf"^### (.+?)\n.*?^```diff\n(.*?)^```\n+{_RUN}"
MOST_FILES = 3
"""That a change of a common kind may touch, besides tests and docs."""


def _read(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def _found(pattern: str, name: str) -> list[tuple[str, ...]]:
    return re.findall(pattern, _read(name), re.MULTILINE | re.DOTALL)


EXAMPLES = _found(_EXAMPLE, "extending.md") + _found(_EXAMPLE, "embedding.md")
CHANGES = _found(_CHANGE, "extending.md")


@pytest.mark.parametrize(("mark", "pattern"), [("##", _EXAMPLE), ("###", _CHANGE)])
def test_every_section_has_an_example(mark: str, pattern: str) -> None:
    sections = re.findall(rf"^{mark} (.+)$", _read("extending.md"), re.MULTILINE)
    assert [section for section, *_ in _found(pattern, "extending.md")] == sections


def test_every_program_is_run() -> None:
    programs = sum(_read(name).count("```python\n") for name in ("extending.md", "embedding.md"))
    assert len(EXAMPLES) + len(CHANGES) == programs


@pytest.mark.parametrize(("program", "printed"), [pytest.param(*rest, id=name) for name, *rest in EXAMPLES])
def test_the_example_prints_what_it_says(program: str, printed: str, tmp_path: Path, commands: Commands) -> None:
    assert run_python(commands, ["-c", program], tmp_path) == printed


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
