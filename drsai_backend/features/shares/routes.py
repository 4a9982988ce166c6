"""The routes of `/v1/threads/{thread_id}/shares` tell the owner of a thread and the admins of the tenant with whom it
is shared."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import NamedUser, UserBody, allowed, allowed_caller, described, named, read_body
from drsai_backend.api.http.json import answers, json_response, page_of, page_response
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import ThreadId, ThreadOwner, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of
from drsai_backend.database.shares import Grantee
from drsai_backend.datamodel import Right
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.runs.threads.views import ShareView

Reader = Annotated[Principal, allowed(Scope.THREADS_READ)]
Unsharer = Annotated[Principal, allowed(Scope.THREADS_WRITE)]
Sharer = Annotated[Principal | None, allowed_caller(Scope.THREADS_WRITE)]
_NAMED: Final[JsonObject] = {"anyOf": [NAME_SCHEMA]}
WithUser = Annotated[str | None, Query(description="The user whose share it is.", json_schema_extra=_NAMED)]
WithRole = Annotated[str | None, Query(description="The role whose share it is.", json_schema_extra=_NAMED)]
_DELETED: Final = {
    "type": "object",
    "required": ["object", "deleted"],
    "properties": {"object": {"const": "thread.share.deleted"}, "deleted": {"const": True}},
}


_SHARE: Final = {
    "type": "object",
    "required": ["id", "object", "thread_id", "with_user", "with_role", "right", "created_at", "created_by"],
    "properties": {
        "id": {"type": "string", "description": "With whom: `user:bob` or `role:treasurer`."},
        "object": {"const": "thread.share"},
        "thread_id": {"type": "string"},
        "right": {"enum": ["read", "answer", "write"]},
        "created_at": {"type": "integer", "description": "Unix time in seconds."},
        "created_by": {"type": "string"},
    },
}


class ShareBody(UserBody):
    """With whom to share a thread: `with_user` or `with_role`, of the thread's tenant."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["with_user"]}, {"required": ["with_role"]}]})

    with_user: str | None = Field(default=None, description="A user.", json_schema_extra=_NAMED)
    with_role: str | None = Field(default=None, description="All who have this role.", json_schema_extra=_NAMED)
    right: Literal["read", "answer", "write"] = Field(
        default="read", description="`answer`: also what it asks. `write`: also send messages, stop, pause, resume."
    )


def routes(web: Web) -> APIRouter:
    engine, bodies = web.engine, web.bodies
    router = new_router("/v1/threads", tags=["threads"])

    @router.get("/{thread_id:path}/shares", responses=answers(200, page_of(_SHARE)))
    async def list_shares(thread_id: ThreadId, who: Reader, owner: ThreadOwner = None) -> Response:
        """With whom a thread is shared, oldest first."""
        shares = await engine.list_shares(who, named(who, thread_id, owner))
        return page_response(Page(items=shares), partial(_object, thread_id))

    @router.post("/{thread_id:path}/shares", responses=answers(200, _SHARE), openapi_extra=described(ShareBody))
    async def share_thread(
        request: Request,
        thread_id: ThreadId,
        caller: Sharer,
        once: Once,
        user: NamedUser = None,
        owner: ThreadOwner = None,
    ) -> Response:
        """Share a thread, or change the right of who has it already."""
        body, who = await read_body(bodies, request, ShareBody, caller, user)
        grantee, thread = Grantee(body.with_user, body.with_role), named(who, thread_id, owner)
        return await once(
            who,
            body,
            lambda: engine.share_thread(who, thread, grantee, Right(body.right)),
            plain(partial(_object, thread_id)),
        )

    @router.delete("/{thread_id:path}/shares", responses=answers(200, _DELETED))
    async def unshare_thread(
        thread_id: ThreadId,
        who: Unsharer,
        owner: ThreadOwner = None,
        with_user: WithUser = None,
        with_role: WithRole = None,
    ) -> Response:
        """Take a share back."""
        await engine.unshare_thread(who, named(who, thread_id, owner), Grantee(with_user, with_role))
        return json_response({"object": "thread.share.deleted", "deleted": True})

    return router


def _object(thread_id: str, share: ShareView) -> JsonObject:
    whom = f"role:{share.with_role}" if share.with_user is None else f"user:{share.with_user}"
    return {"id": whom, "object": "thread.share", "thread_id": thread_id, **fields_of(share)}
