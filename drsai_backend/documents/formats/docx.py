"""Documents of Word have paragraphs, whose styles say what is a heading, lists and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element

from drsai_backend.documents.draft import Draft
from drsai_backend.documents.formats.package import Package, word

_TEXTS: Final = {word("t"): None, word("tab"): "\t", word("br"): "\n", word("cr"): "\n", word("noBreakHyphen"): "-"}
"""What stands for text in a run; None: its own."""
_SKIPPED: Final = frozenset(
    (
        word("del"),
        word("pPr"),
        word("moveFrom"),
        "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
    )
)
"""What is deleted or there a second time."""
_HEADING: Final = re.compile(r"(?:heading|标题|標題) ?([1-9])", re.IGNORECASE)
_TITLES: Final = ("title", "标题", "標題")
_VALUE: Final = word("val")


def read(content: bytes, draft: Draft) -> None:
    """Read a document. Footnotes are at its end."""
    package = Package(content, draft)
    text = _Text(draft, _levels(package))
    for part in ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml"):
        for each in package.xml(part):
            text.read(each)
        text.end_list()


class _Text:
    """Reads what is in a body, a cell, a control."""

    def __init__(self, draft: Draft, levels: dict[str, int]) -> None:
        self._draft = draft
        self._levels = levels
        self._items: list[str] = []

    def read(self, container: Element) -> None:
        """Read the paragraphs and tables of an element."""
        for each in container:
            if each.tag == word("p"):
                self._paragraph(each)
            elif each.tag == word("tbl"):
                self.end_list()
                rows = _own(each, word("tr"))
                self._draft.table([["".join(_texts(cell)) for cell in _own(row, word("tc"))] for row in rows])
            elif each.tag not in _SKIPPED:
                self.read(each)

    def end_list(self) -> None:
        """Add the list whose items were read."""
        self._draft.add("list", "\n".join(self._items))
        self._items = []

    def _paragraph(self, paragraph: Element) -> None:
        text = "".join(_texts(paragraph)).strip()
        style = paragraph.find(f"{word('pPr')}/{word('pStyle')}")
        level = self._levels.get("" if style is None else style.get(_VALUE, ""), 0)
        item = paragraph.find(f"{word('pPr')}/{word('numPr')}")
        if item is not None and text and not level:
            depth = item.find(word("ilvl"))
            indent = int("0" if depth is None else depth.get(_VALUE, "0"))
            self._items.append(f"{'  ' * min(indent, 9)}- {text}")
            return
        self.end_list()
        self._draft.add("heading" if level else "paragraph", text, level=level)


def _levels(package: Package) -> dict[str, int]:
    """The level of headings, by the ids of their styles."""
    levels: dict[str, int] = {}
    for style in package.xml("word/styles.xml"):
        name, outline = style.find(word("name")), style.find(f"{word('pPr')}/{word('outlineLvl')}")
        named = "" if name is None else name.get(_VALUE, "")
        if found := _HEADING.match(named):
            level = int(found[1])
        elif named.lower() in _TITLES:
            level = 1
        else:
            level = 0 if outline is None else int(outline.get(_VALUE, "9")) + 1
        if 0 < level < 10:
            levels[style.get(word("styleId"), "")] = level
    return levels


def _own(element: Element, tag: str) -> Iterator[Element]:
    """The rows of a table, or the cells of a row, without those of tables in its cells: their texts are the cell's."""
    for each in element:
        if each.tag == tag:
            yield each
        elif each.tag != word("tbl"):
            yield from _own(each, tag)


def _texts(element: Element) -> Iterator[str]:
    """The texts in an element, a line each paragraph."""
    for each in element:
        if each.tag in _TEXTS:
            yield _TEXTS[each.tag] or each.text or ""
        elif each.tag not in _SKIPPED:
            yield from _texts(each)
    if element.tag == word("p"):
        yield "\n"
