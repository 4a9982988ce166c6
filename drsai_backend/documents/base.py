"""Documents are files that were read: blocks with structure, and the chunks that are made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

BlockKind: TypeAlias = Literal["heading", "paragraph", "list", "table", "code", "turn"]
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """What the reading of one file may use. A file that needs more is refused; nothing is cut in silence.

    Attributes:
        content: bytes of the file.
        unpacked: bytes of what is unpacked from it (parts of Office files, streams of PDFs).
        pages: pages of a PDF, slides, sheets.
        text: characters of all blocks together.
        seconds: from the start of the reader to its end, of wall time.
        memory: bytes of address space of the reader, where the system bounds it (Linux, macOS).
    """

    content: int = 64 * MIB
    unpacked: int = 256 * MIB
    pages: int = 5_000
    text: int = 10_000_000
    seconds: float = 120.0
    memory: int = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a document, without anything that belongs to another one.

    Attributes:
        kind: what it is.
        text: its text, never empty. Tables are Markdown (`| a | b |`, the second line `| --- | --- |`), items of lists
            begin with `- ` or `1. `, code is as it stands in the file, a turn of a chat begins with its speaker
            (`Ann: …`).
        level: of a heading, 1 to 6; 0: it is none.
        page: of a PDF its page, of a presentation its slide, from 1; None: the file has no pages.
    """

    kind: BlockKind
    text: str
    level: int = 0
    page: int | None = None

    @property
    def markdown(self) -> str:
        """The block as Markdown."""
        return f"{'#' * self.level} {self.text}" if self.kind == "heading" else self.text


SEPARATOR: Final = "\n\n"
"""What stands between the blocks in the text of a document."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file that was read.

    Attributes:
        name: of the file.
        media_type: what it is, by its content where that can be told.
        blocks: in reading order; at least one.
        pages: how many pages or slides it has; None: it has none.
        metadata: `title`, `author`, as far as the file names them.
        notes: sentences on what could not be read, for who has uploaded it (`Pages 3 to 9 have no text: …`).
    """

    name: str
    media_type: str
    blocks: tuple[Block, ...]
    pages: int | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of it as Markdown."""
        return SEPARATOR.join(block.markdown for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document that is found and shown by itself.

    Attributes:
        text: Markdown. It ends with the slice `start:end` of `Document.text`; the heads of a table that is cut stand
            before that.
        tokens: estimated, of `text` (`estimate_text`).
        start, end: characters of `Document.text`.
        position: its number in the document, from 0.
        page: on which its first new block begins; None: the file has no pages.
        headings: titles of the sections in which it begins, the outermost first.
        turn: it is a turn of a chat, after what it repeats of the ones before. The last heading is its day, if known.
    """

    text: str
    tokens: int
    start: int
    end: int
    position: int
    page: int | None = None
    headings: tuple[str, ...] = ()
    turn: bool = False


@dataclass(frozen=True, slots=True)
class ChunkedDocument:
    """A file that was read and cut. What is not named here is as in `Document`."""

    name: str
    media_type: str
    chunks: tuple[Chunk, ...]
    pages: int | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.chunks)
