"""The routes of `/v1/memories` serve what is remembered of a person to themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body, allowed, described, read_fields
from drsai_backend.api.http.json import answers, deleted, deletion, dumps, json_response, page_of, page_response
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import AfterNumber, Limit, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.days import Moment
from drsai_backend.errors import Forbidden
from drsai_backend.features.memory.base import (
    ID,
    MAX_TEXT,
    VERSION,
    MemoryInfo,
    MemoryKind,
    NewMemory,
    ScopeName,
    shared_by,
)
from drsai_backend.features.memory.conversations import On, conversation_routes
from drsai_backend.features.memory.extension import UNKNOWN_PERSON
from drsai_backend.features.memory.recall import TOP_K, RecallOptions
from drsai_backend.features.memory.rows import Listed
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page

if TYPE_CHECKING:
    from drsai_backend.features.memory.extension import Memory


Reader = Annotated[Principal, allowed(Scope.MEMORY_READ)]
Writer = Annotated[Principal, allowed(Scope.MEMORY_WRITE)]
Deleter = Annotated[Principal, allowed(Scope.MEMORY_DELETE)]
_ID: Final[JsonObject] = {"type": "string", "pattern": ID}
MemoryId = Annotated[str, Path(json_schema_extra=_ID)]
Shared = Annotated[bool, Query(description="What all users of the tenant share, in place of one's own.")]
InScope = Annotated[ScopeName | None, Query(description="Only those of this scope; empty: those for all.")]
OrScope = Annotated[
    ScopeName | None,
    Query(description="Those of this scope and those for all, as agents are shown them. Default: all."),
]
OfKind = Annotated[MemoryKind | None, Query(description="Only those of this kind.")]
At = Annotated[Moment | None, Query(description="Those that were current then, as 2026-03-01T00:00:00Z. Default: now.")]
Versions = Annotated[
    list[Annotated[str, Field(pattern=VERSION)]] | None,
    Query(
        alias="version_id[]",
        max_length=100,
        description="Only these versions, current or not: `recalled` of a run's steps names those that were shown.",
    ),
]
Question = Annotated[str, Query(min_length=1, max_length=1000, description="What they are to be about.")]
TopK = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
_TIME: Final = {"type": ["integer", "null"]}
_MEMORY: Final[JsonObject] = {
    "type": "object",
    "required": [
        "id",
        "object",
        "text",
        "kind",
        "scope",
        "importance",
        "origin",
        "sources",
        "valid_from",
        "created_at",
    ],
    "properties": {
        "id": {"type": "string", "description": "Of all its versions."},
        "object": {"const": "memory"},
        "version_id": {"type": "string"},
        "text": {"type": "string"},
        "kind": {"enum": ["fact", "preference", "episode"]},
        "scope": {"type": "string"},
        "shared": {"type": "boolean", "description": "It belongs to all users of the tenant."},
        "importance": {"type": "number"},
        "origin": {"enum": ["run", "api", "tool"]},
        "sources": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["thread_id", "run_id", "seq", "quote"],
                "properties": {
                    **{name: {"type": "string"} for name in ("thread_id", "run_id", "quote")},
                    **{name: {"type": ["string", "null"]} for name in ("user_id", "said_by")},
                    "seq": {"type": "integer"},
                },
            },
            "description": "Messages, and the words in them.",
        },
        "valid_from": {"type": "integer", "description": "Unix time in seconds, as all times."},
        "valid_to": {**_TIME, "description": "Until when it was true."},
        "created_at": {"type": "integer"},
        "expired_at": {**_TIME, "description": "When it was believed no more; null: it is current."},
        "ended_by": {"enum": ["update", "invalidate", None]},
        "uses": {"type": "integer", "description": "How often agents were shown it."},
        "used_at": _TIME,
    },
}
_FOUND: Final[JsonObject] = {
    **_MEMORY,
    "required": [*_MEMORY["required"], "score", "days_ago"],
    "properties": {**_MEMORY["properties"], "score": {"type": "number"}, "days_ago": {"type": "integer"}},
}
_SETTINGS: Final[JsonObject] = {
    "type": "object",
    "required": ["object", "enabled", "learns"],
    "properties": {
        "object": {"const": "memory.settings"},
        "enabled": {"type": "boolean", "description": "Whether this server learns from what known people say."},
        "learns": {"type": "boolean", "description": "Whether you want it to learn from what you say."},
        "note": {"type": ["string", "null"]},
    },
}
_EXPORT: Final[dict[int | str, JsonObject]] = {
    200: {"description": "A JSON object a line.", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}
_ALL_DELETED: Final[JsonObject] = {
    "type": "object",
    "required": ["object", "deleted", "versions"],
    "properties": {
        "object": {"const": "memory.list.deleted"},
        "deleted": {"const": True},
        "versions": {"type": "integer"},
    },
}


class NewMemoryBody(Body):
    """Something to be remembered."""

    text: str = Field(min_length=1, max_length=MAX_TEXT, description="One sentence.")
    kind: MemoryKind = "fact"
    importance: float = Field(default=0.8, ge=0, le=1)
    scope: ScopeName = Field(default="", description="Empty: for all agents.")
    shared: bool = Field(default=False, description="For all users of the tenant: needs `knowledge:write`, too.")


class MemoryBody(Body):
    """The next version of a memory: what is not there stays."""

    text: str | None = Field(default=None, min_length=1, max_length=MAX_TEXT)
    kind: MemoryKind | None = None
    importance: float | None = Field(default=None, ge=0, le=1)


class SettingsBody(Body):
    """What a person wants."""

    learns: bool = Field(description="Whether anything is to be learnt from what they say.")


def memory_routes(memory: Memory, web: Web) -> APIRouter:
    """Return the routes. Whoever asks here sees and changes what is remembered of themselves; with `shared`, what all
    users of the tenant share, which those change who may change its knowledge."""
    router, bodies = new_router(tags=["memories"]), web.bodies
    _add_settings(router, memory, web)

    @router.post(
        "/v1/memories", status_code=201, responses=answers(201, _MEMORY), openapi_extra=described(NewMemoryBody)
    )
    async def add_memory(request: Request, who: Writer, once: Once) -> Response:
        """Remember something. The same text is remembered once; what looks like a secret is refused."""
        body = await read_fields(bodies, request, NewMemoryBody)
        owner = _whose(who, shared=body.shared, changes=True)
        new = NewMemory(text=body.text, kind=body.kind, importance=body.importance, scope=body.scope)
        return await once(who, body, lambda: memory.add(owner, new), plain(_object))

    @router.get("/v1/memories", responses=answers(200, page_of(_MEMORY)))
    async def list_memories(  # noqa: PLR0913 - a query has many parameters
        who: Reader,
        limit: Limit = 20,
        after: AfterNumber = None,
        scope: InScope = None,
        kind: OfKind = None,
        at: At = None,
        versions: Versions = None,
        shared: Shared = False,
    ) -> Response:
        """What is remembered, newest first."""
        only = Listed(scope, kind, at, versions)
        return page_response(await memory.list(_whose(who, shared=shared), only, after, limit), _object)

    @router.get("/v1/memories/search", responses=answers(200, page_of(_FOUND)))
    async def search_memories(
        who: Reader,
        query: Question,
        top_k: TopK = TOP_K,
        scope: OrScope = None,
        on: On = None,
        shared: Shared = False,
    ) -> Response:
        """What fits a question, the best first."""
        options = RecallOptions(top_k=top_k, scope=scope or "")
        found = await memory.search(_whose(who, shared=shared), query, options, all_scopes=scope is None, on=on)
        items = [{**_object(each.memory), "score": each.score, "days_ago": each.days_ago} for each in found.items]
        return page_response(Page[JsonObject](items=items))

    @router.get("/v1/memories/export", responses=_EXPORT, response_class=Response)
    async def export_memories(who: Reader, shared: Shared = False) -> Response:
        """All that is remembered, as lines of JSON."""
        found = memory.every(_whose(who, shared=shared))
        lines = (dumps(_object(each)) + b"\n" async for each in found)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    @router.delete("/v1/memories", responses=answers(200, _ALL_DELETED))
    async def delete_memories(who: Deleter, shared: Shared = False) -> Response:
        """Forget everything, with all versions."""
        gone = await memory.delete_all(_whose(who, shared=shared, changes=True))
        return json_response({"object": "memory.list.deleted", "deleted": True, "versions": gone})

    @router.get("/v1/memories/{memory_id}", responses=answers(200, _MEMORY))
    async def get_memory(memory_id: MemoryId, who: Reader, shared: Shared = False) -> Response:
        """The newest version of a memory, also of one that is believed no more."""
        return json_response(_object((await memory.history(_whose(who, shared=shared), memory_id))[0]))

    @router.get("/v1/memories/{memory_id}/history", responses=answers(200, page_of(_MEMORY)))
    async def memory_history(memory_id: MemoryId, who: Reader, shared: Shared = False) -> Response:
        """All versions of a memory, newest first."""
        found = await memory.history(_whose(who, shared=shared), memory_id)
        return page_response(Page[MemoryInfo](items=[*found]), _object)

    @router.patch("/v1/memories/{memory_id}", responses=answers(200, _MEMORY), openapi_extra=described(MemoryBody))
    async def change_memory(memory_id: MemoryId, request: Request, who: Writer, shared: Shared = False) -> Response:
        """Say it anew, or that it matters more or less; the version before stays in the history."""
        body = await read_fields(bodies, request, MemoryBody)
        owner = _whose(who, shared=shared, changes=True)
        return json_response(_object(await memory.change(owner, memory_id, body.text, body.kind, body.importance)))

    @router.delete("/v1/memories/{memory_id}", responses=answers(200, deletion("memory.deleted")))
    async def delete_memory(memory_id: MemoryId, who: Deleter, shared: Shared = False) -> Response:
        """Forget it, with all versions."""
        await memory.delete(_whose(who, shared=shared, changes=True), memory_id)
        return deleted(memory_id, "memory.deleted")

    router.routes.extend(conversation_routes(memory, web).routes)
    return router


def _add_settings(router: APIRouter, memory: Memory, web: Web) -> None:
    @router.get("/v1/memories/settings", responses=answers(200, _SETTINGS))
    async def get_settings(who: Reader) -> Response:
        """Whether anything is learnt from what you say."""
        return json_response(await _settings(memory, who))

    @router.patch("/v1/memories/settings", responses=answers(200, _SETTINGS), openapi_extra=described(SettingsBody))
    async def change_settings(request: Request, who: Writer) -> Response:
        """Say whether anything is to be learnt from what you say. What is remembered stays."""
        body = await read_fields(web.bodies, request, SettingsBody)
        await memory.set_learns(who.owner, learns=body.learns)
        return json_response(await _settings(memory, who))


async def _settings(memory: Memory, who: Principal) -> JsonObject:
    learns = await memory.learns(who.owner)
    note = None if who.is_one_person else UNKNOWN_PERSON
    return {"object": "memory.settings", "enabled": memory.is_on, "learns": learns and note is None, "note": note}


def _whose(who: Principal, *, shared: bool, changes: bool = False) -> Owner:
    """Return whose memories a request means. Raises Forbidden: those of its user, who may be many people; and
    InsufficientScope: it changes what is shared, and may not."""
    if shared:
        if changes:
            who.require(Scope.KNOWLEDGE_WRITE)
        return shared_by(who.tenant)
    if not who.is_one_person:
        raise Forbidden(UNKNOWN_PERSON)
    return who.owner


def _object(info: MemoryInfo) -> JsonObject:
    fields = fields_of(info)
    return {"id": fields.pop("memory_id"), "object": "memory", **fields}
