"""The routes of `/v1/vector_stores` are those that OpenAI has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed, described, read_fields
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.json import ERROR_CONTENT, answers, deleted, deletion, json_response, page_of, page_response
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import FileId, Limit, new_router
from drsai_backend.database.hooks import Asked
from drsai_backend.database.pages import Listing
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.features.knowledge.base import NO_RANKERS, FileStatus, NewStore, Question, StoreFile
from drsai_backend.features.knowledge.reranking import check_on, check_ranker
from drsai_backend.features.knowledge.wire import (
    BATCH,
    CONTENT,
    FILE,
    FINDINGS,
    STORE,
    BatchBody,
    FileBody,
    FileChangeBody,
    RankingOptions,
    SearchBody,
    StoreBody,
    StoreChangeBody,
    alike,
    batch_object,
    file_object,
    findings_object,
    store_object,
)
from drsai_backend.json_types import JsonObject

if TYPE_CHECKING:
    from drsai_backend.features.knowledge.extension import Knowledge

Reader = Annotated[Principal, allowed(Scope.KNOWLEDGE_READ)]
Writer = Annotated[Principal, allowed(Scope.KNOWLEDGE_WRITE)]
StoreId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA)]
BatchId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA)]
_Place = Annotated[str | None, Query(max_length=255, description="The id of an item of the list.")]
_Only = Annotated[FileStatus | None, Query(description="Only those of this status.")]


def _part(
    limit: Limit = 20,
    order: Annotated[Literal["asc", "desc"], Query(description="By when they were made.")] = "desc",
    after: _Place = None,
    before: _Place = None,
) -> Listing:
    return Listing(after=after, before=before, limit=limit, order=order)


Part = Annotated[Listing, Depends(_part)]
_NO_FILE: dict[int | str, JsonObject] = {
    404: {"description": "One of the files is none of yours.", "content": ERROR_CONTENT}
}


def store_routes(knowledge: Knowledge, bodies: Bodies) -> APIRouter:
    """Return the routes. Whoever asks here sees their own stores, and reads those that are shared with their tenant."""
    router = new_router("/v1/vector_stores", tags=["vector stores"])

    @router.post("", responses=answers(200, STORE) | _NO_FILE, openapi_extra=described(StoreBody))
    async def create_vector_store(request: Request, who: Writer, once: Once) -> Response:
        """Make a vector store. Files that it begins with are read in the background."""
        body = await read_fields(bodies, request, StoreBody)
        days = None if body.expires_after is None else body.expires_after.days
        new = NewStore(
            name=body.name or "",
            description=body.description or "",
            metadata=body.metadata or {},
            expires_days=days,
        )
        files = alike(body.file_ids, None, body.chunking_strategy)
        return await once(who, body, lambda: knowledge.create(who.owner, new, files), plain(store_object))

    @router.get("", responses=answers(200, page_of(STORE)))
    async def list_vector_stores(who: Reader, part: Part) -> Response:
        """Your vector stores, newest first."""
        return page_response(await knowledge.list(who.owner, part), store_object)

    @router.get("/{vector_store_id}", responses=answers(200, STORE))
    async def get_vector_store(vector_store_id: StoreId, who: Reader) -> Response:
        """A vector store."""
        return json_response(store_object(await knowledge.get(who.owner, vector_store_id)))

    @router.post("/{vector_store_id}", responses=answers(200, STORE), openapi_extra=described(StoreChangeBody))
    async def update_vector_store(request: Request, vector_store_id: StoreId, who: Writer) -> Response:
        """Change a vector store: its name, its metadata, when it expires."""
        body = await read_fields(bodies, request, StoreChangeBody)
        return json_response(store_object(await knowledge.update(who.owner, vector_store_id, body.changes())))

    @router.delete("/{vector_store_id}", responses=answers(200, deletion("vector_store.deleted"), "It is gone."))
    async def delete_vector_store(vector_store_id: StoreId, who: Writer) -> Response:
        """Delete a vector store. Its files stay."""
        await knowledge.delete(who.owner, vector_store_id, actor=who.actor)
        return deleted(vector_store_id, "vector_store.deleted")

    @router.post(
        "/{vector_store_id}/search",
        responses=answers(200, FINDINGS, "The best passages."),
        openapi_extra=described(SearchBody),
    )
    async def search_vector_store(request: Request, vector_store_id: StoreId, who: Reader) -> Response:
        """Search a vector store. Where a model ranks (`ranker`), this needs the scope `chat`, too, and counts as a
        request of a model does."""
        body = await read_fields(bodies, request, SearchBody)
        ranking = body.ranking_options or RankingOptions()
        question = Question(
            queries=[body.query] if isinstance(body.query, str) else body.query,
            top_k=body.max_num_results,
            filters=body.filters,
            score_threshold=ranking.score_threshold,
            ranker=ranking.ranker,
            on=body.on,
        )
        await knowledge.get(who.owner, vector_store_id)  # By its id, and no name.
        if ranking.ranker not in NO_RANKERS:
            check_ranker(knowledge.host.models, ranking.ranker)
            who.require(Scope.CHAT)  # A model is asked.
            check_on(knowledge.host.models, ranking.ranker, who.owner)
            await knowledge.host.calls.charge(Asked(who.owner, who.key_id))
        return json_response(findings_object(await knowledge.search(who.owner, [vector_store_id], question)))

    router.routes.extend(_file_routes(knowledge, bodies).routes)
    router.routes.extend(_batch_routes(knowledge, bodies).routes)
    return router


def _file_routes(knowledge: Knowledge, bodies: Bodies) -> APIRouter:
    router = new_router("/v1/vector_stores/{vector_store_id}/files", tags=["vector stores"])

    @router.post("", responses=answers(200, FILE), openapi_extra=described(FileBody))
    async def create_vector_store_file(request: Request, vector_store_id: StoreId, who: Writer, once: Once) -> Response:
        """Attach a file to a vector store. It is read in the background; one that is there already is read anew."""
        body = await read_fields(bodies, request, FileBody)
        new = [body.new()]
        return await once(who, body, lambda: knowledge.attach(who.owner, vector_store_id, new), plain(_first))

    @router.get("", responses=answers(200, page_of(FILE)))
    async def list_vector_store_files(
        vector_store_id: StoreId, who: Reader, part: Part, filter: _Only = None
    ) -> Response:
        """The files of a vector store, newest first."""
        return page_response(await knowledge.list_files(who.owner, vector_store_id, part, status=filter), file_object)

    @router.get("/{file_id}", responses=answers(200, FILE))
    async def get_vector_store_file(vector_store_id: StoreId, file_id: FileId, who: Reader) -> Response:
        """A file of a vector store: how far it is read, or why it could not be."""
        return json_response(file_object(await knowledge.get_file(who.owner, vector_store_id, file_id)))

    @router.post("/{file_id}", responses=answers(200, FILE), openapi_extra=described(FileChangeBody))
    async def update_vector_store_file(
        request: Request, vector_store_id: StoreId, file_id: FileId, who: Writer
    ) -> Response:
        """Change the attributes of a file, which filters look at."""
        body = await read_fields(bodies, request, FileChangeBody)
        changed = await knowledge.set_attributes(who.owner, vector_store_id, file_id, body.attributes or {})
        return json_response(file_object(changed))

    @router.delete("/{file_id}", responses=answers(200, deletion("vector_store.file.deleted"), "It is out of it."))
    async def delete_vector_store_file(vector_store_id: StoreId, file_id: FileId, who: Writer) -> Response:
        """Take a file out of a vector store. The file itself stays."""
        await knowledge.detach(who.owner, vector_store_id, file_id)
        return deleted(file_id, "vector_store.file.deleted")

    @router.get("/{file_id}/content", responses=answers(200, CONTENT, "Its text, in parts."))
    async def get_vector_store_file_content(vector_store_id: StoreId, file_id: FileId, who: Reader) -> Response:
        """The text that was read of a file."""
        file, parts = await knowledge.content(who.owner, vector_store_id, file_id)
        return json_response(
            {
                "object": "vector_store.file_content.page",
                "file_id": file.file_id,
                "filename": file.filename,
                "attributes": file.attributes,
                "data": [{"type": "text", "text": part.text, "place": part.place} for part in parts],
                "has_more": False,
                "next_page": None,
            }
        )

    return router


def _first(made: list[StoreFile]) -> JsonObject:
    return file_object(made[0])


def _batch_routes(knowledge: Knowledge, bodies: Bodies) -> APIRouter:
    router = new_router("/v1/vector_stores/{vector_store_id}/file_batches", tags=["vector stores"])

    @router.post("", responses=answers(200, BATCH), openapi_extra=described(BatchBody))
    async def create_vector_store_file_batch(
        request: Request, vector_store_id: StoreId, who: Writer, once: Once
    ) -> Response:
        """Attach up to 2,000 files at once."""
        body = await read_fields(bodies, request, BatchBody)
        new = body.new()
        return await once(
            who, body, lambda: knowledge.attach_batch(who.owner, vector_store_id, new), plain(batch_object)
        )

    @router.get("/{batch_id}", responses=answers(200, BATCH))
    async def get_vector_store_file_batch(vector_store_id: StoreId, batch_id: BatchId, who: Reader) -> Response:
        """A batch: how many of its files are read."""
        return json_response(batch_object(await knowledge.get_batch(who.owner, vector_store_id, batch_id)))

    @router.post("/{batch_id}/cancel", responses=answers(200, BATCH))
    async def cancel_vector_store_file_batch(vector_store_id: StoreId, batch_id: BatchId, who: Writer) -> Response:
        """Read no more of the files of a batch."""
        return json_response(batch_object(await knowledge.cancel_batch(who.owner, vector_store_id, batch_id)))

    @router.get("/{batch_id}/files", responses=answers(200, page_of(FILE)))
    async def list_files_in_vector_store_batch(
        vector_store_id: StoreId, batch_id: BatchId, who: Reader, part: Part, filter: _Only = None
    ) -> Response:
        """The files of a batch, newest first."""
        found = await knowledge.list_files(who.owner, vector_store_id, part, status=filter, batch_id=batch_id)
        return page_response(found, file_object)

    return router
