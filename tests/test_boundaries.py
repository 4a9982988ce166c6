"""An underscore means "only inside this package"."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "drsai_backend"


def private_imports(source: str, package: str) -> Iterator[str]:
    """What a module of `package` imports that is private to another package of ours."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] != PACKAGE.name:
                continue
            for position, part in enumerate(parts):
                owner = ".".join(parts[:position])
                if part.startswith("_") and not part.startswith("__") and not f"{package}.".startswith(f"{owner}."):
                    yield name


def test_nothing_private_crosses_a_package() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in private_imports(
            path.read_text(encoding="utf-8"), ".".join(path.parent.relative_to(PACKAGE.parent).parts)
        )
    ]
    assert not found, "give it a public name, or a module without an underscore"


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("from drsai_backend.runs._feed import Feed", False),
        ("from drsai_backend.runs import _feed", False),
        ("from drsai_backend.runs.feed import _told", False),
        ("import drsai_backend.runs._feed", False),
        ("from drsai_backend.teams._inner import one", True),
        ("from drsai_backend.teams.replay._inner import one", True),
        ("from drsai_backend.teams.recording._inner import one", False),
        ("from autogen_agentchat._utils import one", True),
    ],
)
def test_what_is_private(line: str, allowed: bool) -> None:
    assert (not list(private_imports(line, "drsai_backend.teams.replay"))) is allowed
