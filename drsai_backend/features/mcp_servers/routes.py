"""The routes of `/v1/mcp` show the MCP servers whose tools agents may have, and ask one whether it answers."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from drsai_backend.api.http.json import answers, json_response, page_of, page_response
from drsai_backend.api.http.parameters import Limit, after_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of, schema_of
from drsai_backend.database.registered_tools import tools
from drsai_backend.errors import NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.tools.mcp.health import ServerHealth
from drsai_backend.tools.mcp.servers import McpHttp, McpSse, McpStdio

_log = logging.getLogger("drsai.tools.mcp")
Registrar = Annotated[Principal, allowed(Scope.TOOLS_REGISTER, named=False)]
Reader = Annotated[Principal, allowed(Scope.AGENTS_READ)]
After = Annotated[str | None, after_of(tools.listed.pattern)]
Owner = Literal["tenant", "operator"]
ServerName = Annotated[str, Path(json_schema_extra={"pattern": "^[A-Za-z0-9_-]{1,64}$"})]
OfOwner = Annotated[
    Owner | None, Query(description="Whose it is; default: the tenant's of that name, or else the operator's.")
]
_SERVER: Final = {
    "type": "object",
    "required": ["id", "object", "owner", "transport"],
    "properties": {
        "id": {"type": "string", "description": "Its name, before those of its tools: `name__tool`."},
        "object": {"const": "mcp.server"},
        "owner": {"enum": ["tenant", "operator"], "description": "Who has registered it, or named it in the settings."},
        "transport": {"enum": ["http", "sse", "stdio"]},
    },
}
_HEALTH: Final = schema_of(ServerHealth, "mcp.server.health", owner={"enum": ["tenant", "operator"]})


def routes(web: Web) -> APIRouter:
    """Return the routes. Whoever asks here meets the servers of their own tenant, and those of the operator."""
    registry, mcp = web.engine.tools, web.engine.mcp
    router = new_router("/v1/mcp", tags=["tools"])

    async def find(who: Principal, name: str, owner: Owner | None) -> tuple[Owner, McpStdio | McpHttp | McpSse]:
        if owner != "operator":
            with suppress(NotFound):
                return "tenant", await registry.server(who, name)
        for each in mcp.servers:
            if owner != "tenant" and each.enabled and each.name == name:
                return "operator", each
        raise NotFound(f"there is no MCP server {name!r}", param="server")

    @router.get("/servers", responses=answers(200, page_of(_SERVER)))
    async def list_mcp_servers(who: Reader, limit: Limit = 20, after: After = None) -> Response:
        """The MCP servers of the operator, on the first page, and those that the tenant has registered, by name. A page
        has those among the next `limit` registered tools, so it may have none, and `has_more`."""
        page = await registry.list(who, after, limit)
        given = [] if after is not None else [each for each in mcp.servers if each.enabled]
        items = [_object(each.name, "operator", each.transport) for each in given]
        items += [_object(tool.name, "tenant", "http") for tool in page.items if tool.kind == "mcp"]
        return page_response(Page[JsonObject](items=items, next=page.next))

    @router.post("/servers/{server}/check", responses=answers(200, _HEALTH, "What it did."))
    async def check_mcp_server(server: ServerName, who: Registrar, owner: OfOwner = None) -> Response:
        """Ask a server anew, by a connection of its own, what tools it has: within 15 seconds. It is asked once at a
        time in each process; whoever asks within five seconds is told the same."""
        whose, found = await find(who, server, owner)
        health = await mcp.health.of(found)
        if whose == "operator" and health.error is not None:
            # It may tell of the operator's machine and network, which are no tenant's.
            _log.warning("an MCP server of the operator's was asked, and is not up: %s", health.error)
            why = f"the MCP server {found.name} does not answer as it should; the log of this server says why"
            health = health.model_copy(update={"error": why})
        head = {"id": found.name, "owner": whose, "object": "mcp.server.health"}
        return json_response({**head, **fields_of(health)})

    return router


def _object(name: str, owner: Owner, transport: str) -> JsonObject:
    return {"id": name, "object": "mcp.server", "owner": owner, "transport": transport}
