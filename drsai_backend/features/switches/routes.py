"""The routes of `/v1/switches` show operators what is switched off in their tenant, and switch it off and on."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.access.switchboard import SwitchKind
from drsai_backend.api.auth import Body, allowed, described, read_fields
from drsai_backend.api.http.json import answers, deleted, deletion, json_response, page_of, page_response
from drsai_backend.api.http.parameters import LAST_MOMENT, AfterNumber, Limit, moment_of, name_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of, schema_of
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.switches.base import LONGEST, SwitchInfo
from drsai_backend.features.switches.extension import Switches
from drsai_backend.json_types import JsonObject

Admin = Annotated[Principal, allowed(Scope.RUNS_ADMIN, named=False)]
Here: TypeAlias = Literal["team", "model", "tool", "tenant"]
"""What operators of a tenant switch off."""
_TEXT: Final = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"
_WHICH: Final = "Of the team, the model or its profile, or the tool as models know it; the tenant is one's own."
_SWITCH: Final = schema_of(SwitchInfo, "switch")


class SwitchBody(Body):
    """What is switched off from now on, in place of how it was before."""

    kind: Here
    name: str | None = Field(
        default=None, description=_WHICH, json_schema_extra={"anyOf": [NAME_SCHEMA, {"type": "null"}]}
    )
    message: str = Field(min_length=1, max_length=LONGEST, pattern=_TEXT, description="What who asks for it is told.")
    until: int | None = Field(
        default=None, ge=0, le=LAST_MOMENT, description="Unix seconds: when it is on again by itself. null: never."
    )


OfKind = Annotated[Here, Query(description="What kind of thing is switched on.")]
OfName = Annotated[str | None, *name_of("name", _WHICH)]


def routes(switches: Switches, web: Web) -> APIRouter:
    """Return the routes. What is off in all tenants, the command line switches: an operator here is a tenant's."""
    router = new_router("/v1/switches", tags=["switches"])

    @router.get("", responses=answers(200, page_of(_SWITCH)))
    async def list_switches(who: Admin, limit: Limit = 20, after: AfterNumber = None) -> Response:
        """What is switched off in the tenant, the newest first. What is off in all tenants is not among it."""
        return page_response(await switches.list(who.tenant, after, limit), _shown)

    @router.put("", responses=answers(200, _SWITCH), openapi_extra=described(SwitchBody))
    async def switch_off(request: Request, who: Admin) -> Response:
        """Switch off a team, a model, a tool, or new runs of the whole tenant. Runs under way are left alone. All
        workers go by it within two seconds."""
        body = await read_fields(web.bodies, request, SwitchBody)
        kind, name = _named(who, body.kind, body.name)
        made = await switches.off(
            kind, name, message=body.message, tenant=who.tenant, until=moment_of(body.until), actor=who.actor
        )
        return json_response(_shown(made))

    @router.delete("", responses=answers(200, deletion("switch.deleted", always=False)))
    async def switch_on(who: Admin, kind: OfKind, name: OfName = None) -> Response:
        """Switch something on. Where it was not off, `deleted` is false."""
        of, name = _named(who, kind, name)
        done = await switches.on(of, name, tenant=who.tenant, actor=who.actor)
        return deleted(f"{of} {name}", "switch.deleted", was_there=done)

    return router


def _named(who: Principal, kind: Here, name: str | None) -> tuple[SwitchKind, str]:
    """Return what is named. Raises InvalidRequest: nothing is, or another tenant."""
    if kind == "tenant" and name not in (None, who.tenant):
        raise InvalidRequest("`name`: the tenant is your own; leave it out", param="name")
    if name is None and kind != "tenant":
        raise InvalidRequest(f"name the {kind}: `name`", param="name")
    return kind, who.tenant if name is None else name


def _shown(info: SwitchInfo) -> JsonObject:
    return {"id": f"{info.kind} {info.name}".strip(), "object": "switch", **fields_of(info)}
