"""The routes of `/v1/users` show the admins of a tenant its users."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from drsai_backend.api.http.json import answers, json_response, page_of, page_response
from drsai_backend.api.http.parameters import Limit, UserId, name_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict
from drsai_backend.features.users.users import Users

Admin = Annotated[Principal, allowed(Scope.ADMIN, named=False)]


After = Annotated[str | None, *name_of("after", "`next` of the page before.")]
_COUNT: Final = {"type": "integer", "minimum": 0}
_USER: Final = {
    "type": "object",
    "required": ["id", "object", "threads"],
    "properties": {"id": {"type": "string"}, "object": {"const": "user"}, "threads": _COUNT},
}
_DELETED: Final = {
    "type": "object",
    "required": ["id", "object", "deleted", "counts"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "user.deleted"},
        "deleted": {"const": True},
        "counts": {
            "type": "object",
            "additionalProperties": _COUNT,
            "description": "How many of which kind: `threads`, `messages`, `runs`, `api_keys` …",
        },
    },
}


def routes(web: Web) -> APIRouter | None:
    """Return the routes. Whoever asks here sees and deletes users of their own tenant only."""
    if web.keys is None:
        return None
    users = Users(web.engine, web.keys, web.settings)
    router = new_router("/v1/users", tags=["users"])

    @router.get("", responses=answers(200, page_of(_USER)))
    async def list_users(who: Admin, limit: Limit = 20, after: After = None) -> Response:
        """The users of the tenant to whom anything belongs, by their ids."""
        page = await users.list(who.tenant, after, limit)
        return page_response(page, lambda item: {"id": item.user_id, "object": "user", "threads": item.threads})

    @router.delete("/{user_id:path}", responses=answers(200, _DELETED, "All of it is gone."))
    async def delete_user(user_id: UserId, who: Admin) -> Response:
        """Stop what a user runs, and delete all that is theirs: threads, keys, agents. The audit log stays. A request
        that was cut off may be repeated: it deletes the rest. Nobody deletes themselves: their key would end in the
        middle."""
        if user_id == who.user_id:
            raise Conflict("nobody can delete themselves: ask another admin, or `drsai users remove`", param="user_id")
        counts = await users.delete(Owner(who.tenant, user_id), actor=who.actor)
        return json_response({"id": user_id, "object": "user.deleted", "deleted": True, "counts": counts})

    return router
