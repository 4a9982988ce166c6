"""An address is where `drsai serve` listens: its socket, its certificate, and which hosts and proxies it believes."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
import sys
from pathlib import Path
from typing import Final, NamedTuple

from drsai_backend.api.http.middleware import Hosts
from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError

_BACKLOG: Final = 2048


class Address(NamedTuple):
    """A socket address."""

    family: socket.AddressFamily
    name: tuple[object, ...]

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return _ip(str(self.name[0])).is_loopback


def find_address(settings: Settings) -> Address:
    """The socket address to listen on. Raises ConfigurationError: the host has none."""
    try:
        found = socket.getaddrinfo(
            settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError:
        raise ConfigurationError(f"the host {settings.host!r} has no address here") from None
    found.sort(key=lambda item: item[0] != socket.AF_INET)  # "localhost" is both; clients try IPv4 at the latest
    family, _, _, _, name = found[0]
    return Address(family, name)


def listen(settings: Settings, address: Address) -> socket.socket:
    """A socket that listens. Raises ConfigurationError: the port is in use, or not to be had."""
    # With the protocol named, or asyncio would not turn off Nagle's algorithm: 40 ms on every streamed answer.
    listening = socket.socket(address.family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # There it would let two servers have one port.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address.name)
        # From now on, so that another server cannot take the port while this one gets ready.
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        where = f"port {settings.port} of {settings.host}"
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(f"{where} is in use; take another with --port (0: any free one)") from None
        raise ConfigurationError(f"{where} cannot be listened on: {error.strerror}") from None
    listening.setblocking(False)
    return listening


def url_of(settings: Settings, listening: socket.socket) -> str:
    """The URL to call, without a path."""
    host, (bound, port) = settings.host, listening.getsockname()[:2]
    if _ip(str(bound)).is_unspecified:
        host = "[::1]" if ":" in bound else "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    return f"{'http' if settings.ssl_certfile is None else 'https'}://{host}:{port}"


def hosts_of(settings: Settings, address: Address) -> Hosts | None:
    """Return, on loopback, what a browser on this machine calls it. Elsewhere a name is anybody's guess: there a key is
    needed, which no page has whose name was rebound, or all may reach the server anyway."""
    if address.is_loopback:
        return Hosts(settings.allowed_hosts)
    return Hosts(settings.allowed_hosts, any_address=True) if settings.allowed_hosts else None


def proxies_of(settings: Settings) -> list[str]:
    """The trusted proxies, as a socket shows them: one for IPv6 has its clients of IPv4 as `::ffff:10.0.0.7`."""
    networks = [ipaddress.ip_network(item) for item in settings.trusted_proxies]
    mapped = [f"::ffff:{each.network_address}/{96 + each.prefixlen}" for each in networks if each.version == 4]
    return [*map(str, networks), *mapped]


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """Return what TLS needs, 1.2 or later; None: the settings name no certificate.

    Raises:
        ConfigurationError: a file cannot be read, is no certificate or no plain key, or the two do not belong together.
    """
    certificate, key = settings.ssl_certfile, settings.ssl_keyfile
    if certificate is None or key is None:
        return None
    _check_readable("--ssl-certfile", certificate)
    _check_readable("--ssl-keyfile", key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password, OpenSSL asks for one at the terminal, and a service waits for ever.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(f"the key {key} is not that of the certificate {certificate}") from None
        reason = "is there a PEM certificate in the one, and its PEM key, not encrypted, in the other?"
        raise ConfigurationError(f"{certificate} and {key} cannot be used: {reason}") from None
    return context


def _check_readable(option: str, file: Path) -> None:
    try:
        file.open("rb").close()
    except OSError as error:
        raise ConfigurationError(f"{option}: {file} cannot be read: {error.strerror}") from None


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(address.partition("%")[0])
