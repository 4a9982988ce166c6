"""`transport` sends the requests of httpx's clients with aiohttp: of a stream of 80 pieces it takes half of the
processor's time, and with 300 streams at once a fifth, as httpcore looks at all its connections for each request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

import aiohttp

if TYPE_CHECKING:
    import httpx2 as http

_KEPT_SECONDS: Final = 4.0
"""That an idle connection is kept. uvicorn, in which many endpoints run, closes it after 5: a request must not meet
that."""
_AT_ONCE: Final = 1 << 15
"""Bytes of a body that are given to the socket in one piece: with the head they are no more than asyncio keeps itself
of what the socket does not take, and nothing waits."""
_ERRORS: Final = (
    (aiohttp.ConnectionTimeoutError, "ConnectTimeout"),
    (aiohttp.ServerTimeoutError, "ReadTimeout"),
    (aiohttp.ClientConnectorError, "ConnectError"),
    ((aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError), "RemoteProtocolError"),
    (aiohttp.ClientResponseError, "RemoteProtocolError"),
    (aiohttp.InvalidURL, "UnsupportedProtocol"),
    (aiohttp.NonHttpUrlClientError, "UnsupportedProtocol"),
    (TimeoutError, "WriteTimeout"),
)
"""aiohttp's errors by the names that httpx's have. The first that fits counts."""


@contextmanager
def _errors_of(package: ModuleType) -> Generator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        name = next((name for kinds, name in _ERRORS if isinstance(error, kinds)), "ReadError")
        raise getattr(package, name)(str(error) or type(error).__name__) from error


class _Upload(BytesIO):
    """A long body. Within `patience` its request is cancelled where the endpoint takes a piece of it for longer than
    `write` seconds; aiohttp bounds only what comes after the body."""

    def __init__(self, body: bytes, write: float | None, read: float | None) -> None:
        super().__init__(body)
        self.patience = asyncio.timeout(None)
        self.is_answered = write is None
        self._write, self._last = write or 0.0, None if read is None else read + (write or 0.0)

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        if not self.is_answered:
            seconds = self._write if self.tell() < self.getbuffer().nbytes else self._last
            now = asyncio.get_running_loop().time()
            self.patience.reschedule(None if seconds is None else now + seconds)
        return piece


class _Answer:
    """The body of an answer, in the pieces in which it comes."""

    def __init__(self, answer: aiohttp.ClientResponse, package: ModuleType) -> None:
        self._answer, self._package = answer, package

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._answer.content
        with _errors_of(self._package):
            try:
                while piece := await content.readany():
                    yield piece
            except (aiohttp.ClientError, OSError) as error:
                # aiohttp forgets what had come before the connection broke.
                content.set_exception(cast("Exception", None))
                if rest := content.read_nowait():
                    yield rest
                raise error from None

    async def aclose(self) -> None:
        self._answer.close() if not self._answer.content.at_eof() else self._answer.release()


class _Transport:
    def __init__(self, package: ModuleType, connections: int) -> None:
        self._package, self._connections = package, connections
        self._body = type("Answer", (_Answer, package.AsyncByteStream), {})
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def handle_async_request(self, request: http.Request) -> http.Response:
        body = await request.aread()
        waits = request.extensions.get("timeout", {})
        send = partial(
            self._open().request,
            request.method,
            str(request.url),
            headers=request.headers.multi_items(),
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                connect=waits.get("pool"), sock_connect=waits.get("connect"), sock_read=waits.get("read")
            ),
            server_hostname=request.extensions.get("sni_hostname"),
        )
        with _errors_of(self._package):
            if len(body) <= _AT_ONCE:
                answer = await send(data=body or None)
            else:
                upload = _Upload(body, waits.get("write"), waits.get("read"))
                async with upload.patience:
                    answer = await send(data=upload)
                    upload.is_answered = True  # The rest of it may still be sent.
        version, reason = answer.version or aiohttp.HttpVersion11, answer.reason or ""
        return self._package.Response(
            answer.status,
            headers=answer.raw_headers,
            stream=self._body(answer, self._package),
            extensions={
                "http_version": b"HTTP/%d.%d" % version,
                "reason_phrase": reason.encode("ascii", errors="ignore"),
            },
        )

    def _open(self) -> aiohttp.ClientSession:
        """The connections of this event loop. Those of one that has ended have died with it."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            context = self._package.create_ssl_context()
            connector = aiohttp.TCPConnector(limit=self._connections, ssl=context, keepalive_timeout=_KEPT_SECONDS)
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=jar, auto_decompress=False)
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


def transport(package: ModuleType, connections: int) -> http.AsyncBaseTransport:
    """A transport for an AsyncClient of `package`, httpx or httpx2, with so many connections at most: who wants one
    more waits. It raises the package's own errors, and uses no proxy."""
    kind = type("Transport", (_Transport, package.AsyncBaseTransport), {})
    return cast("http.AsyncBaseTransport", kind(package, connections))
