"""Functions that definitions name: imported when a file is read, so that what is wrong is told before anybody asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drsai_backend.definitions import DefinitionError, DefinitionPolicy, load, read_definitions

CODE = '''
def measure(at: str) -> str:
    """Measure something."""
    return at

class Broken:
    def __init__(self) -> None:
        raise RuntimeError("a secret of the operator's")
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module, which no other test finds."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "lab_tools.py").write_text(CODE)
    (tmp_path / "lab_ill.py").write_text("raise RuntimeError('a secret of the operator')\n")
    yield tmp_path
    for name in ("lab_tools", "lab_ill"):
        sys.modules.pop(name, None)


def written(folder: Path, *tools: str) -> str:
    lines = "".join(f"      - {{python: '{each}'}}\n" for each in tools)
    (folder / "team.yaml").write_text(f"agents:\n  ann:\n    tools:\n{lines}  bob: {{}}\n")
    return str(folder / "team.yaml")


def test_the_folder_of_the_file_can_be_imported_from(folder: Path) -> None:
    file = written(folder, "lab_tools:measure")
    assert [*load(file, DefinitionPolicy(("lab_tools",)))] == ["ann", "bob"]
    assert sys.path[-1] == str(folder), "after all others: it must replace nothing"


def test_what_cannot_be_imported_is_told_with_its_line(folder: Path) -> None:
    file = written(
        folder, "lab_tools:nope", "lab_gone:x", "lab_ill:x", "lab_tools:Broken", "lab_tools:CODE", "lab_tools:measure"
    )
    (folder / "lab_tools.py").write_text(CODE + "CODE = 3\n")
    with pytest.raises(DefinitionError) as refused:
        load(file, DefinitionPolicy(("lab_tools", "lab_gone", "lab_ill")))
    assert [(each.line, each.field, each.message) for each in refused.value.problems] == [
        (
            4,
            "agents.ann.tools[0].python",
            "the tool lab_tools:nope cannot be imported: AttributeError: module 'lab_tools' has no attribute 'nope'",
        ),
        (
            5,
            "agents.ann.tools[1].python",
            "the tool lab_gone:x cannot be imported: ModuleNotFoundError: No module named 'lab_gone'",
        ),
        (6, "agents.ann.tools[2].python", "the tool lab_ill:x cannot be imported: RuntimeError"),
        (7, "agents.ann.tools[3].python", "the tool lab_tools:Broken cannot be imported: RuntimeError"),
        (8, "agents.ann.tools[4].python", "the tool lab_tools:CODE is neither a function nor a tool"),
    ]


def test_nothing_is_imported_that_is_not_allowed(folder: Path) -> None:
    with pytest.raises(DefinitionError, match="lab_tools may not be named"):
        read_definitions(written(folder, "lab_tools:measure"), ["lab"])
    assert "lab_tools" not in sys.modules
