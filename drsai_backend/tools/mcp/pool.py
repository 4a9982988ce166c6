"""The pool has the connections to MCP servers: one for each server, shared by all runs and workbenches of a `DrSai`.

A connection is made when it is needed, and closed when nobody has needed it for a time, when another one needs its
place, and when the last one who holds the pool lets it go: `DrSai` while it is open, a workbench while it is started.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

from drsai_backend.errors import NotInstalled
from drsai_backend.explain import why_not_imported
from drsai_backend.tools.mcp.failures import ServerFailed
from drsai_backend.tools.mcp.servers import McpHttp, McpSse, McpStdio, tenant_of

if TYPE_CHECKING:
    from drsai_backend.tools.mcp.connection import Connection

log = logging.getLogger("drsai.tools.mcp")

MOST: Final = 32
"""Connections that are open at a time."""
_SHARE: Final = 4
"""Of so many connections, one is for servers that the same tenant has registered: others need theirs."""
IDLE_SECONDS: Final = 300.0
"""For how long one that nobody uses stays open."""
DOWN_SECONDS: Final = (0.2, 1.0, 5.0)
"""For how long a server that could not be reached is not tried again: after the first time, the second, and later."""


class Pool:
    """The connections of one event loop.

    Args:
        most: that may be open at a time; of a tenant's own servers, a quarter.
        idle_seconds: for how long one that nobody uses stays open.
    """

    def __init__(self, most: int = MOST, idle_seconds: float = IDLE_SECONDS) -> None:
        self.most, self.idle_seconds = most, idle_seconds
        self._open: OrderedDict[str, Connection] = OrderedDict()
        self._ending: set[Connection] = set()
        self._down: OrderedDict[str, tuple[float, int, ServerFailed]] = OrderedDict()
        self._holders = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """How many are open, or are being closed."""
        return len(self._open) + len(self._ending)

    def hold(self) -> Self:
        """Keep it open until `let_go`, which is called as often. Returns the pool."""
        self._holders += 1
        return self

    async def let_go(self) -> None:
        """Close all connections, if nobody else holds the pool."""
        self._holders -= 1
        if self._holders <= 0:
            self._holders = 0
            await self.close()

    @asynccontextmanager
    async def connection(self, server: McpStdio | McpHttp | McpSse) -> AsyncGenerator[Connection]:
        """A connection to a server, or else to its backup, which stays open while the context is not left.

        Raises:
            ServerFailed: neither can be reached, or too many others are in use.
        """
        try:
            connection = await self._connected(server)
        except ServerFailed as error:
            if server.backup is None:
                raise
            log.warning("%s; its backup is asked", error)
            connection = await self._connected(server.backup)
        try:
            yield connection
        finally:
            connection.users -= 1
            connection.used_at = time.monotonic()

    async def close(self) -> None:
        """Close all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for key in list(self._open):
            self._end(key)
        await asyncio.gather(*(each.closed() for each in list(self._ending)))

    async def _connected(self, server: McpStdio | McpHttp | McpSse) -> Connection:
        key = server.key
        connection = self._open.get(key)
        if connection is not None and connection.is_over:
            self._end(key)
            connection = None
        if connection is None:
            if (down := self._down.get(key)) is not None and time.monotonic() < down[0]:
                raise down[2]
            self._make_room(tenant_of(server))
            try:
                from drsai_backend.tools.mcp.connection import Connection  # The package takes a second to import.
            except ImportError as error:
                raise NotInstalled(f"MCP servers cannot be asked: {why_not_imported(error)}") from error

            connection = self._open[key] = Connection(server)
            self._plan()
        self._open.move_to_end(key)
        connection.users += 1
        try:
            await connection.ready()
        except BaseException as error:
            connection.users -= 1
            # Of all who have waited for it, the first.
            if isinstance(error, ServerFailed) and self._open.get(key) is connection:
                self._end(key)
                self._note_failure(key, error)
            raise
        self._down.pop(key, None)
        return connection

    def _note_failure(self, key: str, error: ServerFailed) -> None:
        times = self._down.pop(key)[1] if key in self._down else 0
        pause = DOWN_SECONDS[min(times, len(DOWN_SECONDS) - 1)]
        self._down[key] = (time.monotonic() + pause, times + 1, error)
        while len(self._down) > self.most:
            self._down.popitem(last=False)

    def _make_room(self, tenant: str | None) -> None:
        """Close one that nobody uses where another one may not be open beside those that are. `tenant`: whose server
        is to be asked; None: the operator's."""
        theirs = [key for key, each in self._open.items() if tenant is not None and tenant_of(each.server) == tenant]
        share = max(1, self.most // _SHARE)
        if len(theirs) >= share:
            self._end_idle(theirs, f"{share} MCP servers of this tenant")
        elif len(self._open) >= self.most:
            self._end_idle(list(self._open), f"{self.most} MCP servers")

    def _end_idle(self, keys: Sequence[str], many: str) -> None:
        for key in keys:
            if not self._open[key].users:
                self._end(key)
                return
        raise ServerFailed(f"{many} are in use, and no more may be; try again")

    def _end(self, key: str) -> None:
        connection = self._open.pop(key)
        connection.close_soon()
        self._ending.add(connection)
        task = asyncio.create_task(connection.closed())
        self._waiting.add(task)

        def ended(_: object) -> None:
            self._ending.discard(connection)
            self._waiting.discard(task)

        task.add_done_callback(ended)

    def _plan(self) -> None:
        if self._timer is None:
            delay = max(0.05, self.idle_seconds / 2)
            self._timer = asyncio.get_running_loop().call_later(delay, self._close_idle)

    def _close_idle(self) -> None:
        self._timer = None
        latest = time.monotonic() - self.idle_seconds
        for key, each in list(self._open.items()):
            if each.is_over or (not each.users and each.used_at <= latest):
                self._end(key)
        if self._open:
            self._plan()
