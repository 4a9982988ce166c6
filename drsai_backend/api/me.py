"""The route `GET /v1/me` says who asks, and what they may do: what a page needs to know before it shows anything."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from drsai_backend import __version__
from drsai_backend.access.principal import Scope
from drsai_backend.api.auth import NamedUser, access_of, open_to_all
from drsai_backend.api.http.json import answers, json_response
from drsai_backend.api.http.parameters import new_router
from drsai_backend.config import Settings
from drsai_backend.models import ModelClientFactory

_NAMES: Final = {"type": "array", "items": {"type": "string"}}
_ME: Final = {
    "type": "object",
    "required": ["object", "user", "tenant", "scopes", "roles", "has_key", "is_demo", "version"],
    "properties": {
        "object": {"const": "me"},
        "user": {"type": "string"},
        "tenant": {"type": "string"},
        "scopes": {
            "type": "array",
            "items": {"enum": [*Scope]},
            "description": "What they may do, with all that `admin` stands for.",
        },
        "roles": {**_NAMES, "description": "Those of the application, for approvals and shares."},
        "has_key": {"type": "boolean", "description": "Whether they asked with a key or token of their own."},
        "is_demo": {"type": "boolean", "description": "Whether the offline demo answers instead of a language model."},
        "version": {"type": "string"},
    },
}


def me_routes(models: ModelClientFactory | Settings) -> APIRouter:
    """Return the route. `models` say whether the offline demo answers."""
    router = new_router(tags=["users"])

    @router.get("/v1/me", responses=answers(200, _ME), dependencies=[Depends(open_to_all)])
    async def get_me(request: Request, user: NamedUser = None) -> Response:
        """Who asks, as whom, and what they may do. It needs a valid key where keys are needed, but no scope."""
        access = access_of(request)
        caller = await access.authenticate(request.scope, None)
        who = access.acting(caller, request.scope, user)
        return json_response(
            {
                "object": "me",
                "user": who.user_id,
                "tenant": who.tenant,
                "scopes": [scope for scope in Scope if who.may(scope)],
                "roles": sorted(who.roles),
                "has_key": who.key_id is not None or bool(who.claims),
                "is_demo": models.is_demo,
                "version": __version__,
            }
        )

    return router
