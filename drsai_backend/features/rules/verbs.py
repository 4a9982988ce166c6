"""The verbs of rules have this in common: what was set is stored, and all processes follow it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from drsai_backend.database.followed import Followed
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import DEFAULT_TENANT
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.base import FollowedExtension
from drsai_backend.features.rules.base import KINDS, Kind, Who, everybody, of_thread, thread_of
from drsai_backend.features.rules.rows import R

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from drsai_backend.datamodel.owner import Owner, ThreadName
    from drsai_backend.features.base import Host
    from drsai_backend.features.rules.rows import RuleRows
    from drsai_backend.json_types import JsonObject

T = TypeVar("T")
_REMEMBERED: Final = 10_000
"""Of so many users and threads it is remembered what bounds them."""
KEPT: Final = timedelta(days=62)
"""For how long it is kept what was used, the month before this one being whole, and what was set for a key that was
revoked: a run of it may continue, and its sums are told beside."""
_HOUR: Final = 3_600.0
"""Between two looks for rows that say nothing any more."""


class FollowedRules(FollowedExtension, Generic[R]):
    """What keys, users, tenants and all may have, as this process knows it: by the settings, and as far as it was set
    in their place, here or elsewhere.

    Attributes:
        stored: the rows of what was set.
        noun: what a rule is called.
        most: what one bounds something to at most.
        kinds: for whom one may be.
    """

    stored: ClassVar[RuleRows[Any]]
    noun: ClassVar[str]
    most: ClassVar[int]
    kinds: ClassVar[Sequence[Kind]] = KINDS

    def __init__(self, host: Host, said: Callable[[], Mapping[str, Mapping[str, int]]]) -> None:
        """Know the settings alone: `said` returns theirs as they are now, by kind and measure."""
        super().__init__(host)
        self._said = said
        host.on_settings.append(self._settings_changed)
        self._rules: Mapping[Who, Mapping[str, int]] = {}
        self._changed()
        self._followed = Followed(host.database, self.stored.changed, self._hear, self.name, self._sweep_at_times)
        self._swept = time.monotonic()

    def keys_deleted(self, session: Session, owner: Owner, key_ids: Sequence[str]) -> None:
        self.stored.forget_keys(session, owner, key_ids)

    def _given(
        self, owner: Owner, key_id: str | None, thread: ThreadName | None = None
    ) -> Iterator[tuple[Who, Mapping[str, int]]]:
        """Return what bounds a user's requests, or those with a key of theirs, or on a thread; 0: nothing does."""
        for who in (*everybody(owner, key_id), *([] if thread is None else [of_thread(thread)])):
            given, rule = self._defaults[who.kind], self._rules.get(who)
            if given or rule:
                yield who, (given if rule is None else {**given, **rule})

    def _once(self, key: object, find: Callable[[], T]) -> T:
        """Return what is found under a key, and was found before, unless a rule has changed since: each request asks
        for that of its user, and so do all writes of its run."""
        found = self._found
        made: T | None = found.get(key)
        if made is None:
            made = find()
            if len(found) >= _REMEMBERED:
                found.clear()
            found[key] = made
        return made

    def _changed(self) -> None:
        """Go by the settings and the rules as they are now."""
        self._defaults = self._said()
        self._bounds_some = any(self._defaults.values()) or bool(self._rules)
        """Whether anything bounds somebody."""
        self._bounds_threads = bool(self._defaults.get("thread")) or any(who.kind == "thread" for who in self._rules)
        # Another one: what a thread finds now by the rules of before stays in that which it has.
        self._found: dict[object, Any] = {}

    def _settings_changed(self, names: Collection[str]) -> None:
        self._changed()

    def _hear(self, found: Sequence[JsonObject]) -> None:
        self._rules = {Who(row["kind"], row["tenant"], row["name"]): _set_in(row) for row in found}
        self._changed()

    async def _sweep_at_times(self) -> None:
        if time.monotonic() - self._swept > _HOUR:
            self._swept = time.monotonic()
            await self._sweep()

    async def _sweep(self) -> None:
        """Delete rows that say nothing any more."""
        await self.host.database.write(partial(self.stored.forget_revoked, before=utcnow() - KEPT))


class RuleVerbs(FollowedRules[R]):
    """The verbs of rules that are the same, whatever they bound."""

    async def remove(self, kind: Kind, name: str = "", *, tenant: str = DEFAULT_TENANT, actor: Actor = PROGRAM) -> bool:
        """Have the settings hold again; False: nothing was set. Arguments as those of `set`.

        Raises:
            InvalidRequest: `kind` or `name` cannot be.
        """
        who = self._who(kind, name, tenant)
        removed = await self.host.database.act(partial(self.stored.remove, who=who, actor=actor))
        await self._followed.refresh()
        return removed

    async def _put(self, kind: str, name: str, tenant: str, given: Mapping[str, float | None], actor: Actor) -> R:
        """Set what somebody may have, as far as it is given. Raises InvalidRequest where that is nobody, or nothing, or
        cannot be; and Conflict where a tenant's admin sets it and there are too many."""
        said = {measure: most for measure, most in given.items() if most is not None}
        for measure, most in said.items():
            if isinstance(most, bool) or not 0 <= most <= self.most:
                text = f"`{measure}` must be a number from 0 to {self.most}; 0: no {self.noun}"
                raise InvalidRequest(text, param=measure)
        if not said:
            *those, last = (f"`{measure}`" for measure in given)
            raise InvalidRequest(f"say what is limited: {', '.join(those)} or {last}", param=next(iter(given)))
        values = {measure: self._units(measure, most) for measure, most in said.items()}
        who = self._who(kind, name, tenant)
        made = await self.host.database.act(partial(self.stored.set, who=who, values=values, actor=actor))
        await self._followed.refresh()
        return made

    def _units(self, measure: str, most: float) -> int:
        """Return a bound as it is stored: at least the smallest, where it is not 0, which is none."""
        return max(round(most), int(most > 0))

    def _who(self, kind: str, name: str, tenant: str) -> Who:
        """Return for whom a rule is. Raises InvalidRequest where that is nobody."""
        if kind not in self.kinds:
            raise InvalidRequest(f"there is no {self.noun} of a {kind!r}, but of {', '.join(self.kinds)}", param="kind")
        if kind in ("key", "user"):
            return Who(kind, check_name(tenant, "tenant"), check_name(name, "name"))
        if kind == "thread":
            if (thread := thread_of(Who(kind, check_name(tenant, "tenant"), name))) is None:
                raise InvalidRequest("`name` must be USER/THREAD, the ids of a user and of a thread", param="name")
            for each in thread:
                check_name(each, "name")
            return of_thread(thread)
        if name:
            raise InvalidRequest(f"the {self.noun} of {kind!r} has no name", param="name")
        return Who("all") if kind == "all" else Who("tenant", check_name(tenant, "tenant"))


def _set_in(row: Mapping[str, Any]) -> Mapping[str, int]:
    """Return what a row says in place of the settings."""
    own = {"id", "at", *Who._fields}
    return {name: most for name, most in row.items() if name not in own and most is not None}
