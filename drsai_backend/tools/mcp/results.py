"""What a server answers, as AutoGen's results: texts and images. What is neither is told of in a text."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
from collections.abc import Sequence
from typing import Final, TypeAlias

from autogen_core import Image
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
from PIL import Image as Pictures

ResultContent: TypeAlias = TextResultContent | ImageResultContent
MOST_PIXELS: Final = 40_000_000
"""Pixels of an image that is unpacked."""


async def of_call(result: CallToolResult) -> list[ResultContent]:
    """The parts of a call's result; its structured content, as JSON, where it has no others."""
    if not result.content and result.structured_content is not None:
        return [_text(json.dumps(result.structured_content, ensure_ascii=False))]
    return await _parts(result.content)


async def of_resource(result: ReadResourceResult) -> list[ResultContent]:
    """The contents of a resource."""
    return [await _resource(each) for each in result.contents]


async def of_prompt(result: GetPromptResult) -> list[ResultContent]:
    """The messages of a prompt, each after the role it is said in."""
    found: list[ResultContent] = [_text(result.description)] if result.description else []
    for message in result.messages:
        found.append(_text(f"{message.role}:"))
        found += await _parts([message.content])
    return found


async def _parts(content: Sequence[ContentBlock]) -> list[ResultContent]:
    return [await _part(block) for block in content]


async def _part(block: ContentBlock) -> ResultContent:
    match block:
        case TextContent():
            return _text(block.text)
        case ImageContent():
            return await _image(block.data, block.mime_type)
        case AudioContent():
            return _text(f"[audio, {block.mime_type}, {_length(block.data)} bytes: it cannot be shown]")
        case ResourceLink():
            said = " ".join(filter(None, (block.name, block.description)))
            return _text(f"[resource {block.uri}: {said}]")
        case EmbeddedResource():
            return await _resource(block.resource)


async def _resource(contents: TextResourceContents | BlobResourceContents) -> ResultContent:
    if isinstance(contents, TextResourceContents):
        return _text(contents.text)
    kind = contents.mime_type or "application/octet-stream"
    if kind.startswith("image/"):
        return await _image(contents.blob, kind)
    return _text(f"[resource {contents.uri}, {kind}, {_length(contents.blob)} bytes: it cannot be shown]")


async def _image(data: str, kind: str) -> ResultContent:
    try:
        return ImageResultContent(content=await asyncio.to_thread(_unpacked, data))
    except (ValueError, OSError, Pictures.DecompressionBombError, SyntaxError) as error:
        return _text(f"[image, {kind}: it cannot be shown: {str(error)[:200]}]")


def _unpacked(data: str) -> Image:
    picture = Pictures.open(io.BytesIO(base64.b64decode(data, validate=True)))
    if picture.width * picture.height > MOST_PIXELS:
        raise ValueError(f"it has more than {MOST_PIXELS} pixels")
    return Image(picture)


def _text(text: str) -> TextResultContent:
    return TextResultContent(content=text.replace("\0", "�"))  # PostgreSQL takes no NUL characters.


def _length(data: str) -> int:
    try:
        return len(base64.b64decode(data))
    except binascii.Error:
        return 0
