"""Images in results of tools: kept as files, and referred to by a line of text.

AutoGen gives a model the text of a result, which of an image is its bytes in base64. What is stored, and recorded, is
small instead; `models.calls.seen_images` shows the image to models that see.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Final

from autogen_core import Image
from autogen_core.tools import ImageResultContent, TextResultContent, ToolResult

from drsai_backend.errors import DrSaiError
from drsai_backend.models.calls.seen_images import reference
from drsai_backend.tools.running import FileSaver

_NOT_SHOWN: Final = "[an image, which is not shown here]"
_TYPES: Final = {"/": "jpeg", "i": "png", "R": "gif", "U": "webp"}
"""By the first character of the base64 of a file, the format of an image."""


async def keep_images(result: ToolResult, files: FileSaver | None) -> ToolResult:
    """The result with its images kept in `files`; with None, or where that fails, a text says that they are not."""
    if not any(isinstance(part, ImageResultContent) for part in result.result):
        return result
    content: list[TextResultContent] = []
    for number, part in enumerate(result.result, 1):
        if isinstance(part, TextResultContent):
            content.append(part)
        else:
            content.append(TextResultContent(content=await _kept(part.content, number, files)))
    return result.model_copy(update={"result": content})


async def _kept(image: Image, number: int, files: FileSaver | None) -> str:
    if files is None:
        return _NOT_SHOWN
    text = await asyncio.to_thread(image.to_base64)  # AutoGen's own encode their pixels.
    kind = _TYPES.get(text[:1], "png")
    try:
        kept = await files.save(f"image-{number}.{kind}", base64.b64decode(text), f"image/{kind}")
    except DrSaiError as error:
        return f"[an image, which could not be kept: {error.message}]"
    return reference(kept.name, kept.media_type, kept.bytes, kept.id)
