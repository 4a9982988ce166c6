"""Extraction finds out what a file is, and has it read by the module for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drsai_backend.documents.base import Document, ReadLimits
from drsai_backend.documents.draft import Draft
from drsai_backend.documents.kinds import kind_of
from drsai_backend.errors import DocumentEmpty, DocumentTooLarge
from drsai_backend.lazily import imported

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_NAME: Final = 255


def extract(name: str, content: bytes, media_type: str | None = None, limits: ReadLimits | None = None) -> Document:
    """Read a file in this process. `Reader.read` does it in one that can be stopped.

    Args:
        name: of the file; its ending tells what it is, where the content does not.
        media_type: what who has uploaded it says it is; believed last.
        limits: default: `ReadLimits()`. Time and memory are the `Reader`'s.

    Raises:
        DocumentUnsupported, DocumentProtected, DocumentEmpty, DocumentTooLarge, DocumentUnreadable: it is not read.
    """
    draft = Draft(limits or ReadLimits(), name[-_LONGEST_NAME:])
    if not content.strip(b"\0 \t\r\n"):
        raise DocumentEmpty("the file is empty")
    if len(content) > draft.limits.content:
        raise DocumentTooLarge(f"the file has {len(content)} bytes; it may have {draft.limits.content}")
    kind = kind_of(name, content, media_type)
    read: Callable[[bytes, Draft], None] = imported(f"drsai_backend.documents.formats.{kind.reader}")
    read(content, draft)
    if not draft.blocks:
        raise DocumentEmpty(" ".join(["the file has no text.", *draft.notes]))
    return Document(draft.name, kind.media_type, tuple(draft.blocks), draft.pages, draft.metadata, tuple(draft.notes))
