"""Files for tests, made here: nothing of a person, and each with exactly what its test is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Placed = tuple[float, float, float, str]
"""Size, x, y and text of a line on a page."""


def make_pdf(pages: Sequence[Sequence[Placed]], *, outline: Sequence[tuple[str, int]] = (), cut: int = 0) -> bytes:
    """A PDF of lines at places, in Helvetica. `outline`: titles and the pages that they lead to, from 0."""
    contents = [
        "\n".join(f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET" for size, x, y, text in lines).encode("cp1252")
        for lines in pages
    ]
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    first = 4
    kids = [first + 2 * number for number in range(len(pages))]
    entries = first + 2 * len(pages)
    catalog = b"<< /Type /Catalog /Pages 2 0 R%s >>" % (b" /Outlines %d 0 R" % entries if outline else b"")
    tree = " ".join(f"{kid} 0 R" for kid in kids).encode()
    objects = [catalog, b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), tree), font]
    for kid, content in zip(kids, contents, strict=True):
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (kid + 1),
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        ]
    if outline:
        last = entries + len(outline)
        objects.append(b"<< /First %d 0 R /Last %d 0 R >>" % (entries + 1, last))
        for number, (title, page) in enumerate(outline, entries + 1):
            after = b" /Next %d 0 R" % (number + 1) if number < last else b""
            objects.append(
                b"<< /Title (%s) /Parent %d 0 R /Dest [%d 0 R /Fit]%s >>" % (title.encode(), entries, kids[page], after)
            )
    return _pdf_of(objects)


def _pdf_of(objects: Iterable[bytes]) -> bytes:
    made, places = b"%PDF-1.4\n", list[int]()
    parts = [made]
    length = len(made)
    for number, each in enumerate(objects, 1):
        places.append(length)
        parts.append(b"%d 0 obj\n%s\nendobj\n" % (number, each))
        length += len(parts[-1])
    parts.append(b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1))
    parts += [b"%010d 00000 n \n" % place for place in places]
    parts.append(b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(places) + 1, length))
    return b"".join(parts)


def simple_page(*paragraphs: str, size: float = 11) -> list[Placed]:
    """A page with a paragraph a line."""
    return [(size, 72, 720 - 40 * number, text) for number, text in enumerate(paragraphs)]
