"""Presentations have slides: each is a page with its title, texts, tables and notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element

from drsai_backend.documents.base import Block
from drsai_backend.documents.draft import Draft
from drsai_backend.documents.formats.package import FALLBACK, MATH_TEXT, RELATION_ID, Package, drawing, slide

_PRESENTATION: Final = "ppt/presentation.xml"
_SAID: Final = (drawing("t"), drawing("br"), MATH_TEXT)
"""What of a paragraph is text."""
_TITLES: Final = ("title", "ctrTitle")
_ASIDE: Final = ("sldNum", "dt", "ftr", "hdr", "sldImg")
"""Placeholders that are no text of the slide: its number, dates, a picture of it in its notes."""


def read(content: bytes, draft: Draft) -> None:
    """Read a presentation in the order of its slides."""
    package = Package(content, draft)
    parts = package.related(_PRESENTATION)
    slides = [
        parts.get(each.get(RELATION_ID, ""), "")
        for list_ in package.xml(_PRESENTATION)
        if list_.tag == slide("sldIdLst")
        for each in list_
    ]
    draft.allow_pages(len(slides), "slides")
    titled = False
    for number, name in enumerate(slides, 1):
        shapes = [*_shapes(package.xml(name))]
        # What stands before its title in the file is of the slide, too.
        shapes.sort(key=lambda each: _holder(each) not in _TITLES)
        first = len(draft.blocks)
        for shape in shapes:
            _read_shape(shape, number, draft)
        related = package.related(name).values()
        for part in related:
            if part.startswith("ppt/diagrams/data"):
                lines = [line for root in package.xml(part) for line in _lines(root)]
                draft.add("list", "\n".join(f"- {line}" for line in lines), page=number)
        for part in related:
            if part.startswith("ppt/notesSlides/"):
                for shape in _shapes(package.xml(part)):
                    _read_shape(shape, number, draft)
        if titled and len(draft.blocks) > first and draft.blocks[first].kind != "heading":
            # Else it would be cited by the title of the slide before.
            draft.blocks.insert(first, Block("heading", f"Slide {number}", 1, number))
        titled = titled or any(block.kind == "heading" for block in draft.blocks[first:])


def _shapes(elements: Iterable[Element]) -> Iterator[Element]:
    """The shapes and tables among elements and within them."""
    for each in elements:
        if each.tag in (slide("sp"), slide("cxnSp"), drawing("tbl")):
            yield each
        elif each.tag != FALLBACK:
            yield from _shapes(each)


def _holder(shape: Element) -> str:
    """The kind of the placeholder that a shape fills; "": none."""
    holder = shape.find(f"{slide('nvSpPr')}/{slide('nvPr')}/{slide('ph')}")
    return "" if holder is None else holder.get("type", "body")


def _read_shape(shape: Element, number: int, draft: Draft) -> None:
    if shape.tag == drawing("tbl"):
        rows = shape.iter(drawing("tr"))
        draft.table([["\n".join(_lines(cell)) for cell in row.iter(drawing("tc"))] for row in rows], page=number)
        return
    kind = _holder(shape)
    lines = [] if kind in _ASIDE else list(_lines(shape))
    if kind in _TITLES:
        draft.add("heading", " ".join(lines), level=1, page=number)
    elif kind == "body" and len(lines) > 1:
        draft.add("list", "\n".join(f"- {line}" for line in lines), page=number)
    else:
        draft.add("paragraph", "\n".join(lines), page=number)


def _lines(element: Element) -> Iterator[str]:
    """The paragraphs in an element."""
    for paragraph in element.iter(drawing("p")):
        said = (each for each in paragraph.iter() if each.tag in _SAID)
        texts = ("\n" if each.tag == drawing("br") else each.text or "" for each in said)
        if text := "".join(texts).strip():
            yield text
