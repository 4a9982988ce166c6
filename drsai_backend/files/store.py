"""The store of files, `Files`, has their verbs. What arrives is stored in chunks, and is never in memory as a whole."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Final, Literal

from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.database import files as rows
from drsai_backend.database.files import FileInfo, NewFile, Place, Upload
from drsai_backend.database.hooks import NO_HOOKS, Hooks
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.file import MessageFile
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DatabaseError, DatabaseUnavailable, FilesFull, FileTooLarge, InvalidRequest
from drsai_backend.files.folder import Folder
from drsai_backend.net.addresses import Reachable
from drsai_backend.page import Page

CHUNK: Final = 256 * 1024
"""Bytes that are stored at a time, and of a file that are in memory at a time."""
PURPOSES: Final = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
"""What clients may say that a file is for."""
OF_TOOLS: Final = "assistants_output"
"""What files are for that tools keep."""
SHORTEST, LONGEST = timedelta(hours=1), timedelta(days=30)
"""Between these a file may be made to expire."""
ABANDONED: Final = timedelta(minutes=15)
"""After so long without a new chunk an upload is given up."""
_MAX_NAME: Final = 255
_GONE: Final = "the file was deleted while it was read"
_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")


class Arriving:
    """An upload: `add` what arrives, then `finish`; or `give_up`."""

    def __init__(self, files: Files, upload: Upload, limit: int) -> None:
        self._files = files
        self._upload = upload
        self._limit = limit
        self._hash = hashlib.sha256()
        self._waiting = bytearray()
        self._stored = 0
        self.is_finished = False

    async def add(self, data: bytes) -> None:
        """More of it. Raises FileTooLarge, Conflict (it was given up) and DatabaseError."""
        if self._stored + len(self._waiting) + len(data) > self._limit:
            raise FileTooLarge(f"the file has more than {self._limit} bytes, which this server accepts", param="file")
        for start in range(0, len(data), CHUNK):
            part = data[start : start + CHUNK]
            self._hash.update(part)
            self._waiting += part
            while len(self._waiting) >= CHUNK:
                await self._store(CHUNK)

    @property
    def sha256(self) -> str:
        """Of what has arrived."""
        return self._hash.hexdigest()

    async def finish(self, new: NewFile) -> FileInfo:
        """The file. Raises FilesFull, Conflict and DatabaseError."""
        if self._waiting:
            await self._store(len(self._waiting))
        files = self._files
        if files.folder is not None:
            await asyncio.to_thread(files.folder.seal, self._upload.token)
        work = partial(rows.finish, upload=self._upload, new=new, sha256=self.sha256, limit=files.total)
        info, kept = await files.database.act(work)
        self.is_finished = True
        if not kept and files.folder is not None:
            await asyncio.to_thread(files.folder.remove, self._upload.token)
        return info

    async def give_up(self) -> None:
        """Forget what has arrived, unless it is a file by now: `finish` may have been cancelled while it was stored.
        While the database is away it stays, and a sweep forgets it once nobody has continued it."""
        with suppress(DatabaseUnavailable):
            await self._files.database.write(partial(rows.give_up, upload=self._upload))
            await _remove_unknown(self._files, [self._upload.token])

    async def _store(self, size: int) -> None:
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        folder, start = self._files.folder, self._stored
        if folder is not None:
            await asyncio.to_thread(folder.append, self._upload.token, data)
        row = data if folder is None else None
        stored = start + len(data)
        work = partial(rows.arrived, upload=self._upload, start=start, data=row, size=stored)
        await self._files.database.write(work)
        self._stored = stored


class Files:
    """Files of the users of a database.

    Args:
        database: has their names, and their bytes, if there is no folder. Not closed by this object.
        settings: the folder, how large files may be, and whose images are fetched.
        hooks: are told of files that are deleted.

    Attributes:
        reachable: from where images are fetched whose URL a message names; None: from nowhere.

    Raises:
        ConfigurationError: the folder cannot be used.
    """

    def __init__(self, database: Database, settings: Settings, hooks: Hooks = NO_HOOKS) -> None:
        self.database = database
        self._hooks = hooks
        self.folder = None if settings.files_folder is None else Folder(settings.files_folder)
        self.largest = int(settings.max_file_bytes)
        self.total = int(settings.max_files_bytes)
        self.outage = settings.outage_seconds
        hosts = [each for each in settings.image_urls if each != "https"]
        self.reachable = None if "off" in hosts else Reachable(settings.allowed_addresses, hosts)

    async def begin(self, owner: Owner) -> Arriving:
        """Begin an upload. Raises FilesFull: the user has no room left."""
        free = self.total - await self.database.read(partial(rows.used, owner=owner))
        if free <= 0:
            raise FilesFull(f"your files may have {self.total} bytes in all; delete some first", param="file")
        token = secrets.token_hex(16)
        work = partial(rows.begin, owner=owner, token=token, in_folder=self.folder is not None)
        # What is there already takes no room twice, so that only `finish` knows whether there is enough.
        return Arriving(self, await self.database.write(work), self.largest)

    @asynccontextmanager
    async def arriving(self, owner: Owner) -> AsyncGenerator[Arriving]:
        """`begin`; what is not finished then is given up."""
        arriving = await self.begin(owner)
        try:
            yield arriving
        finally:
            if not arriving.is_finished:
                await asyncio.shield(arriving.give_up())

    async def create(  # noqa: PLR0913 - public, by keyword
        self,
        owner: Owner,
        name: str,
        data: bytes | AsyncIterable[bytes],
        *,
        purpose: str = "user_data",
        media_type: str | None = None,
        expires_after: timedelta | None = None,
        origin: str | None = None,
    ) -> FileInfo:
        """Keep a file.

        Args:
            owner: whose it is.
            name: its name, without folders.
            data: its bytes, whole or in parts.
            purpose: one of `PURPOSES`, or `OF_TOOLS`.
            media_type: default: by the name.
            expires_after: between an hour and 30 days; None: it is kept.
            origin: what makes it, where that may be repeated: the file that was made so is returned then.

        Raises:
            InvalidRequest: one of these cannot be used.
            FileTooLarge, FilesFull: there is no room.
        """
        new = new_file(name, purpose, media_type, expires_after, origin)
        if origin is not None and (known := await self.made_by(owner, origin)) is not None:
            return known
        async with self.arriving(owner) as arriving:
            if isinstance(data, bytes):
                await arriving.add(data)
            else:
                async for part in data:
                    await arriving.add(part)
            return await arriving.finish(new)

    async def made_by(self, owner: Owner, origin: str) -> FileInfo | None:
        """The file that was made so; None: there is none."""
        return await self.database.read(partial(rows.by_origin, owner=owner, origin=origin))

    async def list(
        self,
        owner: Owner,
        *,
        after: str | None = None,
        limit: int = 10_000,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> Page[FileInfo]:
        """A page of a user's files, newest first (`desc`) or last. Raises InvalidRequest: `after` is none of them."""
        work = partial(rows.list_files, owner=owner, after=after, limit=limit, order=order, purpose=purpose)
        return await self.database.read(work)

    async def get(self, owner: Owner, file_id: str) -> FileInfo:
        """A file of a user. Raises NotFound."""
        return await self.database.read(partial(rows.read_file, owner=owner, file_id=file_id))

    async def open(self, owner: Owner, file_id: str) -> tuple[FileInfo, Place]:
        """A file of a user, and where `stream` finds its bytes. Raises NotFound."""
        return await self.database.read(partial(rows.place_of, owner=owner, file_id=file_id))

    async def stream(self, place: Place, start: int, stop: int) -> AsyncGenerator[bytes]:
        """The bytes from `start` to before `stop`, in parts. Raises DatabaseError: it was deleted meanwhile."""
        folder = self._folder_of(place)
        while start < stop:
            if folder is not None:
                data = await asyncio.to_thread(folder.read, place.token, start, min(CHUNK, stop - start))
            else:
                data = await self.database.read(partial(rows.read_chunk, place=place, offset=start))
            if not data:
                raise DatabaseError(_GONE)
            yield data[: stop - start]
            start += len(data)

    def blocks(self, place: Place, size: int) -> Iterator[bytes]:
        """Yield all `size` bytes, in parts, for a thread that may block. Raises as `stream`."""
        folder, start = self._folder_of(place), 0
        while start < size:
            if folder is not None:
                data = folder.read(place.token, start, min(CHUNK, size - start))
            else:
                data = self.database.read_sync(partial(rows.read_chunk, place=place, offset=start))
            if not data:
                raise DatabaseError(_GONE)
            yield data[: size - start]
            start += len(data)

    async def read(self, owner: Owner, file_id: str, *, limit: int | None = None) -> bytes:
        """The content of a file. Raises NotFound, and FileTooLarge: it has more than `limit` bytes."""
        info, place = await self.open(owner, file_id)
        if limit is not None and info.bytes > limit:
            text = f"the file {file_id} has {info.bytes} bytes; at most {limit} can be read here"
            raise FileTooLarge(text, param="file_id")
        return b"".join([part async for part in self.stream(place, 0, info.bytes)])

    async def delete(self, owner: Owner, file_id: str, *, actor: Actor = PROGRAM, expiring: bool = False) -> None:
        """Delete a file. Raises NotFound. `expiring`: one that does not expire any more stays."""
        _, place = await self.open(owner, file_id)
        work = partial(rows.delete_file, owner=owner, file_id=file_id, actor=actor, hooks=self._hooks)
        await self.database.write(partial(work, expiring=expiring))
        if self.folder is not None and place.in_folder:
            await _remove_unknown(self, [place.token])

    async def sweep(self, *, abandoned: timedelta = ABANDONED) -> int:
        """Delete what expired, uploads that nobody continues, and what the folder has of neither. Returns how many."""
        expired = partial(rows.delete_expired, actor=PROGRAM, hooks=self._hooks)
        count, after = await self.database.write(expired)
        while after is not None:
            gone, after = await self.database.write(partial(expired, after=after))
            count += gone
        while gone := await self.database.write(partial(rows.give_up_old, older_than=abandoned)):
            count += gone
        if self.folder is not None:
            tokens = iter(await asyncio.to_thread(list[str], self.folder.tokens()))
            while part := [*islice(tokens, 500)]:
                count += await _remove_unknown(self, part)
        return count

    def _folder_of(self, place: Place) -> Folder | None:
        """Return where a content is, if it is no row. Raises DatabaseError: this process does not see its folder."""
        if place.in_folder and self.folder is None:
            raise DatabaseError("the file is in a folder, and DRSAI_FILES_FOLDER is not set here")
        return self.folder if place.in_folder else None


def noted(file: FileInfo, call_id: str | None = None) -> MessageFile:
    """A file as a message has it. `call_id`: the call of a tool that has made it."""
    return MessageFile(id=file.file_id, call_id=call_id, **file.model_dump())


async def _remove_unknown(files: Files, tokens: list[str]) -> int:
    """Delete those of the folder that no row names: a row is there before its bytes, so that nobody writes them."""
    unknown = await files.database.read(partial(rows.unknown_tokens, tokens=tokens))
    for token in unknown:
        if files.folder is not None:
            await asyncio.to_thread(files.folder.remove, token)
    return len(unknown)


def new_file(
    name: str, purpose: str, media_type: str | None, expires_after: timedelta | None, origin: str | None = None
) -> NewFile:
    """Return what a file is to be. Raises InvalidRequest, which names the field."""
    filename = re.sub(r"[\x00-\x1f\x7f]", "", re.split(r"[/\\]", name)[-1]).strip()
    if not filename or filename in (".", "..") or len(filename) > _MAX_NAME:
        raise InvalidRequest(f"the file needs a name of at most {_MAX_NAME} characters", param="file")
    if purpose not in (*PURPOSES, OF_TOOLS):
        raise InvalidRequest(f"`purpose` must be one of {', '.join(PURPOSES)}", param="purpose")
    if expires_after is not None and not SHORTEST <= expires_after <= LONGEST:
        text = "`expires_after[seconds]` must be between 3600 (an hour) and 2592000 (30 days)"
        raise InvalidRequest(text, param="expires_after[seconds]")
    kind = (media_type or "").partition(";")[0].strip().lower()
    if _MEDIA_TYPE.fullmatch(kind) is None or kind == "application/octet-stream":
        kind = mimetypes.guess_type(filename)[0] or "application/octet-stream"
    return NewFile(f"file-{secrets.token_hex(12)}", filename, purpose, kind, expires_after, origin)
