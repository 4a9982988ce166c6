"""`Usage` is the feature: what is stored of each model call, beside its verbs (`reports`) and its routes."""

from __future__ import annotations

import asyncio
import csv
import io
import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from drsai_backend.features.base import each_hour, end
from drsai_backend.features.usage import rows
from drsai_backend.features.usage.reports import Reports

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from drsai_backend.database.backends.prepared import Step
    from drsai_backend.database.hooks import CallsOf, MadeCall
    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.features.base import Host
    from drsai_backend.runs import Engine

log = logging.getLogger("drsai.usage")

_NOTHING: Final = {
    **dict.fromkeys(("model", "profile", "agent")),
    **dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "seconds"), 0),
    "calls": 1,
}
"""What is not said of a call."""


class Usage(Reports):
    """Usage, with its reports. A model call is stored with what its run has used by then, in the same write."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._folding: asyncio.Task[None] | None = None
        if host.settings.prices is not None or host.settings.price_overrides:
            _ = self.prices  # What is wrong with them is said now.

    @property
    def is_on(self) -> bool:
        """Whether calls are stored (`DRSAI_USAGE`)."""
        return self.host.settings.usage

    # --- what is stored -----------------------------------------------------------------------------------------------

    def calls_made(self, of: CallsOf, calls: Sequence[MadeCall]) -> Sequence[Step]:
        """Store them, with what they cost by the prices of now."""
        (tenant, user) = of.owner
        made: list[Step] = []
        shared = {**_NOTHING, "tenant": tenant, "used_by": user, "kind": of.kind, "team": of.team, "turn": of.turn}
        shared |= {"thread": of.thread_id, "run": of.run_id, "epoch": of.epoch}
        for number, at, record, tool in calls:
            # What is no column is passed over by the statement.
            row: dict[str, Any] = {**shared, **record, "number": number, "at": at, "tool": tool}
            row["milliseconds"] = int(row["seconds"] * 1000)
            # Nothing is read of prices where a model has no name, as the offline demo model.
            row["cost"] = self.prices.cost_of(record, at) if row["model"] else None
            made.append((rows.insert_entry, row))
        return made

    def user_deleted(self, session: Session, owner: Owner) -> int:
        """Leave sums of days that name nobody."""
        return rows.forget(session, owner)

    def export_user(self, session: Session, owner: Owner) -> Iterator[tuple[str, bytes]]:
        """Yield what is stored of a user's calls, as tables of 5,000 each."""
        for number, found in enumerate(rows.of_user(session, owner), 1):
            text = io.StringIO()
            table = csv.DictWriter(text, [*found[0]])
            table.writeheader()
            table.writerows(found)
            yield "calls.csv" if number == 1 else f"calls-{number}.csv", text.getvalue().encode()

    # --- in the background --------------------------------------------------------------------------------------------

    async def open(self, engine: Engine) -> None:
        """Fold old calls, where `DRSAI_USAGE_DAYS` is set."""
        if (days := self.host.settings.usage_days) is not None:
            fold = partial(self.fold, timedelta(days=days))
            self._folding = asyncio.create_task(each_hour(fold, log, "model calls are folded into sums of days"))

    async def close(self) -> None:
        await end(self._folding)
