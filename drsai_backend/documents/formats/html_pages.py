"""HTML is read as it streams by: headings, paragraphs, lists, tables, code. Scripts and styles are no text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

from drsai_backend.documents.base import BlockKind
from drsai_backend.documents.draft import Draft
from drsai_backend.documents.formats.encodings import decode

_DECLARED: Final = re.compile(rb"(?:charset|encoding)\s*=\s*[\"']?([\w.:-]{2,40})", re.ASCII)
_DECLARED_WITHIN: Final = 2048
_SPACES: Final = re.compile(r"[ \t\r\n\f]+")
_HEADINGS: Final = frozenset(f"h{level}" for level in range(1, 7))
_HIDDEN: Final = frozenset(("script", "style", "template", "noscript", "svg", "iframe", "object"))
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
_DEEPEST: Final = 10
"""Lists in each other whose items are indented more."""


def read(content: bytes, draft: Draft) -> None:
    """Read a page, without what only browsers need."""
    declared = _DECLARED.search(content[:_DECLARED_WITHIN])
    page = _Page(draft)
    page.feed(decode(content, declared[1].decode() if declared else None))
    page.close()
    page.finish()


class _Page(HTMLParser):
    """The block that is being read. Elements are counted, not kept: pages may nest them without end."""

    def __init__(self, draft: Draft) -> None:
        super().__init__()
        self._draft = draft
        self._parts: list[str] = []
        self._kind: BlockKind = "paragraph"
        self._level = 0
        self._hidden = 0
        self._title = False
        self._lists: list[int] = []
        """Of each open list the number of its next item; 0: they have none."""
        self._tables = 0
        self._rows: list[list[str]] = []

    def end(self) -> None:
        """Add the block that was read."""
        text, self._parts = "".join(self._parts), []
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
            self._hidden += 1
        elif tag == "title":
            self._title = True
        elif tag == "table":
            self._tables += 1
            if self._tables == 1:
                self.end()
        elif self._tables:
            self._in_table(tag)
        else:
            self._begin(tag)

    def handle_endtag(self, tag: str) -> None:
        """End it."""
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif tag == "title":
            self._title = False
        elif tag == "table" and self._tables:
            self._tables -= 1
            if not self._tables:
                self._end_table()
        elif self._tables:
            return
        elif tag in _LISTS and self._lists:
            self._lists.pop()
            if not self._lists:
                self.end()
        elif tag in _HEADINGS or tag == "pre" or (tag in _BLOCKS and self._kind != "list"):
            self.end()

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._title and not self._hidden:
            self._draft.name_it(title=data)
        elif not self._hidden:
            self._parts.append(data if self._kind == "code" else _SPACES.sub(" ", data))

    def _begin(self, tag: str) -> None:
        if tag in _HEADINGS:
            self.end()
            self._kind, self._level = "heading", int(tag[1])
        elif tag in _LISTS or tag == "li":
            self._in_list(tag)
        elif tag == "pre":
            self.end()
            self._kind = "code"
        elif tag == "br":
            self._parts.append("\n")
        elif tag in _BLOCKS and self._kind != "list":
            self.end()

    def _in_table(self, tag: str) -> None:
        if self._tables == 1 and (tag == "tr" or tag in _CELLS):
            self._end_cell()
            if tag == "tr" or not self._rows:
                self._rows.append([])
            if tag != "tr":
                self._rows[-1].append("")
        else:
            self._parts.append(" ")

    def _end_cell(self) -> None:
        """Keep the text of a cell. What stands before the first one is the table's caption."""
        if self._rows and self._rows[-1]:
            self._rows[-1][-1] += "".join(self._parts)
            self._parts = []
        elif not self._rows:
            self.end()

    def _end_table(self) -> None:
        self._end_cell()
        rows, self._rows = self._rows, []
        self._draft.table(rows)

    def _in_list(self, tag: str) -> None:
        if tag != "li":
            if not self._lists:
                self.end()
            self._lists.append(1 if tag == "ol" else 0)
            self._kind = "list"
            return
        number = self._lists[-1] if self._lists else 0
        if number:
            self._lists[-1] += 1
        indent = "  " * min(len(self._lists) - 1, _DEEPEST) if self._lists else ""
        self._parts.append(f"\n{indent}{f'{number}.' if number else '-'} ")
