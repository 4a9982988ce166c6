"""Request files, named by id or URL or brought along, are put into the request's body in their place: texts as text,
images as images, of documents what fits, as text that is marked as data, and a line for a recording."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import mimetypes
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeAlias

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.openai.files import fetched, recordings
from drsai_backend.api.openai.files.contents import DATA_URL, IMAGES, Noted, is_document, text_of
from drsai_backend.database.files import FileInfo
from drsai_backend.datamodel.file import MessageFile, to_note
from drsai_backend.documents.excerpts import Excerpt, Excerpts, shares
from drsai_backend.errors import DocumentTooLarge, DocumentUnreadable, FilesFull, FileTooLarge, InvalidRequest
from drsai_backend.estimates import estimate_text
from drsai_backend.files.store import noted
from drsai_backend.json_types import JsonObject, as_list, as_object, with_parts
from drsai_backend.models.calls.heard import reference
from drsai_backend.runs import Engine

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
    **{kind: kind for kind in recordings.KINDS},
}
"""By the kind of a part, in which of its fields it names a file; None: itself, "": in none."""
_URLS: Final = {
    "image_url": "image_url",
    "input_image": "image_url",
    "image": "source",
    "document": "source",
    "file": "file.file_url",
    "input_file": "file_url",
    "audio_url": "audio_url",
    "video_url": "video_url",
}
"""By the kind of a part, in which of its fields that of a user's may have a URL."""
_IMAGES: Final = ("image_url", "input_image", "image")
"""The kinds of parts whose file must be an image."""
_DOCUMENTS: Final = ("input_file", "file", "document")
"""The kinds of parts whose file may be a document."""
READ: Final = "text, PDF, DOCX, PPTX, XLSX"
"""What is read of files, besides images."""
_UNNAMED: Final = "document"
"""The name of a file that is kept and has none."""
_OWN: Final = frozenset(
    ("type", "file", "source", "title", "context", "file_data", "filename", "file_id", "file_url", *recordings.KINDS)
)
"""The fields of a part of which its text is made."""


@dataclass
class _Source:
    """A file that parts bring. `info`: where it is kept; None: it is not, or not yet."""

    name: str
    data: bytes
    media_type: str
    info: FileInfo | None = None


_Way: TypeAlias = Literal["id", "url", "inline"]


@dataclass
class _Part:
    """A part that brings a file.

    Attributes:
        holder, index: the list that it is in, and its place there.
        kind: its type.
        message, where: the paths of its message and of itself.
        way: it names a file by its id, by a URL, or brings it along.
        name: the id, the URL, or the name of the file that it brings.
        source: the file, once it is there.
        is_told: a text is in its place.
        is_cut: the text is only the beginning of the file, which is kept for whoever reads on.
    """

    holder: list[object]
    index: int
    kind: str
    message: str
    where: str
    way: _Way = "id"
    name: str = ""
    source: _Source | None = None
    is_told: bool = False
    is_cut: bool = False

    @property
    def given(self) -> JsonObject:
        return as_object(self.holder[self.index])

    @property
    def may_be_document(self) -> bool:
        return self.kind in _DOCUMENTS

    @property
    def is_kept(self) -> bool:
        """Whether its file becomes one of the user's, if it is none."""
        return self.way != "inline" or self.kind in recordings.KINDS or self.is_cut

    @property
    def field(self) -> str:
        """The field that an error names."""
        if self.way == "id":
            return self.where
        inner = (_URLS if self.way == "url" else _FIELDS)[self.kind]
        return f"{self.where}.{inner}" if inner else self.where

    def say(self, text: str) -> None:
        """Put a text in place of the file; what else the part says stays beside it."""
        given = self.given
        context = given.get("context") if self.kind == "document" else None
        rest = {name: value for name, value in given.items() if name not in _OWN}
        kind = "input_text" if self.kind == "input_file" else "text"
        said = "\n\n".join([context, text] if isinstance(context, str) and context else [text])
        self.holder[self.index] = {**rest, "type": kind, "text": said}
        self.is_told = True


@asynccontextmanager
async def with_documents(
    bodies: Bodies, engine: Engine, body: JsonObject, who: Principal, field: str
) -> AsyncGenerator[Noted]:
    """`with_files` of messages that ask nothing: what their documents say is put in their place; other files, and what
    URLs name, stay as they are. `field`: the messages. Raises as `with_files`."""
    parts = [each for each in _parts_of(body, fetches=False, fields=(field,)) if each.kind in _DOCUMENTS]
    with ExitStack() as held:
        yield await _Taking(bodies, engine, who, held).take(parts)


@asynccontextmanager
async def with_files(bodies: Bodies, engine: Engine, body: JsonObject, who: Principal) -> AsyncGenerator[Noted]:
    """The body, with what its `file_id`s name in it, of the files that are `who`'s, what its URLs name, which is kept
    as such, and of documents what fits. That counts as a body does. Given are the files of its messages.

    Raises:
        NotFound: whoever asks has no such file.
        InsufficientScope: they lack `files:read`.
        InvalidRequest: it cannot be read, or is no image where one is needed, or cannot be fetched; `param` names the
            part.
        FileTooLarge: the files have more than `MOST` bytes.
        Overloaded: too much is under way.
    """
    parts = [*_parts_of(body, fetches=engine.files.reachable is not None)]
    if not parts:
        yield {}
        return
    with ExitStack() as held:
        yield await _Taking(bodies, engine, who, held).take(parts)


@dataclass
class _Taking:
    """Takes the files of one request into its body. `held`: what they count for; `total`: bytes of those named."""

    bodies: Bodies
    engine: Engine
    who: Principal
    held: ExitStack
    total: int = 0

    async def take(self, parts: list[_Part]) -> Noted:
        """Replace all parts. What is fetched is kept once all documents could be read."""
        by_id, by_url, inline = ([each for each in parts if each.way == way] for way in ("id", "url", "inline"))
        if by_id:
            self.who.require(Scope.FILES_READ)
        if (count := len({each.name for each in (*by_id, *by_url)})) > MOST_NAMED:
            raise InvalidRequest(f"a request may name {MOST_NAMED} files; this one names {count}", param="file_id")
        end = asyncio.get_running_loop().time() + fetched.SECONDS
        await self._name(by_id)
        await self._fetch([each for each in by_url if each.may_be_document], end)
        if inline:
            await self.bodies.off_loop(partial(_decode, inline))
        await self._read([each for each in parts if each.source is not None and each.may_be_document])
        await self._fetch([each for each in by_url if not each.may_be_document], end)
        for part in parts:
            if part.source is not None and part.kind in recordings.KINDS:
                part.source.media_type = recordings.check(part.source.name, part.source.media_type, part.field)
        return {message: to_note(given) for message, given in (await self._sent(parts)).items()}

    async def _sent(self, parts: list[_Part]) -> dict[str, list[MessageFile]]:
        """Keep what is to be kept, and return the files of each message."""
        sent: dict[str, list[MessageFile]] = {}
        for part in parts:
            if (source := part.source) is not None and part.is_kept:
                info = source.info = source.info or await self._keep(part, source)
                if info is not None:
                    sent.setdefault(part.message, []).append(noted(info))
                if info is not None and part.kind in recordings.KINDS:
                    part.say(reference(info))
                elif not part.is_told:
                    _show(part, source)
        return sent

    async def _name(self, parts: list[_Part]) -> None:
        files, owner, found = self.engine.files, self.who.owner, dict[str, FileInfo]()
        for part in parts:
            if part.name not in found:
                found[part.name] = await files.get(owner, part.name)
            self._add(found[part.name].bytes)
        self.held.enter_context(self.bodies.held(2 * self.total))
        known = {
            name: _Source(info.filename, await files.read(owner, name), info.media_type, info)
            for name, info in found.items()
        }
        for part in parts:
            part.source = known[part.name]

    async def _fetch(self, parts: list[_Part], end: float) -> None:
        found: dict[str, _Source] = {}
        for part in parts:
            if part.name not in found:
                self._add(0)  # Before more is fetched, and kept.
                async with self.bodies.fetching(self.who.owner):
                    found[part.name] = await self._fetched(part, end)
                self.held.enter_context(self.bodies.held(2 * len(found[part.name].data)))
            part.source = found[part.name]
            self._add(len(part.source.data))

    async def _fetched(self, part: _Part, end: float) -> _Source:
        files, owner, url = self.engine.files, self.who.owner, part.name
        assert files.reachable is not None
        info = await files.made_by(owner, fetched.origin_of(url))
        if part.kind not in _IMAGES and info is None:
            file, kind = await fetched.document_at(files.reachable, url, part.field, end)
            return _Source(file.name, file.data, kind)
        if info is None:
            info = await fetched.image_at(files, files.reachable, owner, url, part.field, end)
        return _Source(info.filename, await files.read(owner, info.file_id), info.media_type, info)

    async def _keep(self, part: _Part, source: _Source) -> FileInfo | None:
        """Keep a file; None: there is no room, and what is shown of it is there without."""
        origin = fetched.origin_of(part.name) if part.way == "url" else f"sent/{await _digest(source.data)}"
        if part.is_cut and part.way == "inline":
            origin += f"/{source.name}"  # By which an agent is told of it.
        create = self.engine.files.create
        try:
            return await create(self.who.owner, source.name, source.data, media_type=source.media_type, origin=origin)
        except (FileTooLarge, FilesFull):
            if part.is_cut and part.way == "inline":
                return None
            raise

    def _add(self, size: int) -> None:
        self.total += size
        if self.total > MOST:
            text = f"the files of a request may have {MOST} bytes together; these have {self.total}"
            raise FileTooLarge(text, param="file_id")

    async def _read(self, parts: list[_Part]) -> None:
        """Put texts in place of documents, and of texts that are too long; those of a message share the budget."""
        found: dict[str, list[tuple[_Part, Excerpt]]] = {}
        for part in parts:
            if part.source is not None and (excerpt := await self._excerpt(part, part.source)) is not None:
                found.setdefault(part.message, []).append((part, excerpt))
        budget = self.engine.excerpts.budget
        for read in found.values():
            for (part, excerpt), share in zip(read, shares([each.tokens for _, each in read], budget), strict=True):
                if (source := part.source) is not None and excerpt.tokens > share:
                    part.is_cut, source.name = True, source.name or _UNNAMED
                    excerpt = replace(excerpt, name=source.name)
                part.say(excerpt.shown(share))

    async def _excerpt(self, part: _Part, source: _Source) -> Excerpt | None:
        """The beginning of a document; None: the file is shown as it is."""
        excerpts = self.engine.excerpts
        if not is_document(source.data, source.media_type):
            return await self.bodies.off_loop(partial(_text_excerpt, part, source, excerpts))
        try:
            with self.bodies.held(len(source.data)):
                async with self.bodies.fetching(self.who.owner):
                    return await excerpts.read(self.who.owner, source.name, source.data, source.media_type or None)
        except DocumentUnreadable as error:
            kind = DocumentUnreadable if isinstance(error, DocumentTooLarge) else type(error)
            text = f"`{part.field}`: {error.message.removesuffix('.')}. Send what it says as text, or another file"
            raise kind(text, param=part.field) from None


def _text_excerpt(part: _Part, source: _Source, excerpts: Excerpts) -> Excerpt | None:
    """The beginning of a text that is too long, or is that of a page: whoever has written it is not the user. None: it
    is none of these, or the file is an image."""
    if source.media_type in IMAGES:
        return None
    said = text_of(source.data, source.media_type, part.field, READ)
    is_marked = part.way == "url" or estimate_text(said) > excerpts.budget
    return excerpts.of_text(source.name, said) if is_marked else None


def _decode(parts: list[_Part]) -> None:
    """Decode the files that come along. What is no base64 stays as it is, for who reads the body to refuse. Raises
    InvalidRequest: a recording cannot be had."""
    for part in parts:
        if part.kind in recordings.KINDS:
            part.source = _Source(*recordings.brought(part.given, part.kind, part.field))
            continue
        inner = part.given if (field := _FIELDS[part.kind]) is None else as_object(part.given.get(field))
        text = str(inner.get("data") if part.kind == "document" else inner.get("file_data"))
        head = None if part.kind == "document" else DATA_URL.match(text)
        kind = inner.get("media_type") if part.kind == "document" else head and head[1]
        kind = str(kind or mimetypes.guess_type(part.name)[0] or "").lower()
        with suppress(ValueError):
            data = base64.b64decode(text[head.end() if head else 0 :], validate=True)
            part.source = _Source(part.name, data, kind)


def _parts_of(
    body: Mapping[str, object], *, fetches: bool, fields: Sequence[str] = ("messages", "input")
) -> Iterator[_Part]:
    """Yield each part that brings a file, or, where URLs are fetched, names that of a user's."""
    for field in fields:
        for at, message, parts in with_parts(body.get(field)):
            path = f"{field}[{at}]"
            fetches_here = fetches and message.get("role") == "user"
            for index, part in enumerate(parts):
                given, where = as_object(part), f"{path}.content[{index}]"
                kind = str(given.get("type"))
                if kind in _FIELDS and (kind not in recordings.KINDS or message.get("role") == "user"):
                    yield from _of_part(_Part(parts, index, kind, path, where), fetches=fetches_here)
                elif kind == "tool_result":
                    inner = as_list(given.get("content"))
                    for place, block in enumerate(inner):
                        if as_object(block).get("type") == "document":
                            nested = _Part(inner, place, "document", path, f"{where}.content[{place}]")
                            yield from _of_part(nested, fetches=False)


def _of_part(part: _Part, *, fetches: bool) -> Iterator[_Part]:
    """Yield a part with the way in which it brings a file, if it does."""
    given = part.given
    if fetches and (url := _url_of(given, part.kind)) is not None:
        yield replace(part, way="url", name=url)
    elif (name := _id_of(given, part.kind, part.where)) is not None:
        yield replace(part, name=name)
    elif part.kind in recordings.KINDS:
        yield replace(part, way="inline")
    elif part.may_be_document and (own := _brought(given, part.kind)) is not None:
        yield replace(part, way="inline", name=own)


def _url_of(part: Mapping[str, object], kind: str) -> str | None:
    """The URL of the file that a part is; None: it has none."""
    if kind in ("file", "input_file"):
        inner = part if kind == "input_file" else as_object(part.get("file"))
        given = None if inner.get("file_data") or inner.get("file_id") else inner.get("file_url")
    elif kind == "input_audio":
        return None
    else:
        source = part.get(_URLS[kind])
        given = as_object(source).get("url", source)
    return given if isinstance(given, str) and given[:6].lower().startswith(("http:", "https:")) else None


def _brought(part: Mapping[str, object], kind: str) -> str | None:
    """The name of the file that a part brings along, "": it has none; None: it brings none."""
    if kind == "document":
        source, name = as_object(part.get("source")), part.get("title")
        is_there = source.get("type") == "base64" and isinstance(source.get("data"), str)
    else:
        inner = part if kind == "input_file" else as_object(part.get("file"))
        is_there, name = isinstance(inner.get("file_data"), str), inner.get("filename")
    return (name if isinstance(name, str) else "") if is_there else None


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


async def _digest(data: bytes) -> str:
    return await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())


def _show(part: _Part, source: _Source) -> None:
    """Put an image, or a text of the user's as it is, in place of a part."""
    kind, where = part.kind, part.where
    if source.media_type in IMAGES:
        text = base64.b64encode(source.data).decode()
        url = f"data:{source.media_type};base64,{text}"
        if kind in ("image", "document"):
            data: JsonObject = {"type": "base64", "media_type": source.media_type, "data": text}
            part.holder[part.index] = {"type": "image", "source": data}
        elif kind in ("file", "image_url"):
            part.holder[part.index] = {"type": "image_url", "image_url": {"url": url}}
        else:
            part.holder[part.index] = {"type": "input_image", "image_url": url}
        return
    if kind in ("image", "input_image"):
        what = f"no PNG, JPEG, GIF or WebP image, but {source.media_type}"
        raise InvalidRequest(f"`{where}`: the file is {what}", param=where)
    said = text_of(source.data, source.media_type, where)
    part.holder[part.index] = {"type": "input_text" if kind == "input_file" else "text", "text": said}
