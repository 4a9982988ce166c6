"""Images of tools are shown to models that see.

Chat APIs take texts as results of tools. An image is kept as a file, and its result refers to it by a line of text,
which is all that is stored with the conversation. For a model that sees, the files of the newest of these lines go with
each request, as a message of the user's after the results.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Sequence
from typing import Final, cast

from autogen_core import Image
from autogen_core.models import FunctionExecutionResultMessage, LLMMessage, UserMessage

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import FileTooLarge, NotFound
from drsai_backend.files import Files
from drsai_backend.files.store import OF_TOOLS
from drsai_backend.models.images import read_image

MAX_IMAGES: Final = 8
"""Images of tools that one request shows: the newest."""
MAX_BYTES: Final = 20_000_000
"""Bytes that they have together, in base64, and that are remembered between the requests of an agent."""
_REFERENCE: Final = re.compile(
    r"^\[image ([^\n\]]+), (image/[a-z]+), \d+ bytes, id (file-[A-Za-z0-9_-]{1,64})\]$", re.MULTILINE
)


def reference(name: str, media_type: str, size: int, file_id: str) -> str:
    """The line that stands for a kept image in the result of a tool."""
    return f"[image {name}, {media_type}, {size} bytes, id {file_id}]"


class SeenImages:
    """The images of one agent's tools, which are files of `owner`'s."""

    def __init__(self, files: Files, owner: Owner) -> None:
        self._files = files
        self._owner = owner
        self._kept: dict[str, Image | None] = {}
        self._bytes = 0

    async def shown(self, messages: Sequence[LLMMessage]) -> Sequence[LLMMessage]:
        """The messages with the newest images after the results that refer to them; the same object where there are
        none."""
        # Asked at each call of a model, of all messages of a thread: in C.
        kinds = [*map(type, messages)]
        if FunctionExecutionResultMessage not in kinds:
            return messages
        chosen: set[str] = set()
        places: list[tuple[int, list[tuple[str, str]]]] = []
        for index in range(len(messages) - 1, -1, -1):
            if kinds[index] is not FunctionExecutionResultMessage:
                continue
            message = cast("FunctionExecutionResultMessage", messages[index])
            found = [
                (name, file_id)
                for result in message.content
                if "[image " in result.content
                for name, _, file_id in _REFERENCE.findall(result.content)
            ]
            fresh = [each for each in dict.fromkeys(found) if each[1] not in chosen][: MAX_IMAGES - len(chosen)]
            chosen.update(file_id for _, file_id in fresh)
            if fresh:
                places.append((index, fresh))
        if not places:
            return messages
        shown, left = list(messages), MAX_BYTES
        for index, named in places:  # The last one first: what comes before keeps its index.
            parts: list[str | Image] = []
            for name, file_id in named:
                image = await self._image(file_id)
                if image is not None and len(image.to_base64()) <= left:
                    left -= len(image.to_base64())
                    parts += [f"The image {name} ({file_id}):", image]
            if parts:
                shown.insert(index + 1, UserMessage(content=parts, source="user"))
        return shown

    async def _image(self, file_id: str) -> Image | None:
        if file_id in self._kept:
            return self._kept[file_id]
        data = await self._read(file_id)
        image = None if data is None else await asyncio.to_thread(_checked, data)
        size = 0 if image is None else len(image.to_base64())
        if self._bytes + size > MAX_BYTES:
            self._kept.clear()
            self._bytes = 0
        self._kept[file_id] = image
        self._bytes += size
        return image

    async def _read(self, file_id: str) -> bytes | None:
        """Read what a tool has kept for the owner; nobody else's, and no upload: the text of a web page may look like a
        reference."""
        try:
            info = await self._files.get(self._owner, file_id)
            if info.purpose != OF_TOOLS or not info.media_type.startswith("image/"):
                return None
            return await self._files.read(self._owner, file_id, limit=MAX_BYTES)
        except (NotFound, FileTooLarge):
            return None


def _checked(data: bytes) -> Image | None:
    try:
        return read_image(base64.b64encode(data).decode())
    except ValueError:
        return None
