"""The standard streams of a child process are the way to a server here: one line of JSON is one message.

The package's own transport keeps a line of any length, and leaves the child behind when this process is killed. Here a
line is bounded, the child is a process group of its own that is killed as one, and Linux kills it with its parent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams  # its type, which no public module has
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError
from mcp_types.jsonrpc import jsonrpc_message_adapter

from drsai_backend.tools.apart import end_group
from drsai_backend.tools.mcp.failures import ServerFailed
from drsai_backend.tools.mcp.servers import McpStdio, filled

log = logging.getLogger("drsai.tools.mcp")

END_SECONDS: Final = 1.0
"""How long a child may take to end after the end of its input, and again after SIGTERM."""
_CHUNK: Final = 65_536
_TAIL: Final = 2_000
_SKIP: Final = 64
"""How many times `max_bytes` of a line are passed over before its server is given up."""
_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*[,}]')

# Runs before the server, in its process. Linux kills it when the thread that has started it ends; if that had happened
# before it asked to be, its parent is another one by now.
_WITH_PARENT: Final = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]): os._exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[3:])\n"
)


def _command(server: McpStdio, env: dict[str, str]) -> list[str]:
    found = shutil.which(server.command, path=env.get("PATH"))
    if found is None:
        raise ServerFailed(f"the MCP server {server.name} cannot be started: there is no program {server.command!r}")
    if sys.platform == "linux" and sys.executable:
        return [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid()), found, server.command, *server.args]
    return [found, *server.args]


@asynccontextmanager
async def stdio_streams(server: McpStdio) -> AsyncGenerator[TransportStreams]:
    """Start the server, and give the streams of messages from and to it. When the context is left the child has ended,
    killed if need be.

    Raises:
        ServerFailed: it cannot be started.
    """
    what = f"`env` of the MCP server {server.name}"
    env = get_default_environment() | {name: filled(text, what) for name, text in server.env.items()}
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *_command(server, env),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=env,
            cwd=server.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ServerFailed(f"the MCP server {server.name} cannot be started: {error}") from None
    child = _Child(server, process)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child.read)
            tasks.start_soon(child.write)
            tasks.start_soon(child.read_errors)
            try:
                yield child.received, child.to_send
            finally:
                tasks.cancel_scope.cancel()
    finally:
        await child.end()


class _Child:
    def __init__(self, server: McpStdio, process: asyncio.subprocess.Process) -> None:
        self._server, self._process = server, process
        self._said = b""
        """The newest of what it has said to its operator."""
        self._has_ended = False
        """Whether it says no more, though nobody has asked it to end."""
        self._incoming: MemoryObjectSendStream[SessionMessage | Exception]
        self.received: MemoryObjectReceiveStream[SessionMessage | Exception]
        self._incoming, self.received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.to_send: MemoryObjectSendStream[SessionMessage]
        self._outgoing: MemoryObjectReceiveStream[SessionMessage]
        self.to_send, self._outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(self) -> None:
        """Hand on what the server says, until it says no more."""
        assert self._process.stdout is not None
        limit, buffer, searched, skipped = self._server.max_bytes, bytearray(), 0, 0
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with self._incoming:
                while chunk := await self._process.stdout.read(_CHUNK):
                    buffer += chunk
                    while (end := buffer.find(b"\n", searched)) >= 0:
                        line = bytes(buffer[:end])
                        del buffer[: end + 1]
                        if skipped or len(line) > limit:
                            skipped = 0
                            await self._refuse(line)
                        elif line.strip():
                            await self._hand_on(line)
                        searched = 0
                    searched = len(buffer)
                    if len(buffer) > limit:  # Its beginning, which may have the id, is kept; the rest passes by.
                        skipped += len(buffer) - 1024
                        del buffer[1024:]
                        searched = len(buffer)
                        if skipped > _SKIP * limit:
                            log.warning("the MCP server %s does not end an answer", self._server.name)
                            return
                self._has_ended = True

    async def _hand_on(self, line: bytes) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            log.warning("the MCP server %s wrote what is no message: %r", self._server.name, line[:200])
            await self._incoming.send(ValueError(str(error)[:200]))
            return
        await self._incoming.send(SessionMessage(message))

    async def _refuse(self, line: bytes) -> None:
        """Answer in place of a message that is too long, where its request can be told."""
        found = _ID.search(line[:1024])
        if found is None:
            raise ServerFailed(f"the MCP server {self._server.name} sent more than {self._server.max_bytes} bytes")
        text = f"the answer has more than {self._server.max_bytes} bytes"
        error = ErrorData(code=CONNECTION_CLOSED - 99, message=text)
        await self._incoming.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)))

    async def write(self) -> None:
        """Send what this side says, until the child is gone."""
        assert self._process.stdin is not None
        with suppress(OSError, RuntimeError):
            async with self._outgoing:
                async for sent in self._outgoing:
                    text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self._process.stdin.write(text.encode() + b"\n")
                    await self._process.stdin.drain()
        await self._incoming.aclose()

    async def read_errors(self) -> None:
        """Put into the log what it says to its operator."""
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK):
            self._said = (self._said + chunk)[-_TAIL:]
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s: %s", self._server.name, chunk[-_TAIL:].decode(errors="replace").rstrip())

    async def end(self) -> None:
        """Bring about its end, and that of all it has started, however this task is cancelled meanwhile."""
        for stream in (self._incoming, self.received, self.to_send, self._outgoing):
            stream.close()
        ending = asyncio.create_task(self._end())
        while not ending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(ending)

    async def _end(self) -> None:
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        draining = asyncio.create_task(self._drain())
        for is_asked in (False, True):
            if is_asked:
                end_group(process.pid, politely=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
                    break
        end_group(process.pid)  # Also what it has left behind in its group.
        await process.wait()
        if self._has_ended and process.stderr is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):  # What it has started may hold the pipe open.
                    self._said += await process.stderr.read(_CHUNK)
            said = self._said[-_TAIL:].decode(errors="replace").strip() or "nothing"
            log.warning("the MCP server %s has ended (%s). It said: %s", self._server.name, process.returncode, said)
        draining.cancel()
        with suppress(asyncio.CancelledError):
            await draining
        # The pipes may be open in what it has started elsewhere; nobody reads them any more.
        transport: asyncio.SubprocessTransport = getattr(process, "_transport")  # noqa: B009 - private: no public way
        transport.close()

    async def _drain(self) -> None:
        """A child that is stuck writing could not see the end of its input."""
        assert self._process.stdout is not None
        while await self._process.stdout.read(_CHUNK):
            pass
