"""The transport sends requests to hosts that somebody else names: each is resolved once, checked, and sent to the
address that was checked.

Between a check of a name and a connection by that name an attacker's DNS would change its answer (rebinding). So the
connection goes by the address, while TLS and the `Host` header keep the name. Each hop of a redirect is a request of
its own and is checked as the first one is.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from weakref import WeakKeyDictionary

import anyio

from drsai_backend.net.addresses import Reachable

if TYPE_CHECKING:
    import httpx

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, as text, for a port. Raises OSError where there are none."""

_TRIES: Final = 3
"""Addresses of a host that are tried."""
_LOOKUPS: Final = 64
"""Names that are looked up at a time: a resolver that hangs holds a thread for each."""
_CONNECTIONS: Final = 64


class SystemResolver:
    """Asks the system's resolver, in threads that nothing else waits for. One that hangs keeps its place, also when
    nobody waits for it any more."""

    def __init__(self, lookups: int = _LOOKUPS) -> None:
        self._free = asyncio.Semaphore(lookups)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Sequence[str]] = loop.create_future()

        def tell(addresses: Sequence[str], error: Exception | None) -> None:
            self._free.release()
            if found.done():
                return
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)

        def look_up() -> None:
            addresses, error = _look_up(host, port)
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(tell, addresses, error)

        await self._free.acquire()
        try:
            threading.Thread(target=look_up, name="drsai-dns", daemon=True).start()
        except RuntimeError:
            self._free.release()
            raise OSError("no thread is left to look up names") from None
        return await found


def _look_up(host: str, port: int) -> tuple[Sequence[str], Exception | None]:
    """The addresses of a host, or what went wrong."""
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        return (), OSError("the host name is none")
    except Exception as error:  # noqa: BLE001 - whoever waits gets it
        return (), error
    return list(dict.fromkeys(str(row[4][0]) for row in rows)), None


_resolvers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, SystemResolver]] = WeakKeyDictionary()


def _system_resolver() -> SystemResolver:
    """Return the resolver of the running event loop: all transports together hold `_LOOKUPS` threads."""
    return _resolvers.setdefault(asyncio.get_running_loop(), SystemResolver())


@lru_cache
def _authorities(package: ModuleType) -> ssl.SSLContext:
    return package.create_ssl_context()


class _Checked:
    def __init__(
        self, package: ModuleType, reachable: Reachable, resolve: Resolve | None, verify: ssl.SSLContext | None
    ) -> None:
        self._package, self._reachable, self._resolve = package, reachable, resolve
        limits = package.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=0)
        # Reading the authorities takes 20 ms, in which nothing else runs. Of the environment, it uses no proxy.
        self._inner = package.AsyncHTTPTransport(verify=verify or _authorities(package), limits=limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, package = request.url, self._package
        addresses = await self._addresses(request)
        extensions = {**request.extensions, "sni_hostname": url.host}
        for last, address in enumerate(addresses, 1 - len(addresses)):
            target = package.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # `Host` is among them.
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await self._inner.handle_async_request(target)
            except (package.ConnectError, package.ConnectTimeout):
                if last == 0:
                    raise
        raise package.ConnectError("the host has no address", request=request)

    async def _addresses(self, request: httpx.Request) -> Sequence[str]:
        """The addresses that a connection may go by, at most three. All that the host has were checked."""
        url, patience = request.url, request.extensions.get("timeout", {}).get("connect")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            with anyio.fail_after(patience):
                addresses = await (self._resolve or _system_resolver())(url.host, port)
        except TimeoutError:
            raise self._package.ConnectTimeout("the host name was not resolved in time", request=request) from None
        except OSError:
            raise self._package.ConnectError("the host name cannot be resolved", request=request) from None
        self._reachable.check(addresses, url.host)
        return addresses[:_TRIES]

    async def aclose(self) -> None:
        await self._inner.aclose()


def checked_transport(
    package: ModuleType,
    reachable: Reachable,
    resolve: Resolve | None = None,
    verify: ssl.SSLContext | None = None,
) -> httpx.AsyncBaseTransport:
    """A transport for an AsyncClient of `package`, httpx or httpx2, with `trust_env=False`: a proxy would resolve by
    itself. On requests, it raises `RefusedAddress` where one of the host's addresses may not be reached, before
    anything is sent; else what the package's own transport does, `ConnectError` where the name has no address.

    Connections are not kept: a pool goes by addresses, and a certificate was checked for one name.

    Args:
        package: whose transport it is.
        reachable: what may be reached.
        resolve: how a name is resolved; default: as the system does.
        verify: which certificates are good; default: those of the authorities that the package knows, or of
            `SSL_CERT_FILE`, as they were when the process has asked first.
    """
    kind = type("CheckedTransport", (_Checked, package.AsyncBaseTransport), {})
    return cast("Callable[..., httpx.AsyncBaseTransport]", kind)(package, reachable, resolve, verify)
