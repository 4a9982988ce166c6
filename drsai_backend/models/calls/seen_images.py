"""Images of tools are shown to models that see.

Chat APIs take texts as results of tools. An image is kept as a file, and its result refers to it by a line of text,
which is all that is stored with the conversation. For a model that sees, the files of the newest of these lines go with
each request, as a message of the user's after the results.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import ref

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
_LISTS: Final = 4_096
"""Lists of messages, of an agent on a thread each, that are remembered."""
_REFERENCE: Final = re.compile(
    r"^\[image ([^\n\]]+), (image/[a-z]+), \d+ bytes, id (file-[A-Za-z0-9_-]{1,64})\]$", re.MULTILINE
)


def reference(name: str, media_type: str, size: int, file_id: str) -> str:
    """The line that stands for a kept image in the result of a tool."""
    return f"[image {name}, {media_type}, {size} bytes, id {file_id}]"


class _Place(NamedTuple):
    """A message whose results refer to images: names and ids of their files."""

    at: int
    message: ref[LLMMessage]
    named: list[tuple[str, str]]


@dataclass(slots=True)
class _Known:
    """What was found in a list of messages up to one: the newest places, oldest first."""

    at: int
    message: ref[LLMMessage]
    places: list[_Place]


class ImageReferences:
    """Where the messages of agents refer to images, for all agents of a process: each call of a model asks it, of all
    messages of a thread, and what was looked at for the call before is not looked at again.

    Messages are never changed, and lists of them grow at their end. One in which the newest known message, or one that
    refers to an image, stands elsewhere or is another one is looked at from its beginning. So contexts may drop
    messages, and put others in their place, as long as these refer to no images.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        """By the id of the first message after the system's, which says which list it may be, and no more."""

    def of(self, messages: Sequence[LLMMessage]) -> list[_Place]:
        """Return the newest places, oldest first: those with the newest `MAX_IMAGES` images, and no older ones."""
        last = len(messages) - 1
        if last < 1:
            return _newest([*_places(messages, 0)])
        key = id(messages[1])
        known = self._known.get(key)
        if (
            known is None
            or known.at > last
            or known.message() is not messages[known.at]
            or (known.places and any(messages[each.at] is not each.message() for each in known.places))
        ):
            known = self._known[key] = _Known(-1, ref(messages[1]), [])
            if len(self._known) > _LISTS:
                del self._known[next(iter(self._known))]
        new = messages[known.at + 1 :]
        # In C: it may be all of a thread.
        if FunctionExecutionResultMessage in map(type, new):
            known.places = _newest([*known.places, *_places(new, known.at + 1)])
        known.at, known.message = last, ref(messages[last])
        return known.places


def _places(messages: Sequence[LLMMessage], start: int) -> Iterator[_Place]:
    for index, message in enumerate(messages, start):
        if type(message) is FunctionExecutionResultMessage:
            found = (
                (name, file_id)
                for result in message.content
                if "[image " in result.content
                for name, _, file_id in _REFERENCE.findall(result.content)
            )
            if named := [*dict.fromkeys(found)]:
                yield _Place(index, ref(message), named)


def _newest(places: Sequence[_Place]) -> list[_Place]:
    """Return the last places, as far as they have the newest images."""
    files: set[str] = set()
    for number in range(len(places) - 1, -1, -1):
        files.update(file_id for _, file_id in places[number].named)
        if len(files) >= MAX_IMAGES:
            return [*places[number:]]
    return [*places]


class SeenImages:
    """The images of one agent's tools, which are files of `owner`'s. `references` are those of the process."""

    def __init__(self, files: Files, owner: Owner, references: ImageReferences) -> None:
        self._files = files
        self._owner = owner
        self._references = references
        self._kept: dict[str, Image | None] = {}
        self._bytes = 0

    async def shown(self, messages: Sequence[LLMMessage]) -> Sequence[LLMMessage]:
        """The messages with the newest images after the results that refer to them; the same object where there are
        none."""
        found = self._references.of(messages)
        if not found:
            return messages
        chosen: set[str] = set()
        places: list[tuple[int, list[tuple[str, str]]]] = []
        for place in reversed(found):
            fresh = [each for each in place.named if each[1] not in chosen][: MAX_IMAGES - len(chosen)]
            chosen.update(file_id for _, file_id in fresh)
            if fresh:
                places.append((place.at, fresh))
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
