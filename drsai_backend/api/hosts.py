"""Which `Host` a request may name.

A web page can make its own name point at 127.0.0.1 (DNS rebinding): the browser then lets it read what a server on
loopback answers, as if that were the page's own server. Its requests name the page's host, and so are told apart.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


class Hosts:
    """Names that may be asked for: the loopback ones, those given, and `addresses` that are no names at all.

    Args:
        names: `example.org`, `*.example.org` (all below it), `*` (everything). Ports are left aside.
        any_address: allow every IP address, not just loopback ones. No page can make itself one by DNS, and probes of
            Kubernetes ask by it.
    """

    def __init__(self, names: Iterable[str] = (), *, any_address: bool = False) -> None:
        given = [_without_port(name.strip().lower()).rstrip(".") for name in names]
        self._all = "*" in given
        self._names = frozenset({"localhost", *given})
        self._endings = (".localhost", *(name[1:] for name in given if name.startswith("*.")))
        self._any_address = any_address

    def allow(self, host: str) -> bool:
        """Whether a `Host` header's value may be served."""
        if self._all:
            return True
        name = _without_port(host.lower())
        try:
            address = ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            name = name.rstrip(".")
            return name in self._names or name.endswith(self._endings)
        return self._any_address or address.is_loopback or name in self._names


def _without_port(host: str) -> str:
    if host.startswith("[") or host.count(":") == 1:
        name, _, port = host.rpartition(":")
        return name if port.isdigit() and name else host
    return host
