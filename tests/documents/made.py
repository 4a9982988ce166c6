"""Files for tests, made here: nothing of a person, and each with exactly what its test is about."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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


_HELVETICA: Final = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"


def make_pdf_page(content: bytes, *, font: bytes = _HELVETICA, about: bytes = b"", more: Sequence[bytes] = ()) -> bytes:
    """A PDF of one page, in the language of pages. `more`: objects from the sixth on, which `font` and `about` name."""
    return _pdf_of([
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
        font,
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R %s"
        b"/Resources << /Font << /F1 3 0 R >> >> >>" % about,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        *more,
    ])  # fmt: skip


def simple_page(*paragraphs: str, size: float = 11) -> list[Placed]:
    """A page with a paragraph a line."""
    return [(size, 72, 720 - 40 * number, text) for number, text in enumerate(paragraphs)]


def zipped(parts: Mapping[str, str | bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of parts."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return made.getvalue()


_W: Final = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_A: Final = "http://schemas.openxmlformats.org/drawingml/2006/main"
_P: Final = "http://schemas.openxmlformats.org/presentationml/2006/main"
_S: Final = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_R: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_CORE: Final = (
    '<c:coreProperties xmlns:c="c" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The title</dc:title>'
    "<dc:creator>Ada</dc:creator></c:coreProperties>"
)


def paragraph(text: str, style: str = "", item: int | None = None) -> str:
    """A paragraph of Word. `style`: its id; `item`: it is an item of a list, of this depth."""
    of_list = "" if item is None else f'<w:numPr><w:ilvl w:val="{item}"/><w:numId w:val="1"/></w:numPr>'
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{of_list}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def word_table(rows: Sequence[Sequence[str]]) -> str:
    """A table of Word."""
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def make_docx(body: str, *, before: str = "", more: Mapping[str, str | bytes] | None = None) -> bytes:
    """A document of Word. Its styles: `1` and `2` are headings as a Chinese Word names them, `T` the title."""
    styles = (
        f'<w:styles xmlns:w="{_W}"><w:style w:styleId="1"><w:name w:val="heading 1"/></w:style>'
        '<w:style w:styleId="2"><w:name w:val="heading 2"/></w:style><w:style w:styleId="T"><w:name w:val="Title"/>'
        '</w:style><w:style w:styleId="own"><w:name w:val="Own"/><w:pPr><w:outlineLvl w:val="2"/></w:pPr></w:style>'
        '<w:style w:styleId="n"><w:name w:val="Normal"/></w:style></w:styles>'
    )
    return zipped({
        "word/document.xml": f'{before}<w:document xmlns:w="{_W}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": styles,
        "docProps/core.xml": _CORE,
        **(more or {}),
    })  # fmt: skip


def _relations(parts: Iterable[str]) -> str:
    links = (f'<Relationship Id="r{number}" Target="{part}"/>' for number, part in enumerate(parts))
    return f'<Relationships xmlns="x">{"".join(links)}</Relationships>'


def shape(lines: Sequence[str], kind: str = "") -> str:
    """A shape with text on a slide."""
    holder = f'<p:ph type="{kind}"/>' if kind else ""
    texts = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in lines)
    return f"<p:sp><p:nvSpPr><p:nvPr>{holder}</p:nvPr></p:nvSpPr><p:txBody>{texts}</p:txBody></p:sp>"


def slide_table(rows: Sequence[Sequence[str]]) -> str:
    """A table on a slide."""
    cells = ("".join(f"<a:tc><a:p><a:r><a:t>{cell}</a:t></a:r></a:p></a:tc>" for cell in row) for row in rows)
    return "<a:tbl>" + "".join(f"<a:tr>{row}</a:tr>" for row in cells) + "</a:tbl>"


def make_pptx(
    slides: Sequence[str], notes: Mapping[int, str] | None = None, diagrams: Mapping[int, str] | None = None
) -> bytes:
    """A presentation, whose parts are not in the order of its slides. `diagrams`: texts of SmartArt, by slides."""
    space = f'xmlns:a="{_A}" xmlns:p="{_P}" xmlns:r="{_R}"'
    files = [f"slides/slide{len(slides) - number}.xml" for number in range(len(slides))]
    ids = "".join(f'<p:sldId id="{number}" r:id="r{number}"/>' for number in range(len(slides)))
    parts = {
        "ppt/presentation.xml": f"<p:presentation {space}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": _relations(files),
    }
    for number, (name, shapes) in enumerate(zip(files, slides, strict=True)):
        parts[f"ppt/{name}"] = f"<p:sld {space}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
        beside = list[str]()
        if notes and number in notes:
            beside.append(f"../notesSlides/n{number}.xml")
            parts[f"ppt/notesSlides/n{number}.xml"] = f"<p:notes {space}>{notes[number]}</p:notes>"
        if diagrams and number in diagrams:
            beside.append(f"../diagrams/data{number}.xml")
            text = f"<a:p><a:r><a:t>{diagrams[number]}</a:t></a:r></a:p>"
            parts[f"ppt/diagrams/data{number}.xml"] = (
                f"<d:dataModel xmlns:d='d' {space}><d:t>{text}</d:t></d:dataModel>"
            )
        if beside:
            parts[f"ppt/slides/_rels/{name.rpartition('/')[2]}.rels"] = _relations(beside)
    return zipped(parts)


@dataclass
class Sheet:
    """A sheet: its name, its rows as XML, and cells that go over others (`A1:A3`)."""

    name: str
    rows: str
    merged: Sequence[str] = ()


def sheet_row(number: int, *cells: str) -> str:
    """A row of a sheet."""
    return f'<row r="{number}">{"".join(cells)}</row>'


def make_xlsx(sheets: Sequence[Sheet], strings: Sequence[str] = (), about: str = "") -> bytes:
    """A workbook. Style 0 is none, 1 a date, 2 one of its own format, 3 a number of its own format, 4 and 5
    percentages, 6 hours. `about`: what the workbook says before its sheets."""
    space = f'xmlns="{_S}" xmlns:r="{_R}"'
    names = "".join(f'<sheet name="{each.name}" r:id="r{number}"/>' for number, each in enumerate(sheets))
    parts = {
        "xl/workbook.xml": f"<workbook {space}>{about}<sheets>{names}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": _relations([f"/xl/worksheets/s{number}.xml" for number in range(len(sheets))]),
        "xl/sharedStrings.xml": f"<sst {space}>{''.join(f'<si><t>{each}</t></si>' for each in strings)}</sst>",
        "xl/styles.xml": f'<styleSheet {space}><numFmts><numFmt numFmtId="170" formatCode="dd.mm.yyyy hh:mm"/>'
        '<numFmt numFmtId="171" formatCode="0.0&quot; days&quot;"/>'
        '<numFmt numFmtId="172" formatCode="0.0%"/><numFmt numFmtId="173" formatCode="[h]:mm"/></numFmts><cellXfs>'
        + "".join(f'<xf numFmtId="{number}"/>' for number in (0, 14, 170, 171, 10, 172, 173))
        + "</cellXfs></styleSheet>",
    }
    for number, each in enumerate(sheets):
        merged = "".join(f'<mergeCell ref="{cells}"/>' for cells in each.merged)
        parts[f"xl/worksheets/s{number}.xml"] = (
            f"<worksheet {space}><sheetData>{each.rows}</sheetData><mergeCells>{merged}</mergeCells></worksheet>"
        )
    return zipped(parts)
