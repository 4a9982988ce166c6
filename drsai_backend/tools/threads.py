"""The threads of sync tools are a bounded number, of which a tool that hangs takes none for ever."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from drsai_backend.errors import ToolError

T = TypeVar("T")

THREADS: Final = 32
HANGING: Final = 4
"""So many times the number of threads may hang before calls are refused."""


@dataclass(slots=True, eq=False)
class _Job:
    function: Callable[[], object]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    started: bool = False
    given_up: bool = False


class ToolThreads:
    """At most `limit` threads at work. One whose caller has stopped waiting is given up: it ends when its function
    returns, and another thread takes its place."""

    def __init__(self, limit: int = THREADS) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        # Its waiting is one lock of C: each step of Python between two threads that hand over may cost both a wait.
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._threads = self._idle = self._hanging = self._waiting = 0

    @property
    def hanging(self) -> int:
        """Threads that were given up and have not ended yet."""
        return self._hanging

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread, in the context of the caller.

        Raises:
            ToolError: too many threads hang.
        """
        if self._hanging >= HANGING * self.limit:
            raise ToolError("Too many calls of tools hang on this server: it takes no more of this kind for now.")
        loop = asyncio.get_running_loop()
        job = _Job(function, contextvars.copy_context(), loop, loop.create_future())
        with self._lock:
            self._waiting += 1
            self._staff()
        self._jobs.put(job)
        try:
            return await job.future
        finally:
            if not job.future.done() or job.future.cancelled():
                self._give_up(job)

    def _staff(self) -> None:
        if self._idle < self._waiting and self._threads < self.limit:
            self._threads += 1
            self._idle += 1
            threading.Thread(target=self._work, name="drsai-tool", daemon=True).start()

    def _give_up(self, job: _Job) -> None:
        with self._lock:
            if job.given_up:
                return
            job.given_up = True
            if job.started:
                self._threads -= 1
                self._hanging += 1
                self._staff()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            with self._lock:
                self._waiting -= 1
                if job.given_up:
                    continue
                job.started = True
                self._idle -= 1
            result: object = None
            error: BaseException | None = None
            try:
                result = job.context.run(job.function)
            except BaseException as raised:  # noqa: BLE001 - it belongs to who waits, InputRequired included.
                error = raised
            with self._lock:
                gone = job.given_up
                job.started = False
                if gone:
                    self._hanging -= 1
                else:
                    self._idle += 1
            if not gone:
                _tell(job, result, error)
            del job, result, error  # An idle thread keeps nothing alive.
            if gone:
                return


def _tell(job: _Job, result: object, error: BaseException | None) -> None:
    def tell() -> None:
        if job.future.done():
            return
        if error is None:
            job.future.set_result(result)
        elif isinstance(error, StopIteration):
            job.future.set_exception(RuntimeError("a tool raised StopIteration"))
        else:
            job.future.set_exception(error)

    try:
        job.loop.call_soon_threadsafe(tell)
    except RuntimeError:
        return  # The loop was closed: nobody waits.


_threads = ToolThreads()


def set_tool_threads(limit: int) -> None:
    """Set how many threads the sync tools of this process have, from now on."""
    _threads.limit = limit


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function in one of the threads for tools; see `ToolThreads.run`."""
    return await _threads.run(function)


async def call(function: Callable[..., Any], arguments: Mapping[str, object], *, is_async: bool) -> Any:
    """Call a function as it is, if it `is_async`, else in one of the threads for tools; and wait for what it returns,
    where that can be waited for."""
    if is_async:
        return await function(**arguments)
    value = await in_thread(partial(function, **arguments))
    return await value if inspect.isawaitable(value) else value
