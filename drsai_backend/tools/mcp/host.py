"""The host has the MCP servers of one `DrSai`, and its connections to them."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from drsai_backend.tools.mcp.health import Health
from drsai_backend.tools.mcp.pool import Pool
from drsai_backend.tools.mcp.servers import McpServers

if TYPE_CHECKING:
    from drsai_backend.config import Settings


@dataclass(frozen=True, slots=True)
class McpHost:
    """What the workbenches of one `DrSai` share.

    Attributes:
        servers: those that the operator has named: component configs and definitions find theirs here.
        pool: the connections to these and all others.
        health: asks whether a server answers.
    """

    servers: McpServers = field(default_factory=McpServers)
    pool: Pool = field(default_factory=Pool)
    health: Health = field(default_factory=Health)

    @classmethod
    def of(cls, settings: Settings) -> McpHost:
        """Return what the settings say of servers and connections. Raises ConfigurationError as `McpServers.read`."""
        servers = McpServers() if settings.mcp_servers is None else McpServers.read(settings.mcp_servers)
        return cls(servers, Pool(settings.mcp_connections, settings.mcp_idle_seconds))

    async def close(self) -> None:
        """Close all connections."""
        await self.health.close()
        await self.pool.close()


mcp_host: Final[ContextVar[McpHost | None]] = ContextVar("mcp_host", default=None)
"""That of the `DrSai` whose team is built, or whose run this is. It outlives the run: a timer that is cancelled keeps
the context in which it was set up until its time would have come."""
_outside: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Pool]] = WeakKeyDictionary()
"""The connections of code that no `DrSai` runs, which belong to its event loop."""


def pool() -> Pool:
    """The connections of the `DrSai` whose run this is; outside of one, those of the event loop."""
    found = mcp_host.get()
    if found is not None:
        return found.pool
    return _outside.setdefault(asyncio.get_running_loop(), Pool())


def named_servers() -> McpServers:
    """Return those that the operator of the `DrSai` has named whose team is built; outside of a factory there are
    none."""
    found = mcp_host.get()
    return McpServers() if found is None else found.servers
