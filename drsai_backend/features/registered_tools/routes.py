"""The routes of `/v1/tools` serve the tools of a tenant, which its operators register and agents name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final, Literal

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body, allowed, described, read_fields
from drsai_backend.api.http.json import answers, deleted, deletion, json_response, page_of, page_response
from drsai_backend.api.http.once import Once
from drsai_backend.api.http.parameters import Limit, after_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.database.registered_tools import CallCounts, StoredTool, read_counts, tools
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.literals import masked
from drsai_backend.tools.registered.registry import ToolRegistry, ToolSpec
from drsai_backend.tools.registered.statistics import quantile

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Registrar = Annotated[Principal, allowed(Scope.TOOLS_REGISTER, named=False)]
Reader = Annotated[Principal, allowed(Scope.AGENTS_READ)]
After = Annotated[str | None, after_of(tools.listed.pattern)]
_NAME: Final[JsonObject] = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
ToolName = Annotated[str, Path(json_schema_extra=_NAME)]
_SECONDS: Final = {"type": ["number", "null"]}
_TOOL: Final = {
    "type": "object",
    "required": ["id", "object", "type", "version", "config", "secrets", "created_at", "created_by", "statistics"],
    "properties": {
        "id": {"type": "string", "description": "The name that agents call it by."},
        "object": {"const": "tool"},
        "type": {"enum": ["http", "mcp"]},
        "version": {"type": "integer", "minimum": 1},
        "config": {"type": "object"},
        "secrets": {"type": "array", "items": {"type": "string"}, "description": "Names; values are never shown."},
        "created_at": {"type": "integer", "description": "Unix time in seconds, of this version."},
        "created_by": {"type": "string"},
        "statistics": {
            "type": "object",
            "required": ["calls", "failures", "p50_seconds", "p95_seconds"],
            "properties": {
                "calls": {"type": "integer", "minimum": 0},
                "failures": {"type": "integer", "minimum": 0},
                "p50_seconds": {**_SECONDS, "description": "At most 20 % too high; null: there was no call."},
                "p95_seconds": _SECONDS,
                "since": {"type": ["integer", "null"]},
            },
        },
    },
}
_RESULT: Final = {
    "type": "object",
    "required": ["object", "tool", "is_error", "content", "seconds"],
    "properties": {
        "object": {"const": "tool.result"},
        "tool": {"type": "string"},
        "is_error": {"type": "boolean"},
        "content": {"type": "string", "description": "What an agent would get, as text."},
        "seconds": {"type": "number"},
    },
}


class ToolBody(Body):
    """A version of a tool."""

    type: Literal["http", "mcp"] = Field(
        default="http", description="An HTTP endpoint; or an MCP server, with all its tools as `name__tool`."
    )
    config: JsonObject = Field(description="What it calls; docs/http-tools.md and docs/mcp.md have the fields.")
    secrets: dict[str, str] = Field(
        default={}, description="Credentials by name. `config` names them; they are never shown again."
    )


class NewToolBody(ToolBody):
    """A tool that is new."""

    name: str = Field(description="What agents call it by.", json_schema_extra=_NAME)


class InvokeBody(Body):
    """A call to try."""

    arguments: JsonObject = Field(default={}, description="By name, as the parameters of the tool say.")


def routes(web: Web) -> APIRouter:
    """Return the routes. Whoever asks here sees and changes the tools of their own tenant only."""
    registry, bodies = web.engine.tools, web.bodies
    router = new_router("/v1/tools", tags=["tools"])

    async def shown(who: Principal, tool: StoredTool) -> JsonObject:
        return _tool_object(registry, tool, (await registry.counts(who, [tool.name])).get(tool.name))

    @router.post("", status_code=201, responses=answers(201, _TOOL), openapi_extra=described(NewToolBody))
    async def register_tool(request: Request, who: Registrar, once: Once) -> Response:
        """Register a tool. Its credentials are tried first, where its config says how."""
        body = await read_fields(bodies, request, NewToolBody)
        spec = ToolSpec(body.name, body.type, body.config, body.secrets)

        def show(session: Session, tool: StoredTool) -> JsonObject:
            return _tool_object(registry, tool, read_counts(session, who.tenant, [tool.name]).get(tool.name))

        return await once(who, body, lambda: registry.register(who, spec), show)

    @router.get("", responses=answers(200, page_of(_TOOL)))
    async def list_tools(who: Reader, limit: Limit = 20, after: After = None) -> Response:
        """The tools of the tenant, by name."""
        page = await registry.list(who, after, limit)
        counts = await registry.counts(who, [tool.name for tool in page.items])
        return page_response(page, lambda tool: _tool_object(registry, tool, counts.get(tool.name)))

    @router.get("/{name}", responses=answers(200, _TOOL))
    async def get_tool(name: ToolName, who: Reader) -> Response:
        """One tool, with how often it was called."""
        return json_response(await shown(who, await registry.get(who, name)))

    @router.put("/{name}", responses=answers(200, _TOOL), openapi_extra=described(ToolBody))
    async def replace_tool(name: ToolName, request: Request, who: Registrar) -> Response:
        """Replace a tool, its credentials too. Every worker serves it within two seconds; a live run keeps the one it
        began with."""
        body = await read_fields(bodies, request, ToolBody)
        spec = ToolSpec(name, body.type, body.config, body.secrets)
        return json_response(await shown(who, await registry.register(who, spec, replaces=True)))

    @router.delete("/{name}", responses=answers(200, deletion("tool.deleted")))
    async def delete_tool(name: ToolName, who: Registrar) -> Response:
        """Delete a tool. An agent that names it cannot begin a run any more; a run that began with it ends with it."""
        await registry.unregister(who, name)
        return deleted(name, "tool.deleted")

    @router.post("/{name}/invoke", responses=answers(200, _RESULT), openapi_extra=described(InvokeBody))
    async def invoke_tool(name: ToolName, request: Request, who: Registrar) -> Response:
        """Call a tool once, outside any run, to try it."""
        body = await read_fields(bodies, request, InvokeBody)
        began = time.perf_counter()
        result = await registry.invoke(who, name, body.arguments)
        return json_response(
            {
                "object": "tool.result",
                "tool": result.name,
                "is_error": result.is_error,
                "content": result.to_text(replace_image="[image]"),
                "seconds": round(time.perf_counter() - began, 4),
            }
        )

    return router


def _tool_object(registry: ToolRegistry, tool: StoredTool, counts: CallCounts | None) -> JsonObject:
    known = counts or CallCounts()
    return {
        "id": tool.name,
        "object": "tool",
        "type": tool.kind,
        "version": tool.version,
        "config": masked(tool.definition),
        "secrets": registry.secret_names(tool),
        "created_at": int(tool.created_at.timestamp()),
        "created_by": tool.created_by,
        "statistics": {
            "calls": known.calls,
            "failures": known.failures,
            "p50_seconds": quantile(known.buckets, 0.5),
            "p95_seconds": quantile(known.buckets, 0.95),
            "since": None if known.since is None else int(known.since.timestamp()),
        },
    }
