"""`Switches` is the feature, `drsai.switches.off(…)`: what other processes have switched off is known here within two
seconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from drsai_backend.access.switchboard import KINDS, Off, SwitchKind, Target
from drsai_backend.database.followed import Followed
from drsai_backend.database.values import clean_text
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.base import FollowedExtension
from drsai_backend.features.switches import rows
from drsai_backend.features.switches.base import LONGEST, SwitchInfo

if TYPE_CHECKING:
    from drsai_backend.features.base import Host
    from drsai_backend.json_types import JsonObject
    from drsai_backend.page import Page

_AT_MOST: Final = timedelta(days=3_650)


class Switches(FollowedExtension):
    """What operators have switched off. What is under way is left alone, and what waits in queues runs in its turn."""

    name = "switches"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._followed = Followed(host.database, rows.changed, self._hear, self.name)

    async def list(self, tenant: str | None = None, after: str | None = None, limit: int = 20) -> Page[SwitchInfo]:
        """Return a page of what is off, the newest first. `tenant`: only in this one, and not in all. Raises
        InvalidRequest where `after` is no `next`."""
        return await self.host.database.read(partial(rows.list_switches, tenant=tenant, after=after, limit=limit))

    async def off(
        self,
        kind: SwitchKind,
        name: str = "",
        *,
        message: str,
        tenant: str | None = None,
        until: datetime | None = None,
        actor: Actor = PROGRAM,
    ) -> SwitchInfo:
        """Switch something off, in place of how it was before. All workers go by it within two seconds.

        Args:
            kind: `team`, `model`, `tool`, `tenant`, `all`: new runs of all teams in all tenants, or `worker`: a process
                that is to begin nothing more.
            name: of the team, the model or its profile, the tool as models know it, the tenant, or the worker, as
                `pid@host`; of all, empty.
            message: what who asks for it is told, of up to 500 characters.
            tenant: in this one alone; None: in all.
            until: when it is on again by itself, an aware time; None: when `on` is called.
            actor: who does it.

        Raises:
            InvalidRequest: one of these cannot be; `param` names it.
            Conflict: a user does it, and 10,000 are off in their tenant already.
        """
        target = _target(kind, name, tenant)
        if not 1 <= len(clean_text(message, "message").strip()) <= LONGEST:
            raise InvalidRequest(f"`message` must have 1 to {LONGEST} characters: who asks is told it", param="message")
        if until is not None and (until.tzinfo is None or not timedelta() < until - utcnow() <= _AT_MOST):
            text = "`until` must be a time to come, with its time zone, and within ten years"
            raise InvalidRequest(text, param="until")
        text = message.strip()
        made = await self.host.database.act(
            partial(rows.switch_off, target=target, message=text, until=until, actor=actor)
        )
        await self._followed.refresh()
        return made

    async def on(self, kind: SwitchKind, name: str = "", *, tenant: str | None = None, actor: Actor = PROGRAM) -> bool:
        """Switch something on; False: it was not off. Arguments as those of `off`, by which it is found.

        Raises:
            InvalidRequest: one of these cannot be; `param` names it.
        """
        done = await self.host.database.act(partial(rows.switch_on, target=_target(kind, name, tenant), actor=actor))
        await self._followed.refresh()
        return done

    def _hear(self, found: Sequence[JsonObject]) -> None:
        if (models := self.host.models) is not None:
            models.switches.off = {
                Target(each["kind"], each["name"], each["tenant"]): Off(
                    each["message"], None if each["until"] is None else each["until"].timestamp()
                )
                for each in found
            }


def _target(kind: str, name: str, tenant: str | None) -> Target:
    """Return what is meant. Raises InvalidRequest: nothing is."""
    if kind not in KINDS:
        raise InvalidRequest(f"a {kind!r} cannot be switched off, but {', '.join(KINDS)} can", param="kind")
    if tenant is not None:
        check_name(tenant, "tenant")
    if kind != "all":
        check_name(name, "name")
    if kind == "all" and name:
        raise InvalidRequest("all has no name: say `all` alone", param="name")
    if kind == "worker" and tenant is not None:
        raise InvalidRequest("a worker is of all tenants: leave out the tenant", param="tenant")
    if kind in ("all", "tenant") and tenant not in (None, name):
        raise InvalidRequest(f"one tenant is switched off by its name: `tenant {tenant}`", param="tenant")
    return Target(kind, name, name if kind == "tenant" else tenant or "")
