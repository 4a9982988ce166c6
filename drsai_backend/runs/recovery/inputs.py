"""Inputs of the queue wait for their thread: they are begun when it is free, or ended where they never can be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from drsai_backend import log_context
from drsai_backend.access.principal import Principal
from drsai_backend.catalog import Catalog
from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database.hooks import EndedRun, Hooks
from drsai_backend.database.runs.commands import count_begun, drop_queued, leave_waiting, queued_inputs
from drsai_backend.database.runs.reads import QueuedRow, RunRow, ThreadHead, queued_answer, read_run
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.errors import (
    Conflict,
    DatabaseError,
    DatabaseUnavailable,
    DrSaiError,
    OtherModel,
    TeamBuildError,
    UnknownModel,
    UnsupportedStateVersion,
)
from drsai_backend.runs.commands.stored_request import STORED, from_json
from drsai_backend.runs.failures import failure_text
from drsai_backend.runs.recovery.announcements import Announcements
from drsai_backend.runs.requests import Placed
from drsai_backend.runs.running import Running
from drsai_backend.runs.start.starter import Busy, RunStarter

log = logging.getLogger("drsai.recovery")


@dataclass(eq=False)
class WaitingInputs:
    """Begins the inputs that wait, for one engine."""

    _db: DatabaseManager
    _catalog: Catalog
    _starter: RunStarter
    _running: Running
    _settings: Settings
    _announcements: Announcements
    _hooks: Hooks
    _freed: Callable[[int], None]
    _began: datetime = field(default_factory=utcnow)
    """When this process did."""
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of who begins an input that a process may have died of."""
    _tried: set[str] = field(default_factory=set[str])
    """The runs of inputs of which this process is counted as dead, until it has come through."""

    async def start_next(self, head: ThreadHead) -> None:
        """Begin the first input of the queue that can be begun."""
        while rows := await self._db.database.read(lambda session: queued_inputs(session, head.name, limit=1)):
            row = rows[0]
            failed = await self._begun(head, row)
            if failed is None:
                return
            error, again = failed
            ended = EndedRun(head.name, head.key, row["run_id"], 0, RunStatus.ERROR)
            await self._db.database.write(
                partial(drop_queued, ended=ended, reason=error, again=again, hooks=self._hooks)
            )

    async def answer(self, head: ThreadHead) -> None:
        """Have the first input of the queue that is an answer answer what the thread's run asks. One that is none to
        this question waits from now on."""
        while (row := await self._db.database.read(lambda session: queued_answer(session, head.name))) is not None:
            if await self._begun(head, row, answers=True) is None:
                return
            await self._db.database.write(lambda session, row=row: leave_waiting(session, row["run_id"]))

    async def _begun(self, head: ThreadHead, row: QueuedRow, *, answers: bool = False) -> tuple[str, bool] | None:
        """Begin an input of the queue, unless this process does something on the thread, or enough elsewhere. None: it
        has begun, or it waits on. Else why it never can, and whether the same request may, as its team is not there.

        Raises:
            DatabaseUnavailable: nothing is known of it now.
        """
        run_id, name, team = row["run_id"], head.name, ""
        try:
            run = await self._db.database.read(lambda session: read_run(session, run_id))
            assert run is not None
            log_context.bind(run["request_id"], head.thread_id, run_id)
            team = run["team"]
            key = None if row["api_key"] is None else self._db.secrets.decrypt(row["api_key"])
            asked_by = Principal.load(name.owner, run["principal"])
            if row["request"].get(STORED):
                self._catalog.changed()  # One that was deleted and made anew is found at once.
            ask = from_json(row["request"], team=team, name=name, api_key=key)
            log_context.trace.set(ask.trace)
            recipe = await self._catalog.find(asked_by, team, name)
            given = Placed(ask, asked_by, recipe, name, queued=run_id, answers=answers)
            async with self._counted(row, run):
                if self._running.is_taken(name):
                    self._running.turn_away(name, head.key)
                elif self._running.count < self._settings.max_runs:
                    await self._running.launch(name, partial(self._starter.start, given), self._freed)
        except DatabaseUnavailable:
            raise
        except Exception as raised:
            error: Exception | None = raised
            if isinstance(raised, UnknownModel):
                deleted = UnknownModel(f"the agent {team!r} was deleted while the message waited", param="model")
                error = (
                    deleted
                    if row["request"].get(STORED)
                    else await self._announcements.unknown(team, row["created_at"])
                )
            elif isinstance(raised, UnsupportedStateVersion):
                error = await self._announcements.unread(raised, row["created_at"])
            if error is None:
                return None  # Another worker may know the team, or read what is stored.
            # Conflicts pass, but for this one: the thread stays another team's.
            if isinstance(error, Conflict | DatabaseError | Busy) and not isinstance(error, OtherModel):
                log.info("a queued input waits on: %s", error, extra={"thread_id": head.thread_id})
                return None
            text = failure_text(error, team, None)
            is_known = isinstance(error, DrSaiError)
            level, shown = (logging.INFO, None) if is_known else (logging.ERROR, error)
            what = "is no answer" if answers else "failed"
            log.log(level, "a queued input %s: %s", what, text, extra={"run_id": run_id}, exc_info=shown)
            return text, isinstance(error, UnknownModel | UnsupportedStateVersion)
        return None

    @asynccontextmanager
    async def _counted(self, row: QueuedRow, run: RunRow) -> AsyncGenerator[None]:
        """Count the beginning of an input around it, for the process may die of it before it stores anything. An input
        that came after the process has killed none before; others are counted first, and those that have been are begun
        one at a time.

        Raises:
            TeamBuildError: `max_attempts` processes have died in which no other of them was begun.
        """
        if row["created_at"] >= self._began:
            yield
            return
        if run["retries"] > self._settings.max_attempts:
            raise TeamBuildError(f"it was given up: {run['retries']} processes died when its team was built")
        async with self._alone if run["retries"] else nullcontext():
            run_id = run["run_id"]
            if run_id not in self._tried:  # However often it tries while the database comes and goes.
                self._tried.add(run_id)
                await self._db.database.write(lambda session: count_begun(session, run_id, 1))
            try:
                yield
            finally:
                await self._db.database.write(lambda session: count_begun(session, run_id, -1))
                self._tried.discard(run_id)
