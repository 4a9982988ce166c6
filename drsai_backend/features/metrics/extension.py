"""`Metrics` is the feature: it counts what happens, looks at how things stand when somebody asks, and tells both."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from drsai_backend import __version__
from drsai_backend.errors import DatabaseUnavailable, DrSaiError
from drsai_backend.features.base import RoutedExtension, end

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from drsai_backend.config import Settings
    from drsai_backend.database.backends.prepared import Step
    from drsai_backend.database.hooks import CallsOf, MadeCall
    from drsai_backend.features.base import Host
    from drsai_backend.features.metrics.base import Key
    from drsai_backend.features.metrics.counts import Counts
    from drsai_backend.features.metrics.numbers import Numbers
    from drsai_backend.runs import Engine
    from drsai_backend.runs.events import WatchedEvent
    from drsai_backend.runs.feed.live_run import LiveRun

log = logging.getLogger("drsai.metrics")

_FRESH: Final = 5.0
"""Seconds that one look at the database holds, however often and by how many is asked."""
_PULSE: Final = 0.5
_LOOKS: Final = 10
"""The database is timed once in so many pulses."""


class Metrics(RoutedExtension):
    """Metrics of a process, and of those that share its folder (`DRSAI_METRICS_FOLDER`)."""

    name = "metrics"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._asking = asyncio.Lock()
        self._stands: dict[Key, float] = {}
        self._looked = float("-inf")
        self._measuring: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None

    @property
    def is_on(self) -> bool:
        """Whether anything is counted (`DRSAI_METRICS`)."""
        settings = self.host.settings
        return settings.metrics_port is not None if settings.metrics is None else settings.metrics

    @classmethod
    @contextmanager
    def serving(cls, settings: Settings) -> Generator[Settings]:
        """Count, unless that is off, in a folder that all processes of the server share."""
        from drsai_backend.features.metrics.port import shared

        with shared(settings) as served:
            yield served

    # --- what is counted ----------------------------------------------------------------------------------------------

    @cached_property
    def _numbers(self) -> Numbers:
        from drsai_backend.features.metrics.numbers import Numbers

        return Numbers(self.host.settings.metrics_folder)

    @cached_property
    def counts(self) -> Counts:
        """What happens in this process is counted here."""
        from drsai_backend.features.metrics.counts import Counts

        return Counts(self._numbers, self.host)

    def run_told(self, run: LiveRun, event: WatchedEvent) -> None:
        self.counts.run_told(run, event)

    def calls_made(self, of: CallsOf, calls: Sequence[MadeCall]) -> Sequence[Step]:
        self.counts.calls_made(of, calls)
        return ()

    def around(self, app: ASGIApp) -> ASGIApp:
        from drsai_backend.features.metrics.routes import CountedRequests

        return CountedRequests(app, self.counts)

    # --- what is told -------------------------------------------------------------------------------------------------

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as text, and its content type. Where the database is away, what processes count is told
        all the same.

        Args:
            accept: formats that are read, as the header of a request says it: Prometheus' own, or OpenMetrics.

        Raises:
            DatabaseUnavailable: the files of the processes cannot be added up now.
        """
        from drsai_backend.features.metrics.exposition import exposition

        async with self._asking:
            if time.monotonic() - self._looked >= _FRESH:
                self._stands, self._looked = await self._look(), time.monotonic()
            try:
                sums = await asyncio.to_thread(self._numbers.sums)
            except OSError as error:
                raise DatabaseUnavailable(f"the folder of metrics cannot be read: {type(error).__name__}") from None
            return await asyncio.to_thread(exposition, {**sums, **self._stands}, accept)

    async def _look(self) -> dict[Key, float]:
        """Return how things stand in the database."""
        from drsai_backend.features.metrics import rows

        found: dict[Key, float] = {}
        is_up = 1.0
        try:
            found = await self.host.database.read(rows.standing)
        except DrSaiError as error:
            log.warning("the database cannot be read for metrics: %s", error.message)
            is_up = 0.0
        return {**found, ("drsai_database_up",): is_up, ("drsai_build_info", __version__): 1.0}

    # --- in the background --------------------------------------------------------------------------------------------

    async def open(self, engine: Engine) -> None:
        """Begin to measure the event loop and the database, and to answer at the port of metrics. Raises
        ConfigurationError: it cannot be had."""
        if self.is_on:
            from drsai_backend.features.metrics.port import listen

            if self.host.settings.metrics_port is not None:
                self._server = await listen(self.host.settings, self.text)
            self._measuring = asyncio.create_task(self._measure())

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._measuring is not None:
            await end(self._measuring)
            self._numbers.close()

    async def _measure(self) -> None:
        """Measure how late the event loop is, and how long the database takes."""
        from drsai_backend.features.metrics import rows

        pulses = 0
        while True:
            due, pulses = time.perf_counter() + _PULSE, pulses + 1
            await asyncio.sleep(_PULSE)
            now = time.perf_counter()
            self.counts.observe("drsai_loop_lag_seconds", seconds=max(0.0, now - due))
            if pulses % _LOOKS == 0:
                try:
                    await self.host.database.read(rows.probe)
                except DrSaiError:
                    self.counts.count("drsai_database_errors_total")
                self.counts.observe("drsai_database_seconds", seconds=time.perf_counter() - now)
