"""`Traces` is the feature: it hands what is told on to the spans, where they are wanted."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING

from drsai_backend.errors import ConfigurationError
from drsai_backend.features.base import Extension
from drsai_backend.lazily import imported

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from drsai_backend.features.traces.spans import Spans
    from drsai_backend.runs import Engine
    from drsai_backend.runs.events import WatchedEvent
    from drsai_backend.runs.feed.live_run import LiveRun

log = logging.getLogger("drsai.traces")


class Traces(Extension):
    """Spans of a process (`DRSAI_TRACES`)."""

    name = "traces"

    @cached_property
    def _spans_of(self) -> type[Spans] | None:
        """The class of spans; None: there are none.

        Raises:
            ConfigurationError: the settings ask for traces, and the packages that send them are not there.
        """
        settings = self.host.settings
        if not settings.is_traced:
            return None
        try:
            return imported("drsai_backend.features.traces.spans:Spans")
        except ImportError as error:
            text = f"no traces are sent: {error} (pip install 'drsai-backend[otel]')"
            if settings.traces:
                raise ConfigurationError(f"DRSAI_TRACES: {text}") from error
            log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set, but %s", text)  # Whole clusters set it for all that runs.
            return None

    @property
    def is_on(self) -> bool:
        """Whether spans are made."""
        return self._spans_of is not None

    @cached_property
    def spans(self) -> Spans:
        """The spans. The thread that sends them begins in the process that uses them first."""
        assert self._spans_of is not None
        return self._spans_of(self.host.settings)

    def run_told(self, run: LiveRun, event: WatchedEvent) -> None:
        self.spans.run_told(run, event)

    def around(self, app: ASGIApp) -> ASGIApp:
        from drsai_backend.features.traces.requests import TracedRequests

        return TracedRequests(app, self)

    async def open(self, engine: Engine) -> None:
        """Be ready to send spans."""
        if self.is_on:
            _ = self.spans

    async def close(self) -> None:
        """Send what is left."""
        if "spans" in vars(self):
            await self.spans.close()
