"""Workers take jobs up, in every process that runs teams, and call the handlers of the features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drsai_backend.config import Settings
from drsai_backend.work.kinds import Kind

if TYPE_CHECKING:
    from drsai_backend.database import Database


class Workers:
    """Does the jobs of a database; any number of processes share the work."""

    def start(self, database: Database, settings: Settings, kinds: Sequence[Kind]) -> None:
        """Begin to do jobs, in the running event loop. Without any kinds, nothing begins.

        Args:
            database: has the jobs. Not closed by this object.
            settings: `sweep_seconds` are between two looks, and `shutdown_grace_seconds` what handlers get at most to
                end when they are cancelled.
            kinds: which jobs.
        """
        raise NotImplementedError

    def wake(self) -> None:
        """Look now: something was enqueued, and is committed. Where nothing was started it does nothing."""

    async def stop(self) -> None:
        """Take nothing up any more, cancel the handlers, and give their jobs back, as if they had not been begun."""
