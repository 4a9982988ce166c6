"""PDFs are read page by page: the letters at their places, of which `pdf_lines` makes lines and blocks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from pypdf import PageObject, PasswordType, PdfReader
from pypdf.errors import DependencyError, PyPdfError

from drsai_backend.documents.draft import Draft, one_line
from drsai_backend.documents.formats.pdf_lines import Line, Lines, add_blocks, title_key
from drsai_backend.errors import DocumentProtected, DocumentUnreadable

_DEEPEST: Final = 6
"""Levels of an outline that are headings."""
_FIELD_SIZE: Final = 10.0
"""Size of the letters in fields, about."""
_HIDDEN, _PASSWORD = 0b10, 1 << 13
"""Flags of fields that nobody sees, and whose text nobody does."""


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
    unknown: list[int] = []
    characters = 0
    for number, page in enumerate(reader.pages, 1):
        found, is_unknown = _lines_of(page, number)
        unknown += [number] * is_unknown
        characters += sum(len(line.text) for line in found or ())
        draft.allow_text(characters)
        if found is None or not found:
            (broken if found is None else silent).append(number)
        lines += found or ()
    add_blocks(lines, _outline(reader), draft)
    _name_it(reader, draft)
    if broken:
        draft.note(f"{_pages(broken)} cannot be read.")
    if silent:
        draft.note(f"{_pages(silent)} without text: there is nothing, or a picture.")
    if unknown:
        draft.note(f"{_pages(unknown)} with letters that their fonts do not name: what is read of these may be wrong.")


def _lines_of(page: PageObject, number: int) -> tuple[list[Line] | None, bool]:
    """The lines of a page, None: it is broken; and whether there are letters that its fonts do not name."""
    lines = Lines(number)
    try:
        page.extract_text(visitor_text=lines.take)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - of a broken page, pypdf raises whatever its code runs into
        return None, False
    found = lines.done()
    try:
        for field in _fields(page, number):
            # Behind the line beside which it stands, or that is above it.
            above = [place for place, line in enumerate(found, 1) if line.y >= field.y - field.size]
            found.insert(max(above, default=0), field)
    except Exception:  # noqa: BLE001 - as above; the page has its text
        return found, lines.unknown
    return found, lines.unknown


def _fields(page: PageObject, number: int) -> Iterator[Line]:
    """Return what was filled into the fields of a form, and written on the page."""
    for each in page.get("/Annots", ()):
        about: Any = each.get_object()
        if int(about.get("/F", 0)) & _HIDDEN:
            continue
        if about.get("/Subtype") == "/FreeText":
            text = about.get("/Contents")
        elif about.get("/Subtype") == "/Widget":
            parent: Any = about.get("/Parent", about).get_object()
            kind, text = about.get("/FT", parent.get("/FT")), about.get("/V", parent.get("/V"))
            flags = int(about.get("/Ff", parent.get("/Ff", 0)))
            text = text if kind in ("/Tx", "/Ch") and not flags & _PASSWORD else None
        else:
            continue
        if isinstance(text, str) and (text := one_line(text)):
            left, low, right, high = (float(side) for side in about["/Rect"])
            x, y = min(left, right), (low + high) / 2 - _FIELD_SIZE / 3
            yield Line(number, x, y, size=_FIELD_SIZE, parts=[(x, text)], text=text)


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
