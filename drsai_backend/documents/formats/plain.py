"""Plain files are text, source code, tables with separators, and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final, cast

from drsai_backend.documents.draft import Draft, clean
from drsai_backend.documents.formats.chats import Turn, add_turns, holds_chat, members_of, turns_of, turns_of_text
from drsai_backend.documents.formats.encodings import decode
from drsai_backend.documents.formats.markdown import add_markdown
from drsai_backend.json_types import JsonObject

_PARAGRAPHS: Final = re.compile(r"\n[ \t]*\n\s*")
# Where a piece of code ends: at an empty line, when the next one is not indented.
_EMPTY_LINES: Final = re.compile(r"\n\s*\n")
_PIECES: Final = re.compile(r"\n\n(?=[^\s})\]])")
_DELIMITERS: Final = "\t;|,"
"""Those that are rarer within texts and numbers are before the comma."""
_BY_COLUMNS: Final = ",;\t|"
_NAMED: Final = re.compile(r"sep=([,;\t|])\n")
"""A first line by which Excel tells the delimiter."""
_AGREEING: Final = 0.8
"""Share of rows that have as many columns as the first where the delimiter is the right one."""
_ROWS: Final = 50
"""Rows of a table with separators by which its delimiter is told."""


def read_text(content: bytes, draft: Draft) -> None:
    """Read the turns of a chat, or paragraphs, which empty lines part."""
    text = _lines_of(content)
    if turns := turns_of_text(text):
        add_turns(turns, draft)
        return
    for paragraph in _PARAGRAPHS.split(text):
        draft.add("paragraph", paragraph)


def read_code(content: bytes, draft: Draft) -> None:
    """Read source code, whose pieces begin after empty lines without an indent."""
    _add_code(_lines_of(content), draft)


def read_csv(content: bytes, draft: Draft) -> None:
    """Read a table with separators: tabs, semicolons, bars or commas."""
    text = _lines_of(content).lstrip("\ufeff")
    csv.field_size_limit(draft.limits.text)
    if named := _NAMED.match(text):
        delimiter, text = named[1], text[named.end() :]
    else:
        delimiter = _delimiter(text.split("\n", _ROWS)[:_ROWS])
    draft.table(list(csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=delimiter != "\t")))


def read_json(content: bytes, draft: Draft) -> None:
    """Read JSON, a JSON value a line, or a notebook of Jupyter.

    Each member or element is a block of code, or the turns of a chat; the names of members are its heading. What is no
    JSON is read as code.
    """
    text = _lines_of(content)
    try:
        values: Any = json.loads(text)
    except (ValueError, RecursionError):
        values = _values_of_lines(text)
    if cells := _cells_of(values):
        for cell in cells:
            _add_cell(cell, draft)
        return
    try:
        parts = list(_parts(values))
    except RecursionError:
        parts = []
    if values is None or not parts:
        draft.note("The file is read as text: it is no valid JSON, or is nested too deeply.")
        _add_code(text, draft)
        return
    for name, level, part in parts:
        draft.add("heading", name, level=level)
        if isinstance(part, str):
            draft.add("code", part)
        else:
            add_turns(part, draft, level + 1)


def _cells_of(values: object) -> list[JsonObject]:
    """The cells of a notebook; []: it is none."""
    if not isinstance(values, dict) or "nbformat" not in values:
        return []
    cells = [each for _, each in members_of(cast("JsonObject", values).get("cells"))]
    found = [cast("JsonObject", each) for each in cells if isinstance(each, dict) and "cell_type" in each]
    return found if len(found) == len(cells) else []


def _add_cell(cell: JsonObject, draft: Draft) -> None:
    """Add what a cell says, and the texts that it has put out: pictures are none."""
    source = clean(_text_of(cell.get("source")))
    if cell["cell_type"] == "markdown":
        add_markdown(source, draft)
        return
    draft.add("code", source)
    for _, output in members_of(cell.get("outputs")):
        told = cast("JsonObject", output) if isinstance(output, dict) else {}
        data = told.get("data")
        plain = cast("JsonObject", data).get("text/plain") if isinstance(data, dict) else told.get("evalue")
        draft.add("code", _text_of(told.get("text", plain)))


def _text_of(value: object) -> str:
    """A text of a notebook, which may be a list of its lines."""
    parts = [value] if isinstance(value, str) else [each for _, each in members_of(value)]
    return "".join(each for each in parts if isinstance(each, str))


def _parts(values: object, name: str = "", level: int = 1) -> Iterable[tuple[str, int, str | list[Turn]]]:
    """Yield the parts of a value: each with its name, its level, and its text or turns."""
    if values is None:
        return
    if turns := turns_of(values):
        yield name, level, turns
        return
    members = [*members_of(values)]
    if not members:
        yield name, level, _pretty(values)
    texts = sorted((each, place) for place, (each, value) in enumerate(members) if each and isinstance(value, str))
    for key, value in members:
        place = _beside(key, value, texts)
        if turns := turns_of(value, "" if place is None else str(members[place][1])):
            yield key or name, level, turns
        elif holds_chat(value):
            yield from _parts(value, key or name, level)
        else:
            yield key, level, _pretty(value)


def _beside(key: str, value: object, texts: list[tuple[str, int]]) -> int | None:
    """Return where the text stands that may tell when a session was: `session_1_date_time` beside `session_1`. `texts`:
    the names of all of the object, sorted, each with its place."""
    if not isinstance(value, list):
        return None
    first, last = (bisect_left(texts, (f"{key}_{end}",)) for end in ("", "\U0010ffff"))
    return min((place for _, place in texts[first:last]), default=None)


def _pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _values_of_lines(text: str) -> list[Any] | None:
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError):
        return None


def _delimiter(lines: list[str]) -> str:
    """Return what parts the cells of rows: that by which they have as many as the heads; else that by which most rows
    have most. A title above the heads, which nothing parts, is left aside."""
    while len(lines) > 1 and not any(each in lines[0] for each in _DELIMITERS):
        lines = lines[1:]
    columns: dict[str, int] = {}
    for each in _DELIMITERS:
        counts = [len(row) for row in csv.reader(lines, delimiter=each, skipinitialspace=each != "\t") if row]
        if counts and counts[0] > 1 and counts.count(counts[0]) >= _AGREEING * len(counts):
            return each
        columns[each] = sorted(counts)[len(counts) // 2] if counts else 1
    return max(_BY_COLUMNS, key=lambda each: columns[each])


def _add_code(text: str, draft: Draft) -> None:
    for piece in _PIECES.split(_EMPTY_LINES.sub("\n\n", text)):
        draft.add("code", piece)


def _lines_of(content: bytes) -> str:
    return decode(content).replace("\r\n", "\n").replace("\r", "\n")
