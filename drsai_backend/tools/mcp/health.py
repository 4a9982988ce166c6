"""The health of a server is asked anew, by a connection of its own, within a bound of time, and by one who asks at a
time: others are told what that one is."""

from __future__ import annotations

import asyncio
import time
from contextvars import Context
from datetime import datetime
from typing import Final

from pydantic import BaseModel, Field

from drsai_backend.datamodel.base import utcnow
from drsai_backend.errors import TooManyRequests
from drsai_backend.tools.mcp.failures import text_of
from drsai_backend.tools.mcp.pool import Pool
from drsai_backend.tools.mcp.servers import McpHttp, McpSse, McpStdio, tenant_of

SECONDS: Final = 15.0
"""How long a server has to answer."""
SHARED_SECONDS: Final = 5.0
"""From when a server is asked on, for how long others are told the same."""
_AT_ONCE: Final = 4
"""Servers of a tenant, or of the operator, that are asked at the same time; and connections to them whose end nobody
waits for."""


class ServerHealth(BaseModel):
    """What a server did when it was asked what tools it has."""

    up: bool
    error: str | None = Field(default=None, description="Why it is not up.")
    latency_ms: int = Field(description="Until it had said what it can do and which tools it has, or had failed.")
    tools: int | None = Field(default=None, description="How many of its tools agents are offered; null: it is not up.")
    version: str | None = Field(default=None, description="As the server says it; null: it says none.")
    asked_at: datetime = Field(description="When it was asked; up to five seconds ago, if somebody else has asked.")


class Health:
    """Asks the servers of one `DrSai`."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[float, str | None, asyncio.Task[ServerHealth]]] = {}
        self._closing: dict[asyncio.Task[None], str | None] = {}

    async def of(self, server: McpStdio | McpHttp | McpSse, seconds: float = SECONDS) -> ServerHealth:
        """Ask a server, and not its backup. A program is started for it, beside the one that runs use.

        Args:
            server: which.
            seconds: how long it has to answer.

        Raises:
            TooManyRequests: too many others of its tenant are asked now.
        """
        key, now, tenant = server.model_dump_json(), time.monotonic(), tenant_of(server)
        self._asked = {
            each: asked for each, asked in self._asked.items() if not asked[2].done() or now - asked[0] < SHARED_SECONDS
        }
        if key not in self._asked:
            if sum(whose == tenant and not task.done() for _, whose, task in self._asked.values()) >= _AT_ONCE:
                raise TooManyRequests(f"{_AT_ONCE} other MCP servers are asked now", after=SHARED_SECONDS)
            # Whoever has asked may leave before the answer, which is for others as well.
            task = asyncio.create_task(self._ask(server, seconds), name=f"health:{server.name}", context=Context())
            self._asked[key] = now, tenant, task
        return await asyncio.shield(self._asked[key][2])

    async def close(self) -> None:
        """Wait until all are answered, and their connections closed."""
        await asyncio.gather(*(task for _, _, task in self._asked.values()))
        await asyncio.gather(*self._closing)

    async def _ask(self, server: McpStdio | McpHttp | McpSse, seconds: float) -> ServerHealth:
        from drsai_backend.tools.mcp.host import McpHost
        from drsai_backend.tools.mcp.workbench import McpWorkbench

        bounds = {"connect_timeout": min(server.connect_timeout, seconds), "timeout": min(server.timeout, seconds)}
        asked = server.model_copy(update={**bounds, "backup": None, "required": True})
        at, began, pool, tenant = utcnow(), time.perf_counter(), Pool(1), tenant_of(server)
        error = tools = version = None
        try:
            async with asyncio.timeout(seconds), pool.connection(asked) as connection:
                tools = len(await McpWorkbench([asked], host=McpHost(pool=pool)).list_tools())
                version = connection.version
        except TimeoutError:
            error = f"the MCP server {server.name} did not answer within {seconds:g} s"
        except Exception as failed:  # noqa: BLE001 - of a foreign program or server
            error = text_of(failed)
        finally:
            latency = round((time.perf_counter() - began) * 1000)
            closing = asyncio.create_task(pool.close())
            self._closing[closing] = tenant
            closing.add_done_callback(self._closing.pop)
        if [*self._closing.values()].count(tenant) > _AT_ONCE:
            await asyncio.wait({closing})  # Servers that hang at the end are no more than can be asked.
        return ServerHealth(
            up=error is None, error=error, latency_ms=latency, tools=tools, version=version, asked_at=at
        )
