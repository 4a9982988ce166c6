"""Rules are what was set for somebody in place of the settings: the verbs of the feature, `drsai.limits.set(…)`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import DEFAULT_TENANT
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.base import Extension
from drsai_backend.features.limits import rows
from drsai_backend.features.limits.base import KINDS, MEASURES, MOST, Kind, LimitInfo, Measure, Who

if TYPE_CHECKING:
    from drsai_backend.features.base import Host
    from drsai_backend.page import Page


class Rules(Extension):
    """What keys, users, tenants and all may do, as far as that was set."""

    name = "limits"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._rules: Mapping[Who, Mapping[Measure, int]] = {}
        self._version: object = None

    async def list(self, tenant: str | None = None, after: str | None = None, limit: int = 20) -> Page[LimitInfo]:
        """Return a page of what was set, the newest first. `tenant`: only of this one. Raises InvalidRequest where
        `after` is no `next`."""
        return await self.host.database.read(partial(rows.list_rules, tenant=tenant, after=after, limit=limit))

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
        """
        given = {"requests": requests, "tokens": tokens, "runs": runs, "streams": streams}
        values = {measure: most for measure in MEASURES if (most := given[measure]) is not None}
        for measure, most in values.items():
            if isinstance(most, bool) or not 0 <= most <= MOST:
                raise InvalidRequest(f"`{measure}` must be a number from 0 to {MOST}; 0: no limit", param=measure)
        if not values:
            raise InvalidRequest("say what is limited: `requests`, `tokens`, `runs` or `streams`", param="requests")
        who = _who(kind, name, tenant)
        made = await self.host.database.act(partial(rows.set_rule, who=who, values=values, actor=actor))
        await self._refresh()
        return made

    async def remove(self, kind: Kind, name: str = "", *, tenant: str = DEFAULT_TENANT, actor: Actor = PROGRAM) -> bool:
        """Have the settings hold again; False: nothing was set. Arguments as those of `set`.

        Raises:
            InvalidRequest: `kind` or `name` cannot be.
        """
        removed = await self.host.database.act(partial(rows.remove_rule, who=_who(kind, name, tenant), actor=actor))
        await self._refresh()
        return removed

    async def _refresh(self) -> None:
        """Read what was set, where that has changed."""
        self._version, found = await self.host.database.read(partial(rows.changed, known=self._version))
        if found is not None:
            self._rules = {each.who: each.given for each in found}


def _who(kind: str, name: str, tenant: str) -> Who:
    """Return for whom a limit is. Raises InvalidRequest where that is nobody."""
    if kind not in KINDS:
        raise InvalidRequest(f"there is no limit of a {kind!r}, but of {', '.join(KINDS)}", param="kind")
    if kind in ("key", "user"):
        return Who(kind, check_name(tenant, "tenant"), check_name(name, "name"))
    if name:
        raise InvalidRequest(f"the limit of {kind!r} has no name", param="name")
    return Who("all") if kind == "all" else Who("tenant", check_name(tenant, "tenant"))
