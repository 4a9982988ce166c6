"""Chunks are cut along the structure of a document: at headings first, then between blocks, lines, sentences."""

from __future__ import annotations

from typing import Final

from drsai_backend.documents.base import Chunk, Document

SIZE: Final = 800
"""Tokens of a chunk, at most."""
OVERLAP: Final = 100
"""Tokens of the end of a chunk that the next one begins with, at most. None across a heading."""


def chunk(document: Document, size: int = SIZE, overlap: int = OVERLAP) -> tuple[Chunk, ...]:
    """Cut a document. The same document, size and overlap give the same chunks on every machine.

    Args:
        size: estimated tokens of a chunk, at most; at least 16.
        overlap: tokens that a chunk may repeat of the one before; at most half of the size.

    Raises:
        ConfigurationError: size and overlap cannot be.
    """
    raise NotImplementedError
