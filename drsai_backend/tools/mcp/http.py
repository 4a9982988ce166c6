"""HTTP servers are asked with bounded answers, headers, OAuth client credentials."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, cast

import httpx2
from mcp.client._transport import TransportStreams  # its type, which no public module has
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from drsai_backend.net.addresses import Reachable
from drsai_backend.net.clients import client
from drsai_backend.tools.mcp.servers import McpHttp, McpSse, filled

_LIMITS: Final = httpx2.Limits(max_connections=64, max_keepalive_connections=8)


class _Tokens:
    """Keeps a connection's token while it is open."""

    def __init__(self) -> None:
        self._token: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._token = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class _Credentials(ClientCredentialsOAuthProvider):
    """Asks for the scope that the operator has named, whatever the server advertises: the package asks for that."""

    named: str | None = None

    async def _perform_authorization(self) -> httpx2.Request:
        if self.named is not None:
            self.context.client_metadata.scope = self.named
        return await super()._perform_authorization()


def _auth(server: McpHttp | McpSse) -> httpx2.Auth | None:
    if (oauth := server.oauth) is None:
        return None
    made = _Credentials(
        server_url=str(server.url),
        storage=_Tokens(),
        client_id=oauth.client_id,
        client_secret=filled(oauth.client_secret, f"`oauth.client_secret` of the MCP server {server.name}"),
        scope=oauth.scope,
        issuer=oauth.issuer,
    )
    made.named = oauth.scope
    return made


def _client(server: McpHttp | McpSse) -> httpx2.AsyncClient:
    what = f"`headers` of the MCP server {server.name}"
    if server.allowed_addresses is None:
        reachable, transport = None, httpx2.AsyncHTTPTransport(limits=_LIMITS)
        headers = {name: filled(text, what) for name, text in server.headers.items()}
    else:  # The environment is the operator's, and so is the network.
        reachable, transport = Reachable(server.allowed_addresses), None
        headers = dict(server.headers)
    made = client(
        reachable,
        server.max_bytes,
        package=httpx2,
        events=True,
        headers=headers,
        auth=_auth(server),
        # A call is bounded by its own time-out; this one ends streams that nobody waits for.
        timeout=httpx2.Timeout(server.connect_timeout, read=3600.0),
        transport=transport,
        trust_env=False,
    )
    return cast("httpx2.AsyncClient", made)


@asynccontextmanager
async def http_streams(server: McpHttp, forgotten: asyncio.Event) -> AsyncGenerator[TransportStreams]:
    """The streams of messages from and to a server. `forgotten` is set when it does not know their session any more.

    Raises:
        ConfigurationError: its headers need what the environment has not.
    """

    async def look(response: httpx2.Response) -> None:
        request = response.request
        if response.status_code == 404 and request.method == "POST" and "mcp-session-id" in request.headers:
            forgotten.set()

    made = _client(server)
    made.event_hooks["response"].append(look)
    async with (
        made as http,
        streamable_http_client(str(server.url), http_client=http, max_sse_event_size=server.max_bytes) as streams,
    ):
        yield streams


@asynccontextmanager
async def sse_streams(server: McpSse) -> AsyncGenerator[TransportStreams]:
    """The streams of messages from and to a server. Raises as `http_streams`. The package holds one event of such a
    server to 1 MiB."""
    made = _client(server)

    def factory(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        return made

    async with sse_client(str(server.url), httpx_client_factory=factory) as streams:
        yield streams
