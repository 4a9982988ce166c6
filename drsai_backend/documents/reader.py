"""The reader reads each file in a process of its own, with limits: no file can harm the server or stop it."""

from __future__ import annotations

from drsai_backend.documents.base import ChunkedDocument, Document, ReadLimits
from drsai_backend.documents.chunking import OVERLAP, SIZE


class Reader:
    """Reads files, one at a time; who comes meanwhile waits. It holds nothing between two files.

    Args:
        limits: of each file; default: `ReadLimits()`.
    """

    def __init__(self, limits: ReadLimits | None = None) -> None:
        self.limits = limits or ReadLimits()

    async def read(self, name: str, content: bytes, media_type: str | None = None) -> Document:
        """Read a file. Where this is cancelled, the process is ended.

        Args:
            name: of the file; its ending tells what it is, where the content does not.
            media_type: what who has uploaded it says it is; believed last.

        Raises:
            DocumentUnsupported, DocumentProtected, DocumentEmpty, DocumentTooLarge, DocumentUnreadable: it is not
                read, and will not be the next time. The text is for who has uploaded it.
        """
        raise NotImplementedError

    async def chunks(
        self, name: str, content: bytes, media_type: str | None = None, *, size: int = SIZE, overlap: int = OVERLAP
    ) -> ChunkedDocument:
        """Read a file and cut it, as `chunk` does, there.

        Raises:
            ConfigurationError: size and overlap cannot be.
            DocumentUnreadable and its kinds: see `read`.
        """
        raise NotImplementedError
