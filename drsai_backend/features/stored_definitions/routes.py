"""The routes of `/v1/agents` serve definitions of agents and teams, which users and tenants store and ask by name."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body, allowed, described, read_fields
from drsai_backend.api.http.json import answers, deleted, deletion, json_response, page_of, page_response
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import Limit, after_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.database.documents import VERSION_PATTERN
from drsai_backend.database.stored_definitions import DefinitionVersion, definitions
from drsai_backend.definitions.schema import NAME, json_schema
from drsai_backend.definitions.stored.store import DefinitionSpec, Visibility, visibility_of
from drsai_backend.json_types import JsonObject

Writer = Annotated[Principal, allowed(Scope.AGENTS_WRITE)]
Reader = Annotated[Principal, allowed(Scope.AGENTS_READ)]
After = Annotated[str | None, after_of(definitions.listed.pattern)]
AfterVersion = Annotated[str | None, after_of(VERSION_PATTERN)]
_NAME: Final[JsonObject] = {"type": "string", "pattern": NAME}
AgentName = Annotated[str, Path(json_schema_extra=_NAME)]
Seen = Annotated[
    Visibility | None, Query(description="That of the user, of the tenant, or for all. Default: the one that is asked.")
]
Own = Annotated[Visibility, Query(description="Whose it is: the user's, the tenant's, or for all.")]
Version = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="An older version; default: what is served.")]
Expected = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="The version that is served; 409 if it is another.")
]
_VISIBILITY: Final = {"enum": ["user", "tenant", "all"]}
_VERSION: Final = {
    "type": "object",
    "required": ["id", "object", "visibility", "version", "definition", "created_at", "created_by", "restores"],
    "properties": {
        "id": {"type": "string", "description": "The name that it is asked by, as `model`."},
        "object": {"const": "agent"},
        "visibility": _VISIBILITY,
        "version": {"type": "integer", "minimum": 1},
        "is_served": {"type": "boolean"},
        "definition": {"type": "object", "description": "`agents`, `teams`, `tools`, as in a file."},
        "created_at": {"type": "integer", "description": "Unix time in seconds, of this version."},
        "created_by": {"type": "string"},
        "restores": {"type": ["integer", "null"], "description": "The older version that this one is equal to."},
    },
}
_CHECKED: Final = {
    "type": "object",
    "required": ["id", "object", "valid"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "agent.checked"},
        "valid": {"const": True},
        "warnings": {
            "type": "array",
            "items": {"type": "string"},
            "description": "What has no effect, or is not there yet, each with its field; left out where nothing is.",
        },
    },
}
_MADE: Final = {"oneOf": [_VERSION, _CHECKED]}


class DefinitionBody(Body):
    """A definition, and for whom it is."""

    definition: JsonObject = Field(description="`agents`, `teams` and `tools`; GET /v1/agents/schema has them.")
    visibility: Visibility = Field(default="user", description="For whom it is; `tenant` takes `admin`.")
    validate_only: bool = Field(default=False, description="Say what is wrong, and store nothing.")


class NewAgentBody(DefinitionBody):
    """A definition that is new."""

    name: str = Field(description="The agent or team of the definition that is asked.", json_schema_extra=_NAME)


class AgentBody(DefinitionBody):
    """A version of a definition."""

    version: int | None = Field(
        default=None, ge=1, le=2**31 - 1, description="The version that is replaced; 409 if it is another by now."
    )


class RollbackBody(Body):
    """Which version is to be served again."""

    to: int = Field(ge=1, le=2**31 - 1, description="The number of the older version.")
    visibility: Visibility = Field(default="user", description="Whose definition it is.")
    version: int | None = Field(
        default=None, ge=1, le=2**31 - 1, description="The version that is served now; 409 if it is another."
    )


def routes(web: Web) -> APIRouter:
    """Return the routes. Whoever asks here sees their own definitions, their tenant's, and those for all."""
    agents, bodies = web.engine.agents, web.bodies
    router = new_router("/v1/agents", tags=["agents"])

    @router.post(
        "",
        status_code=201,
        responses={**answers(201, _VERSION), **answers(200, _CHECKED)},
        openapi_extra=described(NewAgentBody),
    )
    async def create_agent(request: Request, who: Writer, once: Once) -> Response:
        """Store a definition. Every worker serves it within two seconds."""
        body = await read_fields(bodies, request, NewAgentBody)
        spec = DefinitionSpec(body.name, body.definition, body.visibility)
        if body.validate_only:
            return json_response(_checked(body.name, await agents.check(who, spec)))
        return await once(who, body, lambda: agents.put(who, spec, replaces=False), plain(_object))

    @router.get("", responses=answers(200, page_of(_VERSION)))
    async def list_agents(who: Reader, limit: Limit = 20, after: After = None, visibility: Seen = None) -> Response:
        """The definitions that one may ask, by name."""
        return page_response(await agents.list(who, after, limit, visibility), _object)

    router.get("/schema", responses=answers(200, {"type": "object"}))(get_schema)

    @router.get("/{name}", responses=answers(200, _VERSION))
    async def get_agent(name: AgentName, who: Reader, visibility: Seen = None, version: Version = None) -> Response:
        """One definition, as it is served, or an older version of it."""
        return json_response(_object(await agents.get(who, name, visibility, version)))

    @router.put("/{name}", responses=answers(200, _MADE), openapi_extra=described(AgentBody))
    async def replace_agent(name: AgentName, request: Request, who: Writer) -> Response:
        """Store another version of a definition. A live run keeps the one that it began with."""
        body = await read_fields(bodies, request, AgentBody)
        spec = DefinitionSpec(name, body.definition, body.visibility, body.version)
        if body.validate_only:
            return json_response(_checked(name, await agents.check(who, spec)))
        return json_response(_object(await agents.put(who, spec, replaces=True)))

    @router.delete("/{name}", responses=answers(200, deletion("agent.deleted")))
    async def delete_agent(
        name: AgentName, who: Writer, visibility: Own = "user", version: Expected = None
    ) -> Response:
        """Delete a definition. Nobody begins a run with it any more; a run that began with it ends with it."""
        await agents.delete(who, name, visibility, version=version)
        return deleted(name, "agent.deleted")

    @router.get("/{name}/versions", responses=answers(200, page_of(_VERSION)))
    async def list_agent_versions(
        name: AgentName, who: Reader, limit: Limit = 20, after: AfterVersion = None, visibility: Seen = None
    ) -> Response:
        """The versions of a definition that are kept, newest first."""
        return page_response(await agents.versions(who, name, after, limit, visibility), _object)

    @router.post("/{name}/rollback", responses=answers(200, _VERSION), openapi_extra=described(RollbackBody))
    async def roll_agent_back(name: AgentName, request: Request, who: Writer, once: Once) -> Response:
        """Serve an older version again: it becomes a new one."""
        body = await read_fields(bodies, request, RollbackBody)
        return await once(
            who,
            body,
            lambda: agents.roll_back(who, name, body.to, body.visibility, version=body.version),
            plain(_object),
        )

    return router


async def get_schema(who: Reader) -> Response:
    """The JSON Schema of a definition."""
    return json_response(json_schema())


def _checked(name: str, warnings: list[str]) -> JsonObject:
    told: JsonObject = {"warnings": warnings} if warnings else {}
    return {"id": name, "object": "agent.checked", "valid": True, **told}


def _object(version: DefinitionVersion) -> JsonObject:
    return {
        "id": version.name,
        "object": "agent",
        "visibility": visibility_of(version.owner),
        "version": version.version,
        "is_served": version.ended_at is None,
        "definition": version.definition,
        "created_at": int(version.created_at.timestamp()),
        "created_by": version.created_by,
        "restores": version.restores,
    }
