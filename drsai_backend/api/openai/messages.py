"""The `messages` of a request: roles, text parts, images."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from autogen_core import Image

from drsai_backend.errors import InvalidRequest
from drsai_backend.models.images import FORMATS, MAX_PIXELS, EncodedImage, check_image
from drsai_backend.runs.events import InputMessage

_ROLES: Final[dict[str, Literal["system", "user", "assistant"]]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_TOOL_ROLES: Final = frozenset({"tool", "function"})
_DATA_URL: Final = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)


def parse_messages(raw: Sequence[Any]) -> tuple[list[InputMessage], list[dict[str, Any]]]:
    """The conversation, and the same messages as they came, one for one.

    Tool results in the history are left out: the assistant's answer after them tells what came of them. Decodes images,
    which takes a while: call it in a thread when there are any.

    Raises:
        InvalidRequest: `param` names what cannot be used, as in `messages[0].content[1].image_url`.
    """
    if not raw:
        raise InvalidRequest("`messages` must hold at least one message", param="messages")
    last_answer = -1
    for index, item in enumerate(raw):
        if not isinstance(item, dict):
            raise InvalidRequest(f"`messages[{index}]` must be an object", param=f"messages[{index}]")
        if cast(dict[str, Any], item).get("role") == "assistant":
            last_answer = index
    images = _Images()
    messages: list[InputMessage] = []
    kept: list[dict[str, Any]] = []
    for index, item in enumerate(cast(Sequence[dict[str, Any]], raw)):
        message = _parse_message(item, f"messages[{index}]", images, answered=index < last_answer)
        if message is not None:
            messages.append(message)
            kept.append(item)
    last, path = messages[-1], f"messages[{len(raw) - 1}]"
    if last.role != "user":
        raise InvalidRequest("the last of `messages` must be the user's", param=f"{path}.role")
    if isinstance(last.content, str) and not last.content.strip():
        raise InvalidRequest(f"`{path}.content` must not be empty", param=f"{path}.content")
    return messages, kept


def has_images(raw: Sequence[Any]) -> bool:
    """Whether a message brings anything but text."""
    for item in raw:
        content = cast(dict[str, Any], item).get("content") if isinstance(item, dict) else None
        if isinstance(content, list) and any(
            isinstance(part, dict) and "image_url" in part for part in cast(list[Any], content)
        ):
            return True
    return False


def _parse_message(item: dict[str, Any], path: str, images: _Images, *, answered: bool) -> InputMessage | None:
    role = item.get("role")
    if role is None:
        raise InvalidRequest(f"`{path}.role` is required", param=f"{path}.role")
    if isinstance(role, str) and role in _TOOL_ROLES:
        if answered:
            return None
        raise InvalidRequest(
            f"`{path}.role` is {role!r}: tools run on this server, so their results are not taken from a client",
            param=f"{path}.role",
        )
    known = _ROLES.get(role) if isinstance(role, str) else None
    if known is None:
        raise InvalidRequest(
            f"`{path}.role` must be one of system, developer, user, assistant, tool", param=f"{path}.role"
        )
    content = item.get("content")
    if isinstance(content, str):
        return InputMessage(known, content)
    if content is None and known == "assistant":
        return InputMessage(known, "")  # an answer that only called tools
    if isinstance(content, list):
        return InputMessage(known, _parse_parts(cast(list[Any], content), known, f"{path}.content", images))
    if content is None:
        raise InvalidRequest(f"`{path}.content` is required", param=f"{path}.content")
    raise InvalidRequest(f"`{path}.content` must be a string or a list of parts", param=f"{path}.content")


def _parse_parts(parts: list[Any], role: str, path: str, images: _Images) -> str | list[str | Image]:
    """The parts of a message; one string when they are text only."""
    content: list[str | Image] = []
    for index, part in enumerate(parts):
        where = f"{path}[{index}]"
        if not isinstance(part, dict):
            raise InvalidRequest(f"`{where}` must be an object", param=where)
        fields = cast(dict[str, Any], part)
        match fields.get("type"):
            case "text":
                content.append(_text(fields, "text", where))
            case "refusal" if role == "assistant":
                content.append(_text(fields, "refusal", where))
            case "image_url" if role == "user":
                content.append(images.parse(fields, f"{where}.image_url"))
            case "image_url":
                raise InvalidRequest(f"`{where}`: only user messages may hold images", param=where)
            case "input_audio" | "file" as kind:
                raise InvalidRequest(
                    f"`{where}.type` {kind!r} is not supported; send text or images", param=f"{where}.type"
                )
            case _:
                raise InvalidRequest(f"`{where}.type` must be 'text' or 'image_url'", param=f"{where}.type")
    if any(isinstance(part, Image) for part in content):
        return content
    return "\n\n".join(cast(list[str], content))


def _text(part: dict[str, Any], key: str, path: str) -> str:
    text = part.get(key)
    if not isinstance(text, str):
        raise InvalidRequest(f"`{path}.{key}` must be a string", param=f"{path}.{key}")
    return text


class _Images:
    """Checks the images of one request, of as many pixels as one may have."""

    def __init__(self) -> None:
        self._pixels = MAX_PIXELS

    def parse(self, part: dict[str, Any], path: str) -> Image:
        text, data = _image_data(part, path)
        try:
            self._pixels -= check_image(data, self._pixels)
        except Exception:  # noqa: BLE001  # Pillow's decoders raise what they please on broken data
            complaint = f"`{path}` is not a readable image ({', '.join(FORMATS)})"
            raise InvalidRequest(complaint, param=path) from None
        if self._pixels < 0:
            raise InvalidRequest(f"the images up to `{path}` have more than {MAX_PIXELS} pixels", param=path)
        return EncodedImage(text)


def _image_data(part: dict[str, Any], path: str) -> tuple[str, bytes]:
    """An image's file as base64 and as bytes."""
    source = part.get("image_url")
    url = cast(dict[str, Any], source).get("url") if isinstance(source, dict) else source
    if not isinstance(url, str):
        raise InvalidRequest(f"`{path}.url` must be a string", param=path)
    if url[:5].lower() == "http:" or url[:6].lower() == "https:":
        raise InvalidRequest(
            f"`{path}`: this server fetches no addresses for its clients; send the image as a `data:` URL", param=path
        )
    head = _DATA_URL.match(url)
    if head is None:
        raise InvalidRequest(f"`{path}` must be a URL of the form data:image/…;base64,…", param=path)
    try:
        text = url[head.end() :]
        return text, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"`{path}` is not valid base64", param=path) from None
