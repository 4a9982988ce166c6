"""Servers that are asked over HTTP: bounded answers, headers, OAuth client credentials."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client._transport import TransportStreams  # its type, which no public module has
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from drsai_backend.errors import RefusedAddress
from drsai_backend.net.addresses import Reachable
from drsai_backend.net.transport import checked_addresses
from drsai_backend.tools.mcp.servers import McpHttp, McpSse, filled

_EVENTS: Final = "text/event-stream"


class TooLong(httpx2.StreamError):
    """An answer is longer than it may be. Of httpx2's kind, for which the package answers the request with an error."""


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends with TooLong when it has more than `limit` bytes; with `events`, when one event has."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int, *, events: bool) -> None:
        self._inner, self._limit, self._events = inner, limit, events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length, last = 0, b""
        async for chunk in self._inner:
            length += len(chunk)
            if self._events:
                # Events end with an empty line. One that does in the middle of a chunk begins the count anew.
                joined = last + chunk.replace(b"\r", b"")
                if (end := joined.rfind(b"\n\n")) >= 0:
                    length = len(joined) - end - 2
                last = joined[-1:]
            if length > self._limit:
                raise TooLong(f"the answer has more than {self._limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Answers longer than `limit` bytes are cut off while they arrive. Packed ones are refused: how long they are, one
    would know too late."""

    def __init__(self, limit: int, *, kept: int = 8) -> None:
        super().__init__(limits=httpx2.Limits(max_connections=64, max_keepalive_connections=kept))
        self._limit = limit

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            await stream.aclose()
            raise httpx2.RemoteProtocolError("the server packed its answer although it was asked not to")
        events = response.headers.get("content-type", "").startswith(_EVENTS)
        response.stream = _Bounded(stream, self._limit, events=events)
        return response


class _Checked(BoundedTransport):
    """Goes to the addresses that were checked, as `net.transport.CheckedTransport` does."""

    def __init__(self, limit: int, reachable: Reachable) -> None:
        super().__init__(limit, kept=0)
        self._reachable = reachable

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to the first address of its host that takes the connection."""
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        patience = request.extensions.get("timeout", {}).get("connect")
        try:
            addresses = await checked_addresses(url.host, port, self._reachable, None, patience)
        except RefusedAddress as error:
            raise httpx2.ConnectError(error.message, request=request) from None
        except OSError:  # A time-out is one, too.
            raise httpx2.ConnectError("the host name cannot be resolved", request=request) from None
        extensions = {**request.extensions, "sni_hostname": url.host}
        for last, address in enumerate(addresses, 1 - len(addresses)):
            target = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # `Host` is among them.
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await super().handle_async_request(target)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if last == 0:
                    raise
        raise httpx2.ConnectError("the host has no address", request=request)


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

    def __init__(self, *, scope: str | None, **given: Any) -> None:
        super().__init__(scope=scope, **given)
        self._scope = scope

    async def _perform_authorization(self) -> httpx2.Request:
        if self._scope is not None:
            self.context.client_metadata.scope = self._scope
        return await super()._perform_authorization()


def _auth(server: McpHttp | McpSse) -> httpx2.Auth | None:
    if (oauth := server.oauth) is None:
        return None
    return _Credentials(
        server_url=str(server.url),
        storage=_Tokens(),
        client_id=oauth.client_id,
        client_secret=filled(oauth.client_secret, f"`oauth.client_secret` of the MCP server {server.name}"),
        scope=oauth.scope,
        issuer=oauth.issuer,
    )


def _client(server: McpHttp | McpSse) -> httpx2.AsyncClient:
    what = f"`headers` of the MCP server {server.name}"
    if server.allowed_addresses is None:
        transport = BoundedTransport(server.max_bytes)
        headers = {name: filled(text, what) for name, text in server.headers.items()}
    else:  # The environment is the operator's, and so is the network.
        transport = _Checked(server.max_bytes, Reachable(server.allowed_addresses))
        headers = dict(server.headers)
    return httpx2.AsyncClient(
        transport=transport,
        headers=headers,
        auth=_auth(server),
        # A call is bounded by its own time-out; this one ends streams that nobody waits for.
        timeout=httpx2.Timeout(server.connect_timeout, read=3600.0),
        trust_env=False,
    )


@asynccontextmanager
async def http_streams(server: McpHttp) -> AsyncGenerator[TransportStreams]:
    """The streams of messages from and to a server.

    Raises:
        ConfigurationError: its headers need what the environment has not.
    """
    async with (
        _client(server) as client,
        streamable_http_client(str(server.url), http_client=client, max_sse_event_size=server.max_bytes) as streams,
    ):
        yield streams


@asynccontextmanager
async def sse_streams(server: McpSse) -> AsyncGenerator[TransportStreams]:
    """The streams of messages from and to a server. Raises as `http_streams`. The package holds one event of such a
    server to 1 MiB."""
    client = _client(server)

    def factory(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        return client

    async with sse_client(str(server.url), httpx_client_factory=factory) as streams:
        yield streams
