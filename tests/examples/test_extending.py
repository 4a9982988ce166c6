"""The examples of docs/extending.md and docs/embedding.md run as they are, and print what the documents say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.processes import ROOT, run_python
from tests.support.commands import Commands

_RUN = r"^```python\n(.*?)^```\n+```text\n(.*?)^```$"
_EXAMPLE = rf"^## (.+?)\n.*?{_RUN}"
_CHANGE = rf"^### (.+?)\n.*?^```diff\n(.*?)^```\n+{_RUN}"


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
