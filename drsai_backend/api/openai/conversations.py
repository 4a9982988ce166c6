"""`/v1/conversations` has threads under OpenAI's name, and what was said in them as items.

A conversation's id is that of its thread; any thread of the user may be named (one whose id holds a slash cannot be put
into a path here). Items that are added wait, beside the thread, for the next response: its run takes them up, those of
the assistant too while nobody has answered yet. What was said is kept: such an item cannot be deleted, but with the
conversation.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import dropwhile
from typing import Annotated, Final

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import NamedUser, allowed_caller, described
from drsai_backend.api.http.checking import checked
from drsai_backend.api.http.json import answers, deleted, deletion, dumps, json_response, listed
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import ConversationId, ItemId, Limit, new_router
from drsai_backend.api.openai.files.request_files import with_documents
from drsai_backend.api.openai.messages import Wire, ignored_header, unread_fields, unread_names
from drsai_backend.api.openai.responses.request.body import Metadata, SaidItem, SaidItems, User
from drsai_backend.api.openai.responses.request.inputs import placed
from drsai_backend.api.openai.responses.request.items import given_item
from drsai_backend.api.openai.responses.request.parameters import not_included
from drsai_backend.api.openai.responses.routes import (
    PAGE_SCHEMA,
    AfterItem,
    Chatter,
    Deleter,
    Include,
    Order,
    Reader,
    acting,
)
from drsai_backend.api.openai.responses.service import Responses
from drsai_backend.api.openai.responses.stored.places import conversation_of
from drsai_backend.api.openai.responses.stored.reading import NOTED
from drsai_backend.api.openai.responses.stored.stored import items_of, read_as_done, role_of
from drsai_backend.database.pages import PAGE_SIZE
from drsai_backend.database.responses import (
    ConversationRows,
    change_conversation,
    make_conversation,
    read_items,
)
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import Conflict, InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.runs.requests import new_thread_id

_MOST_ADDED: Final = 20
"""Items of one request, as with OpenAI."""
_PAGE: Final = 200
"""Messages that are read at once."""
_LOOKED_AT: Final = 5000
"""Messages that are read for one page: most of a run's messages may be none that are shown."""
_WAITING: Final = "msg_w"
_STORED: Final = re.compile(r"[a-z]{2,4}_t([0-9]{1,9})(?:_[0-9]{1,3})?")
"""The id of an item that was made of a stored message: the message's number, and which of its items it is."""
_OBJECT: Final = {
    "type": "object",
    "required": ["id", "object", "created_at", "metadata"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "conversation"},
        "created_at": {"type": "integer", "description": "Unix time in seconds."},
        "metadata": {"type": "object"},
    },
}
_ITEM: Final = {"type": "object", "required": ["id", "type"]}

_TEXTS: Final = {
    "items.type": "must be message, function_call, function_call_output, custom_tool_call, custom_tool_call_output, "
    "reasoning, file_search_call, mcp_approval_request, mcp_approval_response or compaction: other items come with a "
    "request for a response. A part of a message is input_text, output_text, refusal, input_image or input_file"
}
"""What is wrong, where that is more than a wrong type."""

Writer = Annotated[Principal | None, allowed_caller(Scope.THREADS_WRITE)]


class ConversationBody(Wire):
    """A new conversation."""

    model_config = ConfigDict(extra="allow")

    items: Annotated[SaidItems, Field(max_length=_MOST_ADDED)] | None = Field(
        default=None, description="What was said before."
    )
    metadata: Metadata | None = None
    user: User = Field(default=None, description="Whose it is, as in a chat request.")


class MetadataBody(Wire):
    """A change of a conversation."""

    model_config = ConfigDict(extra="allow")

    metadata: Metadata | None
    user: User = Field(default=None, description="Whose it is, as in a chat request.")


class ItemsBody(Wire):
    """Items for a conversation."""

    model_config = ConfigDict(extra="allow")

    items: SaidItems = Field(min_length=1, max_length=_MOST_ADDED)
    user: User = Field(default=None, description="Whose it is, as in a chat request.")


def conversation_routes(responses: Responses) -> APIRouter:
    """The routes."""
    router = new_router("/v1/conversations", tags=["conversations"])
    conversations = _Conversations(responses)
    bodies = responses.bodies

    @router.post(
        "",
        responses=answers(200, _OBJECT),
        openapi_extra=described(ConversationBody),
    )
    async def create_conversation(request: Request, caller: Chatter, once: Once, user: NamedUser = None) -> Response:
        """Make a conversation, empty or with what was said before."""
        async with bodies.read(request.scope, request.receive, optional=True) as given:
            body = checked(ConversationBody.model_validate, given, _TEXTS)
            who = acting(request, caller, user, body.user)
            added, unread = await conversations.added(who, given, begun=False)
        name = who.owner.thread(new_thread_id().replace("thread_", "conv_"))
        response = await once(
            who,
            body,
            lambda: conversations.make(name, body.metadata or {}, added),
            plain(partial(_shown, name.thread_id)),
        )
        response.headers.update(ignored_header(unread))
        return response

    @router.get("/{conversation_id}", responses=answers(200, _OBJECT))
    async def get_conversation(conversation_id: ConversationId, who: Reader) -> Response:
        """A conversation, without what was said."""
        return json_response(_shown(conversation_id, await conversation_of(responses.engine, who, conversation_id)))

    @router.post(
        "/{conversation_id}",
        responses=answers(200, _OBJECT),
        openapi_extra=described(MetadataBody),
    )
    async def update_conversation(
        request: Request, conversation_id: ConversationId, caller: Writer, user: NamedUser = None
    ) -> Response:
        """Change the metadata of a conversation; null: there is none any more."""
        async with bodies.read(request.scope, request.receive) as given:
            body = checked(MetadataBody.model_validate, given, _TEXTS)
        who = acting(request, caller, user, body.user)
        await conversations.change(who, conversation_id, metadata=body.metadata or {})
        shown = _shown(conversation_id, await conversation_of(responses.engine, who, conversation_id))
        return json_response(shown, headers=ignored_header(unread_names(body)))

    @router.delete("/{conversation_id}", responses=answers(200, deletion("conversation.deleted")))
    async def delete_conversation(conversation_id: ConversationId, who: Deleter) -> Response:
        """Delete a conversation with all that was said. 409 while a run is live."""
        await conversation_of(responses.engine, who, conversation_id)
        await responses.engine.delete_thread(who, conversation_id)
        return deleted(conversation_id, "conversation.deleted")

    @router.get("/{conversation_id}/items", responses=answers(200, PAGE_SCHEMA))
    async def list_items(
        conversation_id: ConversationId,
        who: Reader,
        limit: Limit = 20,
        order: Order = "desc",
        after: AfterItem = None,
        include: Include = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        """What was said in a conversation: messages, thoughts and approvals."""
        page = await conversations.items(who, conversation_id, after, limit, newest_first=order == "desc")
        return json_response(listed(page), headers=not_included(include))

    @router.post(
        "/{conversation_id}/items",
        responses=answers(200, PAGE_SCHEMA),
        openapi_extra=described(ItemsBody),
    )
    async def create_items(
        request: Request,
        conversation_id: ConversationId,
        caller: Chatter,
        once: Once,
        user: NamedUser = None,
        include: Include = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        """Add items for the next response. Once the conversation has begun, only messages of the user, or of the
        system, can be added."""
        async with bodies.read(request.scope, request.receive) as given:
            body = checked(ItemsBody.model_validate, given, _TEXTS)
            who = acting(request, caller, user, body.user)
            rows = await conversation_of(responses.engine, who, conversation_id)
            begun = await conversations.has_begun(rows)
            added, unread = await conversations.added(who, given, begun=begun)

        def show(value: JsonObject) -> JsonObject:
            shown = [_waiting(each) for each in value["items"][len(value["items"]) - len(added) :]]
            return listed(Page(items=shown))

        response = await once(who, body, lambda: conversations.change(who, conversation_id, add=added), plain(show))
        response.headers.update(ignored_header([*unread, *not_included(include).values()]))
        return response

    @router.get("/{conversation_id}/items/{item_id}", responses=answers(200, _ITEM))
    async def get_item(
        conversation_id: ConversationId,
        item_id: ItemId,
        who: Reader,
        include: Include = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        """One item."""
        item = await conversations.item(who, conversation_id, item_id)
        return json_response(item, headers=not_included(include))

    @router.delete("/{conversation_id}/items/{item_id}", responses=answers(200, _OBJECT))
    async def delete_item(conversation_id: ConversationId, item_id: ItemId, who: Deleter) -> Response:
        """Take an item away that waits for the next response. What was said cannot be deleted by itself: 409."""
        await conversations.remove(who, conversation_id, item_id)
        return json_response(_shown(conversation_id, await conversation_of(responses.engine, who, conversation_id)))

    return router


class _Conversations:
    """The conversations of one engine."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._db = responses.engine.db

    async def added(self, who: Principal, body: JsonObject, *, begun: bool) -> tuple[list[JsonObject], list[str]]:
        """The items of a body, as they are kept, and the names of its fields, and theirs, with which nothing is done.
        Raises as `with_documents`, and InvalidRequest, which names an item that may not be added."""
        async with with_documents(self._responses.bodies, self._responses.engine, body, who, "items") as noted:
            asked = checked(ConversationBody.model_validate, body, _TEXTS)
        given = asked.items or ()
        unread = [*unread_names(asked), *unread_fields(given, "items")]
        items = await self._checked(who, given, begun=begun)
        kept = [{**_without_note(item), **({NOTED: noted[path]} if path in noted else {})} for path, item in items]
        return kept, unread

    async def _checked(self, who: Principal, given: Sequence[SaidItem], *, begun: bool) -> list[tuple[str, JsonObject]]:
        for index, item in enumerate(given):
            path = f"items[{index}]"
            kind = "role" if item.type == "message" else "type"
            value: str = getattr(item, kind)
            if begun and value not in ("user", "system", "developer"):
                reason = "the conversation has begun, and an answer cannot be put into it afterwards"
                raise InvalidRequest(f"`{path}.{kind}` is {value!r}: {reason}", param=f"{path}.{kind}")
        # What a compaction holds, and not that: its seal may be another server's by the next response.
        async with self._responses.items.expand(who, placed(given, "items")) as said:
            await self._responses.items.check(said)
            return [(path, item.model_dump(mode="json", exclude_none=True)) for path, item in said]

    async def has_begun(self, rows: ConversationRows) -> bool:
        """Whether anything was said."""
        found, _ = await self._db.database.read(
            lambda session: read_items(session, rows, after=None, newest_first=True, limit=1)
        )
        return bool(found)

    async def make(self, name: ThreadName, metadata: JsonObject, added: Sequence[JsonObject]) -> ConversationRows:
        """A new conversation."""
        items = [{"number": number, "item": item} for number, item in enumerate(added, 1)]
        value = {"metadata": metadata, "items": items, "next": len(items) + 1}
        return await self._db.database.act(partial(make_conversation, name=name, value=value))

    async def change(
        self,
        who: Principal,
        conversation: str,
        *,
        metadata: Mapping[str, object] | None = None,
        add: Sequence[Mapping[str, object]] = (),
        remove: int | None = None,
    ) -> JsonObject:
        """Change a conversation; see `database.responses.change_conversation`. Raises NotFound."""
        name = who.owner.thread(conversation)
        most = self._responses.bodies.limit
        change = partial(change_conversation, name=name, metadata=metadata, add=add, remove=remove, most_bytes=most)
        return await self._db.database.act(change)

    async def remove(self, who: Principal, conversation: str, item_id: str) -> None:
        """Take an item away that waits. Raises NotFound, and Conflict for one that was said."""
        await self.item(who, conversation, item_id)
        number = _number(item_id, _WAITING)
        if number is None:
            raise Conflict("what was said is kept; delete the conversation instead", param="item_id")
        await self.change(who, conversation, remove=number)

    async def items(
        self, who: Principal, conversation: str, after: str | None, limit: int, *, newest_first: bool
    ) -> Page[JsonObject]:
        """Return a page of what was said, and what waits for the next response, after an item; of long ones it has
        fewer than `limit`. Raises NotFound, InvalidRequest."""
        rows = await conversation_of(self._responses.engine, who, conversation)
        found: list[JsonObject] = []
        size = 0
        async with aclosing(self._listed(rows, after, newest_first=newest_first)) as items:
            async for item in items:
                if len(found) == limit or size >= PAGE_SIZE:
                    return Page(items=found, next=found[-1]["id"])
                found.append(item)
                size += len(dumps(item))
        return Page(items=found)

    async def _listed(
        self, rows: ConversationRows, after: str | None, *, newest_first: bool
    ) -> AsyncGenerator[JsonObject]:
        waiting = [_waiting(each) for each in rows.value.get("items", ())][:: -1 if newest_first else 1]
        stored, is_waiting = _seq_of(after), _number(after, _WAITING) is not None
        if after is not None and stored is None and not is_waiting:
            raise InvalidRequest(f"`after`: there is no item {after!r}", param="after")
        if is_waiting:
            waiting = [*dropwhile(lambda each: each["id"] != after, waiting)][1:]
        if newest_first and stored is None:
            for item in waiting:
                yield item
        if newest_first or not is_waiting:
            passed = stored is None
            async with aclosing(self._said(rows, stored, newest_first=newest_first)) as said:
                async for item in said:
                    if passed or not _is_of(item, stored):
                        yield item
                    passed = passed or item["id"] == after
        if not newest_first:
            for item in waiting:
                yield item

    async def _said(
        self, rows: ConversationRows, start: int | None, *, newest_first: bool
    ) -> AsyncGenerator[JsonObject]:
        """The items of the stored messages from number `start` on."""
        at = None if start is None else start + (1 if newest_first else -1)
        looked_at, more = 0, True
        while more and looked_at < _LOOKED_AT:
            found, more = await self._db.database.read(
                partial(read_items, of=rows, after=at, newest_first=newest_first, limit=_PAGE)
            )
            looked_at += len(found)
            for seq, config, run_id, shown in found:
                at = seq
                done = read_as_done(seq, config, shown)
                if done is not None and (done.shown or role_of(done) not in (None, "system") or _is_thought(config)):
                    told = items_of(done, f"t{seq}", run_id or "")
                    for item in reversed(told) if newest_first else told:
                        yield item

    async def item(self, who: Principal, conversation: str, item_id: str) -> JsonObject:
        """One item, also by the id that it has in its response. Raises NotFound."""
        rows = await conversation_of(self._responses.engine, who, conversation)
        for each in rows.value.get("items", ()):
            if _waiting(each)["id"] == item_id:
                return _waiting(each)
        number = _seq_of(item_id)
        if number is not None:
            async with aclosing(self._said(rows, number, newest_first=False)) as said:
                async for item in said:
                    if item["id"] == item_id:
                        return item
                    if not _is_of(item, number):
                        break
        elif (found := await self._responses.items.item_of(who, conversation, item_id)) is not None:
            return found
        raise NotFound(f"no item {item_id!r} in conversation {conversation!r}", param="item_id")


def _shown(conversation: str, rows: ConversationRows) -> JsonObject:
    return {
        "id": conversation,
        "object": "conversation",
        "created_at": int(rows.created_at.timestamp()),
        "metadata": rows.value.get("metadata", {}),
    }


def _waiting(kept: JsonObject) -> JsonObject:
    item, item_id = _without_note(kept["item"]), f"{_WAITING}{kept['number']}"
    if item["type"] != "message":
        return {"status": "completed", **item, "id": item_id}
    return given_item(item_id, item["role"], item["content"])


def _without_note(item: JsonObject) -> JsonObject:
    return {name: value for name, value in item.items() if name != NOTED}


def _number(item_id: str | None, kind: str) -> int | None:
    """The number that an id of that kind has; None: it is of another kind."""
    rest = "" if item_id is None or not item_id.startswith(kind) else item_id.removeprefix(kind)
    return int(rest) if rest.isascii() and rest.isdigit() and len(rest) < 10 else None


def _seq_of(item_id: str | None) -> int | None:
    """The number of the message that such an id names; None: it is of another kind."""
    found = None if item_id is None else _STORED.fullmatch(item_id)
    return None if found is None else int(found[1])


def _is_of(item: JsonObject, seq: int | None) -> bool:
    return _seq_of(item["id"]) == seq


def _is_thought(config: Mapping[str, object]) -> bool:
    return config.get("type") == "ThoughtEvent"
