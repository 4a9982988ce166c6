"""Chunks are all of a document, cut along its structure."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.documents import Block, Chunk, Document, chunk
from drsai_backend.estimates import estimate_text

Kind = Literal["heading", "paragraph", "list", "table", "code", "turn"]

_WORDS = ["word", "a sentence.", "一句话。", "\n", "  indented", "x" * 300, "长" * 150]
_TEXTS = st.one_of(
    st.text(min_size=1, max_size=400),
    st.lists(
        st.sampled_from(["word", "a sentence.", "一句话。", "\n", "  indented", "x" * 300, "长" * 150]), max_size=40
    ).map(" ".join),
)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Documents of any blocks."""
    blocks: list[Block] = []
    for text in draw(st.lists(_TEXTS, max_size=12)):
        if not (text := text.strip()):
            continue
        kind: Kind = draw(st.sampled_from(["heading", "paragraph", "list", "table", "code", "turn"]))
        if kind == "heading":
            blocks.append(Block("heading", " ".join(text.split()), draw(st.integers(1, 6))))
        elif kind == "table":
            rows = [f"| {' '.join(line.split())} |" for line in text.splitlines()]
            blocks.append(Block("table", "\n".join(["| head |", "| --- |", *rows])))
        else:
            blocks.append(Block(kind, text))
    return Document("a", "text/plain", tuple(blocks))


@settings(max_examples=300, deadline=None)
@given(documents(), st.integers(16, 120), st.data())
def test_chunks_are_all_of_the_text_within_their_sizes(document: Document, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size // 2))
    chunks = chunk(document, size, overlap)
    text = document.text
    assert chunks == chunk(document, size, overlap)
    assert [each.position for each in chunks] == list(range(len(chunks)))
    done = 0
    for each in chunks:
        assert each.tokens == estimate_text(each.text) <= size
        assert each.text.endswith(text[each.start : each.end])
        assert each.text.strip()
        # In order, each with something new; what stands between is white space.
        assert each.end > done
        assert not text[done : max(done, each.start)].strip()
        if each.start < done:
            assert estimate_text(text[each.start : done]) <= overlap
        done = each.end
    assert not text[done:].strip()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["One sentence.", "Another one, longer.", "又一句话。"]), min_size=30, max_size=200))
def test_a_chunk_repeats_the_end_of_the_one_before(sentences: list[str]) -> None:
    chunks = chunk(Document("a", "text/plain", (Block("paragraph", " ".join(sentences)),)), 40, 10)
    assert len(chunks) > 1
    for before, after in pairwise(chunks):
        assert before.start < after.start < before.end
        assert any(after.text.startswith(each) for each in sentences)


def cut(*blocks: Block, size: int = 40, overlap: int = 10) -> tuple[Chunk, ...]:
    return chunk(Document("a", "text/plain", blocks), size, overlap)


def paragraph(word: str, count: int = 20) -> Block:
    return Block("paragraph", " ".join([word] * count) + ".")


def test_a_section_begins_a_chunk_and_repeats_nothing() -> None:
    chunks = cut(
        Block("heading", "One", 1), paragraph("red"), Block("heading", "Two", 2), paragraph("blue"),
        Block("heading", "Three", 2), paragraph("green"),
    )  # fmt: skip
    assert [each.text.split("\n")[0] for each in chunks] == ["# One", "## Two", "## Three"]
    assert [each.headings for each in chunks] == [("One",), ("One", "Two"), ("One", "Three")]


def test_short_sections_are_one_chunk() -> None:
    chunks = cut(*(each for n in range(4) for each in (Block("heading", f"S{n}", 1), Block("paragraph", "Short."))))
    assert len(chunks) < 4
    assert chunks[0].headings == ("S0",)


def test_a_heading_is_in_the_chunk_of_what_follows_it() -> None:
    for count in range(5, 35):
        for each in cut(paragraph("red", count), Block("heading", "Two", 2), paragraph("blue", 25)):
            assert not each.text.endswith("## Two")


def test_a_table_that_is_cut_has_its_heads_in_each_chunk() -> None:
    rows = "\n".join(f"| Ada {number} | {number} |" for number in range(40))
    chunks = cut(paragraph("red"), Block("table", f"| Name | Age |\n| --- | --- |\n{rows}"), paragraph("blue"))
    of_table = [each for each in chunks if "| Ada" in each.text]
    assert len(of_table) > 3
    for each in of_table:
        assert each.text.count("| Name | Age |\n| --- | --- |\n") == 1
        assert all(line.endswith("|") for line in each.text.split("\n") if line.startswith("|"))


def test_code_is_cut_between_lines_and_keeps_its_indents() -> None:
    lines = [f"    value_{number} = {number}" for number in range(60)]
    chunks = cut(Block("code", "def f():\n" + "\n".join(lines)))
    assert len(chunks) > 3
    for each in chunks:
        assert set(each.text.split("\n")) <= {"def f():", *lines}


def test_a_block_is_whole_where_it_can_be() -> None:
    chunks = cut(paragraph("red", 15), paragraph("blue", 15), paragraph("green", 15), overlap=0, size=40)
    assert [each.text.count(".") for each in chunks] == [len(each.text.split("\n\n")) for each in chunks]


def test_pages_are_those_of_what_is_new_in_a_chunk() -> None:
    blocks = [Block("paragraph", " ".join([f"page{page}"] * 12) + ".", page=page) for page in range(1, 9)]
    for each in cut(*blocks, size=24, overlap=6):
        assert f"page{each.page}" in each.text


@pytest.mark.parametrize("size", [16, 800])
def test_no_blocks_are_no_chunks(size: int) -> None:
    assert chunk(Document("a", "text/plain", ()), size, 0) == ()


def test_a_turn_of_a_chat_is_a_chunk_after_those_before_it() -> None:
    day = [Block("heading", "2025-01-30", 1), *(Block("turn", f"Ann: {word}") for word in ("one", "two", "three"))]
    chunks = cut(*day, Block("heading", "2025-01-31", 1), Block("turn", "Ann: four"), size=40, overlap=6)
    assert [(each.text, each.headings[-1], each.turn) for each in chunks] == [
        ("# 2025-01-30\n\nAnn: one", "2025-01-30", True),
        ("# 2025-01-30\n\nAnn: one\n\nAnn: two", "2025-01-30", True),
        ("Ann: one\n\nAnn: two\n\nAnn: three", "2025-01-30", True),
        ("# 2025-01-31\n\nAnn: four", "2025-01-31", True),
    ]
