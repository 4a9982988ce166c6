"""Explanations tell what is wrong with data: the places that pydantic refuses, and the names that were probably
meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

from pydantic import BeforeValidator, ValidationError


def _not_flag(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


IS_NUMBER: Final = BeforeValidator(_not_flag)
"""Of a field that is a number: pydantic takes true for 1; of a `Literal`, which it compares with `==`, also where it is
strict."""
DataPath: TypeAlias = tuple[str | int, ...]
_COMPARED: Final = 1_000
"""Names that one which is not there is compared with."""
_LONGEST: Final = 64
"""Characters of it that are compared: what is longer is nobody's slip of the pen."""
LONGEST_PLACE: Final = 200
"""Characters that are told of a place in data, or of a name: clients have some of a megabyte."""
_WHOLE: Final = object()


@dataclass(frozen=True, slots=True)
class Wrong:
    """One thing that is wrong with data; as a text, its place and what is wrong there.

    Attributes:
        path: keys and indexes that lead to it.
        type: pydantic's name of the error.
        text: pydantic's words, or those of the validator that has raised a ValueError. They may quote the value.
        values: what a template of words may name, by name.
        loc: the path as pydantic tells it, with the alternatives of unions.
        given: the value that is refused; of a field that is missing, the object without it.
    """

    path: DataPath
    type: str
    text: str
    values: Mapping[str, object]
    loc: DataPath
    given: object = field(repr=False)  # it may be a secret

    @property
    def place(self) -> str:
        """The path with dots, bounded: its keys may be those of a request."""
        return ".".join(map(str, self.path))[:LONGEST_PLACE]

    @property
    def phrase(self) -> str:
        """The text as it stands after a name."""
        return self.text if self.type == "value_error" else self.text[:1].lower() + self.text[1:]

    def __str__(self) -> str:
        return f"`{self.place}`: {self.text}"


def explain(error: ValidationError, data: object = _WHOLE, *, within: DataPath = ()) -> Iterator[Wrong]:
    """Yield what is wrong, in pydantic's order.

    Args:
        data: what was validated. Pydantic also names the alternatives of unions, which are not in the data: with it,
            paths are without them, and of a union without its discriminator, lead to that.
        within: where the data stands; paths begin with it.
    """
    for each in error.errors(include_url=False):
        loc, values = each["loc"], each.get("ctx", {})
        path = loc if data is _WHOLE else _path_in(data, loc, each["type"], values)
        text = each["msg"].removeprefix("Value error, ")
        yield Wrong((*within, *path), each["type"], text, values, loc, each["input"])


def _path_in(data: Any, loc: DataPath, kind: str, values: Mapping[str, object]) -> DataPath:
    path: list[str | int] = []
    for step in loc:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            continue
        path.append(step)
    if kind == "missing":
        path.append(loc[-1])
    elif kind in ("union_tag_invalid", "union_tag_not_found") and isinstance(data, Mapping):
        path.append(str(values["discriminator"]).strip("'"))
    return tuple(path)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` with the known word that is most like it; "" where none is."""
    near = difflib.get_close_matches(word[:_LONGEST], list(islice(known, _COMPARED)), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def slip_of(word: str, known: Iterable[str]) -> str | None:
    """Return the known name of which a word is a slip of the pen: `threadid`, `threadId` or `thred_id` of `thread_id`.

    None: it is a name of its own, or a known one. Short names are too like others to be told by a letter.
    """
    names = {each: _bare(each) for each in known}
    if word in names:
        return None
    bare = {text: name for name, text in names.items()}
    like = difflib.get_close_matches(_bare(word[:_LONGEST]), [each for each in bare if len(each) >= 8], 1, 0.88)
    return bare.get(_bare(word[:_LONGEST])) or (bare[like[0]] if like else None)


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def why_not_imported(error: Exception) -> str:
    """Return why code could not be imported, and what to install where it is for the release of `mcp` that is here."""
    root = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if root not in ("mcp", "mcp_types"):
        return str(error)
    return (
        f"{error}. MCP servers' tools of this package need mcp 2.3 or later (pip install 'drsai-backend[mcp]'), "
        "autogen_ext.tools.mcp of AutoGen 0.7.5 needs mcp 1 (pip install 'mcp<2'), and an environment has one of them: "
        "use drsai_backend.tools.mcp.McpWorkbench (docs/mcp.md), or mcp 1 without the extra `mcp`"
    )
