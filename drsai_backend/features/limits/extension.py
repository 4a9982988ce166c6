"""`Limits` is the feature: what requests and model calls are charged, beside its verbs (`rules`) and its routes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, cast

from drsai_backend.errors import TooManyRequests
from drsai_backend.features.limits import rows
from drsai_backend.features.limits.base import AGAIN, Bound, Bounds
from drsai_backend.features.limits.rules import Rules
from drsai_backend.features.rules.base import KINDS, Who

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from drsai_backend.access.principal import Principal
    from drsai_backend.database.backends.prepared import Charge, Step
    from drsai_backend.database.hooks import Asked, CallsOf, MadeCall
    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.features.base import Host
    from drsai_backend.features.limits.buckets import Addresses, Buckets, Headers
    from drsai_backend.runs import Engine

_DAY: Final = 24 * 3_600 * 10**9
"""In nanoseconds: for so long the row of a bucket is kept that is full again."""
_headers: ContextVar[Headers | None] = ContextVar("drsai_limits_headers", default=None)
"""Headers of the answer to the request that the running code works for."""


class Limits(Rules):
    """Limits: those of the settings, and those that were set for a key, a user, a tenant or all in their place."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, lambda: {kind: {**getattr(host.settings, f"limit_{kind}")} for kind in KINDS})
        self._engine: Engine | None = None
        self._streams = Counter[Who]()
        """Those that are sent now."""

    @cached_property
    def _buckets(self) -> Buckets:
        from drsai_backend.features.limits.buckets import Buckets

        return Buckets()

    @cached_property
    def _addresses(self) -> Addresses | None:
        from drsai_backend.features.limits.buckets import Addresses

        return Addresses(most) if (most := self.host.settings.limit_address) else None

    # --- what is charged ----------------------------------------------------------------------------------------------

    def charge(self, asked: Asked) -> Charge | None:
        """Return what a request is charged: one of the requests a minute, the tokens that its first model call may use,
        and a place among the runs at once."""
        is_run = asked.tokens is not None
        if is_run:
            self._check_process(asked)
        bounds = self._bounds(asked.owner, asked.key_id)
        if bounds is None or not (bounds.buckets or (is_run and bounds.runs)):
            return None
        from drsai_backend.features.limits.buckets import Taking

        # What a call beside runs has used is taken right after it.
        tokens = 1 if asked.tokens is None else max(1, asked.tokens())
        is_sqlite = self.host.database.dialect == "sqlite"
        return Taking(self._buckets, bounds, tokens, _headers.get(), is_run=is_run, is_sqlite=is_sqlite)

    def calls_made(self, of: CallsOf, calls: Sequence[MadeCall]) -> Sequence[Step]:
        """Take what calls have used: of the first ones of a run, what is more than was taken before."""
        bounds = self._bounds(of.owner, of.key_id)
        if bounds is None or not bounds.tokens:
            return ()
        used = 0
        for call in calls:
            record = cast("Mapping[str, int]", call.record)
            used += record.get("prompt_tokens", 0) + record.get("completion_tokens", 0)
        reserved = self._buckets.reserved(of.run_id, of.epoch, calls[0].number)
        costs = [(each.subject, used * each.unit - each.cost(reserved)) for each in bounds.tokens]
        self._buckets.move(costs)
        return [rows.settling(costs)]

    def _bounds(self, owner: Owner, key_id: str | None) -> Bounds | None:
        """Return the limits that count for a user's requests, or for those with a key of theirs; None: none is set."""
        if not self._bounds_some:
            return None
        return self._once((owner, key_id), lambda: self._find(owner, key_id))

    def _find(self, owner: Owner, key_id: str | None) -> Bounds:
        given = self._given(owner, key_id)
        return Bounds(Bound(who, measure, most) for who, each in given for measure, most in each.items() if most)

    def _check_process(self, asked: Asked) -> None:
        most = self.host.settings.limit_process_runs
        if most and self._engine is not None and (live := self._engine.count_runs(but=asked.thread)) >= most:
            text = f"this server has {live} runs under way, and takes requests for no more: try again soon"
            raise TooManyRequests(text, after=AGAIN)

    @contextmanager
    def streaming(self, who: Principal) -> Generator[None]:
        """Count a stream while it is sent. Raises TooManyRequests: there are too many."""
        if (found := self._bounds(who.owner, who.key_id)) is None or not (bounds := found.streams):
            yield
            return
        for each in bounds:
            if (live := self._streams[each.who]) >= each.most:
                raise TooManyRequests(each.too_many(live), after=AGAIN)
        self._streams.update(each.who for each in bounds)
        try:
            yield
        finally:
            self._streams -= Counter(each.who for each in bounds)

    # --- requests over HTTP -------------------------------------------------------------------------------------------

    def request_came(self, connection: Mapping[str, Any], headers: Headers) -> None:
        """Count a request of its address."""
        _headers.set(headers)
        if self._addresses is not None and connection.get("client"):
            self._addresses.take(connection["client"][0], headers)

    def request_known(self, who: Principal, headers: Headers) -> None:
        """Say what is left, as far as this process knows."""
        if (bounds := self._bounds(who.owner, who.key_id)) is not None and bounds.buckets:
            self._buckets.show(bounds.buckets, headers)

    # --- what others change -------------------------------------------------------------------------------------------

    def user_deleted(self, session: Session, owner: Owner) -> int:
        """Delete what was set for a user, and how far it was used up."""
        return rows.forget_user(session, owner)

    async def open(self, engine: Engine) -> None:
        """Read what was set, and look for changes from now on."""
        self._engine = engine
        await super().open(engine)

    async def _sweep(self) -> None:
        await super()._sweep()
        await self.host.database.write(partial(rows.forget_states, before=time.time_ns() - _DAY))
