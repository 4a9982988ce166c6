"""Chunks are cut along the structure of a document: at headings first, then between blocks, lines, sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from drsai_backend.documents.base import SEPARATOR, Block, BlockKind, Chunk, Document
from drsai_backend.errors import ConfigurationError
from drsai_backend.estimates import estimate_text

SIZE: Final = 800
"""Tokens of a chunk, at most."""
OVERLAP: Final = 100
"""Tokens of the end of a chunk that the next one begins with, at most. None across a heading."""
LEAST_SIZE: Final = 16
_BYTES: Final = 4
"""Bytes of a token, as it is estimated."""
_LONGEST_TITLE: Final = 200
"""Characters of a heading in the path of a chunk."""
_LINES: Final = re.compile(r"\n+")
_SENTENCES: Final = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])\s*|\n+")  # noqa: RUF001 - Chinese
_FINER: Final[dict[BlockKind, tuple[re.Pattern[str], ...]]] = {
    "code": (_LINES,),
    "heading": (_SENTENCES,),
    "list": (_LINES, _SENTENCES),
    "paragraph": (_SENTENCES,),
    "table": (_LINES,),
    "turn": (_LINES, _SENTENCES),
}
"""What parts the pieces of a block, and then the pieces that are too long."""


def check_sizes(size: int, overlap: int) -> None:
    """Check what chunks are to be like.

    Raises:
        ConfigurationError: size and overlap cannot be.
    """
    if size < LEAST_SIZE:
        raise ConfigurationError(f"a chunk has {LEAST_SIZE} tokens or more, not {size}")
    if not 0 <= overlap <= size // 2:
        raise ConfigurationError(f"the overlap of chunks of {size} tokens is 0 to {size // 2} tokens, not {overlap}")


def chunk(document: Document, size: int = SIZE, overlap: int = OVERLAP) -> tuple[Chunk, ...]:
    """Cut a document. The same document, size and overlap give the same chunks on every machine.

    Args:
        size: estimated tokens of a chunk, at most; at least 16.
        overlap: tokens that a chunk may repeat of the one before; at most half of the size.

    Raises:
        ConfigurationError: size and overlap cannot be.
    """
    check_sizes(size, overlap)
    return tuple(_Cutter(document, size, overlap).chunks())


@dataclass(frozen=True, slots=True)
class _Atom:
    """A piece of a block that is cut no further.

    Attributes:
        start, end: characters of the document's text.
        low, high: the same as bytes.
        block: number of its block in the document.
        first: it begins its block.
        section: it begins a section.
    """

    start: int
    end: int
    low: int
    high: int
    block: int
    first: bool
    section: bool


class _Cutter:
    """Cuts one document. Sizes are bytes here, which add up."""

    def __init__(self, document: Document, size: int, overlap: int) -> None:
        self._blocks, self._text = document.blocks, document.text
        self._size, self._overlap = size * _BYTES, overlap * _BYTES
        # Pieces that are no longer than the overlap can be repeated.
        self._longest = max(self._overlap, self._size // 8) if overlap else self._size
        self._heads: dict[int, str] = {}
        """Heads of the tables that may be cut, by the numbers of their blocks."""
        self._atoms = list(self._all_atoms())

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks."""
        paths, atoms = _paths(self._blocks), self._atoms
        first = start = position = 0
        while first < len(atoms):
            behind = self._behind(first, start)
            heads, a, b = self._heads_before(start), atoms[start].start, atoms[behind - 1].end
            text = heads + self._text[a:b]
            block = atoms[first].block
            turn = self._blocks[atoms[behind - 1].block].kind == "turn"
            yield Chunk(text, estimate_text(text), a, b, position, self._blocks[block].page, paths[block], turn)
            position += 1
            if behind < len(atoms):
                start = self._start(behind, start)
            first = behind

    # --- atoms --------------------------------------------------------------------------------------------------------

    def _all_atoms(self) -> Iterator[_Atom]:
        start = low = end = 0
        before: BlockKind = "paragraph"
        for number, block in enumerate(self._blocks):
            text, first = block.markdown, True
            for a, b in self._pieces(number, block.kind, text):
                low += _length(self._text[end : start + a])
                high = low + _length(text[a:b])
                section = first and block.kind == "heading" and before != "heading"
                yield _Atom(start + a, start + b, low, high, number, first, section)
                first, low, end = False, high, start + b
            start, before = start + len(text) + len(SEPARATOR), block.kind

    def _pieces(self, number: int, kind: BlockKind, text: str) -> Iterator[tuple[int, int]]:
        """The pieces of a block. The two lines of a table's heads are one."""
        begin, longest = 0, self._longest
        if kind == "table" and _length(text) > longest:
            heads = "\n".join(text.split("\n", 2)[:2]) + "\n"
            if _length(heads) <= min(self._size // 4, longest):
                self._heads[number] = heads
                begin, longest = len(heads), min(longest, self._size - _length(heads))
                yield 0, begin - 1
        yield from _cut(text, begin, len(text), longest, _FINER[kind])

    def _heads_before(self, start: int) -> str:
        """The heads of the table within which a chunk begins; "": there are none, or they are in the chunk."""
        atom = self._atoms[start]
        return "" if atom.first else self._heads.get(atom.block, "")

    # --- a chunk ------------------------------------------------------------------------------------------------------

    def _behind(self, first: int, start: int) -> int:
        """The number of the atom behind the chunk that begins with `start`; what is new in it begins with `first`."""
        atoms, whole = self._atoms, first
        most = atoms[start].low + self._size - _length(self._heads_before(start))
        for behind in range(first + 1, len(atoms)):
            atom = atoms[behind]
            # A section that is short goes into one chunk with the next.
            if atom.section and (atom.low - atoms[first].low) * 4 >= self._size:
                return behind
            # A turn of a chat is found by itself, with the heading above it.
            kinds = {self._blocks[atom.block - 1].kind, self._blocks[atom.block].kind}
            if atom.first and "turn" in kinds and self._blocks[atom.block - 1].kind != "heading":
                return behind
            if atom.first and self._blocks[atom.block - 1].kind != "heading":
                whole = behind
            if atom.high > most:
                return self._best(first, start, behind, whole)
        return len(atoms)

    def _best(self, first: int, start: int, behind: int, whole: int) -> int:
        """Find where a full chunk ends best: before `whole`, which begins a block, unless that leaves half of it."""
        atoms = self._atoms
        if (
            whole > first
            and (atoms[whole - 1].high - atoms[start].low) * 2 >= atoms[behind - 1].high - atoms[start].low
        ):
            return whole
        end = behind
        while end > first and self._blocks[atoms[end - 1].block].kind == "heading":
            end -= 1  # A heading belongs to what follows it.
        return end if end > first else behind

    def _start(self, first: int, before: int) -> int:
        """The number of the atom with which the chunk begins whose first new one is `first`; the chunk before began
        with `before`."""
        atoms, start = self._atoms, first
        if self._blocks[atoms[first].block].kind == "turn":
            before = -1  # All of the turn before may be repeated, and those before that.
        while start - 1 > before and not atoms[start].section:
            size = atoms[first].high - atoms[start - 1].low + _length(self._heads_before(start - 1))
            if atoms[first].low - atoms[start - 1].low > self._overlap or size > self._size:
                break
            start -= 1
        return start


def _cut(text: str, start: int, end: int, longest: int, finer: Sequence[re.Pattern[str]]) -> Iterator[tuple[int, int]]:
    """Cut a part of a text into pieces of so many bytes at most. Between them is nothing but white space."""
    if not finer:
        yield from _cut_hard(text, start, end, longest)
        return
    for a, b in _parted(text, start, end, finer[0]):
        if _length(text[a:b]) <= longest:
            yield a, b
        else:
            yield from _cut(text, a, b, longest, finer[1:])


def _parted(text: str, start: int, end: int, by: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    for found in by.finditer(text, start, end):
        if text[start : found.start()].strip():
            yield start, found.start()
        start = found.end()
    if text[start:end].strip():
        yield start, end


def _cut_hard(text: str, start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    """Cut between words where there are any, else anywhere."""
    while start < end:
        most = text[start : start + longest].encode("utf-8", "replace")[:longest].decode("utf-8", "ignore")
        stop = min(start + len(most), end)
        if stop < end and (space := text.rfind(" ", start + len(most) // 2, stop)) > 0:
            stop = space
        if text[start:stop].strip():
            yield start, stop
        start = stop


def _paths(blocks: Sequence[Block]) -> list[tuple[str, ...]]:
    """The titles of the sections in which each block is, those of its own heading included."""
    paths: list[tuple[str, ...]] = []
    open_ones: list[Block] = []
    path: tuple[str, ...] = ()
    for block in blocks:
        if block.kind == "heading":
            open_ones = [*(each for each in open_ones if each.level < block.level), block]
            path = tuple(each.text[:_LONGEST_TITLE] for each in open_ones)
        paths.append(path)
    return paths


def _length(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
