"""An opening is whether an engine is open, and in which event loop: what is asked of it outside of that is refused with
a reason."""

from __future__ import annotations

import asyncio
import threading

from drsai_backend.errors import ConfigurationError, NotOpened

_HOW = (
    "write `async with DrSai(...) as drsai:` around what uses it, `with DrSai(...).sync as drsai:` without asyncio, or "
    "`FastAPI(lifespan=drsai.lifespan)` for the application that mounts `drsai.app()`"
)


class Lifecycle:
    """Opened once, in one event loop, and closed once."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that opens it, or has opened it."""
        self._is_open = False
        self._is_closed = False
        self._lock = threading.Lock()

    def claim(self) -> None:
        """Claim it before it is opened, in the running event loop.

        Raises:
            ConfigurationError: it is open, is being opened, or was closed.
        """
        with self._lock:
            if self._is_closed:
                raise ConfigurationError("this DrSai was closed, with its database: make a new one to open it again")
            if self.loop is not None:
                where = "here" if self.loop is asyncio.get_running_loop() else "in another event loop"
                raise ConfigurationError(f"this DrSai is open already, {where}: open it once, and share it")
            self.loop = asyncio.get_running_loop()

    def opened(self) -> None:
        """Take what is asked from here on."""
        self._is_open = True

    def closed(self) -> None:
        """Take nothing any more from here on."""
        self._is_closed = True
        self._is_open = False

    def check(self) -> None:
        """Whether it can be used here.

        Raises:
            NotOpened: it is not open, or belongs to another event loop.
        """
        if not self._is_open:
            if self._is_closed:
                raise NotOpened("this DrSai was closed: make a new one")
            raise NotOpened(f"this DrSai is not open: {_HOW}")
        if self.loop is not asyncio.get_running_loop():
            self.check_loop()

    def check_loop(self) -> None:
        """Raise NotOpened in another event loop than that which opened it; before that, in none."""
        if self.loop is not None and self.loop is not asyncio.get_running_loop():
            raise NotOpened(
                "this DrSai belongs to the event loop that opened it: use it there (one `asyncio.run` around it all), "
                "or from other threads through `DrSai.sync`"
            )
