"""Images as they came: AutoGen's `Image` without its decoding and encoding.

AutoGen's own decodes an image when it is made, keeps its pixels, and encodes them as PNG whenever the image is stored
or sent to a model: 147 MB and seconds for a picture of 49 million pixels, at every turn. Here the bytes are passed on.
"""

from __future__ import annotations

import base64
import io
import math
import threading
from collections.abc import Mapping
from typing import Any, Final, cast

from autogen_core import Image
from PIL import Image as PILImage

FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
MAX_PIXELS: Final = 50_000_000
"""Of all images of a request, and of all that the process decodes at a time: a small file can hold a picture that fills
the memory."""
_SHARE: Final = 1_000_000
_free: Final = threading.BoundedSemaphore(MAX_PIXELS // _SHARE)  # of the process, as its memory is
_queue: Final = threading.Lock()
_SIGNATURES: Final = ((b"\xff\xd8\xff", "jpeg"), (b"\x89PNG", "png"), (b"GIF8", "gif"), (b"RIFF", "webp"))
_DUMPED: Final = ("MultiModalMessage", "UserMessage")


class EncodedImage(Image):
    """An image, kept as the base64 text of its file. `image` opens it, anew at each look: its size is read at once, its
    pixels, in the file's own mode, are decoded when they are asked for."""

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def image(self) -> PILImage.Image:  # pyright: ignore[reportIncompatibleVariableOverride]
        return PILImage.open(io.BytesIO(base64.b64decode(self._text)))

    def __repr__(self) -> str:
        # AutoGen's selector shows this to its model: the same text as for an image of AutoGen's own.
        return f"<{Image.__module__}.{Image.__qualname__} object at {id(self):#x}>"

    @classmethod
    def from_base64(cls, base64_str: str) -> EncodedImage:
        return cls(base64_str)

    @classmethod
    def from_pil(cls, pil_image: PILImage.Image) -> Image:
        return Image(pil_image)

    def to_base64(self) -> str:
        return self._text

    @property
    def data_uri(self) -> str:
        head = base64.b64decode(self._text[:16])
        kind = next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), "jpeg")
        return f"data:image/{kind};base64,{self._text}"


def check_image(data: bytes, allowed: int) -> int:
    """The number of an image's pixels, after it was decoded once to see that it can be; above `allowed` it is not
    decoded. Takes up to seconds, and waits where other threads decode `MAX_PIXELS` together.

    Raises:
        Exception: it cannot be decoded. Pillow's decoders raise what they please.
    """
    opened = PILImage.open(io.BytesIO(data), formats=FORMATS)
    pixels = opened.width * opened.height
    if pixels <= allowed:
        share = math.ceil(pixels / _SHARE)
        with _queue:  # one by one, or two that wait for each other's share would wait for ever
            for _ in range(share):
                _free.acquire()
        try:
            opened.load()
            opened.close()
        finally:
            _free.release(share)
    return pixels


def with_images(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message's dump, with its images as `EncodedImage`, so that AutoGen does not decode them."""
    content = config.get("content")
    if config.get("type") not in _DUMPED or not isinstance(content, list):
        return config
    return {**config, "content": [_revived(part) for part in cast("list[object]", content)]}


def _revived(part: object) -> object:
    match part:
        case {"data": str(text)}:
            return EncodedImage(text)
        case _:
            return part
