"""Where servers of tests listen, and servers that stop at once."""

from __future__ import annotations

import asyncio
import socket

import uvicorn


class PromptServer(uvicorn.Server):
    """Is told to stop by `stop`, from any thread. uvicorn's own looks ten times a second whether it should."""

    _told: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def main_loop(self) -> None:
        self._told = asyncio.get_running_loop(), asyncio.Event()
        if not self.should_exit:
            await self._told[1].wait()

    def stop(self) -> None:
        self.should_exit = True
        if self._told is not None:
            loop, event = self._told
            loop.call_soon_threadsafe(event.set)


def listening_socket() -> socket.socket:
    """A socket on a free port of loopback. asyncio turns Nagle's algorithm off only where a socket names its protocol,
    as `drsai serve`'s does and `socket.create_server`'s does not: 40 ms of each answer otherwise."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening
