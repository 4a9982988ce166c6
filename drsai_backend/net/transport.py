"""Requests to hosts that somebody else names: resolved once, checked, and sent to the address that was checked.

Between a check of a name and a connection by that name an attacker's DNS would change its answer (rebinding). So the
connection goes by the address, while TLS and the `Host` header keep the name. Each hop of a redirect is a request of
its own and is checked as the first one is.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
import httpx

from drsai_backend.net.addresses import Reachable

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, as text, for a port. Raises OSError where there are none."""

_TRIES: Final = 3
"""Addresses of a host that are tried."""
_LOOKUPS: Final = 64
"""Names that are looked up at a time: a resolver that hangs holds a thread for each."""


class SystemResolver:
    """Asks the system's resolver, in threads that nothing else waits for."""

    def __init__(self, lookups: int = _LOOKUPS) -> None:
        self._limiter = anyio.CapacityLimiter(lookups)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = await anyio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=self._limiter)
        except UnicodeError:
            raise OSError("the host name is none") from None
        return list(dict.fromkeys(str(row[4][0]) for row in found))


_resolvers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, SystemResolver]] = WeakKeyDictionary()


def _system_resolver() -> SystemResolver:
    """That of the running event loop: all transports together hold `_LOOKUPS` threads."""
    return _resolvers.setdefault(asyncio.get_running_loop(), SystemResolver())


@lru_cache(maxsize=1)
def _authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context()


async def checked_addresses(
    host: str, port: int, reachable: Reachable, resolve: Resolve | None, patience: float | None
) -> Sequence[str]:
    """The addresses of a host that a connection may go by, at most three: all that it has were checked.

    Args:
        patience: seconds that it may take; None: as long as it takes.

    Raises:
        RefusedAddress: one of them may not be reached.
        TimeoutError, OSError: the name is not resolved.
    """
    with anyio.fail_after(patience):
        addresses = await (resolve or _system_resolver())(host, port)
    reachable.check(addresses, host)
    return addresses[:_TRIES]


class CheckedTransport(httpx.AsyncBaseTransport):
    """A transport for `httpx.AsyncClient(transport=…, trust_env=False)`: a proxy would resolve by itself.

    Connections are not kept: a pool goes by addresses, and a certificate was checked for one name.

    Args:
        reachable: what may be reached.
        resolve: how a name is resolved; default: as the system does.
        verify: which certificates are good; default: those of the authorities that httpx knows, or of `SSL_CERT_FILE`,
            as they were when the process has asked first.

    Raises (on requests):
        RefusedAddress: one of the host's addresses may not be reached. Nothing was sent.
        httpx.TransportError: as httpx's own transport; `ConnectError` where the name has no address.
    """

    def __init__(
        self, reachable: Reachable, *, resolve: Resolve | None = None, verify: ssl.SSLContext | bool = True
    ) -> None:
        self._reachable = reachable
        self._resolve = resolve
        limits = httpx.Limits(max_keepalive_connections=0)
        # Reading the authorities takes 20 ms, in which nothing else runs. Of the environment, it uses no proxy.
        context = _authorities() if verify is True else verify
        self._inner = httpx.AsyncHTTPTransport(verify=context, limits=limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to the first address of its host that takes the connection."""
        url = request.url
        addresses = await self._addresses(request)
        extensions = {**request.extensions, "sni_hostname": url.host}
        for last, address in enumerate(addresses, 1 - len(addresses)):
            target = httpx.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # `Host` is among them.
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await self._inner.handle_async_request(target)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if last == 0:
                    raise
        raise httpx.ConnectError("the host has no address", request=request)

    async def _addresses(self, request: httpx.Request) -> Sequence[str]:
        url, patience = request.url, request.extensions.get("timeout", {}).get("connect")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            return await checked_addresses(url.host, port, self._reachable, self._resolve, patience)
        except TimeoutError:
            raise httpx.ConnectTimeout("the host name was not resolved in time", request=request) from None
        except OSError:
            raise httpx.ConnectError("the host name cannot be resolved", request=request) from None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()
