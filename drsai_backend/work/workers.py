"""Workers take jobs up, in every process that runs teams, and call the handlers of the features.

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
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from datetime import timedelta
from functools import partial
from typing import Final

from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DrSaiError, JobLost
from drsai_backend.work.claims import any_due, claim, complete, failed, give_back, renew
from drsai_backend.work.kinds import Job, Kind

log = logging.getLogger("drsai.work")

_LEASES: Final = 3
"""As many times longer than a run's lease is a job's: no thread renews it while an event loop stands still."""
_DIED: Final = "each process that did it ended before it was done"


class Workers:
    """Does the jobs of a database; any number of processes share the work.

    Args:
        database: has the jobs. Not closed by this object.
        settings: `sweep_seconds` are between two looks; `lease_seconds` and `heartbeat_seconds` as of runs, thrice;
            `shutdown_grace_seconds` are what handlers get at most to end when they are cancelled.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._interval, self._grace = settings.sweep_seconds, settings.shutdown_grace_seconds
        self._lease = timedelta(seconds=_LEASES * settings.lease_seconds)
        self._beat = _LEASES * min(settings.heartbeat_seconds, settings.lease_seconds / 3)
        self._name = secrets.token_hex(8)
        self._kinds: Sequence[Kind] = ()
        self._last: dict[str, Owner] = {}
        self._under_way: dict[asyncio.Task[None], Job] = {}
        self._awake = asyncio.Event()
        self._tasks: Sequence[asyncio.Task[None]] = ()

    def start(self, kinds: Sequence[Kind]) -> None:
        """Begin to do jobs of these kinds, in the running event loop. Without any, nothing begins."""
        self._kinds = kinds
        if kinds:
            # What they log belongs to no request.
            works = (self._work(), self._live())
            self._tasks = [asyncio.create_task(each, name="drsai work", context=Context()) for each in works]

    def wake(self) -> None:
        """Look now, in the event loop: something was enqueued, and is committed. It does nothing where nothing was
        started."""
        self._awake.set()

    async def stop(self) -> None:
        """Take nothing up any more, cancel the handlers, and give their jobs back, as if they had not been begun."""
        self._kinds = ()
        self._awake.set()
        if self._tasks:
            # Not cancelled at once: a claim that is committed meanwhile would be a job that nobody does.
            await asyncio.wait(self._tasks[:1], timeout=self._grace)
            left, tasks = [*self._under_way.values()], [*self._tasks, *self._under_way]
            for task in tasks:
                task.cancel()
            _, late = await asyncio.wait(tasks, timeout=self._grace)
            if late:
                names = ", ".join(sorted(task.get_name() for task in late))
                log.warning("%d jobs do not end though they were cancelled: %s", len(late), names)
            if left:
                await _safely(
                    "jobs wait until their leases are over",
                    partial(self._database.write, partial(give_back, jobs=left)),
                )

    async def _work(self) -> None:
        while self._kinds:
            self._awake.clear()
            if not await _safely("no jobs are taken up", self._take_up):
                try:
                    async with asyncio.timeout(self._interval):
                        await self._awake.wait()
                except TimeoutError:
                    pass

    async def _take_up(self) -> bool:
        """Begin jobs, one of each kind that has room. False: there is nothing to do now."""
        busy = Counter(job.kind for job in self._under_way.values())
        free = [kind for kind in self._kinds if busy[kind.name] < kind.options.concurrency]
        if not free or not await self._database.read(partial(any_due, kinds=free), short=True):
            return False
        return any([await self._begin(kind) for kind in free])

    async def _begin(self, kind: Kind) -> bool:
        after = self._last.get(kind.name, Owner("", ""))
        take = partial(claim, kind=kind, worker=self._name, lease=self._lease, after=after)
        job = await self._database.write(take)
        if job is None:
            return False
        self._last[kind.name] = job.owner
        task = asyncio.create_task(self._attempt(kind, job), name=f"{job.kind} {job.key}", context=Context())
        self._under_way[task] = job
        task.add_done_callback(self._over)
        return True

    def _over(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._awake.set()

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(self._beat)
            await _safely("no leases of jobs are renewed", self._renew)

    async def _renew(self) -> None:
        """Renew the leases of what is under way, and cancel what is lost."""
        jobs = [*self._under_way.values()]
        lost = await self._database.write(partial(renew, jobs=jobs, lease=self._lease)) if jobs else ()
        for task, job in [*self._under_way.items()]:
            if job in lost:
                task.cancel()

    async def _attempt(self, kind: Kind, job: Job) -> None:
        # All its processes were killed: who claims it now ends it.
        is_spent = job.attempts > kind.options.attempts
        try:
            error = _DIED if is_spent else await self._error_of(kind, job)
            if error is not None:
                wait = await self._database.write(partial(failed, kind=kind, job=job, error=error))
                what = "has failed for good" if wait is None else f"is done again in {wait:.0f} s"
                log.warning("the job %s (%s) %s: %s", job.key, job.kind, what, error)
        except JobLost:
            log.info("the job %s (%s) is another worker's, or not wanted any more", job.key, job.kind)
        except Exception as error:
            # The database is away, or the feature could not be told: its lease runs out, and it is done once more.
            what = "what became of the job %s (%s) is not stored"
            log.warning(what, job.key, job.kind, exc_info=not isinstance(error, DrSaiError))

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


async def _safely(what: str, do: Callable[[], Awaitable[object]]) -> object:
    """Do something that has to be tried again whatever it raises, which is logged."""
    try:
        return await do()
    except Exception as error:
        log.warning("%s: %s", what, error, exc_info=not isinstance(error, DrSaiError))
        return None
