"""Files that a request names: put into its body in place of their ids, texts as text and images as images."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.openai.files.contents import IMAGES, text_of
from drsai_backend.errors import FileTooLarge, InvalidRequest
from drsai_backend.files import Files
from drsai_backend.json_types import JsonObject, as_list, as_object

MOST: Final = 8 * 1024 * 1024
"""Bytes that the files of one request may have together."""
MOST_NAMED: Final = 200
"""Files that one request may name. Each is read by itself."""
_FIELDS: Final = {"input_file": None, "input_image": None, "file": "file", "image": "source", "document": "source"}
"""By the kind of a part, in which of its fields it names a file; None: itself."""
_Named = tuple[list[object], int, str, str, str]


@asynccontextmanager
async def with_files(bodies: Bodies, files: Files, body: JsonObject, who: Principal) -> AsyncGenerator[None]:
    """The body, with what its `file_id`s name in it, of the files that are `who`'s. That counts as a body does.

    Raises:
        NotFound: whoever asks has no such file.
        InsufficientScope: they lack `files:read`.
        InvalidRequest: it is neither text nor an image, or no image where one is needed; `param` names the part.
        FileTooLarge: the files have more than `MOST` bytes.
        Overloaded: too much is under way.
    """
    named = [*_named(body)]
    if not named:
        yield
        return
    who.require(Scope.FILES_READ)
    wanted = list(dict.fromkeys(file_id for *_, file_id in named))
    if len(wanted) > MOST_NAMED:
        raise InvalidRequest(f"a request may name {MOST_NAMED} files; this one names {len(wanted)}", param="file_id")
    found = {file_id: await files.get(who.owner, file_id) for file_id in wanted}
    total = sum(found[file_id].bytes for *_, file_id in named)
    if total > MOST:
        raise FileTooLarge(
            f"the files of a request may have {MOST} bytes together; these have {total}", param="file_id"
        )
    with bodies.held(2 * total):
        contents = {file_id: await files.read(who.owner, file_id) for file_id in wanted}
        for parts, index, where, kind, file_id in named:
            parts[index] = _shown(contents[file_id], found[file_id].media_type, kind, where)
        yield


def _named(body: JsonObject) -> list[_Named]:
    """Each part that names a file: its list, its place there, its path, its kind, and the id."""
    found: list[_Named] = []
    for field in ("messages", "input"):
        for at, message in enumerate(as_list(body.get(field))):
            parts = as_list(as_object(message).get("content"))
            for index, part in enumerate(parts):
                where = f"{field}[{at}].content[{index}]"
                if (named := _id_of(as_object(part), where)) is not None:
                    found.append((parts, index, where, *named))
    return found


def _id_of(part: JsonObject, where: str) -> tuple[str, str] | None:
    """The kind of a part, and the file that it names; None: it names none. Raises InvalidRequest: it brings another."""
    kind = str(part.get("type"))
    if kind not in _FIELDS:
        return None
    field = _FIELDS[kind]
    inner = part if field is None else as_object(part.get(field))
    file_id = inner.get("file_id")
    if not isinstance(file_id, str) or (field == "source" and inner.get("type") != "file"):
        return None
    for name in ("file_data", "file_url", "image_url"):
        if part.get(name) or inner.get(name):
            text = f"`{where}.{name}`: the part names a file by `file_id`; send another part with this"
            raise InvalidRequest(text, param=f"{where}.{name}")
    return kind, file_id


def _shown(data: bytes, media_type: str, kind: str, where: str) -> JsonObject:
    if media_type in IMAGES:
        text = base64.b64encode(data).decode()
        if kind in ("image", "document"):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": text}}
        url = f"data:{media_type};base64,{text}"
        if kind == "file":
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "input_image", "image_url": url}
    if kind in ("image", "input_image"):
        raise InvalidRequest(f"`{where}`: the file is no PNG, JPEG, GIF or WebP image, but {media_type}", param=where)
    text = text_of(data, media_type, where)
    return {"type": "input_text" if kind == "input_file" else "text", "text": text}
