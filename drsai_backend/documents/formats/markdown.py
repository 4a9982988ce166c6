"""Markdown is read line by line: headings, fenced code, tables, lists, and paragraphs between them."""

from __future__ import annotations

import re
from typing import Final

from drsai_backend.documents.base import BlockKind
from drsai_backend.documents.draft import Draft, clean
from drsai_backend.documents.formats.encodings import decode

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_UNDERLINE: Final = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE: Final = re.compile(r"[ \t]*(`{3,}+(?!.*`)|~{3,})")
_DELIMITERS: Final = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)+\|?$")
"""The second line of a table."""
_ITEM: Final = re.compile(r"[ \t]*([-*+]|\d{1,9}[.)])[ \t]+\S")
# Two lines of dashes with a text between are no front matter.
_FRONT: Final = re.compile(r"---\n(?=\s*(?:#|[\w\"'-][^\n:]*:(?:\s|$)))(.*?)\n---(?:\n|$)", re.DOTALL)
_FIELD: Final = re.compile(r"^(title|author)[ \t]*:(.*)$", re.MULTILINE)


def read(content: bytes, draft: Draft) -> None:
    """Read Markdown. A front matter is metadata."""
    text = clean(decode(content))
    if front := _FRONT.match(text):
        draft.name_it(**{key: value.strip(" \t\"'") for key, value in _FIELD.findall(front[1])})
        text = text[front.end() :]
    add_markdown(text, draft)


def add_markdown(text: str, draft: Draft) -> None:
    """Add the blocks of Markdown whose lines end with \\n."""
    _Lines(draft).read(text.split("\n"))


class _Lines:
    """The lines of the block that is being read."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._lines: list[str] = []
        self._kind: BlockKind = "paragraph"

    def read(self, lines: list[str]) -> None:
        """Read all."""
        fence = ""
        for line in lines:
            if fence:
                self._lines.append(line)
                if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                    fence = ""
                    self._end()
            elif found := _FENCE.match(line):
                self._end("code")
                self._lines, fence = [line], found[1]
            else:
                self._take(line)
        self._end()

    def _take(self, line: str) -> None:
        """Read a line outside of fences."""
        if not line.strip():
            # An item of a list may have several paragraphs.
            self._end() if self._kind != "list" else self._lines.append("")
        elif found := _HEADING.match(line):
            self._end()
            self._draft.add("heading", _without_closing(found[2]), level=len(found[1]))
        elif self._kind == "paragraph" and self._lines and (found := self._underline(line)):
            self._draft.add("heading", " ".join(self._lines), level=1 if found == "=" else 2)
            self._lines = []
        elif self._kind == "paragraph" and self._lines and "|" in self._lines[-1] and _DELIMITERS.match(line.strip()):
            heads = self._lines.pop()
            self._end("table")
            self._lines += [heads, line]
        else:
            self._continue(line)

    def _underline(self, line: str) -> str:
        """Return the sign by which a line makes a heading of the lines above; "": it does not. Dashes below several
        lines part them from what follows more often."""
        found = _UNDERLINE.match(line)
        return found[1][0] if found and (len(self._lines) == 1 or (len(found[1]) > 2 and found[1][0] == "=")) else ""

    def _continue(self, line: str) -> None:
        kind: BlockKind = "paragraph"
        if line.lstrip().startswith("|") or (self._kind == "table" and "|" in line):
            kind = "table"
        elif _ITEM.match(line) or (self._kind == "list" and self._belongs(line)):
            kind = "list"
        if kind != self._kind:
            self._end(kind)
        self._lines.append(line)

    def _belongs(self, line: str) -> bool:
        """A line without a mark belongs to an item where it is indented, or follows at once."""
        return line[0] in " \t" or bool(self._lines and self._lines[-1])

    def _end(self, kind: BlockKind = "paragraph") -> None:
        self._draft.add(self._kind, "\n".join(self._lines))
        self._lines, self._kind = [], kind


def _without_closing(title: str) -> str:
    """A title without the signs that may stand behind it: of `Second ##`, but not of `C#`."""
    title = title.rstrip(" \t")
    core = title.rstrip("#")
    return core.rstrip(" \t") if not core or core[-1] in " \t" else title
