"""Documents of Word have paragraphs, whose styles say what is a heading, lists and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element

from drsai_backend.documents.draft import Draft
from drsai_backend.documents.formats.package import FALLBACK, MATH_TEXT, Package, word

_TEXTS: Final = {
    word("t"): None,
    MATH_TEXT: None,
    word("tab"): "\t",
    word("ptab"): "\t",
    word("br"): "\n",
    word("cr"): "\n",
    word("noBreakHyphen"): "-",
}
"""What stands for text in a run; None: its own."""
_BOX: Final = word("txbxContent")
_SKIPPED: Final = frozenset((word("del"), word("pPr"), word("moveFrom"), FALLBACK))
"""What is deleted or there a second time."""
_HEADING: Final = re.compile(r"(?:heading|标题|標題) ?([1-9])", re.IGNORECASE)
_TITLES: Final = ("title", "标题", "標題")
_VALUE: Final = word("val")
_NOTES: Final = {word("footnoteReference"): "footnote", word("endnoteReference"): "endnote"}
_MOST_REPEATED: Final = 200
"""Characters of a merged cell that are told again in each of its rows."""
_DEEPEST: Final = 5
"""Styles that are based on each other."""
_WIDEST: Final = 100
"""Columns over which a cell may go."""


def read(content: bytes, draft: Draft) -> None:
    """Read a document: what heads and foots its pages first, once; its notes behind the paragraphs that have them."""
    package = Package(content, draft)
    notes = {
        f"{kind}{each.get(word('id'))}": each
        for kind in _NOTES.values()
        for each in package.xml(f"word/{kind}s.xml")
        if each.get(word("type"), "normal") == "normal"
    }
    text = _Text(draft, _levels(package), notes)
    seen: set[str] = set()
    for part in [*package.named(r"word/header\d*\.xml"), *package.named(r"word/footer\d*\.xml")]:
        paragraphs = package.xml(part)
        said = " ".join("".join(_texts(each)) for each in paragraphs)
        if said not in seen and any(map(str.isalpha, said)):
            text.read(paragraphs)
            text.end_list()
        seen.add(said)
    body = package.xml(package.named(r"word/document\d*\.xml")[0])
    for each in body:
        text.read(each)
    text.end_list()
    # Those whose marks are deleted are, too.
    marks = {f"{_NOTES[each.tag]}{each.get(word('id'))}" for part in body for each in part.iter() if each.tag in _NOTES}
    text.read(note for key, note in notes.items() if key not in marks)
    text.end_list()


class _Text:
    """Reads what is in a body, a cell, a control.

    Args:
        levels: of headings, by the ids of their styles.
        notes: each is read where it is referred to, and taken out.
    """

    def __init__(self, draft: Draft, levels: dict[str, int], notes: dict[str, Element]) -> None:
        self._draft = draft
        self._levels = levels
        self._notes = notes
        self._items: list[str] = []
        self._later: list[Element] = []
        """Boxes and notes of the paragraph, list or table that is being read."""

    def read(self, container: Iterable[Element]) -> None:
        """Read the paragraphs and tables of an element."""
        for each in container:
            if each.tag == word("p"):
                self._paragraph(each)
            elif each.tag == word("tbl"):
                self.end_list()
                self._draft.table(_rows(each, self._draft))
                self._find(each, boxes=False)
                self._read_later()
            elif each.tag not in _SKIPPED:
                self.read(each)

    def end_list(self) -> None:
        """Add the list whose items were read."""
        items, self._items = self._items, []
        self._draft.add("list", "\n".join(items))
        self._read_later()

    def _paragraph(self, paragraph: Element) -> None:
        text = "".join(_texts(paragraph, boxes=False)).strip()
        about = paragraph.find(word("pPr"))
        level = self._level(about)
        item = None if about is None else about.find(word("numPr"))
        if item is not None and text and not level:
            depth = item.find(word("ilvl"))
            indent = int("0" if depth is None else depth.get(_VALUE, "0"))
            self._items.append(f"{'  ' * min(indent, 9)}- {text}")
            self._find(paragraph)
            return
        self.end_list()
        self._draft.add("heading" if level else "paragraph", text, level=level)
        self._find(paragraph)
        self._read_later()

    def _level(self, about: Element | None) -> int:
        """The level of a heading, by its own outline or by its style; 0: it is none."""
        if about is None:
            return 0
        style, outline = about.find(word("pStyle")), about.find(word("outlineLvl"))
        own = 0 if outline is None else int(outline.get(_VALUE, "9")) + 1
        return own if 0 < own < 10 else self._levels.get("" if style is None else style.get(_VALUE, ""), 0)

    def _find(self, element: Element, *, boxes: bool = True) -> None:
        """Keep the boxes in an element, and the notes to which it refers."""
        for each in element:
            if kind := _NOTES.get(each.tag):
                if (note := self._notes.pop(f"{kind}{each.get(word('id'))}", None)) is not None:
                    self._later.append(note)
            elif each.tag == _BOX and boxes:
                self._later.append(each)
            elif each.tag not in _SKIPPED:
                self._find(each, boxes=boxes)

    def _read_later(self) -> None:
        later, self._later = self._later, []
        for each in later:
            self.read(each)
            self.end_list()


def _rows(table: Element, draft: Draft) -> list[list[str]]:
    """The texts of a table's cells, each in the columns and rows over which it goes."""
    rows: list[list[str]] = []
    cells = 0
    for row in _own(table, word("tr")):
        above, texts = rows[-1] if rows else [], list[str]()
        for cell in _own(row, word("tc")):
            text = "".join(_texts(cell))
            about = cell.find(word("tcPr"))
            merged = None if about is None else about.find(word("vMerge"))
            span = None if about is None else about.find(word("gridSpan"))
            if merged is not None and merged.get(_VALUE) != "restart" and not text.strip() and len(texts) < len(above):
                text = above[len(texts)][: _MOST_REPEATED + 1]
                text = text if len(text) <= _MOST_REPEATED else ""
            columns = 1 if span is None else int(span.get(_VALUE, "1"))
            texts += [text, *[""] * min(columns - 1, _WIDEST)]
        cells += len(texts)
        draft.allow_cells(cells)
        rows.append(texts)
    return rows


def _levels(package: Package) -> dict[str, int]:
    """The level of headings, by the ids of their styles. A style is as the one on which it is based."""
    levels: dict[str, int] = {}
    based: list[tuple[str, str]] = []
    for style in package.xml("word/styles.xml"):
        name, outline = style.find(word("name")), style.find(f"{word('pPr')}/{word('outlineLvl')}")
        named = "" if name is None else name.get(_VALUE, "")
        before = style.find(word("basedOn"))
        if found := _HEADING.match(named):
            level = int(found[1])
        elif named.lower() in _TITLES:
            level = 1
        elif outline is not None:
            level = int(outline.get(_VALUE, "9")) + 1
        else:
            based.append((style.get(word("styleId"), ""), "" if before is None else before.get(_VALUE, "")))
            continue
        levels[style.get(word("styleId"), "")] = level
    for _ in range(_DEEPEST):
        levels |= {style: levels[before] for style, before in based if before in levels}
    return {style: level for style, level in levels.items() if 0 < level < 10}


def _own(element: Element, tag: str) -> Iterator[Element]:
    """The rows of a table, or the cells of a row, without those of tables in its cells: their texts are the cell's."""
    for each in element:
        if each.tag == tag:
            yield each
        elif each.tag != word("tbl"):
            yield from _own(each, tag)


def _texts(element: Element, *, boxes: bool = True) -> Iterator[str]:
    """The texts in an element, a line each paragraph. `boxes`: those of text boxes, too."""
    for each in element:
        if each.tag in _TEXTS:
            yield _TEXTS[each.tag] or each.text or ""
        elif each.tag not in _SKIPPED and (boxes or each.tag != _BOX):
            yield from _texts(each, boxes=boxes)
    if element.tag == word("p"):
        yield "\n"
