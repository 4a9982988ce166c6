"""PDFs keep as much of their structure as places and sizes tell."""

from __future__ import annotations

import io

import pypdf
import pytest

from drsai_backend.documents import Reader, extract
from drsai_backend.errors import DocumentProtected, DocumentTooLarge, DocumentUnreadable
from tests.documents.made import make_pdf, make_pdf_page, simple_page


def test_headings_paragraphs_lists_and_tables_are_told() -> None:
    page = [
        (20.0, 72.0, 720.0, "The handbook"),
        (11.0, 72.0, 690.0, "Thirty days a year, which is more than in many an-"),
        (11.0, 72.0, 677.0, "other place. They are"),
        (11.0, 72.0, 664.0, "for rest."),
        (14.0, 72.0, 630.0, "Leave"),
        (11.0, 72.0, 600.0, "\\225 summer"),
        (11.0, 72.0, 587.0, "\\225 winter"),
        *((11.0, x, 550.0, text) for x, text in ((72.0, "Name"), (200.0, "Age"), (300.0, "City"))),
        *((11.0, x, 537.0, text) for x, text in ((72.0, "Ada"), (200.0, "36"), (300.0, "London"))),
    ]
    read = extract("a.pdf", make_pdf([page, simple_page("The second page.")]))
    assert [(block.kind, block.text, block.level, block.page) for block in read.blocks] == [
        ("heading", "The handbook", 1, 1),
        ("paragraph", "Thirty days a year, which is more than in many another place. They are for rest.", 0, 1),
        ("heading", "Leave", 2, 1),
        ("list", "- summer", 0, 1),
        ("list", "- winter", 0, 1),
        ("table", "| Name | Age | City |\n| --- | --- | --- |\n| Ada | 36 | London |", 0, 1),
        ("paragraph", "The second page.", 0, 2),
    ]
    assert read.pages == 2


def test_titles_of_the_outline_are_headings() -> None:
    content = make_pdf(
        [simple_page("1 Leave", "Text."), simple_page("2 Pay", "More.")], outline=[("1  Leave", 0), ("2 Pay", 1)]
    )
    assert [block.text for block in extract("a.pdf", content).blocks if block.kind == "heading"] == ["1 Leave", "2 Pay"]


def test_a_sentence_continues_on_the_next_page() -> None:
    read = extract("a.pdf", make_pdf([[(11, 72, 100, "It goes on")], [(11, 72, 720, "over there.")]]))
    assert [block.text for block in read.blocks] == ["It goes on over there."]


def test_words_that_typesetters_break_or_join_are_whole() -> None:
    """As typesetters end lines, by a hyphen or a soft one, and join f and i."""
    font = (
        b"<< /Type /Font /Subtype /Type1 /BaseFont /X /FirstChar 1 /LastChar 122 /Widths [%s] /Encoding "
        % (b"500 " * 122)
        + b"<< /Type /Encoding /Differences [1 /fi /ffi /uni00AD /uni2010] >> >>"
    )
    page = b"BT /F1 11 Tf 72 700 Td 13 TL (o\x02ces \x01nd exam\x03) Tj T* (ples and ele\x04) Tj T* (ments) Tj ET"
    assert extract("a.pdf", make_pdf_page(page, font=font)).text == "offices find examples and elements"


def test_turned_lines_are_paragraphs_of_their_own() -> None:
    page = (
        b"BT /F1 11 Tf 0 1 -1 0 300 100 Tm (It is turned) Tj ET BT /F1 11 Tf 0 1 -1 0 313 100 Tm (and on) Tj ET "
        b"BT /F1 11 Tf 1 0.02 -0.02 1 72 700 Tm (it is askew) Tj ET "
        b"BT /F1 11 Tf 1 0.01 -0.01 1 72 687 Tm (and on) Tj ET"
    )
    assert extract("a.pdf", make_pdf_page(page)).text == "It is turned and on\n\nit is askew and on"


def test_hebrew_and_arabic_are_read_from_the_right() -> None:
    """Browsers place each word by itself, the last one first: it was read first."""
    words = [("שלום", 300, 700), ("14", 270, 700), ("ימים", 240, 700), ("Open", 180, 700), ("AI", 210, 700)]
    words += [("سلام", 150, 700), ("עוד", 280, 687), ("שורה", 250, 687)]
    letters = sorted({letter for word, _, _ in words for letter in word} | {" "})
    font = (
        b"<< /Type /Font /Subtype /Type1 /BaseFont /X /FirstChar 1 /LastChar %d /Widths [%s] /Encoding "
        b"<< /Type /Encoding /Differences [1 %s] >> >>"
    ) % (len(letters), b"500 " * len(letters), b" ".join(b"/uni%04X" % ord(letter) for letter in letters))
    page = list[bytes]()
    for word, x, y in sorted(words, key=lambda each: (-each[2], each[1])):
        drawn = word if word.isascii() else word[::-1]
        codes = bytes(letters.index(letter) + 1 for letter in f"{drawn} ")
        page.append(b"BT /F1 11 Tf %d %d Td <%s> Tj ET" % (x, y, codes.hex().encode()))
    assert extract("a.pdf", make_pdf_page(b" ".join(page), font=font)).text == "שלום 14 ימים Open AI سلام עוד שורה"


def test_what_is_filled_into_a_form_is_read_beside_its_line() -> None:
    widget = b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (n) /V (%s) /Rect [150 %d 250 %d] %s >>"
    content = make_pdf_page(
        b"BT /F1 11 Tf 72 700 Td (Name:) Tj ET BT /F1 11 Tf 72 650 Td (City:) Tj ET",
        about=b"/Annots [6 0 R 7 0 R 8 0 R 9 0 R 10 0 R]",
        more=[
            widget % (b"Ada Lovelace", 695, 712, b""),
            widget % (b"London", 645, 662, b"/Parent 6 0 R"),
            widget % (b"secret", 595, 612, b"/Ff 8192"),
            widget % (b"hidden", 595, 612, b"/F 2"),
            b"<< /Type /Annot /Subtype /FreeText /Contents (A remark) /Rect [72 600 200 620] >>",
        ],
    )
    assert extract("a.pdf", content).text.split("\n\n") == ["Name:", "Ada Lovelace", "City:", "London", "A remark"]


def test_letters_that_a_font_does_not_name_are_told() -> None:
    font = b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /DescendantFonts [6 0 R] %s >>"
    glyphs = (
        b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /DW 500 /CIDSystemInfo "
        b"<< /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>"
    )
    page = b"BT /F1 11 Tf 72 700 Td <002400250026> Tj ET"
    read = extract("a.pdf", make_pdf_page(page, font=font % b"", more=[glyphs]))
    assert read.notes == ("Page 1 with letters that their fonts do not name: what is read of these may be wrong.",)
    assert not extract("a.pdf", make_pdf([simple_page("Text.")])).notes


def test_pages_without_text_are_named() -> None:
    read = extract("a.pdf", make_pdf([[], simple_page("Text."), [], [], []]))
    assert read.notes == ("Pages 1, 3 to 5 without text: there is nothing, or a picture.",)
    assert read.pages == 5


def protected(password: str, algorithm: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(make_pdf([simple_page("Secret text.")])))
    writer.encrypt(password, "owner", algorithm=algorithm)
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()


@pytest.mark.parametrize("algorithm", ["AES-256", "AES-128"])
def test_a_password_is_asked_for_only_where_there_is_one(algorithm: str) -> None:
    with pytest.raises(DocumentProtected):
        extract("a.pdf", protected("secret", algorithm))
    assert extract("a.pdf", protected("", algorithm)).text == "Secret text."


async def test_ten_thousand_pages_are_refused_at_once() -> None:
    with pytest.raises(DocumentTooLarge, match="10000 pages"):
        await Reader().read("a.pdf", make_pdf([[]] * 10_000))


async def test_a_hundred_pages_are_read() -> None:
    read = await Reader().chunks("a.pdf", make_pdf([simple_page(f"Page {n} says something.") for n in range(1, 101)]))
    assert {chunk.page for chunk in read.chunks} <= set(range(1, 101))
    assert "Page 100 says" in read.chunks[-1].text


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.99])
def test_a_file_that_ends_too_early_is_read_as_far_as_it_goes_or_refused(share: float) -> None:
    content = make_pdf([simple_page(f"Page {n}.") for n in range(20)])
    try:
        text = extract("a.pdf", content[: int(len(content) * share)]).text
    except DocumentUnreadable:
        return
    assert "Page" in text
