"""Workers are woken by features whose jobs they do; what does them is `crew`, in every process that runs teams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drsai_backend.config import Settings
    from drsai_backend.database import Database
    from drsai_backend.work.crew import Crew
    from drsai_backend.work.kinds import Kind


class Workers:
    """Does the jobs of a database; any number of processes share the work."""

    def __init__(self) -> None:
        self._crew: Crew | None = None

    def start(self, database: Database, settings: Settings, kinds: Sequence[Kind]) -> None:
        """Begin to do jobs, in the running event loop. Without any kinds, nothing begins.

        Args:
            database: has the jobs. Not closed by this object.
            settings: `sweep_seconds` are between two looks; `lease_seconds` and `heartbeat_seconds` as of runs, thrice;
                `shutdown_grace_seconds` are what handlers get at most to end when they are cancelled.
            kinds: which jobs.
        """
        if kinds:
            from drsai_backend.work.crew import Crew  # With all of the database.

            self._crew = Crew(database, settings, kinds)

    def wake(self) -> None:
        """Look now: something was enqueued, and is committed. Where nothing was started it does nothing."""
        if self._crew is not None:
            self._crew.wake()

    async def stop(self) -> None:
        """Take nothing up any more, cancel the handlers, and give their jobs back, as if they had not been begun."""
        if self._crew is not None:
            await self._crew.stop()
            self._crew = None
