"""Kinds of files are told by their content where that has a mark, else by the name, else by what their sender says."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Final, NamedTuple

from drsai_backend.errors import DocumentProtected, DocumentUnreadable, DocumentUnsupported


class Kind(NamedTuple):
    """A kind of files.

    Attributes:
        media_type: its name.
        reader: `module:function` of `formats`, which reads it into a draft.
    """

    media_type: str
    reader: str


_OFFICE: Final = "application/vnd.openxmlformats-officedocument."
_TEXT: Final = Kind("text/plain", "plain:read_text")
_HTML: Final = Kind("text/html", "html_pages:read")
_MARKDOWN: Final = Kind("text/markdown", "markdown:read")
_PDF: Final = Kind("application/pdf", "pdf:read")
_PARTS: Final = {
    r"word/document\d*\.xml": Kind(f"{_OFFICE}wordprocessingml.document", "docx:read"),
    r"ppt/presentation\.xml": Kind(f"{_OFFICE}presentationml.presentation", "pptx:read"),
    r"xl/workbook\.xml": Kind(f"{_OFFICE}spreadsheetml.sheet", "xlsx:read"),
}
"""The part by which an Office file is told. Word in a browser may call it `document2.xml`."""
_ENDINGS: Final = {
    "txt text log rst tex": _TEXT,
    "md markdown mdx": _MARKDOWN,
    "html htm xhtml": _HTML,
    "csv tsv": Kind("text/csv", "plain:read_csv"),
    "json jsonl ndjson ipynb geojson": Kind("application/json", "plain:read_json"),
    "xml yaml yml toml ini cfg conf py pyi js mjs jsx ts tsx java kt scala c h cc cpp hpp cs go rs rb php swift sh "
    "bash ps1 sql r jl lua pl css scss vue svelte proto graphql tf dockerfile makefile cmake f90 m asm bat": Kind(
        "text/x-code", "plain:read_code"
    ),
}
_BY_ENDING: Final = {ending: kind for endings, kind in _ENDINGS.items() for ending in endings.split()}
_BY_TYPE: Final = {kind.media_type: kind for kind in _ENDINGS.values()}
_OLD_OFFICE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MARK_WITHIN: Final = 1024
"""Bytes in which the mark of a PDF may stand."""


def kind_of(name: str, content: bytes, media_type: str | None = None) -> Kind:
    """Return what a file is.

    Raises:
        DocumentUnsupported, DocumentProtected, DocumentUnreadable: it is nothing that is read here.
    """
    head = content[:_MARK_WITHIN]
    ending = name.rpartition("/")[2].rpartition(".")[2].lower()
    # A text may say how a PDF begins.
    if head.lstrip().startswith(b"%PDF-") or (b"%PDF-" in head and ending not in _BY_ENDING):
        return _PDF
    if head.startswith(b"PK\x03\x04"):
        return _packed(content)
    if head.startswith(_OLD_OFFICE):
        # An Office file with a password is kept in such a container.
        if "EncryptedPackage".encode("utf-16-le") in content:
            raise DocumentProtected("the file has a password; remove it and upload the file again")
        raise DocumentUnsupported("the file is of Office before 2007; save it as DOCX, XLSX, PPTX or PDF")
    named = _BY_ENDING.get(ending) or _BY_TYPE.get((media_type or "").partition(";")[0].strip().lower())
    return named or (_HTML if head.lstrip().lower().startswith((b"<!doctype html", b"<html")) else _TEXT)


def _packed(content: bytes) -> Kind:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            names = packed.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError):
        raise DocumentUnreadable("the file is broken: it ends too early, or was changed on its way") from None
    for part, kind in _PARTS.items():
        if any(re.fullmatch(part, name) for name in names):
            return kind
    raise DocumentUnsupported("the file is an archive; upload the files in it")
