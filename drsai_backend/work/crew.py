"""A crew takes jobs up, one in every process that runs teams, and calls the handlers of the features.

1. A look, when something was enqueued here, a job has ended or `sweep_seconds` are over: is a job due of a kind of
   which another one may be begun here? While nothing is, that is one read.
2. A claim takes one up, of the owner whose turn it is, by a lease of three times `lease_seconds`, which a heartbeat
   renews. A process that is killed leaves it to whoever claims it next.
3. The handler does it, within the time of its kind. It is cancelled when a heartbeat finds the job lost.
4. Done: the row goes. What it raises is a failure, and repeated after the time that the kind says; after the last one
   the job has failed, its feature is told, and the row stays for a month.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Sequence
from contextvars import Context
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DrSaiError, JobLost
from drsai_backend.work.claims import any_due, claim, complete, failed, give_back, prune, renew
from drsai_backend.work.kinds import Job, Kind

log = logging.getLogger("drsai.work")

_LEASES: Final = 3
"""As many times longer than a run's lease is a job's: no thread renews it while an event loop stands still."""
_PRUNE: Final = 3600.0
"""Seconds between two looks for jobs that failed long ago."""
_DIED: Final = "each process that did it ended before it was done"


class _UnderWay(NamedTuple):
    kind: Kind
    job: Job


class Crew:
    """The tasks of a process that does jobs; see `Workers`."""

    def __init__(self, database: Database, settings: Settings, kinds: Sequence[Kind]) -> None:
        self._database = database
        self._kinds = kinds
        self._interval = settings.sweep_seconds
        self._lease = timedelta(seconds=_LEASES * settings.lease_seconds)
        self._beat = _LEASES * min(settings.heartbeat_seconds, settings.lease_seconds / 3)
        self._grace = settings.shutdown_grace_seconds
        self._name = secrets.token_hex(8)
        self._last = dict.fromkeys((kind.name for kind in kinds), Owner("", ""))
        self._under_way: dict[asyncio.Task[None], _UnderWay] = {}
        self._awake = asyncio.Event()
        self._is_stopping = False
        self._heart: asyncio.Task[None] | None = None
        self._next_prune = 0.0
        # What they log belongs to no request.
        self._task = asyncio.create_task(self._work(), name="drsai work", context=Context())

    def wake(self) -> None:
        self._awake.set()

    async def stop(self) -> None:
        self._is_stopping = True
        self._awake.set()
        # Not cancelled at once: a claim that is committed meanwhile would be a job that nobody does.
        await _ended([self._task], self._grace)
        left = [*self._under_way.values()]
        tasks = [*self._under_way]
        for task in tasks:
            task.cancel()
        if late := await _ended(tasks, self._grace):
            log.warning("%d jobs do not end though they were cancelled: %s", len(late), ", ".join(sorted(late)))
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait([self._heart])
        if left:
            try:
                await self._database.write(partial(give_back, jobs=[each.job for each in left]))
            except DrSaiError as error:
                log.warning("%d jobs are taken up when their leases are over: %s", len(left), error.message)

    # --- claiming ----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not self._is_stopping:
            self._awake.clear()
            try:
                found = await self._take_up()
            except DrSaiError as error:
                found = False
                log.warning("no jobs are taken up: %s", error.message)
            except Exception:
                # Without this loop no job would ever be done.
                found = False
                log.exception("no jobs are taken up")
            if not found:
                try:
                    async with asyncio.timeout(self._interval):
                        await self._awake.wait()
                except TimeoutError:
                    pass

    async def _take_up(self) -> bool:
        """Begin jobs, one of each kind that has room. False: there is nothing to do now."""
        busy = Counter(each.kind.name for each in self._under_way.values())
        free = [kind for kind in self._kinds if busy[kind.name] < kind.options.concurrency]
        if not free or not await self._database.read(partial(any_due, kinds=free), short=True):
            return False
        return any([await self._begin(kind) for kind in free])

    async def _begin(self, kind: Kind) -> bool:
        take = partial(claim, kind=kind, worker=self._name, lease=self._lease, after=self._last[kind.name])
        job = await self._database.write(take)
        if job is None:
            return False
        self._last[kind.name] = job.owner
        task = asyncio.create_task(self._attempt(kind, job), name=f"{job.kind} {job.key}", context=Context())
        self._under_way[task] = _UnderWay(kind, job)
        task.add_done_callback(self._over)
        if self._heart is None:
            self._heart = asyncio.create_task(self._live(), name="drsai work's heartbeat", context=Context())
        return True

    def _over(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._awake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a job was given up", exc_info=error)

    async def _live(self) -> None:
        """Renew the leases of what is under way, and cancel what is lost; as long as this process has begun any."""
        while True:
            await asyncio.sleep(self._beat)
            try:
                await self._renew()
                await self._prune()
            except DrSaiError as error:
                log.warning("no leases of jobs are renewed: %s", error.message)
            except Exception:
                # Without this loop jobs would be taken from this process while it does them.
                log.exception("no leases of jobs are renewed")

    async def _renew(self) -> None:
        jobs = [each.job for each in self._under_way.values()]
        lost = await self._database.write(partial(renew, jobs=jobs, lease=self._lease)) if jobs else ()
        for task, each in [*self._under_way.items()]:
            if each.job in lost:
                task.cancel()

    async def _prune(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._next_prune:
            self._next_prune = now + _PRUNE
            while await self._database.write(prune):
                pass

    # --- an attempt --------------------------------------------------------------------------------------------------

    async def _attempt(self, kind: Kind, job: Job) -> None:
        try:
            # All its processes were killed: who claims it now ends it.
            is_spent = job.attempts > kind.options.attempts
            error = _DIED if is_spent else await self._error_of(kind, job)
            if error is not None:
                wait = await self._database.write(partial(failed, kind=kind, job=job, error=error))
                what = "has failed for good" if wait is None else f"is done again in {wait:.0f} s"
                log.warning("the job %s (%s) %s: %s", job.key, job.kind, what, error)
        except JobLost:
            log.info("the job %s (%s) is another worker's, or not wanted any more", job.key, job.kind)
        except DrSaiError as error:
            # Its lease runs out, and it is done once more.
            log.warning("what became of the job %s (%s) is not stored: %s", job.key, job.kind, error.message)

    async def _error_of(self, kind: Kind, job: Job) -> str | None:
        """Do a job. Returns why it has failed; None: it is done. Raises JobLost."""
        limit = asyncio.timeout(kind.options.timeout)
        try:
            async with limit:
                await kind.handle(job)
        except JobLost:
            raise
        except DrSaiError as error:
            return error.message
        except Exception as error:
            # A handler may raise anything, and the others are to be done.
            if isinstance(error, TimeoutError) and limit.expired():
                return f"it took longer than {kind.options.timeout:g} s"
            log.exception("the job %s (%s) has failed", job.key, job.kind)
            return f"an error of the type {type(error).__name__}; the log has more"
        await self._database.write(partial(complete, job=job), short=True)
        return None


async def _ended(tasks: Sequence[asyncio.Task[None]], within: float) -> list[str]:
    """Wait for tasks to end. Returns the names of those that have not in that many seconds, and cancels them."""
    if not tasks:
        return []
    _, late = await asyncio.wait(tasks, timeout=within)
    for task in late:
        task.cancel()
    return [task.get_name() for task in late]
