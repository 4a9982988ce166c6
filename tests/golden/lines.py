"""Values as lines, and their comparison with the lines of a file."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "frozen"


def flat(value: Any, path: str, whole: Callable[[Any], bool] = lambda _: False) -> Iterator[str]:
    """`path = value` for each value that holds no others, or is to be shown `whole`; keys in their order."""
    if not value or not isinstance(value, dict | list) or whole(value):
        yield f"{path} = {json.dumps(value, ensure_ascii=False, sort_keys=True)}"
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from flat(value[key], f"{path}.{key}", whole)
    else:
        for number, each in enumerate(value):
            yield from flat(each, f"{path}[{number}]", whole)


def frozen(name: str) -> list[str]:
    """The lines of a file in `frozen`."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("\n")[:-1]


def compare(name: str, lines: Iterable[str], config: pytest.Config) -> None:
    """Fail with the lines that are others than in `frozen`, or write them with `--write-golden`."""
    file = FOLDER / f"{name}.txt"
    now = [json.dumps(each)[1:-1] if "\n" in each else each for each in lines]
    if config.getoption("--write-golden"):
        file.write_text("".join(f"{each}\n" for each in now), encoding="utf-8")
        return
    differing = difflib.unified_diff(frozen(name), now, n=0, lineterm="")
    changed = [each for each in differing if each[:3] not in ("---", "+++")]
    if changed:
        shown = "\n".join(each for each in changed[:200] if not each.startswith("@@"))
        pytest.fail(
            f"{file.name} is not what it was ({len(changed)} lines); see tests/golden/README.md:\n{shown}",
            pytrace=False,
        )
