"""The reader reads each file in a process of its own, with limits: no file can harm the server or stop it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Final, NoReturn

from pydantic import BaseModel, ValidationError

from drsai_backend.documents.base import ChunkedDocument, Document, ReadLimits
from drsai_backend.documents.chunking import OVERLAP, SIZE, check_sizes
from drsai_backend.errors import (
    DocumentEmpty,
    DocumentProtected,
    DocumentTooLarge,
    DocumentUnreadable,
    DocumentUnsupported,
)
from drsai_backend.tools.apart import ApartError, apart

_CHILD: Final = Path(__file__).with_name("child.py")
_REFUSALS: Final = {
    kind.code: kind
    for kind in (DocumentEmpty, DocumentProtected, DocumentTooLarge, DocumentUnreadable, DocumentUnsupported)
}
_ANSWER_PER_CHARACTER: Final = 8
"""Bytes of an answer for each character that a file may have: up to 3 of UTF-8, and what chunks repeat."""


_ENDED: Final = "the reader of the file was ended: the file is broken, or needs more memory than it may"


class _Answer(BaseModel, extra="forbid"):
    """What the process says: what it has read, or why it has not."""

    read: Document | None = None
    chunked: ChunkedDocument | None = None
    code: str = ""
    message: str = _ENDED


class Reader:
    """Reads files, one at a time; who comes meanwhile waits. It holds nothing between two files.

    Args:
        limits: of each file; default: `ReadLimits()`.
    """

    def __init__(self, limits: ReadLimits | None = None) -> None:
        self.limits = limits or ReadLimits()
        self._turn = asyncio.Lock()

    async def read(self, name: str, content: bytes, media_type: str | None = None) -> Document:
        """Read a file. Where this is cancelled, the process is ended.

        Args:
            name: of the file; its ending tells what it is, where the content does not.
            media_type: what who has uploaded it says it is; believed last.

        Raises:
            DocumentUnsupported, DocumentProtected, DocumentEmpty, DocumentTooLarge, DocumentUnreadable: it is not
                read, and will not be the next time. The text is for who has uploaded it.
        """
        answer = await self._ask(content, name=name, media_type=media_type, size=0, overlap=0)
        return answer.read or _refuse(answer)

    async def chunks(
        self, name: str, content: bytes, media_type: str | None = None, *, size: int = SIZE, overlap: int = OVERLAP
    ) -> ChunkedDocument:
        """Read a file and cut it, as `chunk` does, there.

        Raises:
            ConfigurationError: size and overlap cannot be.
            DocumentUnreadable and its kinds: see `read`.
        """
        check_sizes(size, overlap)
        answer = await self._ask(content, name=name, media_type=media_type, size=size, overlap=overlap)
        return answer.chunked or _refuse(answer)

    async def _ask(self, content: bytes, **asked: object) -> _Answer:
        """Have the process read. It has read a foreign file: its answer is believed no more than that."""
        limits = self.limits
        if len(content) > limits.content:
            raise DocumentTooLarge(f"the file has {len(content)} bytes; it may have {limits.content}")
        most = _ANSWER_PER_CHARACTER * limits.text + (1 << 20)
        head = json.dumps({**asked, "limits": asdict(limits), "most": most}).encode() + b"\n"
        try:
            async with self._turn:
                made = await apart(_CHILD, head + content, seconds=limits.seconds, memory=limits.memory, most=most)
            return await asyncio.to_thread(_Answer.model_validate_json, made)
        except ApartError as error:
            if error.late:
                raise DocumentTooLarge(f"the file was not read within {limits.seconds:g} seconds; split it") from None
            raise DocumentUnreadable(_ENDED) from None
        except ValidationError:
            raise DocumentUnreadable(_ENDED) from None


def _refuse(answer: _Answer) -> NoReturn:
    raise _REFUSALS.get(answer.code, DocumentUnreadable)(answer.message)
