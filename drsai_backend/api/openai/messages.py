"""The `messages` of a request: roles, text parts, images."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias, cast

from autogen_core import Image
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.models.images import FORMATS, MAX_PIXELS, EncodedImage, check_image
from drsai_backend.runs.events import InputMessage

_ROLES: Final[dict[str, Literal["system", "user", "assistant"]]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_DATA_URL: Final = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)
_URL_SCHEMA: Final = {"type": "object", "properties": {"url": {"type": "string"}}}


class Wire(BaseModel):
    """A part of a request's body, taken as it is: a text that reads like a number is none."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class TextPart(Wire):
    type: Literal["text"]
    text: str


class RefusalPart(Wire):
    type: Literal["refusal"]
    refusal: str


class ImagePart(Wire):
    type: Literal["image_url"]
    image_url: Annotated[object, WithJsonSchema(_URL_SCHEMA)] = None


Part: TypeAlias = Annotated[TextPart | RefusalPart | ImagePart, Field(discriminator="type")]


class ChatMessage(Wire):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[Part], Field(fail_fast=True)] | None = None


class ToolMessage(Wire):
    """What a tool of the client's has said. It is not looked at."""

    role: Literal["tool", "function"]


Message: TypeAlias = Annotated[ChatMessage | ToolMessage, Field(discriminator="role")]


def read_messages(given: Sequence[Message], raw: Sequence[JsonObject]) -> tuple[list[InputMessage], list[JsonObject]]:
    """The conversation, and those messages as they came (`raw`), one for one.

    Tool results in the history are left out: the assistant's answer after them tells what came of them. Decodes images,
    which takes a while: call it in a thread when there are any.

    Raises:
        InvalidRequest: `param` names what cannot be used, as in `messages[0].content[1].image_url`.
    """
    answers = (index for index in reversed(range(len(given))) if given[index].role == "assistant")
    last_answer = next(answers, -1)
    images = _Images()
    messages: list[InputMessage] = []
    kept: list[JsonObject] = []
    for index, message in enumerate(given):
        if isinstance(message, ChatMessage):
            content = message.content
            if not isinstance(content, str):
                content = _read_parts(message, f"messages[{index}].content", images)
            messages.append(InputMessage(_ROLES[message.role], content))
            kept.append(raw[index])
        elif index > last_answer:
            path = f"messages[{index}].role"
            reason = "tools run on this server, so their results are not taken from a client"
            raise InvalidRequest(f"`{path}` is {message.role!r}: {reason}", param=path)
    last, path = messages[-1], f"messages[{len(given) - 1}]"
    if last.role != "user":
        raise InvalidRequest("the last of `messages` must be the user's", param=f"{path}.role")
    if isinstance(last.content, str) and not last.content.strip():
        raise InvalidRequest(f"`{path}.content` must not be empty", param=f"{path}.content")
    return messages, kept


def has_images(raw: Sequence[object]) -> bool:
    """Whether a message brings anything but text."""
    for item in raw:
        content = cast(JsonObject, item).get("content") if isinstance(item, dict) else None
        for part in cast(list[object], content) if isinstance(content, list) else ():
            if isinstance(part, dict) and "image_url" in part:
                return True
    return False


def _read_parts(message: ChatMessage, path: str, images: _Images) -> str | list[str | Image]:
    """The parts of a message; one string when they are text only."""
    parts: list[str | Image] = []
    if message.content is None and message.role != "assistant":  # else an answer that only called tools
        raise InvalidRequest(f"`{path}` is required", param=path)
    for index, part in enumerate(message.content or ()):
        where = f"{path}[{index}]"
        if isinstance(part, TextPart):
            parts.append(part.text)
        elif isinstance(part, RefusalPart) and message.role == "assistant":
            parts.append(part.refusal)
        elif isinstance(part, ImagePart) and message.role == "user":
            parts.append(images.read(part.image_url, f"{where}.image_url"))
        else:
            only = "user messages may hold images" if isinstance(part, ImagePart) else "assistants may refuse"
            raise InvalidRequest(f"`{where}`: only {only}", param=where)
    return parts if any(isinstance(part, Image) for part in parts) else "\n\n".join(cast(list[str], parts))


class _Images:
    """Checks the images of one request, of as many pixels as one may have."""

    def __init__(self) -> None:
        self._pixels = MAX_PIXELS

    def read(self, source: object, path: str) -> Image:
        text, data = _image_data(source, path)
        try:
            self._pixels -= check_image(data, self._pixels)
        except Exception:  # noqa: BLE001  # Pillow's decoders raise what they please on broken data
            complaint = f"`{path}` is not a readable image ({', '.join(FORMATS)})"
            raise InvalidRequest(complaint, param=path) from None
        if self._pixels < 0:
            raise InvalidRequest(f"the images up to `{path}` have more than {MAX_PIXELS} pixels", param=path)
        return EncodedImage(text)


def _image_data(source: object, path: str) -> tuple[str, bytes]:
    """An image's file as base64 and as bytes."""
    url = cast(JsonObject, source).get("url") if isinstance(source, dict) else source
    if not isinstance(url, str):
        raise InvalidRequest(f"`{path}.url` must be a string", param=path)
    if url[:6].lower().startswith(("http:", "https:")):
        reason = "this server fetches no addresses for its clients; send the image as a `data:` URL"
        raise InvalidRequest(f"`{path}`: {reason}", param=path)
    head = _DATA_URL.match(url)
    if head is None:
        raise InvalidRequest(f"`{path}` must be a URL of the form data:image/…;base64,…", param=path)
    try:
        text = url[head.end() :]
        return text, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"`{path}` is not valid base64", param=path) from None
