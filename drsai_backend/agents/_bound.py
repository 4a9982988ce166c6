"""What makes an agent or a group chat know the run it takes part in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drsai_backend.database import DatabaseManager
    from drsai_backend.teams.context import RunContext


class RunBound:
    """Mixin: gets the run's context before it runs. Never part of a saved state or a component config."""

    _db_manager: DatabaseManager
    """The database manager: `get`, `upsert`, `delete` on every table, one's own included."""
    _run_context: RunContext
    """Who talks, on which thread, in which run, and the model client with the request's parameters."""

    def bind_run(self, context: RunContext) -> None:
        """Called by the engine before every run. Override it to prepare more, and call `super().bind_run(context)`."""
        self._run_context = context
        self._db_manager = context.db_manager
