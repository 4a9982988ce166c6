"""`Knowledge` is the feature: its verbs, `drsai.extension(Knowledge).search(…)`, its jobs and its routes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

import orjson

from drsai_backend.database.pages import Listing
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.base import end, kinds_of_jobs
from drsai_backend.features.knowledge.agents import ForAgents
from drsai_backend.features.knowledge.base import (
    Attributes,
    FileBatch,
    FileStatus,
    Findings,
    NewFile,
    NewStore,
    Part,
    Question,
    Reindexing,
    StoreFile,
    StoreInfo,
)
from drsai_backend.json_types import JsonObject, as_object
from drsai_backend.lazily import later
from drsai_backend.page import Page, every
from drsai_backend.work.kinds import Job, JobOptions

if TYPE_CHECKING:
    from fastapi import APIRouter
    from sqlalchemy.orm import Session

    from drsai_backend.api.joining import Web
    from drsai_backend.features.knowledge.ingestion import Ingestion
    from drsai_backend.features.knowledge.rows import files as file_rows
    from drsai_backend.features.knowledge.rows import indexing as index_rows
    from drsai_backend.features.knowledge.rows import stores as store_rows
    from drsai_backend.runs import Engine
else:
    file_rows, index_rows, store_rows = (
        later(f"drsai_backend.features.knowledge.rows.{each}") for each in ("files", "indexing", "stores")
    )

T = TypeVar("T")


class Knowledge(ForAgents):
    """Stores of users, with files that are searched. What another user has does not exist here (NotFound); a store
    that is shared with the tenant is found by all of its users.

    The owner of what is shared is a tenant without a user: `Owner("acme", "")`.
    """

    name = "knowledge"
    jobs: ClassVar[Mapping[str, JobOptions]] = {
        # While one file is stored the next one is read.
        "knowledge_ingest": JobOptions(handler="ingest", failed="ingest_failed", lock="ingest_lock", concurrency=2),
        "knowledge_reindex": JobOptions(handler="embed_anew"),
        "knowledge_speed_up": JobOptions(handler="speed_up"),
        "knowledge_drop": JobOptions(handler="drop"),
        "knowledge_expire": JobOptions(handler="expire"),
    }

    _keeping: asyncio.Task[None] | None = None

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.knowledge.routes import store_routes

        return store_routes(self, web.bodies)

    async def open(self, engine: Engine) -> None:
        """Begin to have the files of agents' definitions in stores: meanwhile they are served."""
        wanted = {each.store: each for name in engine.teams for each in engine.teams.get(name).options.files}
        if wanted:
            from drsai_backend.features.knowledge.keeping import keep_all

            self._keeping = asyncio.create_task(keep_all(self, engine.files, [*wanted.values()]))

    async def close(self) -> None:
        """End that: what is not stored by then, the next process stores."""
        await end(self._keeping)

    # --- stores ------------------------------------------------------------------------------------------------------

    async def create(self, owner: Owner, new: NewStore, files: Sequence[NewFile] = ()) -> StoreInfo:
        """Make a store, and attach files to it.

        Raises:
            Conflict: the owner has as many stores as they may.
            NotFound: there is no such file.
        """
        return await self._act(partial(file_rows.create_with, owner=owner, new=new, files=files))

    async def ensure(self, owner: Owner, new: NewStore) -> StoreInfo:
        """Return an owner's own store by its name or id, which is made where there is none. Raises Conflict as
        `create`, and InvalidRequest: there are several of the name."""
        return await self._act(partial(store_rows.ensure_store, owner=owner, new=new))

    async def get(self, owner: Owner, store_id: str) -> StoreInfo:
        """A store by its id. Raises NotFound."""
        return await self._read(partial(store_rows.read_store, owner=owner, store_id=store_id))

    async def list(self, owner: Owner, listing: Listing | None = None) -> Page[StoreInfo]:
        """A page of an owner's stores, newest first. Raises InvalidRequest: `after` or `before` is none of them."""
        return await self._read(partial(store_rows.list_stores, owner=owner, listing=listing or Listing()))

    async def update(self, owner: Owner, store_id: str, changes: Mapping[str, object]) -> StoreInfo:
        """Change a store: `name`, `description`, `metadata`, `expires_days`. Raises NotFound, and InvalidRequest: its
        time is over."""
        return await self._act(partial(store_rows.update_store, owner=owner, store_id=store_id, changes=changes))

    async def delete(self, owner: Owner, store_id: str, *, actor: Actor = PROGRAM) -> None:
        """Delete a store; its files stay. Raises NotFound."""
        await self._act(partial(store_rows.delete_store, owner=owner, store_id=store_id, actor=actor))

    async def reindex(self, owner: Owner, store_id: str) -> StoreInfo:
        """Embed a store anew, in the background, by the model of the server; meanwhile what it has is searched. Raises
        NotFound, and InvalidRequest: its time is over."""
        return await self._act(partial(index_rows.reindex, owner=owner, store_id=store_id))

    async def reindexing(self, owner: Owner, store_id: str) -> Reindexing | None:
        """Return how far a store is embedded anew, and why the last attempt failed; None: it is not. Raises
        NotFound."""
        return await self._read(partial(index_rows.reindexing, owner=owner, store_id=store_id))

    # --- files -------------------------------------------------------------------------------------------------------

    async def attach(self, owner: Owner, store_id: str, files: Sequence[NewFile]) -> Sequence[StoreFile]:
        """Attach files to a store. They are read in the background; one that is there already is read anew.

        Raises:
            NotFound: there is no such store, or no such file.
            Conflict: the store has as many files as it may.
            InvalidRequest: its time is over, or a number among the attributes is not exact (beyond 2**53 - 1).
        """
        return await self._act(partial(file_rows.attach, owner=owner, store_id=store_id, files=files))

    async def put(self, owner: Owner, store_id: str, new: NewFile) -> tuple[bool, str | None]:
        """Attach a file that has a path (attribute `drsai.path`) in the place of the one that had it, of which it is a
        later version: what both have stays as it is. The one before is to be deleted while it expires, within an hour.

        Returns:
            Whether it is read now: False: it is there, and was; and the file in whose place it is.

        Raises:
            NotFound, Conflict, InvalidRequest: as `attach`.
        """
        return await self._act(partial(file_rows.put, owner=owner, store_id=store_id, new=new))

    async def attach_batch(self, owner: Owner, store_id: str, files: Sequence[NewFile]) -> FileBatch:
        """Attach files at once, as a batch that can be asked about and cancelled. Raises as `attach`."""
        return await self._act(partial(file_rows.attach_batch, owner=owner, store_id=store_id, files=files))

    async def get_file(self, owner: Owner, store_id: str, file_id: str) -> StoreFile:
        """A file of a store. Raises NotFound."""
        return await self._read(partial(file_rows.read_file, owner=owner, store_id=store_id, file_id=file_id))

    async def list_files(
        self,
        owner: Owner,
        store_id: str,
        listing: Listing | None = None,
        *,
        status: FileStatus | None = None,
        batch_id: str | None = None,
    ) -> Page[StoreFile]:
        """A page of the files of a store, or of a batch, newest first. Raises NotFound, and InvalidRequest as `list`
        does."""
        part = listing or Listing()
        read = partial(
            file_rows.list_files, owner=owner, store_id=store_id, listing=part, status=status, batch_id=batch_id
        )
        return await self._read(read)

    async def every_file(self, owner: Owner, store_id: str) -> Sequence[StoreFile]:
        """Return all files of a store, newest first. Raises NotFound."""
        pages = every(lambda after: self.list_files(owner, store_id, Listing(after=after, limit=500)))
        return [each async for each in pages]

    async def set_attributes(self, owner: Owner, store_id: str, file_id: str, attributes: Attributes) -> StoreFile:
        """Change what filters look at. Raises NotFound, and InvalidRequest as `attach`."""
        change = partial(file_rows.set_file_attributes, owner=owner, store_id=store_id, file_id=file_id)
        return await self._act(partial(change, attributes=attributes))

    async def detach(self, owner: Owner, store_id: str, file_id: str) -> None:
        """Take a file out of a store; it stays a file of the user's. Raises NotFound."""
        await self._act(partial(file_rows.detach, owner=owner, store_id=store_id, file_id=file_id))

    async def content(self, owner: Owner, store_id: str, file_id: str) -> tuple[StoreFile, Sequence[Part]]:
        """A file, and the text that was read of it, in parts that follow each other. Raises NotFound."""
        file, entries = await self._read(partial(file_rows.content_of, owner=owner, store_id=store_id, file_id=file_id))
        # What a chunk repeats of the one before stands there.
        return file, [Part(each.place["order"], each.text[-int(each.place["new"]) :]) for each in entries]

    async def get_batch(self, owner: Owner, store_id: str, batch_id: str) -> FileBatch:
        """A batch of files. Raises NotFound."""
        return await self._read(partial(file_rows.read_batch, owner=owner, store_id=store_id, batch_id=batch_id))

    async def cancel_batch(self, owner: Owner, store_id: str, batch_id: str) -> FileBatch:
        """Read no more of the files of a batch. Raises NotFound."""
        return await self._act(partial(file_rows.cancel_batch, owner=owner, store_id=store_id, batch_id=batch_id))

    # --- searching ---------------------------------------------------------------------------------------------------

    async def resolve(self, owner: Owner, names: Sequence[str]) -> Sequence[StoreInfo]:
        """Return stores by their names or ids, in order: the user's own of a name go before those of the tenant.

        Raises:
            NotFound: there is none of that name, or its time is over; the text names it. That of an agent
                (`AgentStore`) is left out where it is not there yet.
            InvalidRequest: there are several of the same name; the text has their ids.
        """
        return await self._read(lambda session: store_rows.shown(session, store_rows.resolve(session, owner, names)))

    async def search(
        self, owner: Owner, stores: Sequence[str], question: Question, *, whose: Owner | None = None
    ) -> Findings:
        """Search stores, named as in `resolve`, as if they were one. Without an embedding model, or where its endpoint
        gives no answer, it is by keywords alone, and the findings say so.

        Args:
            owner: who asks, for whom models are asked.
            stores: which.
            question: what they are searched for.
            whose: for whom names are resolved; None: for `owner`.

        Raises:
            NotFound, InvalidRequest: as `resolve`; or the question cannot be asked.
        """
        from drsai_backend.features.knowledge.searching import search

        return await search(self.host, owner, stores, question, whose or owner)

    # --- jobs --------------------------------------------------------------------------------------------------------

    async def work_here(self) -> None:
        """Do the jobs of knowledge in this process, too, until the `DrSai` is closed: for one that is no worker."""
        self.host.work.start(kinds_of_jobs(self))

    async def ingest(self, job: Job) -> None:
        """Read a file of a store, in the background."""
        await self._ingestion.ingest(job)
        self.host.work.wake()

    def ingest_failed(self, session: Session, job: Job, reason: str) -> None:
        """Say of a file why it was not read."""
        index_rows.failed_for_good(session, job, reason)

    def ingest_lock(self, session: Session, job: Job) -> None:
        """Lock the store of a file."""
        index_rows.lock_store_of(session, job)

    async def embed_anew(self, job: Job) -> None:
        """Embed a store anew, in the background."""
        await self._ingestion.reindex(job)
        self.host.work.wake()

    async def speed_up(self, job: Job) -> None:
        """Make the HNSW index of a large store."""
        from drsai_backend.search import speed_up

        await asyncio.to_thread(speed_up, self.host.database, int(job.payload["index"]))

    async def drop(self, job: Job) -> None:
        """Remove what was deleted, in the background."""
        await self._ingestion.drop(job)

    async def expire(self, job: Job) -> None:
        """Empty a store whose time is over."""
        await self.host.database.write(partial(store_rows.expire, job=job))
        self.host.work.wake()

    # --- hooks -------------------------------------------------------------------------------------------------------

    def file_deleted(self, session: Session, owner: Owner, file_id: str) -> None:
        """Take the file out of all stores, with its chunks."""
        file_rows.forget_file(session, owner, file_id)

    def tool_given(self, session: Session, owner: Owner, tool: str, arguments: JsonObject) -> None:
        """Raise NotFound: there is no such store; of `file_search`, as OpenAI does. InvalidRequest: no such ranker, or
        filter."""
        from drsai_backend.features.knowledge.reranking import check_ranker
        from drsai_backend.search import parse_filter

        if (field := {"file_search": "vector_store_ids", "knowledge_search": "stores"}.get(tool)) is not None:
            store_rows.resolve(session, owner, arguments[field])
            check_ranker(self.host.models, as_object(arguments.get("ranking_options")).get("ranker"))
            parse_filter(arguments.get("filters"))

    def user_deleted(self, session: Session, owner: Owner) -> int:
        """Delete chunks in parts, which one statement would take minutes for, and stores."""
        return store_rows.delete_part(session, owner)

    def export_user(self, session: Session, owner: Owner) -> Iterator[tuple[str, bytes]]:
        """The stores, each with its files. The files themselves are in the archive."""
        for store, files in file_rows.all_of(session, owner):
            told = {**store.model_dump(mode="json"), "files": [each.model_dump(mode="json") for each in files]}
            yield f"{store.store_id}.json", orjson.dumps(told, option=orjson.OPT_INDENT_2)

    # --- what it is made of ------------------------------------------------------------------------------------------

    @cached_property
    def _ingestion(self) -> Ingestion:
        from drsai_backend.documents import Reader
        from drsai_backend.features.knowledge.ingestion import Ingestion
        from drsai_backend.files import Files

        files = Files(self.host.database, self.host.settings)
        return Ingestion(self.host.database, files, Reader(), self.host.embedder)

    async def _read(self, work: Callable[[Session], T]) -> T:
        return await self.host.database.read(work)

    async def _act(self, work: Callable[[Session], T]) -> T:
        """Store something, and have what it is to be done about it be done soon."""
        made = await self.host.database.act(work)
        self.host.work.wake()
        return made
