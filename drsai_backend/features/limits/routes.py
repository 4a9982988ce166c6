"""The routes of `/v1/limits` show admins what was set for their tenant, and set what its users and keys may do."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from pydantic import AfterValidator, Field
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body, allowed, described, read_fields
from drsai_backend.api.http.json import answers, json_response, page_of, page_response
from drsai_backend.api.http.parameters import AfterNumber, Limit, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of
from drsai_backend.datamodel.thread import NAME_SCHEMA, check_name
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.limits.base import MEASURES, MOST, Kind, LimitInfo
from drsai_backend.features.limits.extension import Limits
from drsai_backend.json_types import JsonObject

Admin = Annotated[Principal, allowed(Scope.ADMIN, named=False)]
_MANY: Final = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MOST}, {"type": "null"}]}
_LIMIT: Final[JsonObject] = {
    "type": "object",
    "required": ["id", "object", "kind", "tenant", "name", *MEASURES, "set_at"],
    "properties": {
        "id": {"type": "string", "description": "Its kind and name."},
        "object": {"const": "limit"},
        "kind": {"enum": ["key", "user", "tenant"]},
        "tenant": {"type": "string"},
        "name": {"type": "string", "description": "The id of the key, or the user; of a tenant, empty."},
        "requests": {**_MANY, "description": "A minute. null: as the settings say; 0: no limit."},
        "tokens": {**_MANY, "description": "Of model calls, a minute."},
        "runs": {**_MANY, "description": "At once, those that wait in queues included."},
        "streams": {**_MANY, "description": "At once, in each process."},
        "set_at": {"type": "integer", "description": "Unix time in seconds."},
    },
}
_GONE: Final[JsonObject] = {
    "type": "object",
    "required": ["id", "object", "deleted"],
    "properties": {"id": {"type": "string"}, "object": {"const": "limit.deleted"}, "deleted": {"type": "boolean"}},
}


def _most(description: str) -> int | None:
    return Field(default=None, ge=0, le=MOST, description=description)


class LimitBody(Body):
    """What a user or a key may do from now on, in place of what was set before."""

    user: str | None = Field(
        default=None, description="This user.", json_schema_extra={"anyOf": [NAME_SCHEMA, {"type": "null"}]}
    )
    key: str | None = Field(
        default=None,
        description="Or this key, by its id.",
        json_schema_extra={"anyOf": [NAME_SCHEMA, {"type": "null"}]},
    )
    requests: int | None = _most("A minute. null: as the settings say; 0: no limit.")
    tokens: int | None = _most("Of model calls, a minute.")
    runs: int | None = _most("At once, those that wait in queues included.")
    streams: int | None = _most("At once, in each process.")


def _name(what: str, param: str) -> tuple[object, AfterValidator]:
    query = Query(description=what, json_schema_extra={"anyOf": [NAME_SCHEMA]})
    return query, AfterValidator(partial(check_name, param=param))


OfUser = Annotated[str | None, *_name("What was set for this user.", "of_user")]
OfKey = Annotated[str | None, *_name("What was set for this key, by its id.", "of_key")]


def limit_routes(limits: Limits, web: Web) -> APIRouter:
    """Return the routes. What a tenant and all together may do, the command line sets: an admin here is a tenant's."""
    router = new_router("/v1/limits", tags=["limits"])

    @router.get("", responses=answers(200, page_of(_LIMIT)))
    async def list_limits(who: Admin, limit: Limit = 20, after: AfterNumber = None) -> Response:
        """What was set for the tenant, its users and their keys, the newest first."""
        return page_response(await limits.list(who.tenant, after, limit), _shown)

    @router.put("", responses=answers(200, _LIMIT), openapi_extra=described(LimitBody))
    async def set_limit(request: Request, who: Admin) -> Response:
        """Set what a user or a key may do, in place of what was set before. All workers go by it within two
        seconds."""
        body = await read_fields(web.bodies, request, LimitBody)
        kind, name = _named(body.user, body.key, "user", "key")
        said = body.model_dump(include={*MEASURES})
        return json_response(_shown(await limits.set(kind, name, tenant=who.tenant, **said, actor=who.actor)))

    @router.delete("", responses=answers(200, _GONE))
    async def remove_limit(who: Admin, of_user: OfUser = None, of_key: OfKey = None) -> Response:
        """Have the settings hold again for a user or a key. Where nothing was set, `deleted` is false."""
        kind, name = _named(of_user, of_key, "of_user", "of_key")
        deleted = await limits.remove(kind, name, tenant=who.tenant, actor=who.actor)
        return json_response({"id": f"{kind} {name}", "object": "limit.deleted", "deleted": deleted})

    return router


def _named(user: str | None, key: str | None, of_user: str, of_key: str) -> tuple[Kind, str]:
    """Return for whom a limit is. Raises InvalidRequest unless one is named."""
    if (user is None) == (key is None):
        raise InvalidRequest(f"name `{of_user}` or `{of_key}`", param=of_user)
    return ("key", key or "") if user is None else ("user", user)


def _shown(info: LimitInfo) -> JsonObject:
    return {"id": f"{info.kind} {info.name}".strip(), "object": "limit", **fields_of(info)}
