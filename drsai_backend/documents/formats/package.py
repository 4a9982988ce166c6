"""The package of an Office file gives its parts: XML without entities, no more of it than may be unpacked."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from drsai_backend.documents.draft import Draft
from drsai_backend.errors import DocumentProtected, DocumentTooLarge, DocumentUnreadable

_DEEPEST: Final = 200
"""Elements in each other. Word nests tables, but not so."""
_RELATION: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
RELATION_ID: Final = f"{_RELATION}id"
"""The attribute by which an element names another part."""
_STRICT: Final = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/(main|relationships)\b")
"""Names of elements and attributes in files that are saved as "Strict Open XML"."""
MATH_TEXT: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
FALLBACK: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
"""What is there a second time, for older programs."""


class Tree(ElementTree.TreeBuilder):
    """Builds the elements of a part.

    Args:
        tag: an element that `take` gets when it is whole, and that is emptied then: large parts are never whole.
    """

    def __init__(self, tag: str = "", take: Callable[[Element], None] | None = None) -> None:
        super().__init__()
        self._tag, self._take = tag, take
        self._depth = 0

    def doctype(self, _name: str, _public: str | None, _system: str | None) -> None:
        """Refuse entities before they are read: a few can stand for gigabytes. No Office program writes any."""
        raise DocumentUnreadable("the file defines entities, which no Office file does")

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        """Begin an element."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise DocumentUnreadable("the file nests its elements too deeply")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        """End an element."""
        self._depth -= 1
        element = super().end(tag)
        if self._take is not None and tag == self._tag:
            self._take(element)
            element.clear()
        return element


class Package:
    """The parts of an Office file, by their names."""

    def __init__(self, content: bytes, draft: Draft) -> None:
        self._packed = zipfile.ZipFile(io.BytesIO(content))
        self._names = set(self._packed.namelist())
        self._room = draft.limits.unpacked
        if core := self.xml("docProps/core.xml"):
            texts = {each.tag.rpartition("}")[2]: each.text for each in core}
            draft.name_it(title=texts.get("title"), author=texts.get("creator"))

    def named(self, pattern: str) -> list[str]:
        """Return the names of parts that match a pattern, in order."""
        return sorted(name for name in self._names if re.fullmatch(pattern, name))

    def xml(self, name: str, tree: Tree | None = None) -> list[Element]:
        """Return what is in the root of a part; none: there is no such part.

        Raises:
            DocumentTooLarge, DocumentProtected, DocumentUnreadable: it is not read.
        """
        if name not in self._names:
            return []
        try:
            parser = ElementTree.XMLParser(target=tree or Tree())
            parser.feed(self._unpacked(name))
            root: Element = parser.close()
        except (ElementTree.ParseError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError):
            raise DocumentUnreadable("the file is broken: a part of it cannot be read") from None
        return list(root)

    def related(self, name: str) -> dict[str, str]:
        """Return the names of the parts to which a part leads, by the ids that it has for them."""
        folder, base = posixpath.split(name)
        found: dict[str, str] = {}
        for each in self.xml(f"{folder}/_rels/{base}.rels"):
            target = posixpath.normpath(posixpath.join("/", folder, each.get("Target", "")))
            found[each.get("Id", "")] = target.lstrip("/")
        return found

    def _unpacked(self, name: str) -> bytes:
        info = self._packed.getinfo(name)
        if info.flag_bits & 1:
            raise DocumentProtected("the file has a password; remove it and upload the file again")
        with self._packed.open(info) as part:
            data = part.read(self._room + 1)  # What the archive says of its sizes need not be true.
        self._room -= len(data)
        if self._room < 0:
            raise DocumentTooLarge("the file unpacks to more than one file may; split it")
        return _STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/\2", data)


def _full_name(of: str, tag: str) -> str:
    """Return the full name of an element, by its short one."""
    return f"{{http://schemas.openxmlformats.org/{of}/2006/main}}{tag}"


word = partial(_full_name, "wordprocessingml")
drawing = partial(_full_name, "drawingml")
slide = partial(_full_name, "presentationml")
sheet = partial(_full_name, "spreadsheetml")
"""Full names of elements of documents, drawings, presentations and workbooks."""
