"""Keeping makes a store have files as they are elsewhere, in folders and at URLs: those that are new are put into it, a
later version takes the place of the one before, and what is there no more goes. What has not changed stays as it is.

Each step is stored for itself and can be done again, by several processes at once: what one that was killed has left
undone the next one does, and nothing is there twice.
"""

from __future__ import annotations

import asyncio
import glob
import hashlib
import logging
import mimetypes
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drsai_backend.database.documents import OF_ALL
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DrSaiError, InvalidRequest, NotFound, ToolError
from drsai_backend.features.knowledge.base import PATH, Chunking, NewFile, NewStore, StoreFile
from drsai_backend.features.knowledge.rows.files import ABANDONED
from drsai_backend.files import Files
from drsai_backend.net.addresses import Reachable
from drsai_backend.teams.options import AgentFiles

if TYPE_CHECKING:
    from drsai_backend.features.knowledge.extension import Knowledge
    from drsai_backend.tools.http.sending import Sender

log = logging.getLogger("drsai.knowledge")

_MAX_PATH: Final = 512
"""Characters of an attribute."""
_PART: Final = 256 * 1024
_LARGEST: Final = 64 * 1024 * 1024
"""Bytes of what a URL gives: more of a document is not read."""
_PATIENCE: Final = 60.0
"""Seconds in which it is to be there."""
_HTML: Final = "text/html"
USUAL: Final = Chunking()
"""How a file is cut where nobody says it."""


def files_of(text: str, folder: Path = Path(), *, whole: bool = False) -> dict[str, Path]:
    """Return the files that a path means, by the name by which a store knows each of them.

    Args:
        text: a file, a folder with all that is in it but hidden files, or a pattern (`docs/**/*.md`).
        folder: where a relative path begins.
        whole: names begin as the path does; else below the folder that it is, or with the name of the file.

    Raises:
        InvalidRequest: it means none, or they cannot be looked at.
    """
    given, start = folder / text, Path(text) if whole else Path()
    with _readable(given):
        if given.is_dir():
            below = (each.relative_to(given) for each in sorted(given.rglob("*")) if each.is_file())
            shown = (each for each in below if not any(part.startswith(".") for part in each.parts))
            found = {(start / each).as_posix(): given / each for each in shown}
        elif given.is_file():
            found = {start.as_posix() if whole else given.name: given}
        else:
            names = sorted(glob.glob(text, root_dir=folder, recursive=True))
            found = {each: folder / each for each in names if (folder / each).is_file()}
    if not found:
        raise InvalidRequest(f"{text} names no file here", param="path")
    for name in found:
        if len(name) > _MAX_PATH or name.encode(errors="ignore").decode() != name:
            raise InvalidRequest(f"{name[:80]!r}… has more than {_MAX_PATH} characters, or is no UTF-8", param="path")
    return found


@contextmanager
def _readable(path: Path) -> Generator[None]:
    """Raise InvalidRequest where something cannot be read."""
    try:
        yield
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", param="path") from None


def _digest(path: Path) -> str:
    with _readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _parts(path: Path) -> AsyncIterator[bytes]:
    with _readable(path), path.open("rb") as file:
        while part := await asyncio.to_thread(file.read, _PART):
            yield part


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Keeps the files of a store.

    Attributes:
        knowledge: has it.
        files: has its files.
        owner: whose they are.
        store_id: the store.
        chunking: how they are cut.
        actor: what the audit log says of who deletes them.
    """

    knowledge: Knowledge
    files: Files
    owner: Owner
    store_id: str
    chunking: Chunking = USUAL
    actor: Actor = PROGRAM

    async def put_file(self, name: str, path: Path) -> str | None:
        """Have a file of this machine in the store, which knows it by `name`.

        Returns:
            Its id; None: it is there as it is.

        Raises:
            InvalidRequest: it cannot be read.
            FileTooLarge, FilesFull, Conflict: there is no room for it.
        """
        return await self._put(name, path.name, await asyncio.to_thread(_digest, path), _parts(path))

    async def put_url(self, url: str, sender: Sender) -> str | None:
        """Have what a URL gives in the store, which knows it by its URL. Returns as `put_file` does, and raises
        ToolError: it gives nothing that can be used, or not in time."""
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await sender.send("GET", url)
        except TimeoutError:
            raise ToolError(f"it gave no answer within {_PATIENCE:g} seconds") from None
        if not answer.response.is_success:
            raise ToolError(f"it answered with {answer.response.status_code}")
        name, kind = answer.as_file().name, answer.kind
        told = mimetypes.guess_type(name)[0]
        if told is None or kind == _HTML != told:  # Documents are read by their names.
            name += mimetypes.guess_extension(kind) or ""
        return await self._put(url, name, hashlib.sha256(answer.content).hexdigest(), answer.content, kind)

    async def _put(
        self, path: str, filename: str, digest: str, data: bytes | AsyncIterator[bytes], kind: str | None = None
    ) -> str | None:
        made = await self.files.create(
            self.owner,
            filename,
            data,
            purpose="assistants",
            media_type=kind,
            expires_after=ABANDONED,
            origin=f"{self.store_id}/{digest}/{path}",  # What is there already with the same content is that file.
        )
        new = NewFile(file_id=made.file_id, attributes={PATH: path}, chunking=self.chunking)
        is_read, before = await self.knowledge.put(self.owner, self.store_id, new)
        if before is not None:
            with suppress(NotFound):  # Another process that has the version before may have put it back: then it stays.
                await self.files.delete(self.owner, before, actor=self.actor, expiring=True)
        return made.file_id if is_read else None

    async def remove(self, file: StoreFile) -> None:
        """Take a file out of the store, and delete it where it was put there by its path. Raises NotFound."""
        if PATH in file.attributes:
            await self.files.delete(self.owner, file.file_id, actor=self.actor)
        else:
            await self.knowledge.detach(self.owner, self.store_id, file.file_id)

    async def keep(self, wanted: AgentFiles, sender: Sender) -> Mapping[str, str]:
        """Have in the store what a definition names, and nothing else. Where a path means nothing on this machine,
        another one may have put there what it means: then nothing is removed.

        Returns:
            By path or URL, why it is not there as it is now.
        """
        failed: dict[str, str] = {}
        paths: dict[str, Path] = {}
        urls = [each for each in wanted.named if "://" in each]
        for each in wanted.named:
            if each not in urls:
                try:
                    paths |= await asyncio.to_thread(files_of, each, Path(wanted.folder), whole=True)
                except InvalidRequest as error:
                    failed[each] = error.message
        known, is_whole = {*paths, *urls}, not failed
        work = {name: partial(self.put_file, name, path) for name, path in paths.items()}
        for name, put in (work | {url: partial(self.put_url, url, sender) for url in urls}).items():
            try:
                await put()
            except DrSaiError as error:
                failed[name] = error.message
        for file in await self.knowledge.every_file(self.owner, self.store_id) if is_whole else ():
            if file.attributes.get(PATH) not in known:
                with suppress(NotFound):  # Another process has.
                    await self.remove(file)
        return failed


async def keep_all(knowledge: Knowledge, files: Files, wanted: Sequence[AgentFiles]) -> None:
    """Have the files of agents' definitions in the stores of these agents, one after the other. What cannot be had
    stays as it was before, and the log says why; whoever starts next tries again."""
    from drsai_backend.tools.http.sending import Sender

    reachable = Reachable(map(str, knowledge.host.settings.allowed_addresses))
    sender = Sender(name="it", reachable=reachable, max_bytes=min(files.largest, _LARGEST), upgrades=True)
    for each in wanted:
        try:
            store = await knowledge.ensure(OF_ALL, NewStore(name=str(each.store)))
            chunking = Chunking(size=each.chunk_size, overlap=each.chunk_overlap)
            keeper = Keeper(knowledge=knowledge, files=files, owner=OF_ALL, store_id=store.store_id, chunking=chunking)
            for name, why in (await keeper.keep(each, sender)).items():
                log.warning("agent %s: %s is not in its store as it is now: %s", each.store, name, why)
        except DrSaiError as error:
            log.warning("agent %s: its files are not in its store as they are now: %s", each.store, error.message)
        except Exception:
            # Of a disk, say: the others are to be had.
            log.exception("agent %s: its files are not in its store as they are now", each.store)
