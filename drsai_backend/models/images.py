"""Images stay as they came: they are AutoGen's `Image` without its decoding and encoding.

AutoGen's own decodes an image when it is made, keeps its pixels, and encodes them as PNG whenever the image is stored
or sent to a model: 147 MB and seconds for a picture of 49 million pixels, at every turn. Here the bytes are passed on.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from autogen_core import Image
from PIL import Image as PILImage

from drsai_backend.tools.apart import ApartError, wait_apart

FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
MAX_PIXELS: Final = 50_000_000
"""Of all images of a request: a small file can hold a picture that fills the memory."""
_INSIDE: Final = Path(__file__).with_name("inside_images.py")
_SECONDS: Final = 30.0
_MEMORY: Final = 1 << 30
_turn: Final = threading.BoundedSemaphore(2)  # Two requests' images are decoded at once: each may take that memory.
_SIGNATURES: Final = ((b"\xff\xd8\xff", "jpeg"), (b"\x89PNG", "png"), (b"GIF8", "gif"), (b"RIFF", "webp"))
DUMPED: Final = ("MultiModalMessage", "UserMessage")
"""The types of dumps that may hold images."""


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


def check_images(texts: Sequence[str]) -> list[int | None]:
    """Decode images, given as base64, once and in a process of their own, to see that they can be. Takes up to seconds.

    Returns:
        The pixels of each image up to the first that cannot be used: None, where it cannot be decoded; else all of them
        together are more than `MAX_PIXELS`.
    """
    return [pixels for pixels, _ in _decoded(texts, converts=False)]


def read_image(text: str) -> EncodedImage:
    """An image of any format, given as base64; one that clients and endpoints may not know becomes PNG. As
    `check_images`.

    Raises:
        ValueError: it cannot be decoded, or has more than `MAX_PIXELS`.
    """
    [(pixels, png)] = _decoded([text], converts=True)
    if pixels is None or pixels > MAX_PIXELS:
        raise ValueError("it cannot be decoded" if pixels is None else f"it has more than {MAX_PIXELS} pixels")
    return EncodedImage(png or text)


def _decoded(texts: Sequence[str], *, converts: bool) -> list[tuple[int | None, str | None]]:
    asked = {"images": texts, "allowed": MAX_PIXELS, "formats": FORMATS, "converts": converts}
    try:
        with _turn:
            return json.loads(wait_apart(_INSIDE, json.dumps(asked).encode(), seconds=_SECONDS, memory=_MEMORY))
    except ApartError:
        if len(texts) == 1:
            return [(None, None)]
        return [found for text in texts for found in _decoded([text], converts=converts)]  # One of them did it.


def with_images(config: Mapping[str, object]) -> Mapping[str, object]:
    """A message's dump, with its images as `EncodedImage`, so that AutoGen does not decode them."""
    content = config.get("content")
    if config.get("type") not in DUMPED or not isinstance(content, list):
        return config
    return {**config, "content": [_revived(part) for part in cast("list[object]", content)]}


def _revived(part: object) -> object:
    match part:
        case {"data": str(text)}:
            return EncodedImage(text)
        case _:
            return part
