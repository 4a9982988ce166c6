"""The examples of docs/extending.md and docs/embedding.md run as they are, and print what the documents say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.processes import ROOT, run_python
from tests.support.commands import Commands

_EXAMPLE = r"^## (.+?)\n.*?^```python\n(.*?)^```\n+```text\n(.*?)^```$"


def _read(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def _examples(name: str) -> list[tuple[str, str, str]]:
    """Section, program and what it prints."""
    return re.findall(_EXAMPLE, _read(name), re.MULTILINE | re.DOTALL)


EXAMPLES = _examples("extending.md") + _examples("embedding.md")


def test_every_section_has_an_example() -> None:
    sections = re.findall(r"^## (.+)$", _read("extending.md"), re.MULTILINE)
    assert [section for section, _, _ in _examples("extending.md")] == sections


def test_every_program_is_run() -> None:
    assert len(EXAMPLES) == sum(_read(name).count("```python\n") for name in ("extending.md", "embedding.md"))


@pytest.mark.parametrize(("program", "printed"), [pytest.param(*rest, id=name) for name, *rest in EXAMPLES])
def test_the_example_prints_what_it_says(program: str, printed: str, tmp_path: Path, commands: Commands) -> None:
    assert run_python(commands, ["-c", program], tmp_path) == printed
