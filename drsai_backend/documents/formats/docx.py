"""Documents of Word have paragraphs, whose styles say what is a heading, lists and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element

from drsai_backend.documents.draft import Draft, repeated
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
_ABOUT: Final = word("pPr")
"""What is said of a paragraph, or of those of a style."""
_SKIPPED: Final = frozenset((word("del"), _ABOUT, word("moveFrom"), FALLBACK))
"""What is deleted or there a second time."""
_HEADING: Final = re.compile(r"(?:heading|标题|標題) ?([1-9])", re.IGNORECASE)
_TITLES: Final = ("title", "标题", "標題")
_VALUE: Final = word("val")
_NOTES: Final = {word("footnoteReference"): "footnote", word("endnoteReference"): "endnote"}
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
        level, item = self._level(paragraph), paragraph.find(f"{_ABOUT}/{word('numPr')}")
        if item is not None and text and not level:
            indent = int(_value(item, word("ilvl"), "0"))
            self._items.append(f"{'  ' * min(indent, 9)}- {text}")
            self._find(paragraph)
            return
        self.end_list()
        self._draft.add("heading" if level else "paragraph", text, level=level)
        self._find(paragraph)
        self._read_later()

    def _level(self, paragraph: Element) -> int:
        """The level of a heading, by its own outline or by its style; 0: it is none."""
        own = int(_value(paragraph, f"{_ABOUT}/{word('outlineLvl')}", "9")) + 1
        return own if 0 < own < 10 else self._levels.get(_value(paragraph, f"{_ABOUT}/{word('pStyle')}"), 0)

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
            merged = cell.find(f"{word('tcPr')}/{word('vMerge')}")
            if merged is not None and merged.get(_VALUE) != "restart" and not text.strip() and len(texts) < len(above):
                text = repeated(above[len(texts)])
            columns = int(_value(cell, f"{word('tcPr')}/{word('gridSpan')}", "1"))
            texts += [text, *[""] * min(columns - 1, _WIDEST)]
        cells += len(texts)
        draft.allow_text(cells)
        rows.append(texts)
    return rows


def _levels(package: Package) -> dict[str, int]:
    """The level of headings, by the ids of their styles. A style is as the one on which it is based."""
    levels: dict[str, int] = {}
    based: list[tuple[str, str]] = []
    for style in package.xml("word/styles.xml"):
        named, outline = _value(style, word("name")), style.find(f"{_ABOUT}/{word('outlineLvl')}")
        if found := _HEADING.match(named):
            level = int(found[1])
        elif named.lower() in _TITLES:
            level = 1
        elif outline is not None:
            level = int(outline.get(_VALUE, "9")) + 1
        else:
            based.append((style.get(word("styleId"), ""), _value(style, word("basedOn"))))
            continue
        levels[style.get(word("styleId"), "")] = level
    for _ in range(_DEEPEST):
        levels |= {style: levels[before] for style, before in based if before in levels}
    return {style: level for style, level in levels.items() if style and 0 < level < 10}


def _value(element: Element, path: str, default: str = "") -> str:
    """Return the value of an element within another one; `default` where it is not there."""
    found = element.find(path)
    return default if found is None else found.get(_VALUE, default)


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
