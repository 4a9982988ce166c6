"""Rules are what was set for somebody in place of the settings: the verbs of the feature, `drsai.budgets.set(…)`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import DEFAULT_TENANT
from drsai_backend.features.budgets import rows
from drsai_backend.features.budgets.base import MOST, UNITS, BudgetInfo
from drsai_backend.features.rules.base import KINDS, Kind
from drsai_backend.features.rules.verbs import RuleVerbs

if TYPE_CHECKING:
    from drsai_backend.page import Page


class Rules(RuleVerbs[BudgetInfo]):
    """What keys, users, threads, tenants and all may spend, as far as that was set."""

    name = "budgets"
    noun = "budget"
    most = MOST
    kinds = (*KINDS, "thread")
    stored = rows.RULES

    async def list(self, tenant: str | None = None, after: str | None = None, limit: int = 20) -> Page[BudgetInfo]:
        """Return a page of what was set, the newest first, with what is used of it. `tenant`: only of this one. Raises
        InvalidRequest where `after` is no `next`."""
        read = partial(rows.page, tenant=tenant, after=after, limit=limit, at=utcnow())
        return await self.host.database.read(read)

    async def set(  # noqa: PLR0913 - what can be bounded
        self,
        kind: Kind,
        name: str = "",
        *,
        tenant: str = DEFAULT_TENANT,
        tokens_day: int | None = None,
        tokens_month: int | None = None,
        cost_day: float | None = None,
        cost_month: float | None = None,
        actor: Actor = PROGRAM,
    ) -> BudgetInfo:
        """Set what a key, a user, a tenant, all or a thread may spend, in place of what was set before. All workers
        go by it within two seconds.

        Args:
            kind: `key`, `user`, `tenant`, `thread`, or `all` together.
            name: the id of the key, or the user, or of a thread `USER/THREAD`, in which a `/` of an id is `%2F`; else
                empty.
            tenant: that of the key, the user or the thread, or the tenant itself.
            tokens_day: of model calls, in a day. None: as the settings say; 0: no budget.
            tokens_month: in a month.
            cost_day: in a day, in the currency of the prices.
            cost_month: in a month.
            actor: who does it.

        Raises:
            InvalidRequest: one of these cannot be; `param` names it.
            Conflict: a tenant's admin sets it, and 10,000 are set there already.
        """
        given = {
            "tokens_day": tokens_day,
            "tokens_month": tokens_month,
            "cost_day": cost_day,
            "cost_month": cost_month,
        }
        made = await self._put(kind, name, tenant, given, actor)
        await self.host.database.read(partial(rows.tell_used, told=[made], at=utcnow()))
        return made

    def _units(self, measure: str, most: float) -> int:
        return super()._units(measure, most * UNITS if measure.startswith("cost") else most)
