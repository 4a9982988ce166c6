"""Where servers of tests listen."""

from __future__ import annotations

import socket


def listening_socket() -> socket.socket:
    """A socket on a free port of loopback. asyncio turns Nagle's algorithm off only where a socket names its protocol,
    as `drsai serve`'s does and `socket.create_server`'s does not: 40 ms of each answer otherwise."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening
