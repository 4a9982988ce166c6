"""Announcements say which teams and stored forms a worker knows: so what this process does not know is left
to one that does, and ends only after no such worker has lived for a while."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from drsai_backend.catalog import Catalog
from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database.runs.reads import ThreadHead, read_run
from drsai_backend.database.runs.workers import ANNOUNCE_SECONDS, announce, look_around, unknown_for
from drsai_backend.datamodel import utcnow
from drsai_backend.errors import DrSaiError, UnknownModel, UnsupportedStateVersion
from drsai_backend.runs.start.starter import RunStarter

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

FORMS: Final = 2
"""Counts the forms in which inputs and states are stored, in any of their parts. Each worker announces those it reads,
like teams: so one of a release before knows whether what it cannot read is read by another that lives."""
_FORM: Final = "drsai:form-{}"
_SHORT: Final = 2
"""The form in which journal entries and model calls are short. It is written where all workers that live read it."""


@dataclass(eq=False)
class Announcements:
    """What this process knows, and tells the others."""

    _db: DatabaseManager
    _catalog: Catalog
    _worker_id: str
    _settings: Settings
    _starter: RunStarter
    _is_worker: bool
    _looked: float = -ANNOUNCE_SECONDS

    async def serves(self, head: ThreadHead) -> bool:
        """Whether this process serves the thread's team. Another worker may."""
        if not self._is_worker:
            return False
        if head.team in self._catalog.registry:
            return True
        if (run_id := head.run_id) is None:
            return False
        run = await self._db.database.read(lambda session: read_run(session, run_id))
        # A stored definition is served by every worker.
        return run is not None and run["definition"] is not None

    def announce(self, session: Session) -> bool:
        """Say that this process lives, and what it knows. Returns whether a worker lives that goes by each lease alone.
        Called in any thread."""
        known = [*self._catalog.registry, *map(_FORM.format, range(1, FORMS + 1))]
        return announce(session, self._worker_id, known, timedelta(seconds=self._settings.lease_seconds))

    async def look_around(self) -> None:
        """Note the workers that say nothing, if it was not done just now."""
        if time.monotonic() - self._looked < ANNOUNCE_SECONDS:
            return
        patience = timedelta(seconds=self._settings.unknown_team_seconds)
        known = await self._db.database.write(lambda session: look_around(session, patience))
        self._starter.short_forms = _FORM.format(_SHORT) in known
        self._looked = time.monotonic()

    async def unknown(self, team: str, since: datetime | None = None) -> UnknownModel | None:
        """Return why a team that this process does not know is not waited for any longer, by a run or by an input that
        came at `since`. None: another worker may know it."""
        if (patience := await self._waited(team, since)) is None:
            return None
        text = f"no worker has known the team {team!r} for {patience:g} s: start one that serves it, and try again"
        return UnknownModel(text, param="model")

    async def unread(self, raised: UnsupportedStateVersion, since: datetime | None = None) -> DrSaiError | None:
        """The same of a state or an input that only a later version of this package reads."""
        if (patience := await self._waited(_FORM.format(FORMS + 1), since)) is None:
            return None
        text = f"{raised.message}, and no worker of a later one has lived for {patience:g} s: start one, and try again"
        return UnsupportedStateVersion(text, param=raised.param)

    async def _waited(self, name: str, since: datetime | None) -> float | None:
        """Return for how many seconds no worker has known a team or form, by which it was waited for long enough."""
        unknown = await self._db.database.read(lambda session: unknown_for(session, name))
        waited = unknown if since is None else min(unknown, utcnow() - since)
        patience = self._settings.unknown_team_seconds
        return None if waited.total_seconds() < patience else patience
