"""Client credentials: a server that wants a token, and the one that gives them."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer

from drsai_backend.tools.mcp import McpHttp, McpWorkbench, OAuthClient
from drsai_backend.tools.mcp.host import pool

SECRET = "s3cret-of-the-client"


class Protected:
    """An MCP server at `/mcp` that wants tokens, and its authorization server, on one port."""

    def __init__(self, url: str) -> None:
        self.url = self.issuer = url
        self.good: set[str] = set()
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.seconds = 3600
        inner = MCPServer("protected")

        @inner.tool()
        def secret_number() -> int:
            """It."""
            return 42

        self.inner = inner.streamable_http_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.inner(scope, receive, send)
        path, headers = scope["path"], dict(scope["headers"])
        if path.startswith("/.well-known/oauth-protected-resource"):
            said = {"resource": f"{self.url}/mcp", "authorization_servers": [self.issuer]}
            return await answer(send, 200, said)
        if path.startswith("/.well-known/"):
            said = {"issuer": self.issuer, "token_endpoint": f"{self.url}/token", "authorization_endpoint": self.url}
            said["response_types_supported"] = ["code"]  # pyright: ignore[reportArgumentType]
            return await answer(send, 200, said)
        if path == "/token":
            form = parse_qs((await receive())["body"].decode())
            who = base64.b64decode(headers.get(b"authorization", b"").partition(b" ")[2]).decode()
            self.asked.append((who, form))
            if who != f"me:{SECRET}":
                return await answer(send, 401, {"error": "invalid_client"})
            token = f"token-{len(self.asked)}"
            self.good.add(token)
            said = {"access_token": token, "token_type": "Bearer", "expires_in": self.seconds}
            return await answer(send, 200, said)
        if headers.get(b"authorization", b"").decode().removeprefix("Bearer ") not in self.good:
            where = f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource"'
            return await answer(send, 401, {}, (b"www-authenticate", where.encode()))
        return await self.inner(scope, receive, send)


async def answer(send: Any, status: int, body: Any, *headers: tuple[bytes, bytes]) -> None:
    kind = (b"content-type", b"application/json")
    await send({"type": "http.response.start", "status": status, "headers": [kind, *headers]})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


@asynccontextmanager
async def served() -> AsyncGenerator[Protected]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = Protected(f"http://127.0.0.1:{listening.getsockname()[1]}")
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield app
        finally:
            await pool().close()
            server.should_exit = True
            await serving


@pytest.fixture
async def protected() -> AsyncIterator[Protected]:
    async with served() as app:
        yield app


def workbench(app: Protected, **more: Any) -> McpWorkbench:
    given: Any = {"client_id": "me", "client_secret": "${SECRET}", "issuer": app.url, "scope": "read", **more}
    url: Any = f"{app.url}/mcp"
    return McpWorkbench([McpHttp(name="p", url=url, oauth=OAuthClient(**given), connect_timeout=5)])


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)


async def test_a_token_is_got_used_and_got_anew(protected: Protected) -> None:
    bench = workbench(protected)
    assert (await bench.call_tool("p__secret_number")).to_text() == "42"
    [(who, form)] = protected.asked
    assert (who, form["grant_type"], form["scope"]) == (f"me:{SECRET}", ["client_credentials"], ["read"])
    assert form["resource"] == [f"{protected.url}/mcp"]
    assert (await bench.call_tool("p__secret_number")).to_text() == "42"
    assert len(protected.asked) == 1
    protected.good.clear()  # It is revoked.
    assert (await bench.call_tool("p__secret_number")).to_text() == "42"
    assert len(protected.asked) == 2


async def test_a_token_that_expires(protected: Protected) -> None:
    protected.seconds = 0
    bench = workbench(protected)
    for _ in range(2):
        assert (await bench.call_tool("p__secret_number")).to_text() == "42"


async def test_credentials_that_are_refused(protected: Protected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "wrong-one")
    result = await workbench(protected).call_tool("p__secret_number")
    assert result.is_error
    assert "cannot be reached" in result.to_text()
    assert "wrong-one" not in result.to_text()


async def test_the_secret_goes_to_its_issuer_only(protected: Protected) -> None:
    """The server leads to another one."""
    async with served() as other:
        protected.issuer = other.url
        other.issuer = other.url
        result = await workbench(protected).call_tool("p__secret_number")
        assert result.is_error
        assert (protected.asked, other.asked) == ([], [])
