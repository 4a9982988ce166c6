"""`Audit` is the feature: its verbs, `drsai.audit.list(…)`, and its routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from drsai_backend.database.audit import AuditRecord, list_audit, prune_audit
from drsai_backend.database.retention import time_before
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.features.base import RoutedExtension
from drsai_backend.page import Page, every

_PAGE: Final = 500


class Audit(RoutedExtension):
    """The audit log: who did what that others may ask about."""

    name = "audit"

    async def list(  # noqa: PLR0913 - what programs filter by
        self,
        tenant: str | None = None,
        user_id: str | None = None,
        action: str | None = None,
        after: str | None = None,
        limit: int = 20,
        *,
        thread_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Page[AuditRecord]:
        """A page of entries, newest first. Arguments and errors as those of `list_audit`."""
        only = {"thread_id": thread_id, "since": since, "until": until}
        return await self.host.database.read(
            partial(list_audit, tenant=tenant, user_id=user_id, action=action, after=after, limit=limit, **only)
        )

    def entries(
        self, tenant: str | None = None, user_id: str | None = None, action: str | None = None
    ) -> AsyncIterator[AuditRecord]:
        """Yield all entries, newest first, a page at a time. Arguments and errors as those of `list_audit`."""
        return every(lambda after: self.list(tenant, user_id, action, after, _PAGE))

    async def prune(self, older_than: timedelta, *, tenant: str | None = None, actor: Actor = PROGRAM) -> int:
        """Delete the entries that are older, in batches, and return how many. Entries say that it was done.

        Args:
            older_than: how old what stays may be.
            tenant: only this one's; None: all.
            actor: who does it.

        Raises:
            InvalidRequest: `older_than` reaches back before the first year, or is negative.
        """
        before, total = time_before(older_than, only_past=True), 0
        while gone := await self.host.database.write(
            lambda session: prune_audit(session, actor, before, tenant=tenant)
        ):
            total += gone
        return total
