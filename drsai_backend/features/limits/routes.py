"""The routes of `/v1/limits` show admins what was set for their tenant, and set what its users and keys may do."""

from __future__ import annotations

from functools import partial
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from drsai_backend.api.auth import described, read_fields
from drsai_backend.api.http.json import answers, deleted, deletion, json_response, page_of, page_response
from drsai_backend.api.http.parameters import AfterNumber, Limit, new_router
from drsai_backend.api.joining import Web
from drsai_backend.features.limits.base import MEASURES, MOST, LimitFields
from drsai_backend.features.limits.extension import Limits
from drsai_backend.features.rules.routes import Admin, OfKey, OfUser, RuleBody, named, schema_of, shown
from drsai_backend.json_types import JsonObject

_MANY: Final = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MOST}, {"type": "null"}]}
_LIMIT: Final[JsonObject] = schema_of(
    "limit",
    {
        "requests": {**_MANY, "description": "A minute. null: as the settings say; 0: no limit."},
        "tokens": {**_MANY, "description": "Of model calls, a minute."},
        "runs": {**_MANY, "description": "At once, those that wait in queues included."},
        "streams": {**_MANY, "description": "At once, in each process."},
    },
)
_shown: Final = partial(shown, noun="limit")


class LimitBody(LimitFields, RuleBody):
    """What a user or a key may do from now on, in place of what was set before."""


def routes(limits: Limits, web: Web) -> APIRouter:
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
        (kind, name), said = body.whose, body.model_dump(include={*MEASURES})
        return json_response(_shown(await limits.set(kind, name, tenant=who.tenant, **said, actor=who.actor)))

    @router.delete("", responses=answers(200, deletion("limit.deleted", always=False)))
    async def remove_limit(who: Admin, of_user: OfUser = None, of_key: OfKey = None) -> Response:
        """Have the settings hold again for a user or a key. Where nothing was set, `deleted` is false."""
        kind, name = named({"user": of_user, "key": of_key}, "of_")
        was_set = await limits.remove(kind, name, tenant=who.tenant, actor=who.actor)
        return deleted(f"{kind} {name}", "limit.deleted", was_there=was_set)

    return router
