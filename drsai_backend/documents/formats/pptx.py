"""Presentations have slides: each is a page with its title, texts, tables and notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element

from drsai_backend.documents.draft import Draft
from drsai_backend.documents.formats.package import RELATION_ID, Package, drawing, slide

_PRESENTATION: Final = "ppt/presentation.xml"
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
    for number, name in enumerate(slides, 1):
        for root in package.xml(name):
            _read_shapes(root, number, draft)
        for notes in package.related(name).values():
            if notes.startswith("ppt/notesSlides/"):
                for root in package.xml(notes):
                    _read_shapes(root, number, draft)


def _read_shapes(root: Element, number: int, draft: Draft) -> None:
    for shape in root.iter():
        if shape.tag == drawing("tbl"):
            rows = shape.iter(drawing("tr"))
            draft.table([["\n".join(_lines(cell)) for cell in row.iter(drawing("tc"))] for row in rows], page=number)
        elif shape.tag == slide("sp"):
            holder = shape.find(f"{slide('nvSpPr')}/{slide('nvPr')}/{slide('ph')}")
            kind = "" if holder is None else holder.get("type", "body")
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
        texts = ("\n" if each.tag == drawing("br") else each.text or "" for each in paragraph.iter() if _says(each))
        if text := "".join(texts).strip():
            yield text


def _says(element: Element) -> bool:
    return element.tag in (drawing("t"), drawing("br"))
