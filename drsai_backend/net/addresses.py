"""Addresses of somebody else may be reached, or not, by the rules here.

Only what the whole internet may reach: no loopback, private, link-local, shared, reserved or multicast address, in
whatever form it is written, unless the operator allows its network. An IPv6 address that carries an IPv4 one (mapped,
translated, tunnelled) is judged by that, too, because a gateway may unwrap it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pydantic import Field, WithJsonSchema

from drsai_backend.errors import InvalidRequest, RefusedAddress

if TYPE_CHECKING:
    import httpx

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL: Final = 2048
"""Characters of a URL."""
_SCHEMA: Final = {
    "type": "string",
    "maxLength": MAX_URL,
    "pattern": r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?][A-Za-z0-9/?:@!$&'()*+,;=._~%-]*)?$",
}
CallableUrl: TypeAlias = Annotated[str, Field(max_length=MAX_URL), WithJsonSchema(_SCHEMA)]
"""A field of a request that is to be checked with `Reachable.check_url`: which hosts may be called, no schema says."""

# Printable ASCII without what parsers read in different ways.
_PLAIN: Final = re.compile(r"[!-~]+")
_ODD: Final = frozenset('\\"<>^`{|}')
_AT: Final = re.compile(r"[^:]*://[^/?]*@")
_NUMERIC: Final = re.compile(r"[0-9a-fx.]+", re.IGNORECASE)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
_COMPATIBLE: Final = ipaddress.ip_network("::/96")  # RFC 4291, deprecated
_GLOBAL_V6: Final = ipaddress.ip_network("2000::/3")  # all that IANA has given out for the internet


class Reachable:
    """The rule.

    Args:
        allowed: networks (`10.0.0.0/8`, `::1/128`) or single addresses that may be reached although they are not
            public.
        hosts: the only ones that may be called by name, as `example.org` or `*.example.org`; none: any.

    Raises:
        ValueError: an address is none.
    """

    def __init__(self, allowed: Iterable[str] = (), hosts: Sequence[str] = ()) -> None:
        self._allowed = tuple(ipaddress.ip_network(each) for each in allowed)
        self._hosts = hosts

    @property
    def has_private(self) -> bool:
        """Whether the operator allows networks that are not public."""
        return bool(self._allowed)

    def allows(self, address: Address) -> bool:
        """Whether that address may be reached."""
        if any(address in network for network in self._allowed):
            return True
        inner = list(_carried(address))
        return all(map(self.allows, inner)) if inner else _is_public(address)

    def check(self, addresses: Iterable[str], host: str) -> None:
        """Check all addresses that a name stands for.

        Raises:
            RefusedAddress: one of them may not be reached. The text names the host and not the address: a resolver
                may know more of an intranet than who asks.
        """
        for text in addresses:
            try:
                is_allowed = self.allows(ipaddress.ip_address(text))
            except ValueError:
                is_allowed = False  # With a zone, say: link-local.
            if not is_allowed:
                raise RefusedAddress(
                    f"the host {host!r} has an address that this server must not reach: only public ones, and those "
                    "that its operator allows (DRSAI_ALLOWED_ADDRESSES)"
                )

    def check_url(self, url: str, param: str) -> httpx.URL:
        """Check a URL before anything is resolved. That it passes says nothing of what its name stands for later.

        Args:
            url: https; or http, where the operator allows private networks.
            param: the field that it comes from.

        Raises:
            InvalidRequest: it is no URL that can be called; `RefusedAddress` where its host is an address, in whatever
                notation, that may not be reached.
        """
        parsed = _parse(url, param)
        if parsed.scheme != "https" and not (parsed.scheme == "http" and self.has_private):
            raise InvalidRequest(f"`{param}` must begin with https://", param=param)
        if self._hosts and not any(fnmatchcase(parsed.host, each.lower()) for each in self._hosts):
            raise InvalidRequest(f"`{param}` must name one of the hosts {', '.join(self._hosts)}", param=param)
        if (address := literal(parsed.host)) is not None and not self.allows(address):
            raise RefusedAddress(
                f"`{param}` names an address that this server must not reach: only public ones, and those that its "
                "operator allows (DRSAI_ALLOWED_ADDRESSES)",
                param=param,
            )
        return parsed


def endpoint_of(text: httpx.URL | str) -> str:
    """Scheme, host and port: who is called, without what a path may keep secret."""
    import httpx  # With its command line, 0.05 s.

    url = httpx.URL(text)
    port = url.port or (443 if url.scheme == "https" else 80)
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}:{port}"


def literal(host: str) -> Address | None:
    """The address that a host is, in any notation that resolvers take: `127.0.0.1`, `::1`, `2130706433`, `0x7f.1`,
    `0177.0.0.1`. None: it is a name."""
    host = host.strip("[]").rstrip(".")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not _NUMERIC.fullmatch(host):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _parse(url: str, param: str) -> httpx.URL:
    import httpx

    if len(url) > MAX_URL:
        raise InvalidRequest(f"`{param}` must have at most {MAX_URL} characters", param=param)
    if not _PLAIN.fullmatch(url) or _ODD & set(url):
        raise InvalidRequest(f"`{param}` must be a URL of plain ASCII, other characters percent-encoded", param=param)
    try:
        parsed = httpx.URL(url)
        host = parsed.host  # Decodes a name that begins with xn--, which may be none.
    except (httpx.InvalidURL, ValueError):
        raise InvalidRequest(f"`{param}` is no URL", param=param) from None
    if parsed.userinfo or _AT.match(url):
        raise InvalidRequest(f"`{param}` must not hold a user name or password", param=param)
    if parsed.fragment or url.endswith("#"):
        raise InvalidRequest(f"`{param}` must not have a fragment (#)", param=param)
    if not host or "%" in host:
        raise InvalidRequest(f"`{param}` must name a host", param=param)
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise InvalidRequest(f"`{param}` has a port that is none", param=param)
    return parsed


def _carried(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses inside an IPv6 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        return address in _GLOBAL_V6 and address.is_global
    return address.is_global and not (address.is_multicast or address.is_reserved)
