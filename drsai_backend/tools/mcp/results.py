"""Results of a server become parts of a tool's result: texts, images, and files of what is neither."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import mimetypes
from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from autogen_core.tools import ImageResultContent, TextResultContent
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from drsai_backend.models.images import read_image
from drsai_backend.tools.results import FileOutput

Part: TypeAlias = TextResultContent | ImageResultContent | FileOutput
_MOST: Final = 100
"""Parts of an answer that are read: an image takes a process, one after the other."""


async def of_call(result: CallToolResult) -> list[Part]:
    """The parts of a call's result; its structured content, as JSON, where it has no others."""
    if not result.content and result.structured_content is not None:
        return [_text(json.dumps(result.structured_content, ensure_ascii=False))]
    return await _parts(result.content)


async def of_resource(result: ReadResourceResult) -> list[Part]:
    """The contents of a resource."""
    parts = [await _resource(each) for each in result.contents[:_MOST]]
    return [*parts, *_left_out(len(result.contents))]


async def of_prompt(result: GetPromptResult) -> list[Part]:
    """The messages of a prompt, each after the role it is said in."""
    found: list[Part] = [_text(result.description)] if result.description else []
    for message in result.messages:
        found.append(_text(f"{message.role}:"))
        found += await _parts([message.content])
    return found


async def _parts(content: Sequence[ContentBlock]) -> list[Part]:
    return [*[await _part(block) for block in content[:_MOST]], *_left_out(len(content))]


def _left_out(count: int) -> list[Part]:
    return [_text(f"[{count - _MOST} more parts are left out, of {count}]")] if count > _MOST else []


async def _part(block: ContentBlock) -> Part:
    match block:
        case TextContent():
            return _text(block.text)
        case ImageContent():
            return await _image(block.data, block.mime_type)
        case AudioContent():
            return await _file("audio", block.data, block.mime_type)
        case ResourceLink():
            said = " ".join(filter(None, (block.name, block.description)))
            return _text(f"[resource {block.uri}: {said}]")
        case EmbeddedResource():
            return await _resource(block.resource)


async def _resource(contents: TextResourceContents | BlobResourceContents) -> Part:
    if isinstance(contents, TextResourceContents):
        return _text(contents.text)
    kind = contents.mime_type or "application/octet-stream"
    if kind.startswith("image/"):
        return await _image(contents.blob, kind)
    return await _file(unquote(urlsplit(str(contents.uri)).path), contents.blob, kind)


async def _file(path: str, data: str, kind: str) -> Part:
    """A file, named as the end of a path."""
    try:
        content = await asyncio.to_thread(base64.b64decode, data, validate=True)
    except binascii.Error:
        return _text(f"[{path}, {kind}: it cannot be read]")
    last = "".join(char for char in path.rstrip("/").rpartition("/")[2] if char.isprintable())[-100:] or "resource"
    return FileOutput(last if "." in last else last + (mimetypes.guess_extension(kind) or ""), content, kind)


async def _image(data: str, kind: str) -> Part:
    try:
        return ImageResultContent(content=await asyncio.to_thread(read_image, data))
    except ValueError as error:
        return _text(f"[image, {kind}: it cannot be shown: {error}]")


def _text(text: str) -> TextResultContent:
    return TextResultContent(content=text.replace("\0", "�"))  # PostgreSQL takes no NUL characters.
