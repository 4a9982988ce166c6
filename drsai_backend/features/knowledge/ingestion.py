"""Ingestion does the jobs of knowledge: it reads files, cuts them, embeds the chunks and stores them, and embeds stores
anew.

A job of a file:
1. The file is read and cut in a process of its own (`documents.Reader`). One that cannot be read fails, alone.
2. Each chunk gets a name that is made of its text, so that one that did not change is the same as before, wherever it
   stands by now.
3. New chunks are embedded, where there is a model, and stored, some at a time, each part in a transaction that counts
   them. A job that was killed reads the file again, and finds what it has stored.
4. Chunks that the file does not have any more are removed, and it is told that it is read, in the transaction that ends
   the job.
"""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final, TypeVar

from drsai_backend.database.values import batches
from drsai_backend.days import days_in, words_of
from drsai_backend.documents.base import Chunk
from drsai_backend.errors import DocumentTooLarge, DocumentUnsupported, InvalidRequest, NotFound
from drsai_backend.features.knowledge.base import context_of
from drsai_backend.features.knowledge.rows import indexing as rows
from drsai_backend.features.knowledge.rows.files import known_entries, without_vectors
from drsai_backend.features.knowledge.rows.indexing import Pair, Rebuild, Task
from drsai_backend.json_types import JsonObject
from drsai_backend.search import Entry, drop_index, prepare, remove_family
from drsai_backend.search.base import MAX_TEXT
from drsai_backend.work.jobs import hold

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from drsai_backend.database import Database
    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.documents import Reader
    from drsai_backend.documents.base import ChunkedDocument
    from drsai_backend.files import Files
    from drsai_backend.search import Embedder
    from drsai_backend.work.kinds import Job

_PART: Final = 32
"""Chunks that are embedded at a time."""
_PUT: Final = 8
"""Chunks that are looked through and stored at a time, by one job of the process at a time: of others, those who write
on SQLite wait meanwhile, on PostgreSQL all of the process."""
_STEP: Final = 1 << 20
"""Between the places of two chunks: others come between them when the file changes."""
_GONE: Final = "the file was deleted"
T = TypeVar("T")


class Ingestion:
    """Does the jobs of knowledge.

    Args:
        database: has the stores.
        files: has the files.
        reader: reads them.
        embedder: makes vectors, where there is an endpoint.
    """

    def __init__(self, database: Database, files: Files, reader: Reader, embedder: Embedder) -> None:
        self._database = database
        self._files = files
        self._reader = reader
        self._embedder = embedder
        self._turn = asyncio.Lock()

    @property
    def model(self) -> str | None:
        """By which chunks are embedded now; None: by none."""
        return self._embedder.model if self._embedder.available else None

    async def ingest(self, job: Job) -> None:
        """Read a file, and store its chunks."""
        task = await self._database.read(partial(rows.read_task, key=int(job.payload["file"])))
        if task is None:
            return
        try:
            document = await self._read(job.owner, task)
            await self._store(job, task, document)
        except NotFound:
            await self._fail(job, task, "invalid_file", _GONE)
        except DocumentUnsupported as error:
            await self._fail(job, task, "unsupported_file", error.message)
        except InvalidRequest as error:  # It cannot be read, the store is full, or the endpoint refuses a text.
            await self._fail(job, task, "invalid_file", error.message)

    async def _fail(self, job: Job, task: Task, code: str, reason: str) -> None:
        await self._database.write(partial(rows.fail, job=job, task=task, code=code, reason=reason))

    async def _read(self, owner: Owner, task: Task) -> ChunkedDocument:
        info, place = await self._files.open(owner, task.file_id)
        most = self._reader.limits.content
        if info.bytes > most:
            raise DocumentTooLarge(f"the file has {info.bytes} bytes; up to {most} can be read")
        content = b"".join([part async for part in self._files.stream(place, 0, info.bytes)])
        size, overlap = task.chunking.size, task.chunking.overlap
        return await self._reader.chunks(info.filename, content, info.media_type, size=size, overlap=overlap)

    async def _store(self, job: Job, task: Task, document: ChunkedDocument) -> None:
        count, size = len(document.chunks), sum(len(each.text.encode()) for each in document.chunks)
        begin = partial(rows.begin, job=job, task=task, chunks=count, size=size, model=self.model)
        index, model = await self._database.write(begin)
        known = await self._database.read(partial(known_entries, index=index, key=task.key))
        entries = await asyncio.to_thread(entries_of, task, document.chunks, known)
        # Vectors of another model would be compared with none of the index.
        embeds = model is not None and model == self.model
        bare = await self._database.read(partial(without_vectors, index=index, key=task.key)) if embeds else set[str]()
        for part in batches(entries, _PART):
            new = [each for each in part if known.get(each.ref) != _as_known(each) or each.ref in bare]
            vectors = await self._embed(job.owner, task.filename, new) if embeds else None
            unchanged = len(part) - len(new)
            for some, of_these in _few(new, vectors):
                put = partial(rows.put, job=job, task=task, index=index, unchanged=unchanged)
                await self._put(some, of_these, put)
                unchanged = 0
        there = {each.ref for each in entries}
        for gone in batches([ref for ref in known if ref not in there], _PART):
            await self._database.write(partial(rows.take_out, job=job, task=task, index=index, refs=gone))
        anew = self.model is not None and not embeds
        await self._database.write(partial(rows.complete, job=job, task=task, notes=document.notes, anew=anew))

    async def _embed(self, owner: Owner, filename: str, entries: Sequence[Entry]) -> list[bytes]:
        texts = [f"{context_of(filename, each.place)}\n{each.text}" for each in entries]
        return await self._embedder.embed(owner, texts) if texts else []

    async def _put(
        self, some: Sequence[Entry], vectors: Sequence[bytes] | None, put: Callable[[Session, Sequence[Pair]], object]
    ) -> None:
        """Have entries looked through and stored, neither while others are at work, as far as that can be."""
        async with self._turn:
            await self._database.calm()
            ready = await asyncio.to_thread(prepare, some)
            pairs = [*zip(ready, vectors or repeat(None, len(ready)), strict=True)]
            await self._database.write_apart(lambda session: put(session, pairs))

    async def _write(self, some: Callable[[Session], T]) -> T:
        async with self._turn:
            return await self._database.write_apart(some)

    async def reindex(self, job: Job) -> None:
        """Embed a store anew, by the model of this process, while the old index is searched."""
        while True:
            rebuild = await self._database.write(partial(rows.begin_rebuild, job=job, model=self.model))
            if rebuild is None:
                return
            await self._copy(job, rebuild)
            if await self._database.write(partial(rows.swap, job=job, rebuild=rebuild)):
                return

    async def _copy(self, job: Job, rebuild: Rebuild) -> None:
        after: str | None = None
        while True:
            read = partial(rows.entries_after, rebuild=rebuild, after=after, limit=_PART)
            page = await self._database.read(read)
            for filename in dict.fromkeys(name for _, name in page if name):
                mine = [_with_context(each, filename) for each, name in page if name == filename]
                vectors = None if self.model is None else await self._embed(job.owner, filename, mine)
                for some, of_these in _few(mine, vectors):
                    await self._put(some, of_these, partial(rows.copied, job=job, rebuild=rebuild))
            if len(page) < _PART:
                break
            after = page[-1][0].ref
        last: str | None = ""
        while last is not None:
            gone, last = await self._database.read(partial(rows.surplus, rebuild=rebuild, after=last or None))
            await self._database.write(partial(rows.take_out_of, job=job, index=rebuild.new, refs=gone))

    async def drop(self, job: Job) -> None:
        """Remove an index, or a family of it, some entries at a time."""
        index, family = int(job.payload["index"]), job.payload["family"]

        def some(session: Session) -> int:
            if family is None:
                gone = drop_index(session, index, limit=1_000)
            else:
                gone = remove_family(session, index, str(family))
            # After the index, as whoever enqueues such a job has it locked: no two wait for each other.
            hold(session, job, progress=True)
            return gone

        try:
            while await self._write(some):
                pass
        except NotFound:
            return  # With all of the index.


def _few(
    entries: Sequence[Entry], vectors: Sequence[bytes] | None
) -> Iterator[tuple[Sequence[Entry], Sequence[bytes] | None]]:
    """Yield what is stored at a time, with its vectors: once also where there is nothing."""
    for at in range(0, max(1, len(entries)), _PUT):
        yield entries[at : at + _PUT], None if vectors is None else vectors[at : at + _PUT]


def entries_of(task: Task, chunks: Sequence[Chunk], known: Mapping[str, Entry]) -> list[Entry]:
    """Return the entries that the chunks of a file are.

    Args:
        task: the file.
        chunks: as they stand in it.
        known: what the index has of it: what did not change keeps its place.
    """
    ends = [0, *(each.end for each in chunks)]
    places = [_place(each, end) for each, end in zip(chunks, ends, strict=False)]
    refs = [*_refs(task, chunks, places)]
    orders = arranged([_order(known.get(ref)) for ref in refs])
    return [
        Entry(
            ref=ref,
            text=chunk.text,
            family=str(task.key),
            attributes=task.attributes,
            place={"order": order, **place},
            context=searched_with(task.filename, place, chunk.text),
        )
        for ref, chunk, place, order in zip(refs, chunks, places, orders, strict=True)
    ]


def _place(chunk: Chunk, before: int) -> JsonObject:
    page: JsonObject = {} if chunk.page is None else {"page": chunk.page}
    turn: JsonObject = {"turn": True} if chunk.turn else {}
    # How many of its last characters the chunk before, which ends there, does not have.
    return {**page, **turn, "headings": [*chunk.headings], "new": chunk.end - max(chunk.start, before)}


def _refs(task: Task, chunks: Sequence[Chunk], places: Sequence[JsonObject]) -> Iterable[str]:
    seen: Counter[str] = Counter()
    for chunk, place in zip(chunks, places, strict=True):
        said = f"{context_of(task.filename, place)}\x00{chunk.text}"
        digest = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:32]
        yield f"{task.key}:{digest}:{seen[digest]}"
        seen[digest] += 1


def _order(entry: Entry | None) -> int | None:
    return None if entry is None else int(entry.place["order"])


def _as_known(entry: Entry) -> Entry:
    """Return an entry as the index gives it back."""
    return Entry(entry.ref, entry.text, entry.family, entry.attributes, entry.place)


def _with_context(entry: Entry, filename: str) -> Entry:
    context = searched_with(filename, entry.place, entry.text)
    return Entry(entry.ref, entry.text, entry.family, entry.attributes, entry.place, context)


def searched_with(filename: str, place: JsonObject, text: str) -> str:
    """Return what is searched with a chunk: its titles; and with a turn of a chat itself once more, as the turns before
    it are in its text, and the days that it is of and names."""
    parts = [context_of(filename, place)]
    if place.get("turn"):
        parts.append(said := text[-int(place["new"]) :].strip())
        with suppress(ValueError, IndexError):
            on = date.fromisoformat(place["headings"][-1])
            parts += [words_of(on), days_in(said, on)]
    return "\n".join(parts)[: MAX_TEXT - len(text)]


def arranged(known: Sequence[int | None]) -> list[int]:
    """Return numbers by which chunks are sorted: ascending, and as many as can be as they are known.

    Args:
        known: of each chunk, in order, the number that it has had; None: it is new.
    """
    kept = _ascending(known)
    orders: list[int] = []
    before = -1
    for at in [*kept, len(known)]:
        gap = at - before - 1
        low = -_STEP if before < 0 else known[before] or 0
        high = low + _STEP * (gap + 1) if at == len(known) else known[at] or 0
        if high - low <= gap:  # No room between two that stay.
            return [_STEP * number for number in range(len(known))]
        orders += [low + (high - low) * number // (gap + 1) for number in range(1, gap + 1)]
        if at < len(known):
            orders.append(high)
        before = at
    return orders


def _ascending(numbers: Sequence[int | None]) -> list[int]:
    """Return the places of the longest ascending part of numbers."""
    ends: list[int] = []
    tops: list[int] = []
    behind: list[int] = [-1] * len(numbers)
    for at, number in enumerate(numbers):
        if number is None:
            continue
        length = bisect_left(tops, number)
        behind[at] = ends[length - 1] if length else -1
        ends[length : length + 1] = [at]
        tops[length : length + 1] = [number]
    found: list[int] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(at)
        at = behind[at]
    return found[::-1]
