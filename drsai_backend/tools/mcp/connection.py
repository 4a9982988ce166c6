"""A connection is held to one server. A task of its own opens and closes it, for what opens a client of MCP must close
it. Who asks waits for an answer no longer than they want, whatever the server does."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import anyio
from mcp.client._transport import ReadStream, TransportStreams  # types, which no public module has
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    Implementation,
    Tool,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from drsai_backend.errors import ConfigurationError
from drsai_backend.tools.mcp.failures import ServerFailed, first_of, text_of
from drsai_backend.tools.mcp.http import http_streams, sse_streams
from drsai_backend.tools.mcp.servers import McpHttp, McpSse, McpStdio
from drsai_backend.tools.mcp.stdio import stdio_streams

log = logging.getLogger("drsai.tools.mcp")
T = TypeVar("T")

LIST_SECONDS: Final = 60.0
"""How long a list of tools is believed. A server that says that it has changed is asked at once."""
_LONGEST_VERSION: Final = 100
_MOST_TOOLS: Final = 1_000
_MOST_PAGES: Final = 50
_CLOSE_SECONDS: Final = 5.0
"""How long a server is waited for that is told of the end."""
_TIMEOUTS: Final = 3
"""Answers in a row that did not come, after which the server is asked by a new connection."""


class _Watched:
    """A stream of messages that says when it has ended."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], ended: asyncio.Event) -> None:
        self._inner, self._ended = inner, ended

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._inner.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._ended.set()
            raise

    async def receive(self) -> SessionMessage | Exception:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


def _streams(
    server: McpStdio | McpHttp | McpSse, forgotten: asyncio.Event
) -> AbstractAsyncContextManager[TransportStreams]:
    if isinstance(server, McpStdio):
        return stdio_streams(server)
    return http_streams(server, forgotten) if isinstance(server, McpHttp) else sse_streams(server)


class Connection:
    """A connection to a server, from the moment it is made. In the event loop that makes it."""

    def __init__(self, server: McpStdio | McpHttp | McpSse) -> None:
        self.server = server
        self.users = 0
        self.used_at = time.monotonic()
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Client] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()
        self._closing = asyncio.Event()
        self._forgotten = asyncio.Event()
        self._requests: set[asyncio.Task[object]] = set()
        self._timeouts = 0
        self._tools: tuple[Tool, ...] | None = None
        self._listed_at = 0.0
        self._changes = 0
        # It is of no run: what it logs has not the ids of the one that has opened it.
        self._owner = asyncio.create_task(self._own(), name=f"mcp:{server.name}", context=Context())

    @property
    def is_over(self) -> bool:
        """Whether it is of no use any more."""
        return self._over.done() or self._closing.is_set()

    @property
    def version(self) -> str | None:
        """The version that the server says it has, once it can be asked."""
        info = self._ready.result().server_info
        return None if info is None else " ".join(info.version.split())[:_LONGEST_VERSION] or None

    async def ready(self) -> None:
        """Until the server can be asked. Raises ServerFailed: it cannot be reached."""
        await asyncio.wait({self._ready})
        self._ready.result()

    def close_soon(self) -> None:
        """Have it closed. Who waits for an answer is told that there comes none."""
        self._closing.set()

    async def closed(self) -> None:
        """Until it is closed, and its process, if it has one, is gone."""
        await asyncio.wait({self._owner})

    # --- what its server is asked ------------------------------------------------------------------------------------

    async def request(self, send: Callable[[Client], Awaitable[T]], timeout: float) -> T:
        """The server's answer.

        Raises:
            ServerFailed: there is none within `timeout` seconds, or it is an error.
        """
        server = self.server
        task = asyncio.ensure_future(send(self._ready.result()))
        self._requests.add(task)
        task.add_done_callback(self._answered)
        try:
            await asyncio.wait({task, self._over}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done() and not task.cancelled():
            try:
                result = task.result()
            except MCPError as error:
                raise self._failure(error) from None
            except (ValidationError, RuntimeError, ValueError, anyio.ClosedResourceError) as error:
                text = f"the MCP server {server.name} gave no answer that can be used: {text_of(error)}"
                raise ServerFailed(text, is_lost=isinstance(error, anyio.ClosedResourceError)) from None
            self._timeouts = 0
            return result
        task.cancel()
        if self._over.done() or task.cancelled():
            raise ServerFailed(f"the MCP server {server.name} closed the connection before its answer", is_lost=True)
        self._timeouts += 1
        if self._timeouts >= _TIMEOUTS:
            self.close_soon()
        raise ServerFailed(f"the MCP server {server.name} did not answer within {timeout:g} s")

    def _failure(self, error: MCPError) -> ServerFailed:
        name = self.server.name
        if error.code == CONNECTION_CLOSED or (error.code == INVALID_REQUEST and self._forgotten.is_set()):
            # The connection, or the session of it, is none any more. Else such an error is of this request alone.
            self.close_soon()
            text = f"the MCP server {name} closed the connection: {text_of(error)}"
            return ServerFailed(text, is_lost=True)
        if error.code == REQUEST_TIMEOUT:
            return ServerFailed(f"the MCP server {name} did not answer in time")
        return ServerFailed(f"the MCP server {name} answered with an error: {text_of(error)}")

    def _answered(self, task: asyncio.Task[object]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever waited may be gone.

    async def tools(self, timeout: float) -> tuple[Tool, ...]:
        """Return what tools the server has. Raises ServerFailed."""
        if self._tools is not None and time.monotonic() - self._listed_at < LIST_SECONDS:
            return self._tools

        async def read(client: Client) -> tuple[Tool, ...]:
            found: list[Tool] = []
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    return tuple(found)
                if len(found) > _MOST_TOOLS:
                    break
            raise ValueError(f"it lists more than {_MOST_TOOLS} tools, or more than {_MOST_PAGES} pages of them")

        began, changes = time.monotonic(), self._changes
        tools = await self.request(read, timeout)
        if changes == self._changes:  # Else it may be of before a change.
            self._listed_at, self._tools = began, tools
        return tools

    async def _heard(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._tools = None
            self._changes += 1

    # --- its task ----------------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        server = self.server
        failure: ServerFailed | None = None
        try:
            with anyio.fail_after(server.connect_timeout) as patience:
                async with Client(
                    self._transport(),
                    client_info=Implementation(name="drsai_backend", version="1"),
                    message_handler=self._heard,
                    cache=None,
                ) as client:
                    patience.deadline = math.inf
                    self._ready.set_result(client)
                    await self._closing.wait()
                    patience.deadline = anyio.current_time() + _CLOSE_SECONDS
        except TimeoutError:
            failure = self._unreachable(f"it did not answer within {server.connect_timeout:g} s")
        except (ServerFailed, ConfigurationError) as error:
            failure = self._unreachable(str(error))
        except Exception as error:
            first = first_of(error)
            failure = self._unreachable(str(first) if isinstance(first, ServerFailed) else text_of(first))
            log.debug("connection to the MCP server %s", server.name, exc_info=error)
        finally:
            self._closing.set()
            if not self._ready.done():
                self._ready.set_exception(failure or self._unreachable("the connection was closed"))
                self._ready.exception()  # Nobody may wait for it any more.
            self._over.set_result(None)
            for task in self._requests:
                task.cancel()

    def _unreachable(self, why: str) -> ServerFailed:
        return ServerFailed(f"the MCP server {self.server.name} cannot be reached: {why}", is_unreachable=True)

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[TransportStreams]:
        """The server's streams. Where its messages end, so does the connection."""
        ended = asyncio.Event()

        async def watch() -> None:
            await ended.wait()
            self._closing.set()

        watching = asyncio.create_task(watch())
        try:
            async with _streams(self.server, self._forgotten) as (received, to_send):
                yield cast("ReadStream[SessionMessage | Exception]", _Watched(received, ended)), to_send
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
