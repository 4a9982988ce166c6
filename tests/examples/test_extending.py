"""The examples of docs/extending.md run as they are, and print what the document says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.processes import ROOT, run_python

_EXAMPLE = r"^## (.+?)\n.*?^```python\n(.*?)^```\n+```text\n(.*?)^```$"
EXAMPLES = re.findall(_EXAMPLE, (ROOT / "docs/extending.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_section_has_an_example() -> None:
    sections = re.findall(r"^## (.+)$", (ROOT / "docs/extending.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [section for section, _, _ in EXAMPLES] == sections


@pytest.mark.parametrize(("program", "printed"), [pytest.param(*rest, id=name) for name, *rest in EXAMPLES])
def test_the_example_prints_what_it_says(program: str, printed: str, tmp_path: Path) -> None:
    assert run_python(["-c", program], tmp_path) == printed
