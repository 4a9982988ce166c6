"""Request files, named by id, or images by their URL, are put into the request's body in their place: texts as text and
images as images."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.openai.files import fetched
from drsai_backend.api.openai.files.contents import IMAGES, Noted, text_of
from drsai_backend.database.files import FileInfo
from drsai_backend.datamodel.file import MessageFile, to_note
from drsai_backend.errors import FileTooLarge, InvalidRequest
from drsai_backend.files import Files
from drsai_backend.files.store import noted
from drsai_backend.json_types import JsonObject, as_object, with_parts

MOST: Final = 8 * 1024 * 1024
"""Bytes that the files of one request may have together."""
MOST_NAMED: Final = 200
"""Files that one request may name. Each is read by itself."""
_FIELDS: Final = {
    "input_file": None,
    "input_image": None,
    "file": "file",
    "image": "source",
    "document": "source",
    "image_url": "",
}
"""By the kind of a part, in which of its fields it names a file; None: itself, "": in none."""
_URLS: Final = {"image_url": "image_url", "input_image": "image_url", "image": "source"}
"""By the kind of a part, in which of its fields a user's image may have a URL."""


_Named = tuple[list[object], int, str, str, str, bool]


@asynccontextmanager
async def with_files(bodies: Bodies, files: Files, body: JsonObject, who: Principal) -> AsyncGenerator[Noted]:
    """The body, with what its `file_id`s name in it, of the files that are `who`'s, and the images of its URLs, which
    are kept as such. That counts as a body does. Given are the files of its messages.

    Raises:
        NotFound: whoever asks has no such file.
        InsufficientScope: they lack `files:read`.
        InvalidRequest: it is neither text nor an image, or no image where one is needed, or cannot be fetched; `param`
            names the part.
        FileTooLarge: the files have more than `MOST` bytes.
        Overloaded: too much is under way.
    """
    named = [*_named(body, fetches=files.reachable is not None)]
    if not named:
        yield {}
        return
    if not all(is_url for *_, is_url in named):
        who.require(Scope.FILES_READ)
    wanted = list(dict.fromkeys(name for *_, name, _ in named))
    if len(wanted) > MOST_NAMED:
        raise InvalidRequest(f"a request may name {MOST_NAMED} files; this one names {len(wanted)}", param="file_id")
    found, end, total = dict[str, FileInfo](), asyncio.get_running_loop().time() + fetched.SECONDS, 0
    for _, index, message, kind, name, is_url in named:
        if is_url and name not in found and files.reachable is not None:
            _check_size(total)  # Before more is fetched, and kept.
            where = f"{message}.content[{index}].{_URLS[kind]}"
            async with bodies.fetching(who.owner):
                found[name] = await fetched.image_at(files, files.reachable, who.owner, name, where, end)
        elif name not in found:
            found[name] = await files.get(who.owner, name)
        total += found[name].bytes
    _check_size(total)
    with bodies.held(2 * total):
        contents = {name: await files.read(who.owner, found[name].file_id) for name in wanted}
        sent: dict[str, list[MessageFile]] = {}
        for parts, index, message, kind, name, _ in named:
            parts[index] = _shown(contents[name], found[name].media_type, kind, f"{message}.content[{index}]")
            sent.setdefault(message, []).append(noted(found[name]))
        yield {message: to_note(given) for message, given in sent.items()}


def _check_size(total: int) -> None:
    if total > MOST:
        raise FileTooLarge(
            f"the files of a request may have {MOST} bytes together; these have {total}", param="file_id"
        )


def _named(body: Mapping[str, object], *, fetches: bool) -> Iterator[_Named]:
    """Yield each part that names a file, or, where images are fetched, the URL of a user's: its list, its place there,
    the path of its message, its kind, the id or the URL, and whether it is that."""
    for field in ("messages", "input"):
        for at, message, parts in with_parts(body.get(field)):
            for index, part in enumerate(parts):
                given, path = as_object(part), f"{field}[{at}]"
                if (kind := str(given.get("type"))) not in _FIELDS:
                    continue
                if fetches and message.get("role") == "user" and (url := _url_of(given, kind)) is not None:
                    yield parts, index, path, kind, url, True
                elif (name := _id_of(given, kind, f"{path}.content[{index}]")) is not None:
                    yield parts, index, path, kind, name, False


def _url_of(part: Mapping[str, object], kind: str) -> str | None:
    """The URL of the image that a part is; None: it has none."""
    given = part.get(_URLS.get(kind, ""))
    url = as_object(given).get("url", given)
    return url if isinstance(url, str) and url[:6].lower().startswith(("http:", "https:")) else None


def _id_of(part: Mapping[str, object], kind: str, where: str) -> str | None:
    """The file that a part names; None: it names none. Raises InvalidRequest: it brings another."""
    field = _FIELDS[kind]
    inner = part if field is None else as_object(part.get(field))
    file_id = inner.get("file_id")
    if not isinstance(file_id, str) or (field == "source" and inner.get("type") != "file"):
        return None
    for name in ("file_data", "file_url", "image_url"):
        if part.get(name) or inner.get(name):
            text = f"`{where}.{name}`: the part names a file by `file_id`; send another part with this"
            raise InvalidRequest(text, param=f"{where}.{name}")
    return file_id


def _shown(data: bytes, media_type: str, kind: str, where: str) -> JsonObject:
    if media_type in IMAGES:
        text = base64.b64encode(data).decode()
        if kind in ("image", "document"):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": text}}
        url = f"data:{media_type};base64,{text}"
        if kind in ("file", "image_url"):
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "input_image", "image_url": url}
    if kind in ("image", "input_image"):
        raise InvalidRequest(f"`{where}`: the file is no PNG, JPEG, GIF or WebP image, but {media_type}", param=where)
    text = text_of(data, media_type, where)
    return {"type": "input_text" if kind == "input_file" else "text", "text": text}
