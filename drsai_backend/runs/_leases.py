"""Leases: kept alive by one heartbeat per process; whose worker is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TypeAlias

from drsai_backend.database import Database
from drsai_backend.database.heads import ThreadHead
from drsai_backend.database.threads import renew_leases
from drsai_backend.errors import DrSaiError
from drsai_backend.runs._identity import is_proven_dead

log = logging.getLogger("drsai.leases")

HeldLease: TypeAlias = tuple[int, int]


class Heartbeat:
    """Renews the leases of this process with one statement every `interval` seconds.

    Args:
        holds: gives the leases that this process holds at the moment, as (thread key, epoch).
        lost: called with those that it does not hold any more.
        asked: called with what the runs of the others are asked to do, by lease.
    """

    def __init__(
        self,
        database: Database,
        owner: str,
        *,
        interval: float,
        lease: timedelta,
        holds: Callable[[], Iterable[HeldLease]],
        lost: Callable[[set[HeldLease]], None],
        asked: Callable[[dict[HeldLease, str | None]], None],
    ) -> None:
        self._asked = asked
        self._database = database
        self._owner = owner
        self._interval = interval
        self._lease = lease
        self._holds = holds
        self._lost = lost
        self._task: asyncio.Task[None] | None = None
        self._early = asyncio.Event()

    def beat_now(self) -> None:
        """Do not wait for the interval to be over."""
        self._early.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._beat())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._early.wait()
            self._early.clear()
            held = set(self._holds())
            if not held:
                continue
            try:
                renewed = await self._renew({key for key, _ in held})
            except DrSaiError as error:
                log.warning("leases not renewed: %s", error.message)
                continue
            # A run that ended meanwhile has given its lease back, and its thread may have another run by now, of
            # another epoch: lost is only what was not renewed and is held still.
            known = {key for key, _ in renewed}
            gone = {lease for lease in held if lease[0] not in known} & set(self._holds())
            if gone:
                log.error("leases of %d threads lost", len(gone))
                self._lost(gone)
            self._asked(renewed)

    async def _renew(self, keys: set[int]) -> dict[HeldLease, str | None]:
        return await self._database.write(lambda session: renew_leases(session, self._owner, keys, self._lease))


def is_orphan(head: ThreadHead, own_worker: str) -> bool:
    """Whether nobody runs this RUNNING thread any more. Ask about threads that this process does not run."""
    owner = head.lease_owner
    if owner is None or owner == own_worker or is_proven_dead(owner):
        return True
    return head.lease_expired
