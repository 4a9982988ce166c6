"""The queue of jobs, `JobQueue`, is procrastinate's worker inside this process's event loop.

Three tasks: `look_at` a thread, `sweep` for threads that need a look, `prune` what is older than the retention. The
last two are periodic: whichever process is first at a tick puts in the job, and one does it. Nothing is retried: a
sweep that fails is followed by another, which finds the threads that still need a look.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final

import procrastinate
from procrastinate.connector import BaseConnector, Notify
from procrastinate.exceptions import ConnectorException, ProcrastinateException
from procrastinate.job_context import JobContext
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from psycopg_pool import AsyncConnectionPool

from drsai_backend.database.urls import connect_args, parse_url
from drsai_backend.errors import DrSaiError
from drsai_backend.runs import Engine

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger("drsai.jobs")

SCHEMA: Final = "drsai_jobs"  # as revision 0003 made it
QUEUE: Final = "drsai"
CARE: Final = "drsai_care"
"""The queue of sweeps and the like, which a worker that has no room for runs does, too."""
CONTROLS: Final = "drsai_controls"  # a channel of LISTEN and NOTIFY
_PRUNE: Final = "17 3 * * *"
_TIDY_EVERY: Final = 60  # seconds; every minute begins with a sweep
_SWEEP_IS_LATE: Final = 60.0
_STALLED: Final = 30.0  # seconds without a heartbeat of a job worker, which comes every 10
_POOL_SIZE: Final = 2
_PATIENCE: Final = 4.0
_RETRY: Final = 1.0
# procrastinate's own would raise an error in the database for a thread that has a job already.
_PUT: Final = """
INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args)
SELECT %(queue)s, %(task)s, 'thread:' || key, jsonb_build_object('thread_key', key)
FROM unnest(%(keys)s::bigint[]) WITH ORDINALITY AS given (key, place) ORDER BY place
ON CONFLICT DO NOTHING"""


class JobQueue:
    """Puts in jobs and does those that it gets. One per process; any number of processes share the work.

    A database that goes away is waited for.

    Args:
        database_url: of PostgreSQL.
        engine: not closed by the queue.
        concurrency: how many threads are looked at at the same time.
        sweep_seconds: between two sweeps of all processes together; rounded down to whole seconds, 30 at most. A dead
            process's run is found when its lease is over, this time has passed and half a second.
    """

    def __init__(self, database_url: str, engine: Engine, *, concurrency: int = 10, sweep_seconds: float = 3.0) -> None:
        self._engine = engine
        self._app = procrastinate.App(
            connector=_Connector(
                controls=engine.controls_changed,
                pool_factory=_Pool,
                min_size=1,
                max_size=_POOL_SIZE,
                timeout=_PATIENCE,
                configure=_configure,
                # Of releases whose workers announce no teams it is "drsai jobs".
                kwargs=connect_args(parse_url(database_url), "drsai queue"),
            ),
            # A night's job that no process was there for is done when one starts.
            periodic_defaults={"max_delay": 24 * 3600},
            worker_defaults={
                "queues": [QUEUE, CARE],
                "concurrency": concurrency,
                "delete_jobs": "always",
                "install_signal_handlers": False,
                "shutdown_graceful_timeout": _PATIENCE,
                "stalled_worker_timeout": _STALLED,
                "worker_middleware": [_retrieve],
            },
        )
        self._looks = 0
        self._app.job_manager = _Jobs(self._app.connector, engine, lambda: engine.is_full(self._looks))
        self._look_at = self._app.task(name="look_at", queue=QUEUE)(self._look)
        # Before the looks that it asks for. Without a queueing lock: where one waits, the next would be an error.
        sweep = self._app.task(name="sweep", queue=CARE, priority=1)(self._sweep)
        self._app.periodic(cron=f"* * * * * */{max(1, min(30, int(sweep_seconds)))}")(sweep)
        prune = self._app.task(name="prune", queue=CARE, queueing_lock="prune")(self._prune)
        self._app.periodic(cron=_PRUNE)(prune)
        self._opened = asyncio.Event()
        self._sweep_seconds = sweep_seconds
        self._swept = -sweep_seconds
        self._draining = False
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to do jobs. Returns as well when the database cannot be reached yet."""
        self._task = asyncio.create_task(self._work(), name="drsai jobs")
        await self._opened.wait()

    async def drain(self) -> None:
        """Take no more jobs, and give those under way a few seconds. `wake` and `tell` still reach the others."""
        self._draining = True
        # Of a worker that begins just now, psycopg may take the cancellation for its own.
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_PATIENCE + _RETRY)

    async def close(self) -> None:
        """`drain`, and give the connections back."""
        await self.drain()
        await self._app.close_async()

    async def wake(self, thread_key: int) -> bool:
        """Have some process look at a thread soon. Never raises. False: it cannot be said now, so only a sweep finds
        the thread, unless the caller looks itself."""
        try:
            await self._put([thread_key])
        except ProcrastinateException as error:
            log.warning("no job for thread %d, which waits for a sweep: %s", thread_key, _reason(error))
            return False
        return True

    async def _put(self, thread_keys: list[int]) -> None:
        """Put in a job for each thread that has none waiting, in this order."""
        await self._app.connector.execute_query_async(_PUT, queue=QUEUE, task=self._look_at.name, keys=thread_keys)

    async def tell(self, thread_key: int) -> None:
        """Have all processes learn that a thread's control has changed. Never raises: heartbeats find out as well."""
        try:
            await self._app.connector.execute_query_async(
                "SELECT pg_notify(%(channel)s, %(payload)s)", channel=CONTROLS, payload=str(thread_key)
            )
        except ProcrastinateException as error:
            log.warning("nobody told of thread %d's control: %s", thread_key, _reason(error))

    async def _work(self) -> None:
        """procrastinate's worker ends when the database does not answer; so it is started again and again."""
        while not self._draining:
            try:
                await self._app.open_async()
                self._opened.set()
                await self._app.run_worker_async()
            except Exception as error:  # noqa: BLE001  # whatever it is, without jobs runs would be left lying
                log.warning("the job queue is interrupted: %s", _reason(error))
            self._opened.set()
            if not self._draining:
                await self._app.close_async()
                await asyncio.sleep(_RETRY)

    # --- the tasks ----------------------------------------------------------------------------------------------

    async def _look(self, thread_key: int) -> None:
        self._looks += 1
        try:
            with _logged(f"look at thread {thread_key}"):
                await self._engine.look_at(thread_key)
        finally:
            self._looks -= 1

    async def _sweep(self, timestamp: int) -> None:
        # Of a process that slept: it asks for all the ticks that it has missed.
        late = time.time() - timestamp > _SWEEP_IS_LATE
        if late or time.monotonic() - self._swept < self._sweep_seconds / 2:
            return
        self._swept = time.monotonic()
        with _logged("sweep"):
            await self._put(await self._engine.sweep())
            if timestamp % _TIDY_EVERY == 0:
                await self._tidy()

    async def _prune(self, timestamp: int) -> None:
        with _logged("retention"):
            await self._engine.prune()

    async def _tidy(self) -> None:
        """Delete what dead processes left: their jobs, which held nobody up, and their entries as workers."""
        manager = self._app.job_manager
        for job in await manager.get_stalled_jobs(seconds_since_heartbeat=_STALLED):
            assert job.id is not None
            await manager.finish_job_by_id_async(job.id, Status.FAILED, delete_job=True)
        await manager.prune_stalled_workers(_STALLED)


class _Jobs(JobManager):
    """procrastinate's, which gives no job to a worker that is switched off, nor has it ask for sweeps, and no look to
    one that is full: it would look at nothing, and a thread would wait for the next sweep, or for several."""

    def __init__(self, connector: BaseConnector, engine: Engine, is_full: Callable[[], bool]) -> None:
        super().__init__(connector)
        self._engine = engine
        self._is_full = is_full

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        if self._engine.drained:
            return None
        return await super().fetch_job([CARE] if self._is_full() else queues, worker_id)

    async def defer_periodic_job(self, job: Job, periodic_id: str, defer_timestamp: int) -> int | None:
        # Where all are switched off, sweeps would pile up, to be done in vain before what waits.
        if self._engine.drained and job.queueing_lock is None:
            return None
        return await super().defer_periodic_job(job, periodic_id, defer_timestamp)


class _Connector(procrastinate.PsycopgConnector):
    """procrastinate's, whose listening connection hears of controls as well."""

    def __init__(self, *, controls: Callable[[int], Awaitable[None]], **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._controls = controls

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        async def heard(*, channel: str, payload: str) -> None:
            if channel != CONTROLS:
                await on_notification(channel=channel, payload=payload)
                return
            with _logged("controls"):
                await self._controls(int(payload))

        await super().listen_notify(on_notification=heard, channels=[*channels, CONTROLS])


class _Pool(AsyncConnectionPool):
    """A pool that waits at its start as long as it takes to try each of the hosts.

    procrastinate waits with the default, 30 s, in which psycopg doubles the time between its attempts.
    """

    async def open(self, wait: bool = False, timeout: float = 0) -> None:
        args: Any = self.kwargs
        hosts = str(args.get("host")).count(",") + 1
        await super().open(wait=wait, timeout=hosts * float(args["connect_timeout"]) + _RETRY)


async def _configure(connection: AsyncConnection[object]) -> None:
    await connection.set_autocommit(True)  # procrastinate's operations are a statement each
    await connection.execute(f"SET search_path TO {SCHEMA}")


async def _retrieve(call: Callable[[], Awaitable[object]], context: JobContext, worker: object) -> object:
    """Take the error of each job from its task: when its end cannot be stored, nobody asks for it."""
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await call()


@contextlib.contextmanager
def _logged(what: str) -> Generator[None]:
    try:
        yield
    except DrSaiError as error:
        log.warning("%s: %s", what, error.message)
    except ConnectorException as error:
        log.warning("%s: the database cannot be used: %s", what, _reason(error))
    except Exception:
        log.exception("%s failed", what)


def _reason(error: BaseException) -> str:
    return type(error.__cause__ or error).__name__
