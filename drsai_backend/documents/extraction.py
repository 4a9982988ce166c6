"""Extraction finds out what a file is, and has it read by the module for that."""

from __future__ import annotations

from drsai_backend.documents.base import Document, ReadLimits


def extract(name: str, content: bytes, media_type: str | None = None, limits: ReadLimits | None = None) -> Document:
    """Read a file in this process. `Reader.read` does it in one that can be stopped.

    Args:
        name: of the file; its ending tells what it is, where the content does not.
        media_type: what who has uploaded it says it is; believed last.
        limits: default: `ReadLimits()`. Time and memory are the `Reader`'s.

    Raises:
        DocumentUnsupported, DocumentProtected, DocumentEmpty, DocumentTooLarge, DocumentUnreadable: it is not read.
    """
    raise NotImplementedError
