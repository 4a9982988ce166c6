"""Documents are read here: bytes of a file become blocks with structure, and those become chunks.

`Reader` is what others use: it reads in a process of its own, within limits. `extract` and `chunk` do the work there.
"""

from typing import TYPE_CHECKING

from drsai_backend.lazily import lazily

if TYPE_CHECKING:
    from drsai_backend.documents.base import Block, Chunk, ChunkedDocument, Document, ReadLimits
    from drsai_backend.documents.chunking import chunk
    from drsai_backend.documents.extraction import extract
    from drsai_backend.documents.reader import Reader
else:
    # The process of the reader starts with few modules.
    __getattr__ = lazily(
        __name__,
        {
            "base": "Block Chunk ChunkedDocument Document ReadLimits",
            "chunking": "chunk",
            "extraction": "extract",
            "reader": "Reader",
        },
    )

__all__ = ["Block", "Chunk", "ChunkedDocument", "Document", "ReadLimits", "Reader", "chunk", "extract"]
