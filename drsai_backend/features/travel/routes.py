"""The routes `/v1/threads/{thread_id}/turns`, `…/branches`, `…/state`, `…/fork`, `…/rewind` and `…/history` show a
thread's past, take it back to it, and give it another one."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from pydantic import ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import NamedUser, UserBody, allowed, allowed_caller, described, named, read_body, who_asks
from drsai_backend.api.http.checking import checked
from drsai_backend.api.http.json import answers, json_response, page_of, page_response
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import BranchNumber, Limit, ThreadId, ThreadOwner, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import (
    THREAD_SCHEMA,
    fields_of,
    schema_of,
    thread_object,
)
from drsai_backend.api.openai.files.request_files import with_documents
from drsai_backend.api.openai.messages import Message, read_history
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.threads.loading import Load, LoadMode
from drsai_backend.runs.threads.travel import BranchView, TurnView
from drsai_backend.state.travel import Place

Reader = Annotated[Principal, allowed(Scope.THREADS_READ)]
Writer = Annotated[Principal | None, allowed_caller(Scope.THREADS_WRITE)]
Clearer = Annotated[Principal, allowed(Scope.THREADS_WRITE)]
_MOST: Final = 2**31 - 1
_NAMED: Final[JsonObject] = {"anyOf": [NAME_SCHEMA, {"type": "null"}]}
_PLACES: Final = ("at", "turn", "branch")
_ONE: Final[list[JsonObject]] = [{"required": [name], "properties": {name: {"type": "integer"}}} for name in _PLACES]
_NONE: Final[JsonObject] = {"properties": {name: {"type": "null"} for name in _PLACES}}
_TURN: Final = schema_of(TurnView, "thread.turn")
_BRANCH: Final = schema_of(BranchView, "thread.branch")
_STATE: Final[JsonObject] = {
    "type": "object",
    "required": ["object", "turn", "state", "reason"],
    "properties": {
        "object": {"const": "thread.state"},
        "turn": {"type": ["integer", "null"], "description": "After which turn; null: as it is now."},
        "state": {"type": ["object", "null"], "description": "What `team.save_state()` returned; null: nothing yet."},
        "reason": {"type": ["string", "null"], "description": "Why it is not shown, where it is too long."},
    },
}
_LONGEST_STATE: Final = 8 * 1024 * 1024
_TOO_LONG: Final = "the state is longer than 8 MiB: `drsai threads state` prints it"


class PlaceBody(UserBody):
    """A place of a thread: one of the three."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [*_ONE]})

    at: int | None = Field(
        default=None,
        ge=0,
        le=_MOST,
        description="`seq` of a message: the turn that stored it is the last. Of an input: the place before it, so "
        "that it can be sent anew. 0: the beginning.",
    )
    turn: int | None = Field(default=None, ge=0, le=_MOST, description="The turn that is the last. 0: the beginning.")
    branch: int | None = Field(default=None, ge=0, le=_MOST, description="The end of this branch.")

    @property
    def place(self) -> Place:
        return Place(self.at, self.turn, self.branch)


class ForkBody(PlaceBody):
    """Where a new thread is to begin, and whose it shall be. Without a place: where the thread is."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [*_ONE, _NONE]})

    # Not `user`, which says who asks.
    to_user: str | None = Field(
        default=None, description="Whose the new thread is. Default: who asks.", json_schema_extra=_NAMED
    )
    thread_id: str | None = Field(
        default=None, description="Its id. Default: one that is made up.", json_schema_extra=_NAMED
    )


class HistoryBody(UserBody):
    """A conversation that was had elsewhere."""

    messages: list[Message] = Field(
        min_length=1, fail_fast=True, description="The conversation, oldest first, as in a chat request."
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="The team whose answers are in it. Required unless the thread is a conversation with one already.",
    )
    mode: LoadMode = Field(
        default="append",
        description="`append`: after what the thread has. `replace`: in the place of it, which stays on a branch.",
    )
    after: int | None = Field(
        default=None,
        ge=0,
        le=_MOST,
        description="`seq` of the newest message that you know of, 0 for none: 409 if the thread has others, so that a "
        "request which is repeated is not loaded twice.",
    )


def routes(web: Web) -> APIRouter:
    engine, bodies = web.engine, web.bodies
    router = new_router("/v1/threads", tags=["threads"])

    @router.get("/{thread_id:path}/turns", responses=answers(200, page_of(_TURN)))
    async def list_turns(
        thread_id: ThreadId,
        who: Reader,
        owner: ThreadOwner = None,
        after: Annotated[int, Query(ge=0, le=_MOST, description="The `turn` to continue after.")] = 0,
        limit: Limit = 100,
        branch: BranchNumber = None,
    ) -> Response:
        """The turns to which a thread can go back, oldest first."""
        page = await engine.turns(who, named(who, thread_id, owner), after=after, limit=limit, branch=branch)
        return page_response(page, _turn)

    @router.get("/{thread_id:path}/branches", responses=answers(200, page_of(_BRANCH)))
    async def list_branches(
        thread_id: ThreadId,
        who: Reader,
        owner: ThreadOwner = None,
        after: Annotated[int, Query(ge=-1, le=_MOST, description="The `number` to continue after.")] = -1,
        limit: Limit = 100,
    ) -> Response:
        """The branches of a thread, oldest first; one that was never rewound has one."""
        page = await engine.branches(who, named(who, thread_id, owner), after=after, limit=limit)
        return page_response(page, _branch)

    @router.get("/{thread_id:path}/state", responses=answers(200, _STATE))
    async def get_state(
        thread_id: ThreadId,
        who: Reader,
        turn: Annotated[int | None, Query(ge=0, le=_MOST, description="After this turn. Default: now.")] = None,
    ) -> Response:
        """What the agents of your own thread remember, or remembered after a turn: their saved state. With whom it is
        shared sees that of a fork of theirs."""
        state = await engine.state(who, thread_id, Place(turn=turn))
        shown: JsonObject = {"object": "thread.state", "turn": turn, "reason": None}
        response = await run_in_threadpool(json_response, {**shown, "state": state})
        if len(response.body) <= _LONGEST_STATE:
            return response
        return json_response({**shown, "state": None, "reason": _TOO_LONG})

    @router.post(
        "/{thread_id:path}/fork",
        status_code=201,
        responses=answers(201, THREAD_SCHEMA),
        openapi_extra=described(ForkBody),
    )
    async def fork_thread(
        request: Request,
        thread_id: ThreadId,
        caller: Writer,
        once: Once,
        user: NamedUser = None,
        owner: ThreadOwner = None,
    ) -> Response:
        """Make a new thread of what a thread was at a place: its messages and its state, not its runs."""
        body, who = await read_body(bodies, request, ForkBody, caller, user)
        thread, new = named(who, thread_id, owner), body.thread_id
        return await once(
            who,
            body,
            lambda: engine.fork(who, thread, body.place, new_thread_id=new, to_user=body.to_user),
            plain(thread_object),
        )

    @router.post("/{thread_id:path}/rewind", responses=answers(200, THREAD_SCHEMA), openapi_extra=described(PlaceBody))
    async def rewind_thread(
        request: Request,
        thread_id: ThreadId,
        caller: Writer,
        once: Once,
        user: NamedUser = None,
        owner: ThreadOwner = None,
    ) -> Response:
        """Have a thread go back to a place: the next input continues there, on a new branch. 409 while a run is live,
        or inputs wait in the queue."""
        body, who = await read_body(bodies, request, PlaceBody, caller, user)
        return await once(
            who,
            body,
            lambda: engine.rewind(who, named(who, thread_id, owner), body.place),
            plain(thread_object),
        )

    @router.post(
        "/{thread_id:path}/history", responses=answers(200, THREAD_SCHEMA), openapi_extra=described(HistoryBody)
    )
    async def load_history(
        request: Request,
        thread_id: ThreadId,
        caller: Writer,
        once: Once,
        user: NamedUser = None,
        owner: ThreadOwner = None,
    ) -> Response:
        """Put a conversation that was had elsewhere into a thread, one that there is or a new one: its next input
        continues it. 409 while something is under way on the thread."""
        async with bodies.read(request.scope, request.receive) as given:
            body = checked(HistoryBody.model_validate, given)
            if len(body.messages) > web.max_messages:
                text = f"`messages` has {len(body.messages)} messages; this server accepts {web.max_messages}"
                raise InvalidRequest(text, param="messages")
            who = who_asks(request, body, caller, user)
            await engine.check_name(who, given, later=True)
            async with with_documents(bodies, engine, given, who, "messages") as noted:
                body = checked(HistoryBody.model_validate, given)
                messages = await bodies.off_loop(partial(read_history, body.messages, noted))
        thread, how = named(who, thread_id, owner), Load(body.model, body.mode, body.after)
        return await once(who, body, lambda: engine.load_history(who, thread, messages, how), plain(thread_object))

    @router.delete("/{thread_id:path}/history", responses=answers(200, THREAD_SCHEMA))
    async def clear_history(thread_id: ThreadId, who: Clearer, owner: ThreadOwner = None) -> Response:
        """Have a thread forget what was said: it goes back to its beginning, and what was there stays on a branch. 409
        while a run is live, or inputs wait in the queue."""
        return json_response(thread_object(await engine.rewind(who, named(who, thread_id, owner), Place(turn=0))))

    return router


def _turn(turn: TurnView) -> JsonObject:
    return {"id": str(turn.turn), "object": "thread.turn", **fields_of(turn)}


def _branch(branch: BranchView) -> JsonObject:
    return {"id": str(branch.number), "object": "thread.branch", **fields_of(branch)}
