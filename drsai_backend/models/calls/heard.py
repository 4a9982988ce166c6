"""Heard recordings are those that users send to models whose profile says that they hear.

A recording is kept as a file, and its message refers to it by a line of text, which is all that is stored with the
conversation. For a model that hears, the newest of these files go with each request in place of their lines.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from autogen_core import Image
from autogen_core.models import LLMMessage, UserMessage

from drsai_backend.database.files import FileInfo
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import FileTooLarge, NotFound
from drsai_backend.files import Files
from drsai_backend.models.images import EncodedImage

MAX_BYTES: Final = 16_000_000
"""Of the recordings of a request together, the newest first."""
_UNHEARD: Final = "A recording of the user's, kept as a file; what is in it is not told here."
_LINE: Final = re.compile(
    r"^\[(?:audio|video) [^\n\]]+, ([a-z]+/[\w.+-]+), \d+ bytes, id (file-[\w-]{1,64})\] " + re.escape(_UNHEARD) + "$",
    re.MULTILINE,
)
_FORMATS: Final = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav", "mp4": "m4a", "x-m4a": "m4a"}


def reference(file: FileInfo) -> str:
    """The line that stands for a recording in a message."""
    name = re.sub(r"[\[\]\n,]", "_", file.filename)
    kind = file.media_type.partition("/")[0]
    return f"[{kind} {name}, {file.media_type}, {file.bytes} bytes, id {file.file_id}] {_UNHEARD}"


class EncodedAudio(EncodedImage):
    """A recording among the parts of a message. AutoGen has texts and images there, so it is one that is sent as what
    it is."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self._format = _FORMATS.get(kind, kind)

    def to_openai_format(self, detail: str = "auto") -> dict[str, Any]:
        return {"type": "input_audio", "input_audio": {"data": self.to_base64(), "format": self._format}}


@dataclass(frozen=True, slots=True)
class Recordings:
    """The recordings of a run: files of any of its `owners`, and of nobody else, as anybody may write such a line."""

    files: Files
    owners: Sequence[Owner]

    async def heard(self, messages: Sequence[LLMMessage]) -> Sequence[LLMMessage]:
        """The messages with their recordings in place of the lines; the same object where there are none."""
        shown, left = [*messages], MAX_BYTES
        for at in range(len(shown) - 1, -1, -1):
            message = shown[at]
            if not isinstance(message, UserMessage):
                continue
            given = [message.content] if isinstance(message.content, str) else message.content
            parts: list[str | Image] = []
            for part in given:
                made = [part] if not isinstance(part, str) else await self._parts(part, left)
                left -= sum(len(each.to_base64()) for each in made if isinstance(each, EncodedAudio))
                parts += made
            if any(isinstance(part, EncodedAudio) for part in parts):
                shown[at] = UserMessage(content=parts, source=message.source)
        return shown if any(new is not old for new, old in zip(shown, messages, strict=True)) else messages

    async def _parts(self, text: str, left: int) -> list[str | Image]:
        """A text with the recordings in it, as far as `left` bytes go; those that are no longer there stay lines."""
        parts, end = list[str | Image](), 0
        for line in _LINE.finditer(text):
            kind, _, form = line[1].partition("/")
            data = await self._read(line[2], left) if kind == "audio" else None
            if data is None:
                continue
            audio = EncodedAudio(base64.b64encode(data).decode(), form)
            left -= len(audio.to_base64())
            parts += [each for each in (text[end : line.start()].strip("\n"), audio) if each]
            end = line.end()
        return [*parts, *([rest] if (rest := text[end:].strip("\n")) else [])] if parts else [text]

    async def _read(self, file_id: str, left: int) -> bytes | None:
        for owner in dict.fromkeys(self.owners):
            with suppress(NotFound, FileTooLarge):
                info = await self.files.get(owner, file_id)
                if info.media_type.startswith("audio/"):
                    return await self.files.read(owner, file_id, limit=left * 3 // 4)
        return None
