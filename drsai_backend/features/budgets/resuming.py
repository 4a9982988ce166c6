"""Resuming is what a process does with runs that are paused for a budget, once there is more of it: some at a time.

Each process looks for them when it begins, when somebody has set a budget, and each minute. A run is made one that
nobody runs in a write of its own, and then runs like one whose worker is gone: a kill in between loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from functools import partial
from typing import TYPE_CHECKING, Final

from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import utcnow
from drsai_backend.errors import DrSaiError
from drsai_backend.features.budgets import rows
from drsai_backend.features.budgets.base import BESIDE, Budget, Spend

if TYPE_CHECKING:
    from drsai_backend.datamodel.owner import Owner, ThreadName
    from drsai_backend.features.base import Host
    from drsai_backend.runs import Engine

log = logging.getLogger("drsai.budgets")

BATCH: Final = 16
"""Runs that a look resumes at most: before the next one, those have reserved what they need."""
EVERY: Final = 2.0
"""Seconds between two looks, as long as there is something to do."""
_SELDOM: Final = 60.0
"""Seconds between two looks else."""
_PAGE: Final = 500
"""Runs that one look reads."""
_AGAIN: Final = timedelta(minutes=10)
"""When a run is tried again although nobody has set a budget: what others had reserved may be free by then."""

Bounding = Callable[["Owner", "str | None", "ThreadName", datetime], Sequence[Budget]]
"""Returns the budgets that count for who asked, with which key, on which thread, at a moment."""


class Resuming:
    """Resumes runs of a database.

    Args:
        host: has the database.
        engine: runs them.
        budgets: those that count for a run.
    """

    def __init__(self, host: Host, engine: Engine, budgets: Bounding) -> None:
        self._host, self._engine, self._budgets = host, engine, budgets
        self._after = 0
        self._changed = utcnow()
        self._next = time.monotonic()

    def changed(self) -> None:
        """Somebody has set a budget: all that is paused may find more than when it was paused."""
        self._changed, self._next, self._after = utcnow(), time.monotonic(), 0

    async def for_ever(self) -> None:
        """Look when there is something to look for."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                if time.monotonic() >= self._next:
                    self._next = time.monotonic() + _SELDOM
                    if await self.look() or self._after:
                        self._next = time.monotonic()
            except DrSaiError as error:
                log.warning("paused runs are not resumed now: %s", error.message)
            except Exception:
                # Without it, runs would stay paused.
                log.exception("paused runs are not resumed")

    async def look(self) -> int:
        """Resume some of the runs on a page of those that are paused for a budget: where a twentieth of all that count
        for them is left, and somebody has set one, or a day has begun, since they were paused, or that is long ago.
        Returns how many."""
        database, at = self._host.database, utcnow()
        after, self._after = self._after, 0
        page = await database.read(partial(rows.paused, after=after, limit=_PAGE))
        found = [(run, self._budgets(who.owner, who.key_id, run.name, at)) for run in page for who in [_asker(run)]]
        keys = {each.key for _, budgets in found for each in budgets}
        taken = await database.read(partial(rows.taken, keys=keys)) if keys else {}
        day = datetime.combine(at.astimezone(UTC).date(), time_of_day(), UTC)
        # As of what a dead process leaves behind: no more than half of what this one can take.
        most = min(BATCH, self._host.settings.max_runs // 2 - self._engine.count_runs())
        resumed = 0
        for run, budgets in found:
            if resumed >= most:
                self._after = run.thread_key - 1
                break
            is_due = run.at < max(self._changed, day) or run.at < at - _AGAIN
            if not is_due or any(each.lacks(taken[each.key], Spend(1, 1), BESIDE) for each in budgets):
                continue
            for each in budgets:  # What it will reserve, nobody knows yet.
                taken[each.key] = taken[each.key].plus(Spend(each.tokens // 20, each.cost // 20))
            if await database.write(partial(rows.resume, run=run)):
                resumed += 1
                names = {"thread_id": run.name.thread_id, "run_id": run.run_id}
                log.info("a run is resumed, as there is more of its budget", extra=names)
                await self._engine.look_at(run.thread_key)
        else:
            self._after = page[-1].thread_key if len(page) == _PAGE else 0
        return resumed


def _asker(run: rows.PausedRun) -> Principal:
    return Principal.load(run.name.owner, run.principal)
