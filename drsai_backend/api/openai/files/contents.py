"""The content of a file is read here as text for a model, as far as it is text. What nobody reads is refused by its
kind."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from drsai_backend.errors import InvalidRequest

IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The media types of files that are shown to models as images."""
DATA_URL: Final = re.compile(r"data:([^;,]*+)[^,]*+(?<=;base64),", re.IGNORECASE)
"""The beginning of a `data:` URL, with the media type that it says. Nothing is given back, as a file without a comma
would otherwise be looked through once for each of its characters."""
Noted: TypeAlias = Mapping[str, Mapping[str, str]]
"""By the path of a message of a request, the files that came with it, as metadata (`datamodel.file.to_note`)."""
_NO_TEXT: Final = re.compile(r"audio/(?!.*mpegurl)|application/(pdf|rtf)\b|text/rtf\b")
"""Media types of what is no text, though its bytes may be some. Not of Office: browsers give those to CSV, too."""
_PDF: Final = re.compile(rb"(\xef\xbb\xbf)?\s*%PDF-")
_PACKED: Final = re.compile(rb"PK\x03\x04|\xd0\xcf\x11\xe0")
_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
"""What text in UTF-16 begins with."""
_LOOKED_AT: Final = 8192
_HEADS: Final = (
    (_PDF, "a PDF"),
    (re.compile(rb"(\xef\xbb\xbf)?\s*\{\\rtf"), "a document of an office program (RTF)"),
    (_PACKED, "a document of an office program, or an archive"),
    (re.compile(rb"RIFF.{4}(WAVE|AVI )", re.DOTALL), "a recording"),
)


def decoded(text: str, where: str) -> bytes:
    """The bytes of a file in base64. Raises InvalidRequest; `where` is its `param`."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidRequest(f"`{where}` is not valid base64", param=where) from None


def is_document(data: bytes, media_type: str) -> bool:
    """Whether a file is for the reader of documents: no text in UTF-8, no image, and nothing that nobody reads."""
    if _PDF.match(data) or _PACKED.match(data):
        return True
    if media_type in IMAGES or any(head.match(data) for head, _ in _HEADS):
        return False
    if media_type.startswith("application/pdf"):
        return True
    if _NO_TEXT.match(media_type) or (b"\0" in data[:_LOOKED_AT] and not data.startswith(_BOMS)):
        return False
    return plain(data) is None


def plain(data: bytes) -> str | None:
    """The text of a file in UTF-8, with or without a byte order mark; None: it is none."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def text_of(data: bytes, media_type: str, where: str, read: str = "text (UTF-8)") -> str:
    """Decode a file that is text in UTF-8, with or without a byte order mark. `read`: what is read there besides
    images.

    Raises:
        InvalidRequest: it is something else; `where` is its `param`.
    """
    kind = next((name for head, name in _HEADS if head.match(data)), None)
    if kind is None and _NO_TEXT.match(media_type):
        kind = media_type
    if kind is None and (text := plain(data)) is not None:
        return text
    reason = f"only {read} and images can be read here; the file is {kind or media_type or 'neither'}"
    raise InvalidRequest(f"`{where}`: {reason}. Send what it says as text", param=where)
