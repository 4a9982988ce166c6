"""Reports are the verbs of the feature: `drsai.usage.report(…)`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from drsai_backend.database.retention import time_before
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.base import RoutedExtension
from drsai_backend.features.usage import rows
from drsai_backend.features.usage.base import GROUPS, Counted, GroupBy, UsageSum

if TYPE_CHECKING:
    from drsai_backend.models.prices import Prices
    from drsai_backend.page import Page


class Reports(RoutedExtension):
    """What model calls have used and cost, of runs and beside them."""

    name = "usage"

    @property
    def prices(self) -> Prices:
        """The list of prices (`DRSAI_PRICES`). Raises ConfigurationError where it cannot be used."""
        return self.host.prices

    async def report(
        self,
        of: Counted | None = None,
        group_by: Sequence[GroupBy] = ("day",),
        after: str | None = None,
        limit: int = 100,
    ) -> Page[UsageSum]:
        """Return a page of sums.

        Args:
            of: which calls are summed; None: all.
            group_by: by what, in this order, which is that of the page; none: one sum of all.
            after: `next` of the page before.
            limit: how many sums at most.

        Raises:
            InvalidRequest: `after` is no `next` of such a report, or there is no such group.
        """
        if wrong := [each for each in group_by if each not in GROUPS]:
            raise InvalidRequest(f"there is no group {wrong[0]!r}, but {', '.join(GROUPS)}", param="group_by")
        which, currency = of or Counted(), self.prices.currency
        return await self.host.database.read(
            partial(rows.report, of=which, by=group_by, after=after, limit=limit, currency=currency)
        )

    async def fold(self, older_than: timedelta) -> int:
        """Make sums of days of the calls that are older, in parts; return how many calls. What a sum still says are its
        day, user, model, profile, team and kind. Days that have begun later are left whole.

        Raises:
            InvalidRequest: `older_than` reaches back before the first year, or is negative.
        """
        before = time_before(older_than, only_past=True).replace(hour=0, minute=0, second=0, microsecond=0)
        total = 0
        while folded := await self.host.database.write(partial(rows.fold, before=before)):
            total += folded
        return total
