"""The MCP servers of one `DrSai`, and its connections to them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from drsai_backend.tools.mcp.pool import Pool
from drsai_backend.tools.mcp.servers import McpServers
from drsai_backend.tools.shelf import shelf

if TYPE_CHECKING:
    from drsai_backend.config import Settings


@dataclass(frozen=True, slots=True)
class McpHost:
    """What the workbenches of one `DrSai` share.

    Attributes:
        servers: those that the operator has named: component configs and definitions find theirs here.
        pool: the connections to these and all others.
    """

    servers: McpServers = field(default_factory=McpServers)
    pool: Pool = field(default_factory=Pool)

    @classmethod
    def of(cls, settings: Settings) -> McpHost:
        """What the settings say of servers and connections. Raises ConfigurationError as `McpServers.read`."""
        servers = McpServers() if settings.mcp_servers is None else McpServers.read(settings.mcp_servers)
        return cls(servers, Pool(settings.mcp_connections, settings.mcp_idle_seconds))


_outside: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Pool]] = WeakKeyDictionary()
"""The connections of code that no `DrSai` runs, which belong to its event loop."""


def pool() -> Pool:
    """The connections of the `DrSai` whose run this is; outside of one, those of the event loop."""
    found = shelf.get()
    if found is not None and found.mcp is not None:
        return found.mcp.pool
    return _outside.setdefault(asyncio.get_running_loop(), Pool())


def named_servers() -> McpServers:
    """Those that the operator of the `DrSai` has named whose team is built; outside of a factory there are none."""
    found = shelf.get()
    return McpServers() if found is None or found.mcp is None else found.mcp.servers
