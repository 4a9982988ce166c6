"""Rules are what was set for somebody in place of the settings: the verbs of the feature, `drsai.limits.set(…)`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import DEFAULT_TENANT
from drsai_backend.features.limits import rows
from drsai_backend.features.limits.base import MOST, LimitInfo
from drsai_backend.features.rules.base import Kind
from drsai_backend.features.rules.verbs import RuleVerbs

if TYPE_CHECKING:
    from drsai_backend.page import Page


class Rules(RuleVerbs[LimitInfo]):
    """What keys, users, tenants and all may do, as far as that was set."""

    name = "limits"
    noun = "limit"
    most = MOST
    stored = rows.RULES

    async def list(self, tenant: str | None = None, after: str | None = None, limit: int = 20) -> Page[LimitInfo]:
        """Return a page of what was set, the newest first. `tenant`: only of this one. Raises InvalidRequest where
        `after` is no `next`."""
        return await self.host.database.read(partial(rows.RULES.page, tenant=tenant, after=after, limit=limit))

    async def set(  # noqa: PLR0913 - what can be limited
        self,
        kind: Kind,
        name: str = "",
        *,
        tenant: str = DEFAULT_TENANT,
        requests: int | None = None,
        tokens: int | None = None,
        runs: int | None = None,
        streams: int | None = None,
        actor: Actor = PROGRAM,
    ) -> LimitInfo:
        """Set what a key, a user, a tenant or all may do, in place of what was set before. All workers go by it within
        two seconds.

        Args:
            kind: `key`, `user`, `tenant`, or `all` together.
            name: the id of the key, or the user; else empty.
            tenant: that of the key or the user, or the tenant itself.
            requests: a minute. None: as the settings say; 0: no limit.
            tokens: of model calls, a minute.
            runs: at once, those that wait in queues included.
            streams: at once, in each process.
            actor: who does it.

        Raises:
            InvalidRequest: one of these cannot be; `param` names it.
            Conflict: a tenant's admin sets it, and 10,000 are set there already.
        """
        given = {"requests": requests, "tokens": tokens, "runs": runs, "streams": streams}
        return await self._put(kind, name, tenant, given, actor)
