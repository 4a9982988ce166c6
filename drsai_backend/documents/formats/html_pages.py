"""HTML is read as it streams by: headings, paragraphs, lists, tables, code. Scripts and styles are no text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

from drsai_backend.documents.base import BlockKind
from drsai_backend.documents.draft import Draft, repeated
from drsai_backend.documents.formats.encodings import decode

_DECLARED: Final = re.compile(rb"(?:charset|encoding)\s*=\s*[\"']?([\w.:-]{2,40})", re.ASCII)
_DECLARED_WITHIN: Final = 2048
_SPACES: Final = re.compile(r"[ \t\r\n\f]+")
_HEADINGS: Final = frozenset(f"h{level}" for level in range(1, 7))
_HIDDEN: Final = frozenset(("script", "style", "template", "noscript", "svg", "iframe"))
_ALWAYS: Final = frozenset(("script", "style"))
_PAIRED: Final = re.compile(r"<(/?)(template|noscript|svg|iframe|title)\b[^<>]*(?<!/)>", re.IGNORECASE)
"""Elements that hide what is in them. One that is never ended hides nothing: all behind it would be lost."""
_BLOCKS: Final = frozenset(
    (
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "body",
            "dd",
            "details",
            "div",
            "dl",
            "dt",
            "fieldset",
            "footer",
        ),
        *("figcaption", "figure", "form", "header", "hr", "html", "main", "nav", "p", "section", "summary"),
    )
)
_LISTS: Final = frozenset(("ul", "ol", "menu"))
_CELLS: Final = frozenset(("td", "th"))
_BREAKS: Final = _BLOCKS | _HEADINGS | _LISTS | _CELLS | {"br", "li", "option", "pre", "table", "tr"}
"""Within a cell, what parts words."""
_WIDEST, _LONGEST = 100, 1_000
"""Columns and rows over which a cell may go."""
_NUMBER: Final = re.compile(r"\s*(\d{1,6})")
_DEEPEST: Final = 10
"""Lists in each other whose items are indented more."""


def read(content: bytes, draft: Draft) -> None:
    """Read a page, without what only browsers need."""
    declared = _DECLARED.search(content[:_DECLARED_WITHIN])
    text = decode(content, declared[1].decode() if declared else None)
    page = _Page(draft, _ended(text))
    page.feed(text)
    page.close()
    page.finish()


def _ended(text: str) -> set[tuple[int, int]]:
    """Return the places (line, character) at which elements of `_PAIRED` begin that are ended."""
    open_ones: dict[str, list[tuple[int, int]]] = {}
    ended: set[tuple[int, int]] = set()
    line, start, at = 1, 0, 0
    for found in _PAIRED.finditer(text):
        line += text.count("\n", at, found.start())
        start = max(start, text.rfind("\n", at, found.start()) + 1)
        at = found.start()
        starts = open_ones.setdefault(found[2].lower(), [])
        if not found[1]:
            starts.append((line, at - start))
        elif starts:
            ended.add(starts.pop())
    return ended


class _Page(HTMLParser):
    """The block that is being read. Elements are counted, not kept: pages may nest them without end.

    Args:
        ended: where elements begin that hide what is in them.
    """

    def __init__(self, draft: Draft, ended: set[tuple[int, int]]) -> None:
        super().__init__()
        self._draft = draft
        self._ended = ended
        self._parts: list[str] = []
        self._kind: BlockKind = "paragraph"
        self._level = 0
        self._hidden, self._hides = 0, ""
        """Elements of one name in each other that hide what is in them, and the name."""
        self._title = False
        self._gap = False
        """What comes next stands on a line of its own, in an item or a cell."""
        self._lists: list[int] = []
        """Of each open list the number of its next item; 0: they have none."""
        self._tables = 0
        self._rows: list[list[str]] = []
        self._below: dict[int, tuple[int, str]] = {}
        """Of columns whose cells go over further rows: how many, and their text."""
        self._cells = 0
        self._span = (1, 1)
        """Columns and rows over which the cell goes that is being read."""

    def end(self) -> None:
        """Add the block that was read."""
        text, self._parts, self._gap = "".join(self._parts), [], False
        if self._kind not in ("code", "list"):
            text = "\n".join(line.strip() for line in text.split("\n"))
        self._draft.add(self._kind, text, level=self._level)
        self._kind, self._level = "list" if self._lists else "paragraph", 0

    def finish(self) -> None:
        """Add what the page has not ended."""
        self._end_table() if self._tables else self.end()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, an item or a cell."""
        if tag in _HIDDEN:
            if tag == self._hides or (not self._hides and (tag in _ALWAYS or self.getpos() in self._ended)):
                self._hidden, self._hides = self._hidden + 1, tag
        elif self._hides:
            return
        elif tag == "title":
            self._title = self.getpos() in self._ended
        elif tag == "table":
            self._tables += 1
            self._gap = self._tables > 1
            if self._tables == 1:
                self.end()
        elif self._tables:
            self._in_table(tag, attrs)
        else:
            self._begin(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag that ends itself: nothing is in it."""
        if tag not in _HIDDEN:
            super().handle_startendtag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """End it."""
        if self._hides:
            self._hidden -= tag == self._hides
            self._hides = self._hides if self._hidden else ""
        elif tag == "title":
            self._title = False
        elif self._tables:
            self._end_in_table(tag)
        elif tag in _LISTS and self._lists:
            self._lists.pop()
            if not self._lists:
                self.end()
        elif tag in _BLOCKS and self._kind == "list":
            self._gap = True
        elif tag in _HEADINGS or tag == "pre" or tag in _BLOCKS:
            self.end()

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._title and not self._hides:
            self._draft.name_it(title=data)
        elif not self._hides:
            if self._gap and data.strip():
                self._gap = False
                if self._tables:
                    self._parts.append(" ")
                elif self._parts and not self._parts[-1].startswith("\n"):
                    self._parts.append(f"\n{self._indent()}  ")
                    data = data.lstrip()
            self._parts.append(data if self._kind == "code" else _SPACES.sub(" ", data))

    def _begin(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HEADINGS:
            self.end()
            self._kind, self._level = "heading", int(tag[1])
        elif tag in _LISTS or tag == "li":
            self._in_list(tag, attrs)
        elif tag == "pre":
            self.end()
            self._kind = "code"
        elif tag in ("br", "option"):
            self._parts.append("\n")
        elif tag in _BLOCKS and self._kind == "list":
            self._gap = True
        elif tag in _BLOCKS:
            self.end()

    def _in_table(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._tables == 1 and (tag == "tr" or tag in _CELLS):
            self._end_cell()
            if tag == "tr" and self._rows:
                self._fill()
            if tag == "tr" or not self._rows:
                self._rows.append([])
            if tag != "tr":
                self._fill()
                self._rows[-1].append("")
                self._span = (_number(attrs, "colspan", _WIDEST), _number(attrs, "rowspan", _LONGEST))
        elif tag in _BREAKS:
            self._gap = True

    def _end_in_table(self, tag: str) -> None:
        self._tables -= tag == "table"
        self._gap |= tag in _BREAKS
        if not self._tables:
            self._end_table()

    def _fill(self) -> None:
        """Put what reaches down from cells above before the next cell."""
        row = self._rows[-1]
        while below := self._below.pop(len(row), None):
            rows, text = below
            if rows > 1:
                self._below[len(row)] = (rows - 1, text)
            row.append(text)
            self._count(1)

    def _count(self, cells: int) -> None:
        self._cells += cells
        self._draft.allow_text(self._cells)

    def _end_cell(self) -> None:
        """Keep the text of a cell. What stands before the first one is the table's caption."""
        self._gap = False
        if self._rows and self._rows[-1]:
            row, (columns, rows) = self._rows[-1], self._span
            row[-1] += "".join(self._parts)
            first = len(row) - 1
            row += [""] * (columns - 1)
            if rows > 1:
                text = repeated(row[first])
                self._below |= {place: (rows - 1, "" if place > first else text) for place in range(first, len(row))}
            self._parts, self._span = [], (1, 1)
            self._count(columns)
        elif not self._rows:
            self.end()

    def _end_table(self) -> None:
        self._end_cell()
        if self._rows:
            self._fill()
        rows, self._rows, self._below = self._rows, [], {}
        self._draft.table(rows)

    def _in_list(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._gap = False
        if tag != "li":
            if not self._lists:
                self.end()
            self._lists.append(_number(attrs, "start", 999_999) if tag == "ol" else 0)
            self._kind = "list"
            return
        number = self._lists[-1] if self._lists else 0
        if number:
            self._lists[-1] += 1
        self._parts.append(f"\n{self._indent()}{f'{number}.' if number else '-'} ")

    def _indent(self) -> str:
        return "  " * min(len(self._lists) - 1, _DEEPEST)


def _number(attrs: list[tuple[str, str | None]], name: str, most: int) -> int:
    """Return a number of a tag, 1 to `most`; 1: it has none."""
    found = _NUMBER.match(dict(attrs).get(name) or "")
    return min(max(int(found[1]), 1), most) if found else 1
