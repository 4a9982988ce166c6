"""The command `drsai mcp` has the teams as the tools of an MCP server that speaks over standard input and output."""

from __future__ import annotations

import asyncio
import sys

from drsai_backend.access.principal import Principal
from drsai_backend.cli.logs import configure_logging
from drsai_backend.config import Settings
from drsai_backend.datamodel.audit import By
from drsai_backend.datamodel.thread import check_name
from drsai_backend.definitions import load_all
from drsai_backend.drsai import DrSai
from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import why_not_imported
from drsai_backend.features.extensions import means_of
from drsai_backend.teams.context import TeamFactory


def mcp(settings: Settings, teams: list[str] | None, *, user_id: str, tenant: str) -> None:
    configure_logging(settings)  # To standard error: the other is the client's.
    given = load_all(teams, means_of(settings)) if teams else None
    who = Principal(check_name(user_id, "user"), check_name(tenant, "tenant"), by=By.CLI)
    asyncio.run(_serve(settings, given, who))


async def _serve(settings: Settings, teams: dict[str, TeamFactory] | None, who: Principal) -> None:
    try:
        from mcp.server.stdio import stdio_server

        from drsai_backend.api.mcp.teams import TeamTools
    except ImportError as error:
        raise ConfigurationError(f"drsai mcp needs the package `mcp`: {why_not_imported(error)}") from error

    def always(context: object) -> Principal:
        return who

    async with DrSai(teams, settings=settings) as drsai:
        server = TeamTools(drsai.engine, always).server()
        async with stdio_server() as (received, to_send):
            await server.run(received, to_send, server.create_initialization_options())
    sys.stdout.flush()
