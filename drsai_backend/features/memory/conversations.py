"""Conversations have a short-term memory, which is the thread itself: its newest messages, until it is idle. Its route
is here, and that of the engine API, which tells of short- and of long-term memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed, named
from drsai_backend.api.engine.errors import DetailRoute
from drsai_backend.api.http.json import answers, json_response
from drsai_backend.api.http.parameters import Limit, ThreadId, ThreadOwner, known_parameters, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import MESSAGE_SCHEMA, message_object
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.thread import NAME_SCHEMA, check_name
from drsai_backend.days import Day, days_in, words_of
from drsai_backend.errors import DrSaiError, Forbidden, NotFound
from drsai_backend.estimates import estimate_text
from drsai_backend.features.memory.base import FoundMemories, Remembered
from drsai_backend.features.memory.checks import share_of_words
from drsai_backend.json_types import JsonObject

if TYPE_CHECKING:
    from drsai_backend.features.memory.extension import Memory
    from drsai_backend.runs import Engine
    from drsai_backend.runs.threads.rights import Named
    from drsai_backend.runs.threads.views import StoredMessage

MemoryReader = Annotated[Principal, allowed(Scope.MEMORY_READ)]
ThreadReader = Annotated[Principal, allowed(Scope.THREADS_READ)]
ConversationId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA)]
On = Annotated[Day | None, Query(description="The day from which *last week* is seen. Default: today, in UTC.")]
_SHORT_TERM: Final[JsonObject] = {
    "type": "object",
    "required": ["object", "thread_id", "messages", "tokens", "idle", "updated_at"],
    "properties": {
        "object": {"const": "thread.memory"},
        "thread_id": {"type": "string"},
        "messages": {"type": "array", "items": MESSAGE_SCHEMA},
        "tokens": {"type": "integer", "description": "Of the messages, estimated."},
        "idle": {"type": "boolean", "description": "It was left for so long that nothing of it counts any more."},
        "updated_at": {"type": "integer"},
    },
}
_LIST: Final = {"type": "array", "items": {"type": "object"}}
_LISTS: Final = {"short_term": _LIST, "long_term": _LIST, "combined": _LIST}
_CONVERSATION: Final[JsonObject] = {
    "type": "object",
    "required": ["conversation_id", *_LISTS, "updated_at"],
    "properties": {
        "conversation_id": {"type": "string"},
        **_LISTS,
        "errors": {"type": "object", "description": "What could not be read, and why."},
        "updated_at": {"type": "string"},
    },
}


MESSAGES: Final = 20
"""How many are read where nothing is said."""


@dataclass(frozen=True, slots=True)
class ShortTerm:
    """What a thread remembers.

    Attributes:
        messages: the newest, oldest first.
        tokens: of them, estimated.
        updated_at: when the thread last changed.
        idle: it has been left for so long that nothing of it counts any more.
    """

    messages: Sequence[StoredMessage]
    tokens: int
    updated_at: datetime
    idle: bool


async def short_term(
    engine: Engine, who: Principal, thread: Named, idle_seconds: float, messages: int, tokens: int | None = None
) -> ShortTerm:
    """Return the newest messages of a thread: so many at most, of so many tokens together; one is there in any case,
    unless the thread is idle.

    Raises:
        NotFound: there is no such thread, or who asks may not read it.
    """
    detail = await engine.get_thread(who, thread)
    if detail.updated_at + timedelta(seconds=idle_seconds) < utcnow() and detail.status.is_final:
        return ShortTerm([], 0, detail.updated_at, idle=True)
    kept: list[StoredMessage] = []
    used = 0
    for each in reversed(await engine.newest_messages(who, thread, messages)):
        size = estimate_text(each.content)
        if kept and tokens is not None and used + size > tokens:
            break
        kept.append(each)
        used += size
    return ShortTerm(kept[::-1], used, detail.updated_at, idle=False)


def conversation_routes(memory: Memory, web: Web) -> APIRouter:
    """Return the routes of what a thread remembers, and of what the engine API tells of that and of its user."""
    router, idle = new_router("/v1/threads", tags=["threads"]), memory.host.settings.memory_idle_seconds

    @router.get("/{thread_id:path}/memory", responses=answers(200, _SHORT_TERM))
    async def thread_memory(
        thread_id: ThreadId,
        who: ThreadReader,
        limit: Limit = MESSAGES,
        tokens: Annotated[int | None, Query(ge=1, description="Of the messages together, at most.")] = None,
        owner: ThreadOwner = None,
    ) -> Response:
        """The newest messages of a thread, oldest first; none where it has been idle for long."""
        found = await short_term(web.engine, who, named(who, thread_id, owner), idle, limit, tokens)
        return json_response(
            {
                "object": "thread.memory",
                "thread_id": thread_id,
                "messages": [message_object(each) for each in found.messages],
                "tokens": found.tokens,
                "idle": found.idle,
                "updated_at": int(found.updated_at.timestamp()),
            }
        )

    router.routes.extend(_of_engine(memory, web).routes)
    return router


def _of_engine(memory: Memory, web: Web) -> APIRouter:
    router = APIRouter(
        prefix="/api/v1/agent", tags=["agent"], route_class=DetailRoute, dependencies=[Depends(known_parameters)]
    )
    idle = memory.host.settings.memory_idle_seconds

    @router.get("/memory/{conversation_id:path}", responses=answers(200, _CONVERSATION))
    async def read_memory(
        conversation_id: ConversationId,
        who: MemoryReader,
        query: Annotated[str | None, Query(max_length=1000, description="For long-term memories.")] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = MESSAGES,
        on: On = None,
    ) -> Response:
        """What is remembered: of a conversation, oldest first; of its user, the best first; and of both. Each is read
        for itself, and `errors` says what could not be."""
        name = check_name(conversation_id, "conversation_id")
        detail = await _conversation(web, who, name)
        recent, found = await asyncio.gather(
            _recent(web, who, name, idle, limit), _known(memory, who, name, query or "", on), return_exceptions=True
        )
        short = [] if isinstance(recent, BaseException) else _turns(recent, query or "", on or utcnow().date())
        long = [] if isinstance(found, BaseException) else [*map(_entry, found.items)]
        errors = {
            name: _said(each)
            for name, each in (("short_term", recent), ("long_term", found))
            if isinstance(each, BaseException)
        }
        both = [{"type": "short_term", **_shared(each)} for each in short]
        both += [{"type": "long_term", **_shared(each)} for each in long]
        body = {
            "conversation_id": name,
            "short_term": short,
            "long_term": long,
            "combined": sorted(both, key=itemgetter("score"), reverse=True)[:limit],
            "errors": errors,
        }
        return json_response({**body, "updated_at": detail})

    return router


async def _conversation(web: Web, who: Principal, name: str) -> str:
    try:
        return (await web.engine.get_thread(who, name)).updated_at.isoformat()
    except NotFound:
        raise NotFound(f"no conversation {name!r}", param="conversation_id") from None


async def _recent(web: Web, who: Principal, name: str, idle: float, limit: int) -> ShortTerm:
    who.require(Scope.THREADS_READ)
    return await short_term(web.engine, who, name, idle, limit)


async def _known(memory: Memory, who: Principal, name: str, query: str, on: date | None) -> FoundMemories:
    from drsai_backend.features.memory.extension import UNKNOWN_PERSON

    if not who.is_one_person:
        raise Forbidden(UNKNOWN_PERSON)
    return await memory.search(who.owner, query, on=on, thread=who.owner.thread(name))


def _said(error: BaseException) -> str:
    """Return why something could not be read. What is no error of ours is raised."""
    if not isinstance(error, DrSaiError):
        raise error
    return error.message


_LOOKED_AT: Final = 4_000
"""Characters of a message that are compared with a question."""
_BEFORE: Final = 2
"""Messages before one that are compared with it."""


def _turns(found: ShortTerm, query: str, on: date) -> list[JsonObject]:
    """Return messages as the engine API has them. The newer, and the nearer to the question, the higher the score."""
    now, days = utcnow(), {*days_in(query, on).split()}
    texts = [f"{each.source} {each.content[:_LOOKED_AT]}" for each in found.messages]

    def fits(at: int, day: date) -> float:
        """0 to 1: by its speaker and its words, which count twice, and those before; and where the question names
        days, by whether it is of one of them, or names one."""
        around = " ".join(texts[max(at - _BEFORE, 0) : at + 1])
        share = (2 * share_of_words(query, texts[at]) + share_of_words(query, around)) / 3
        if not days:
            return share
        return (share + bool(days & {*f"{words_of(day)} {days_in(texts[at], day)}".split()})) / 2

    return [
        {
            "role": "user" if message.source == "user" else "assistant",
            "source": message.source,
            "content": message.content,
            "timestamp": message.created_at.isoformat(),
            "score": round((0.5 + fits(at, message.created_at.date()) / 2) * 0.97 ** (len(texts) - at - 1), 6),
            "days_ago": (now - message.created_at).days,
        }
        for at, message in enumerate(found.messages)
    ]


def _entry(each: Remembered) -> JsonObject:
    memory = each.memory
    fields = {"id": memory.memory_id, "kind": memory.kind, "importance": memory.importance}
    return {"content": memory.text, **fields, "score": each.score, "days_ago": each.days_ago}


def _shared(each: JsonObject) -> JsonObject:
    return {name: each[name] for name in ("content", "score", "days_ago")}
