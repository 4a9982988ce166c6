"""PDFs keep as much of their structure as places and sizes tell."""

from __future__ import annotations

import io

import pypdf
import pytest

from drsai_backend.documents import Reader, extract
from drsai_backend.errors import DocumentProtected, DocumentTooLarge, DocumentUnreadable
from tests.documents.made import make_pdf, simple_page


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
