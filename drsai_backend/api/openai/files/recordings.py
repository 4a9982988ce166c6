"""Recordings are the audio and video parts of a request: each is kept as a file, and a line of text stands in its
place."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from typing import Final

from drsai_backend.api.openai.files.contents import DATA_URL
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject, as_object

KINDS: Final = ("input_audio", "audio_url", "video_url")
"""The types of parts that are recordings; each has a field of its name."""
_FORMAT: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,19}")
_TYPES: Final = {"mp3": "audio/mpeg", "m4a": "audio/mp4"}
_ENDINGS: Final = {"mpeg": "mp3", "x-wav": "wav", "quicktime": "mov"}
_DATA: Final = "needs `data` in base64 and a `format`, such as wav or mp3"


def brought(part: JsonObject, kind: str, where: str) -> tuple[str, bytes, str]:
    """The name, content and media type of a recording that comes with its request.

    Raises:
        InvalidRequest: it does not; `where` is its `param`.
    """
    given = part.get(kind)
    if kind == "input_audio":
        fields = as_object(given)
        text, form = fields.get("data"), str(fields.get("format") or "").lower()
        if not isinstance(text, str) or not text or _FORMAT.fullmatch(form) is None:
            raise InvalidRequest(f"`{where}` {_DATA}", param=where)
        media_type = _TYPES.get(form, f"audio/{form}")
    else:
        url = as_object(given).get("url", given)
        head = DATA_URL.match(url) if isinstance(url, str) else None
        if not isinstance(url, str) or head is None:
            reason = "this server fetches no addresses for its clients; send the recording as a `data:` URL"
            raise InvalidRequest(f"`{where}`: {reason}", param=where)
        text, media_type = url[head.end() :], head[1].lower()
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidRequest(f"`{where}` is not valid base64", param=where) from None
    first, _, last = media_type.partition("/")
    ending = _ENDINGS.get(last, last)
    # The work folder of code has the newest of a name.
    return f"{first}-{hashlib.sha256(data).hexdigest()[:12]}.{ending}", data, media_type


def check(name: str, media_type: str, where: str) -> str:
    """The media type of a recording, by its name where nobody says it. Raises InvalidRequest: it is none."""
    found = media_type if media_type.startswith(("audio/", "video/")) else mimetypes.guess_type(name)[0] or ""
    if not found.startswith(("audio/", "video/")):
        what = media_type or "something else"
        raise InvalidRequest(f"`{where}`: a recording is audio or video; this is {what}", param=where)
    return found
