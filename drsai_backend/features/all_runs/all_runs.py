"""All runs are found here, whoever's they are, and changed as their owners would: by the engine's own verbs.

What is asked of a run leaves an entry in the audit log, which is stored before it is asked: nothing is done without
one. Where a process is killed in between, and the same is asked again, there are two entries of one change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from drsai_backend.access.principal import Principal
from drsai_backend.database.values import clean_text
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.audit import PROGRAM, Actor, By
from drsai_backend.errors import DrSaiError, InvalidRequest
from drsai_backend.features.all_runs import rows
from drsai_backend.features.all_runs.base import (
    ALL,
    LONGEST,
    MOST,
    AnyRun,
    Board,
    ErrorGroup,
    Order,
    Steered,
    SteeredAll,
    Verb,
    Wanted,
)
from drsai_backend.page import Page
from drsai_backend.runs.engine import Engine

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

T = TypeVar("T")
_AT_ONCE: Final = 32
"""Runs that are changed at the same time: each may take seconds, where another process has it."""


class AllRuns:
    """The runs of all users. The program is trusted: it may ask for those of all tenants.

    Args:
        engine: reads and changes them.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, run_id: str, *, tenant: str | None = None) -> AnyRun:
        """A run of whomever, in that tenant or any. Raises NotFound."""
        return await self._read(partial(rows.get_run, run_id=run_id, tenant=tenant))

    async def errors(self, of: Wanted = ALL, *, tenant: str | None = None, limit: int = 100) -> Sequence[ErrorGroup]:
        """Return in which ways the wanted runs have failed, by team, the most frequent first: `limit` at most, of the
        newest 100,000 runs. They are read one by one: say `since`. Raises InvalidRequest as `list`."""
        return await self._read(partial(rows.errors, of=_checked(of), tenant=tenant, limit=limit))

    async def board(self, limit: int = 50) -> Board:
        """Return what is live and what waits in all tenants, with so many of the live runs, the oldest first."""
        return await self._read(partial(rows.board, limit=limit))

    async def steer(self, verb: Verb, run_id: str, *, tenant: str | None = None, actor: Actor = PROGRAM) -> AnyRun:
        """Do with a run what its owner may: cancel, pause, resume or retry it. Returns it as it is then: one that
        another process runs may be live for some seconds more.

        Args:
            verb: what is done.
            run_id: with which run.
            tenant: whose it must be; None: anybody's.
            actor: who wants it, for the audit log.

        Raises:
            NotFound: there is no such run.
            IllegalTransition: the run is not such that this can be done.
            Conflict: it was changed again and again meanwhile.
            TeamBuildError, StateError, DatabaseError: as of `Caller.resume`.
        """
        engine = self._engine
        engine.check_open()
        noted = partial(rows.note, verb=verb, run_id=run_id, tenant=tenant, actor=actor)
        name = await engine.db.database.write(noted)
        owner = Principal(name.user_id, name.tenant, by=By.PROGRAM)
        match verb:
            case "cancel":
                await engine.cancel_run(owner, run_id, by=actor.user_id)
            case "pause":
                await engine.pause(owner, name.thread_id, run_id)
            case "resume":
                await engine.resume(owner, name.thread_id, run_id)
            case "retry":
                await engine.retry(owner, name.thread_id, run_id)
        return await self.get(run_id, tenant=tenant)

    async def steer_all(
        self,
        verb: Verb,
        of: Wanted,
        *,
        tenant: str | None = None,
        limit: int = 100,
        dry_run: bool = False,
        actor: Actor = PROGRAM,
    ) -> SteeredAll:
        """`steer`, with all wanted runs that the verb can change, or the first ones. What was done is not done again:
        a call that was cut off can be repeated.

        Args:
            verb: what is done.
            of: with which runs.
            tenant: whose they must be; None: anybody's.
            limit: with how many at most, up to 1,000.
            dry_run: find and count them, and do nothing.
            actor: who wants it, for the audit log.

        Raises:
            InvalidRequest: as `list`, or the limit is none. What becomes of each run is in what is returned.
        """
        if not 1 <= limit <= MOST:
            raise InvalidRequest(f"limit must be 1 to {MOST}", param="limit")
        read = partial(rows.changeable, verb=verb, of=_checked(of), tenant=tenant, limit=limit)
        found, runs = await self._read(read)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def steered(run: AnyRun) -> Steered:
            if dry_run:
                return Steered(**run.model_dump(), outcome="found")
            async with gate:
                try:
                    run = await self.steer(verb, run.run_id, tenant=run.tenant, actor=actor)
                except DrSaiError as error:
                    return Steered(**run.model_dump(), outcome="refused", reason=error.message)
            is_asked = verb in ("cancel", "pause") and run.status is RunStatus.RUNNING
            return Steered(**run.model_dump(), outcome="asked" if is_asked else "done")

        return SteeredAll(verb=verb, dry_run=dry_run, found=found, runs=await asyncio.gather(*map(steered, runs)))

    async def list(
        self,
        of: Wanted = ALL,
        *,
        tenant: str | None = None,
        order: Order = "newest",
        after: str | None = None,
        limit: int = 20,
    ) -> Page[AnyRun]:
        """A page of runs.

        Args:
            of: which.
            tenant: whose they must be; None: anybody's.
            order: the newest first, or (`slow`) those that have run longest: without `since`, a user, a thread or a
                status of what is not over, of those of the last day and all live ones.
            after: `next` of the page before, in the same order.
            limit: how many at most.

        A page of those that are found by `text` or `tool` looks at 5,000 messages at most (of one run at least), and
        may have fewer runs than `limit`, or none, and a `next`; so may one of those that are found by `error_code`
        where texts are encrypted: it looks at 1,000 runs that have failed.

        Raises:
            InvalidRequest: `after` is no `next` of such a list, or something of `of` cannot be.
        """
        read = partial(
            rows.list_runs, of=_checked(of, by_texts=True), tenant=tenant, order=order, after=after, limit=limit
        )
        return await self._read(read)

    async def _read(self, read: Callable[[Session], T]) -> T:
        self._engine.check_open()
        return await self._engine.db.database.read(read)


def _checked(of: Wanted, *, by_texts: bool = False) -> Wanted:
    """Raise InvalidRequest where no database can be asked so, or only a list may be."""
    for name, value in asdict(of).items():
        if isinstance(value, str):
            clean_text(value, name)
            if name in ("text", "tool") and not by_texts:
                raise InvalidRequest(f"{name} finds runs in lists alone: name each that is found", param=name)
    if of.slower_than is not None and not 0 <= of.slower_than <= LONGEST:
        raise InvalidRequest(f"slower_than must be 0 to {LONGEST} seconds", param="slower_than")
    return of
