"""The draft is what the readers of formats fill: blocks with clean texts, within the limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from drsai_backend.documents.base import Block, BlockKind, ReadLimits
from drsai_backend.errors import DocumentTooLarge

_LONGEST_TITLE: Final = 500
"""Characters of a value of the metadata."""
_MOST_NOTES: Final = 20
_MOST_REPEATED: Final = 200
"""Characters of a merged cell that are told again in each of its rows."""
# Neither database and no JSON takes a NUL or half a pair of surrogates; other controls are of printers and terminals.
# A soft hyphen is shown at the end of a line alone; a word with one in it would not be found.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\xad\ufeff\ufffe\uffff]|[\ud800-\udfff]")
_NEWLINES: Final = re.compile(r"\r\n?|[\x0c\x85\u2028\u2029]")
_SPACES: Final = re.compile(r"[ \t\xa0]+")


def clean(text: str) -> str:
    """Return a text without control characters, its lines ended by \\n."""
    return _CONTROLS.sub("", _NEWLINES.sub("\n", text))


def one_line(text: str) -> str:
    """Return a text as one line with single spaces."""
    return _SPACES.sub(" ", clean(text).replace("\n", " ")).strip()


def cell(text: str) -> str:
    """Return a text as a cell of a Markdown table."""
    return one_line(text).replace("|", "\\|")


def repeated(text: str) -> str:
    """Return what further rows tell of a cell that goes over them: its text, unless that is long."""
    return text if len(text) <= _MOST_REPEATED else ""


@dataclass(slots=True)
class Draft:
    """A document that is being read.

    Attributes:
        limits: of its reading.
        name: of the file.
        pages, metadata, notes: as in `Document`.
    """

    limits: ReadLimits
    name: str = ""
    blocks: list[Block] = field(default_factory=list[Block])
    pages: int | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])
    _characters: int = 0

    def add(self, kind: BlockKind, text: str, *, level: int = 0, page: int | None = None) -> None:
        """Add a block; one without text is left out.

        Raises:
            DocumentTooLarge: the document has more text than it may.
        """
        text = one_line(text) if kind == "heading" else clean(text)
        text = text.strip("\n").rstrip() if kind in ("code", "list") else text.strip()
        if not text.strip():
            return
        self._characters += len(text)
        self.allow_text(self._characters)
        self.blocks.append(Block(kind, text, min(max(level, 1), 6) if kind == "heading" else 0, page))

    def table(self, rows: list[list[str]], *, page: int | None = None) -> None:
        """Add a table. The first row are the heads of its columns."""
        cells = [[cell(each) for each in row] for row in rows]
        lines = ["| " + " | ".join(row) + " |" for row in cells if any(row)]
        if lines:
            heads = len(next(row for row in cells if any(row)))
            self.add("table", "\n".join([lines[0], "|" + " --- |" * heads, *lines[1:]]), page=page)

    def allow_text(self, characters: int) -> None:
        """Refuse a document before more of it is made: it has so many characters, or cells. Raises DocumentTooLarge."""
        if characters > self.limits.text:
            raise DocumentTooLarge(f"the file has more than {self.limits.text} characters of text; split it")

    def name_it(self, **metadata: object) -> None:
        """Keep what the file says of itself, as far as it is text and not empty."""
        for key, value in metadata.items():
            if isinstance(value, str) and (text := one_line(value)[:_LONGEST_TITLE]):
                self.metadata[key] = text

    def note(self, text: str) -> None:
        """Tell who has uploaded the file what could not be read."""
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def allow_pages(self, pages: int, what: str = "pages") -> None:
        """Keep how many pages there are.

        Raises:
            DocumentTooLarge: more than may be.
        """
        if pages > self.limits.pages:
            raise DocumentTooLarge(f"the file has {pages} {what}; it may have {self.limits.pages}")
        self.pages = pages
