"""A host of PostgreSQL on loopback, which passes on to a server what it gets, and may be pointed to another one."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from pathlib import Path
from typing import Self
from urllib.parse import quote

import sqlalchemy as sa


class Relay:
    """Listens on a port of loopback, from a thread. `connections` counts those that it took.

    Attributes:
        to: the URL of a PostgreSQL database; changed, it counts for the next connections.
        refuses: close new connections at once.
    """

    def __init__(self, to: str) -> None:
        self.to = sa.make_url(to)
        self.refuses = False
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, hosts: str | None = None, query: str = "") -> str:
        """The database's URL, but at other hosts: this one, or those given."""
        user = "" if self.to.username is None else self.to.username
        password = f":{quote(str(self.to.password), safe='')}" if self.to.password else ""
        return f"postgresql://{user}{password}@{self.host if hosts is None else hosts}/{self.to.database}{query}"

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj.fileno() != -1:  # type: ignore[union-attr]  # Closed just now.
                    self._pass(key.fileobj, key.data)  # type: ignore[arg-type]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self.connections += 1
        try:
            if self.refuses:
                raise ConnectionRefusedError
            server = self._connect()
        except OSError:
            client.close()
            return
        self._selector.register(client, selectors.EVENT_READ, server)
        self._selector.register(server, selectors.EVENT_READ, client)

    def _connect(self) -> socket.socket:
        if self.to.host:
            return socket.create_connection((self.to.host, self.to.port or 5432))
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(Path(str(self.to.query["host"])) / ".s.PGSQL.5432"))
        return server

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(65536)
            target.sendall(data)
        if not data:
            for end in (source, target):
                with contextlib.suppress(KeyError):
                    self._selector.unregister(end)
                end.close()
