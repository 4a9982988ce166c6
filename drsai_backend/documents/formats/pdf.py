"""PDFs are read page by page: the letters at their places, of which `pdf_lines` makes lines and blocks."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from pypdf import PageObject, PasswordType, PdfReader
from pypdf.errors import DependencyError, PyPdfError

from drsai_backend.documents.draft import Draft
from drsai_backend.documents.formats.pdf_lines import Line, Lines, add_blocks, title_key
from drsai_backend.errors import DocumentProtected, DocumentTooLarge, DocumentUnreadable

_DEEPEST: Final = 6
"""Levels of an outline that are headings."""


def read(content: bytes, draft: Draft) -> None:
    """Read a PDF. A page that cannot be read, or has no text, is named in a note.

    Raises:
        DocumentProtected: it has a password.
        DocumentUnreadable: it is broken.
    """
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            raise DocumentProtected("the file has a password; remove it and upload the file again")
        draft.allow_pages(len(reader.pages))
    except DependencyError:
        raise DocumentProtected("the file is encrypted in a way that cannot be read here") from None
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DocumentUnreadable("the file is broken: it is no whole PDF") from error
    lines: list[Line] = []
    silent: list[int] = []
    broken: list[int] = []
    room = draft.limits.text
    for number, page in enumerate(reader.pages, 1):
        found = _lines_of(page, number)
        room -= sum(len(line.text) for line in found or ())
        if found is None or not found:
            (broken if found is None else silent).append(number)
        if room < 0:
            raise DocumentTooLarge(f"the file has more than {draft.limits.text} characters of text; split it")
        lines += found or ()
    add_blocks(lines, _outline(reader), draft)
    _name_it(reader, draft)
    if broken:
        draft.note(f"{_pages(broken)} cannot be read.")
    if silent:
        draft.note(f"{_pages(silent)} without text: there is nothing, or a picture.")


def _lines_of(page: PageObject, number: int) -> list[Line] | None:
    """The lines of a page. None: it is broken."""
    lines = Lines(number)
    try:
        page.extract_text(visitor_text=lines.take)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - of a broken page, pypdf raises whatever its code runs into
        return None
    return lines.done()


def _outline(reader: PdfReader) -> dict[str, int]:
    """The level of each title of the outline."""
    levels: dict[str, int] = {}

    def take(entries: Iterable[Any], level: int) -> None:
        for entry in entries:
            if isinstance(entry, list):
                take(entry, min(level + 1, _DEEPEST))  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(title := getattr(entry, "title", None), str):
                levels.setdefault(title_key(title), level)

    try:
        take(reader.outline, 1)
    except Exception:  # noqa: BLE001 - as above; without it, headings are told by their size
        return {}
    return levels


def _name_it(reader: PdfReader, draft: Draft) -> None:
    try:
        about = reader.metadata
        draft.name_it(title=about and about.title, author=about and about.author)
    except Exception:  # noqa: BLE001 - as above; it has no title then
        return


def _pages(numbers: list[int]) -> str:
    """`Page 3`, `Pages 3 to 9, 12`."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0])]
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs[:20])
    return f"{'Page' if len(numbers) == 1 else 'Pages'} {shown}{', …' if len(runs) > 20 else ''}"
