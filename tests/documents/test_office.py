"""Office files keep their structure, and none unpacks to more than may be."""

from __future__ import annotations

import io
import re
import zipfile

import pytest

from drsai_backend.documents import Block, Reader, ReadLimits, extract
from drsai_backend.documents.base import MIB
from drsai_backend.errors import (
    DocumentEmpty,
    DocumentProtected,
    DocumentTooLarge,
    DocumentUnreadable,
    DocumentUnsupported,
)
from tests.documents.made import (
    Sheet,
    make_docx,
    make_pptx,
    make_xlsx,
    paragraph,
    shape,
    sheet_row,
    slide_table,
    word_table,
    zipped,
)


def test_a_document_of_word_keeps_headings_lists_and_tables() -> None:
    read = extract(
        "a.docx",
        make_docx(
            paragraph("Handbook", "T") + paragraph("Leave", "1") + paragraph("Thirty days.", "n")
            + paragraph("summer", item=0) + paragraph("July", item=1) + paragraph("winter", item=0)
            + paragraph("By age", "2") + word_table([["Age", "Days"], ["up to 50", "30"], ["a|b", ""]])
            + "<w:sdt><w:sdtContent>" + paragraph("In a control.") + "</w:sdtContent></w:sdt>" + paragraph("Own", "own")
            + "<w:p><w:r><w:t>kept</w:t></w:r><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del>"
            "<w:r><w:tab/><w:t>after a tab</w:t><w:br/><w:t>and a break</w:t></w:r></w:p>",
            more={
                "word/footnotes.xml": '<w:footnotes xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
                f"<w:footnote>{paragraph('A footnote.')}</w:footnote></w:footnotes>"
            },
        ),
    )  # fmt: skip
    assert read.text.split("\n\n") == [
        "# Handbook",
        "# Leave",
        "Thirty days.",
        "- summer\n  - July\n- winter",
        "## By age",
        "| Age | Days |\n| --- | --- |\n| up to 50 | 30 |\n| a\\|b |  |",
        "In a control.",
        "### Own",
        "kept\tafter a tab\nand a break",
        "A footnote.",
    ]
    assert read.metadata == {"title": "The title", "author": "Ada"}
    assert read.media_type.endswith("wordprocessingml.document")


def test_a_table_within_a_cell_is_read_once() -> None:
    within = word_table([["one", "two"], ["three", "four"]])
    cells = "".join(f"<w:tc>{each}</w:tc>" for each in (paragraph("Outer") + within, paragraph("Beside")))
    below = f"<w:sdt><w:sdtContent><w:tr><w:tc>{paragraph('Below')}</w:tc></w:tr></w:sdtContent></w:sdt>"
    read = extract("a.docx", make_docx(f"<w:tbl><w:tr>{cells}</w:tr>{below}</w:tbl>"))
    assert read.text == "| Outer one two three four | Beside |\n| --- | --- |\n| Below |"


def _word(**parts: str) -> dict[str, str | bytes]:
    """Parts of a document of Word beside its text."""
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    return {f"word/{name}.xml": f"<w:{name} {space}>{part}</w:{name}>" for name, part in parts.items()}


def test_notes_and_boxes_stand_behind_their_paragraphs_and_deleted_ones_nowhere() -> None:
    """Notes were at the end, cited by the last heading; a box was in the middle of a sentence."""
    mark = '<w:r><w:footnoteReference w:id="{}"/></w:r>'
    within = paragraph("In a box") + word_table([["a", "b"]])
    box = f"<w:r><w:drawing><w:txbxContent>{within}</w:txbxContent></w:drawing></w:r>"
    notes = '<w:footnote w:type="separator" w:id="-1"><w:p/></w:footnote>' + "".join(
        f'<w:footnote w:id="{number}">{paragraph(f"Note {number}")}</w:footnote>' for number in range(1, 6)
    )
    read = extract(
        "a.docx",
        make_docx(
            paragraph("First", "1")
            + f"<w:p><w:r><w:t>One </w:t></w:r>{mark.format(1)}{box}<w:r><w:t>sentence.</w:t></w:r></w:p>"
            + paragraph("item", item=0).replace("</w:p>", f"{mark.format(2)}</w:p>") + paragraph("other", item=0)
            + word_table([["cell"]]).replace("</w:p>", f"{mark.format(3)}</w:p>")
            + f"<w:p><w:del>{mark.format(4)}</w:del></w:p>" + paragraph("Last", "1") + paragraph("Text."),
            more=_word(footnotes=notes),
        ),
    )  # fmt: skip
    assert [(block.kind, block.text) for block in read.blocks] == [
        ("heading", "First"),
        ("paragraph", "One sentence."),
        ("paragraph", "Note 1"),
        ("paragraph", "In a box"),
        ("table", "| a | b |\n| --- | --- |"),
        ("list", "- item\n- other"),
        ("paragraph", "Note 2"),
        ("table", "| cell |\n| --- |"),
        ("paragraph", "Note 3"),
        ("heading", "Last"),
        ("paragraph", "Text."),
        ("paragraph", "Note 5"),
    ]


def test_what_heads_and_foots_the_pages_of_a_document_is_read_once() -> None:
    more = _word(header1=paragraph("Policy 12"), header2=paragraph("Policy 12"), footer1=paragraph("7"))
    assert extract("a.docx", make_docx(paragraph("Text."), more=more)).text == "Policy 12\n\nText."


def test_headings_are_told_by_their_outline_and_by_what_their_styles_are_based_on() -> None:
    style = '<w:style w:styleId="{}"><w:name w:val="{}"/><w:basedOn w:val="{}"/></w:style>'
    styles = style.format("b", "Own chapter", "a") + style.format("a", "Chapter", "1") + (
        '<w:style w:styleId="1"><w:name w:val="heading 2"/></w:style>'
    ) + style.format("n", "Text", "m") + style.format("m", "Normal", "n")  # fmt: skip
    own = '<w:p><w:pPr><w:outlineLvl w:val="2"/></w:pPr><w:r><w:t>Own</w:t></w:r></w:p>'
    read = extract(
        "a.docx", make_docx(paragraph("Based", "b") + own + paragraph("Text", "n"), more=_word(styles=styles))
    )
    assert read.text == "## Based\n\n### Own\n\nText"


def test_cells_of_word_stand_in_their_columns_and_formulas_are_read() -> None:
    math = "http://schemas.openxmlformats.org/officeDocument/2006/math"
    formula = f'<w:p><m:oMath xmlns:m="{math}"><m:r><m:t>E=mc</m:t></m:r></m:oMath></w:p>'
    cell = "<w:tc><w:tcPr>{}</w:tcPr>{}</w:tc>"
    first = (("North", '<w:vMerge w:val="restart"/>'), ("Both", '<w:gridSpan w:val="2"/>'), ("Last", ""))
    second = (("", "<w:vMerge/>"), ("1", ""), ("2", ""), ("3", ""))
    rows = ("".join(cell.format(about, paragraph(text)) for text, about in row) for row in (first, second))
    table = f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
    main = zipped(
        {"word/document2.xml": zip_part(make_docx(table + formula + paragraph("Do\xadnau")), "word/document.xml")}
    )
    assert extract("a.docx", main).text.split("\n\n") == [
        "| North | Both |  | Last |\n| --- | --- | --- | --- |\n| North | 1 | 2 | 3 |",
        "E=mc",
        "Donau",
    ]


def zip_part(content: bytes, name: str) -> bytes:
    """A part of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(name)


def test_a_presentation_is_read_slide_by_slide() -> None:
    slides = [
        shape(["Welcome"], "ctrTitle") + shape(["Ada Lovelace"], "subTitle") + shape(["1"], "sldNum"),
        shape(["计划"], "title") + shape(["first", "second"], "body") + slide_table([["a", "b"], ["1", "2"]]),
    ]
    read = extract("a.pptx", make_pptx(slides, {1: shape(["Say this."], "body")}))
    assert [(block.kind, block.text, block.page) for block in read.blocks] == [
        ("heading", "Welcome", 1),
        ("paragraph", "Ada Lovelace", 1),
        ("heading", "计划", 2),
        ("list", "- first\n- second", 2),
        ("table", "| a | b |\n| --- | --- |\n| 1 | 2 |", 2),
        ("paragraph", "Say this.", 2),
    ]
    assert read.pages == 2


def test_a_workbook_is_read_sheet_by_sheet() -> None:
    rows = (
        sheet_row(1, '<c r="A1" t="s"><v>0</v></c>', '<c r="C1" t="inlineStr"><is><t>When</t></is></c>')
        + sheet_row(2, '<c r="A2" t="str"><f>x</f><v>Ada</v></c>', '<c r="C2" s="1"><v>45413</v></c>')
        + sheet_row(3, '<c r="A3"><v>1.5</v></c>', '<c r="C3" s="2"><v>45413.5</v></c>')
        + sheet_row(4, '<c r="A4" t="b"><v>1</v></c>', '<c r="C4" s="3"><v>2.5</v></c>')
        + sheet_row(7, '<c r="B7" t="s"><v>1</v></c>')
        + sheet_row(8, '<c r="B8" t="s"><v>99</v></c>')
    )
    read = extract("a.xlsx", make_xlsx([Sheet("People", rows), Sheet("空", "")], ["Name", "Another table"]))
    assert read.text.split("\n\n") == [
        "# People",
        "| Name | When |\n| --- | --- |\n| Ada | 2024-05-01 |\n| 1.5 | 2024-05-01 12:00 |\n| TRUE | 2.5 |",
        "| Another table |\n| --- |",
        "# 空",
    ]
    with pytest.raises(DocumentEmpty):
        extract("a.xlsx", make_xlsx([Sheet("Nothing", "")]))


def test_dates_of_a_workbook_from_a_mac_are_those_that_it_shows() -> None:
    row = sheet_row(1, '<c r="A1" s="1"><v>43951</v></c>', '<c r="B1" s="2"><v>43951.25</v></c>')
    read = extract("a.xlsx", make_xlsx([Sheet("Days", row)], about='<workbookPr date1904="1"/>'))
    assert read.text.split("\n\n")[1].splitlines()[0] == "| 2024-05-01 | 2024-05-01 06:00 |"


def test_slides_are_cited_by_their_own_titles() -> None:
    """A slide whose title comes last in the file was cited by the title of the slide before."""
    slides = [
        shape(["Budget", "Costs"], "body") + shape(["First"], "title"),
        f"<p:grpSp><p:grpSp>{shape(['In groups'])}</p:grpSp></p:grpSp>" + shape(["Second"], "title"),
        shape(["No title"]),
        "",
    ]
    read = extract("a.pptx", make_pptx(slides, {0: shape(["A note"], "body")}, {1: "In a diagram", 3: "Alone"}))
    assert [(block.kind, block.text, block.page) for block in read.blocks] == [
        ("heading", "First", 1),
        ("list", "- Budget\n- Costs", 1),
        ("paragraph", "A note", 1),
        ("heading", "Second", 2),
        ("paragraph", "In groups", 2),
        ("list", "- In a diagram", 2),
        ("heading", "Slide 3", 3),
        ("paragraph", "No title", 3),
        ("heading", "Slide 4", 4),
        ("list", "- Alone", 4),
    ]
    assert [block.text for block in extract("a.pptx", make_pptx([shape(["No title"])])).blocks] == ["No title"]


def test_what_a_slide_has_for_older_programs_is_read_once() -> None:
    both = (
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><mc:Choice>'
        f"{shape(['Once'])}</mc:Choice><mc:Fallback>{shape(['Once'])}</mc:Fallback></mc:AlternateContent>"
    )
    assert extract("a.pptx", make_pptx([both])).text == "Once"


def test_numbers_of_a_workbook_are_those_that_it_shows() -> None:
    shown = {
        ("0.153", 4): "15.3%", ("0.07", 5): "7%", ("1.0833333333333333", 6): "26:00:00",
        ("45413.500347", 2): "2024-05-01 12:00:30",
        ("-3", 1): "-3", ("0.30000000000000004", 0): "0.3", ("1E-3", 0): "0.001",
        ("12345678901234567", 0): "12345678901234567",
    }  # fmt: skip
    cells = (f'<c r="{"ABCDEFGH"[n]}1" s="{style}"><v>{value}</v></c>' for n, (value, style) in enumerate(shown))
    text = '<c r="I1" t="inlineStr"><is><t>a_x000D_\nb</t></is></c>'
    read = extract("a.xlsx", make_xlsx([Sheet("Shown", sheet_row(1, *cells, text))]))
    assert read.blocks[1].text.splitlines()[0] == f"| {' | '.join(shown.values())} | a b |"


def test_a_cell_over_several_rows_is_in_each() -> None:
    rows = sheet_row(1, '<c r="A1"><v>7</v></c>', '<c r="B1"><v>1</v></c>') + "".join(
        sheet_row(number, f'<c r="B{number}"><v>{number}</v></c>') for number in (2, 3, 4, 6)
    )
    read = extract("a.xlsx", make_xlsx([Sheet("Merged", rows, ["A1:A3", "B6:B1048576"]), Sheet("Other", rows)]))
    assert [block.text for block in read.blocks if block.kind == "table"] == [
        "| 7 | 1 |\n| --- | --- |\n| 7 | 2 |\n| 7 | 3 |\n|  | 4 |",
        "| 6 |\n| --- |",
        "| 7 | 1 |\n| --- | --- |\n|  | 2 |\n|  | 3 |\n|  | 4 |",
        "| 6 |\n| --- |",
    ]


ENTITIES = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "lol">' + "".join(
    f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefgh", "bcdefghi", strict=True)
) + "]>"  # fmt: skip

EXTERNAL = '<!DOCTYPE a SYSTEM "file:///etc/passwd">'


@pytest.mark.parametrize(
    ("content", "refusal", "text"),
    [
        (make_docx(paragraph("&i;"), before=ENTITIES), DocumentUnreadable, "entities"),
        (
            make_docx(paragraph("&i;"), before='<!DOCTYPE a SYSTEM "file:///etc/passwd">'),
            DocumentUnreadable,
            "entities",
        ),
        (make_docx("<w:p>" * 100_000), DocumentUnreadable, "deeply"),
        (make_docx("<w:p>"), DocumentUnreadable, "broken"),
        (zipped({"word/document.xml": bytes(40 * MIB)}), DocumentUnreadable, "broken"),
        (zipped({"a.txt": "text"}), DocumentUnsupported, "archive"),
        (make_docx(paragraph("text"))[:300], DocumentUnreadable, "broken"),
        (make_docx(""), DocumentEmpty, "no text"),
    ],
    ids=["entities", "external", "deep", "cut xml", "zeros", "no Office file", "cut zip", "empty"],
)
async def test_hostile_and_broken_archives_are_refused(content: bytes, refusal: type[Exception], text: str) -> None:
    with pytest.raises(DocumentUnreadable, match=text) as raised:
        await Reader().read("a.docx", content)
    assert type(raised.value) is refusal


async def test_what_unpacks_to_more_than_may_be_is_refused() -> None:
    blown = make_docx(paragraph(" " * 40 * MIB))
    assert len(blown) < MIB
    with pytest.raises(DocumentTooLarge, match="unpacks"):
        await Reader(ReadLimits(unpacked=32 * MIB)).read("a.docx", blown)
    # Sizes that an archive says of itself are not believed.
    with pytest.raises(DocumentTooLarge, match="unpacks"):
        extract("a.docx", make_docx(paragraph("x" * 5_000)), limits=ReadLimits(unpacked=2_000))


async def test_a_sheet_of_few_cells_that_are_far_apart_is_refused() -> None:
    rows = "".join(
        sheet_row(n, f'<c r="{"ABCDEFGHIJ"[n % 10]}{"ABCDEFGHIJ"[n // 10 % 10]}{n}"><v>1</v></c>')
        for n in range(1, 400)
    )
    with pytest.raises(DocumentTooLarge):
        extract("a.xlsx", make_xlsx([Sheet("Wide", rows)]), limits=ReadLimits(text=10_000))


def test_a_part_with_a_password_is_refused() -> None:
    content = bytearray(make_docx(paragraph("text")))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        places = [info.header_offset for info in archive.infolist()]
    for place in [*(place + 6 for place in places), *(at + 8 for at in _all(content, b"PK\x01\x02"))]:
        content[place] |= 1
    with pytest.raises(DocumentProtected):
        extract("a.docx", bytes(content))


def _all(content: bytearray, mark: bytes) -> list[int]:
    return [at for at in range(len(content)) if content.startswith(mark, at)]


def test_strict_files_are_read() -> None:
    """Office writes other names of the same elements where it saves as Strict Open XML."""
    files = {
        "a.docx": make_docx(paragraph("Text", "1")),
        "a.pptx": make_pptx([shape(["Text"], "title")]),
        "a.xlsx": make_xlsx([Sheet("Text", sheet_row(1, '<c r="A1"><v>1</v></c>'))]),
    }
    for name, content in files.items():
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = {each: archive.read(each) for each in archive.namelist()}
        main, ours = rb"http://schemas.openxmlformats.org/(\w+)/2006/(\w+)", rb"http://purl.oclc.org/ooxml/\1/\2"
        strict = {each: re.sub(main, ours, data) for each, data in parts.items()}
        assert strict != parts
        assert extract(name, zipped(strict)).blocks[0] == Block("heading", "Text", 1, 1 if "pptx" in name else None)
