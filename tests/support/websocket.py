"""A WebSocket client without a network: it speaks ASGI to an application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any


class Refused(Exception):
    """The handshake was refused: `status`, and the body."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body


class Socket:
    """A connection. `closed` is the code that the server has closed it with; `gone`: the client has left, which the
    server finds out when it sends."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        self.closed: int | None = None
        self.gone = False

    async def receive(self) -> Any:
        return await self.sent.get()

    async def send(self, message: Any) -> None:
        if self.gone:
            raise OSError("the client has left")
        await self.told.put(message)

    async def say(self, message: Any) -> None:
        """Send JSON, or a text as it is."""
        text = message if isinstance(message, str) else json.dumps(message)
        await self.sent.put({"type": "websocket.receive", "text": text})

    async def hear(self) -> Any:
        """The next message; None: the connection was closed."""
        async with asyncio.timeout(20):
            message = await self.told.get()
        if message["type"] == "websocket.close":
            self.closed = message["code"]
            return None
        return json.loads(message["text"])

    async def turn(self, message: Any) -> list[Any]:
        """What one message is answered with, to the event that ends it."""
        await self.say(message)
        events = [await self.hear()]
        while events[-1]["type"] not in ("response.completed", "response.failed", "response.incomplete", "error"):
            events.append(await self.hear())
        return events


@asynccontextmanager
async def connected(
    app: Any, path: str = "/v1/responses", headers: dict[str, str] | None = None
) -> AsyncGenerator[Socket]:
    """An open connection. Raises Refused."""
    socket = Socket()
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "extensions": {"websocket.http.response": {}},
        "client": ("127.0.0.1", 1),
        "server": ("test", 80),
        "subprotocols": [],
    }
    serving = asyncio.create_task(app(scope, socket.receive, socket.send))
    await socket.sent.put({"type": "websocket.connect"})
    try:
        first = await asyncio.wait_for(socket.told.get(), 20)
        if first["type"] == "websocket.http.response.start":
            raise Refused(first["status"], json.loads((await socket.told.get())["body"]))
        assert first["type"] == "websocket.accept"
        yield socket
    finally:
        await socket.sent.put({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(serving, 20)
