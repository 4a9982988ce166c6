"""The synchronous form, `DrSai.sync`, has the same calls without asyncio, for scripts, notebooks and threads.

::

    with DrSai(teams).sync as drsai:
        print(drsai.run("writers", "Write about rain.").text)

Each call runs its asynchronous namesake in an event loop and waits for it: in a thread of its own that `with` starts,
or, where the `DrSai` was opened with `async with`, in the event loop of that, which must not be the caller's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from datetime import timedelta
from types import FunctionType, MethodType
from typing import Any, Final, Self, TypeVar, cast

from drsai_backend.caller import Caller
from drsai_backend.database import SyncDatabaseManager
from drsai_backend.database.files import FileInfo
from drsai_backend.datamodel.owner import Owner
from drsai_backend.drsai import DrSai
from drsai_backend.errors import ConfigurationError, NotOpened
from drsai_backend.features.all_runs.all_runs import AllRuns
from drsai_backend.features.budgets.rules import Rules as BudgetRules
from drsai_backend.features.config.extension import Config
from drsai_backend.features.limits.rules import Rules
from drsai_backend.features.registered_tools.calls import ToolCalls
from drsai_backend.features.stored_definitions.calls import AgentCalls
from drsai_backend.features.switches.extension import Switches
from drsai_backend.features.usage.reports import Reports
from drsai_backend.files import Files
from drsai_backend.runs import Handle, MessageDone, RunEvent

T = TypeVar("T")

_PATIENCE: Final = 10.0
"""Seconds for what was interrupted to end: a run is stopped, which takes a write."""
_CALLS: Final = (FunctionType, MethodType, functools.partial)


class _Twin:
    """What has the calls of something else, without asyncio: those of coroutines wait, those of streams iterate, and
    what has such calls itself is a twin. `sync.pyi`, which is made by `make stub`, says so to editors."""

    _inner: Any
    _sync: SyncDrSai

    def __init__(self, inner: object, sync: SyncDrSai) -> None:
        self._inner = inner
        self._sync = sync

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found: object = getattr(self._inner, name)
        if not isinstance(found, _CALLS):
            return self._twin(found)
        function = cast("Callable[..., object]", found)

        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> object:
            made = function(*args, **kwargs)
            if inspect.isasyncgen(made):
                return self._sync.iterate(lambda: made)
            if not inspect.iscoroutine(made):
                return self._twin(made)
            try:
                return self._twin(self._sync.wait_for(lambda: made))
            finally:
                if inspect.getcoroutinestate(made) == inspect.CORO_CREATED:
                    made.close()  # It could not be begun.

        return call

    def __dir__(self) -> Iterable[str]:
        return {*super().__dir__(), *dir(self._inner)}

    def _twin(self, value: object) -> object:
        twin = next((twin for kind, twin in _TWINS.items() if isinstance(value, kind)), None)
        return value if twin is None else twin(value, self._sync)


class SyncCaller(_Twin):
    """The calls of a `Caller`, for threads."""


class SyncHandle(_Twin):
    """A run that was started, as `DrSai.start` returns it, for threads. What it has besides calls is that of the
    `Handle`."""

    def poll(self) -> list[RunEvent]:
        """The events that are ready now, after those that `events()` has yielded; they are not yielded again."""

        async def poll() -> list[RunEvent]:
            return [*self._inner.poll()]

        return self._sync.wait_for(poll)

    def transcript(self) -> list[MessageDone]:
        """The stored messages of the run that were read so far, in order, its input included."""
        return [*self._inner.transcript()]


class SyncFiles(_Twin):
    """`DrSai.files` for threads."""

    def create(
        self,
        owner: Owner,
        name: str,
        data: bytes | Iterable[bytes],
        *,
        purpose: str = "user_data",
        media_type: str | None = None,
        expires_after: timedelta | None = None,
    ) -> FileInfo:
        """Keep a file, as `Files.create` does. `data` in parts is read in a thread, a part at a time."""

        async def parts(iterator: Iterator[bytes]) -> AsyncGenerator[bytes]:
            while (part := await asyncio.to_thread(next, iterator, None)) is not None:
                yield part

        given = data if isinstance(data, bytes) else parts(iter(data))
        create = functools.partial(self._inner.create, owner, name, given, purpose=purpose)
        return self._sync.wait_for(lambda: create(media_type=media_type, expires_after=expires_after))


class SyncTools(_Twin):
    """`DrSai.tools` for threads."""


class SyncAgents(_Twin):
    """`DrSai.agents` for threads."""


class SyncUsage(_Twin):
    """`DrSai.usage` for threads."""


class SyncBudgets(_Twin):
    """`DrSai.budgets` for threads."""


class SyncLimits(_Twin):
    """`DrSai.limits` for threads."""


class SyncAllRuns(_Twin):
    """`DrSai.all_runs` for threads."""


class SyncSwitches(_Twin):
    """`DrSai.switches` for threads."""


class SyncConfig(_Twin):
    """`DrSai.config` for threads."""


class SyncDrSai(SyncCaller):
    """The calls of a `DrSai` for programs without asyncio, from any thread. Use it as `with drsai.sync as sync`.

    A call that is interrupted (KeyboardInterrupt) stops its run, as cancelling the asynchronous one does. Calls from
    inside another event loop (Jupyter) block that one, and work.

    Raises (all calls):
        NotOpened: it is not open, or was closed while the call waited. What is stored stays, and runs are resumed by
            the next process.
        ConfigurationError: it was called from inside the event loop that it would have to wait for.
    """

    def __init__(self, drsai: DrSai) -> None:
        super().__init__(drsai, self)
        self.drsai = drsai
        self._thread: threading.Thread | None = None

    @property
    def db(self) -> SyncDatabaseManager:
        """The database: rows of all tables."""
        return self.drsai.db.sync

    def open(self) -> None:
        """Start the thread, and open the `DrSai` in it. Raises as `DrSai.open`."""
        running: Future[asyncio.AbstractEventLoop] = Future()
        thread = threading.Thread(target=_run_loop, args=[running], name="drsai", daemon=True)
        thread.start()
        try:
            self._wait(running.result(), self.drsai.open)
        except BaseException:
            _end(running.result(), thread)
            raise
        self._thread = thread

    def close(self) -> None:
        """Close the `DrSai`, and end the thread. Once more, it does nothing. Raises as `DrSai.close`."""
        thread, self._thread = self._thread, None
        loop = self.drsai.engine.lifecycle.loop
        if thread is not None and loop is not None:
            try:
                self._wait(loop, self.drsai.close)
            finally:
                _end(loop, thread)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run something in the event loop of the `DrSai`, and wait for what it returns."""
        loop = self.drsai.engine.lifecycle.loop
        if loop is None:
            raise NotOpened("this DrSai is not open: write `with DrSai(...).sync as drsai:` around what uses it")
        return self._wait(loop, call)

    def iterate(self, call: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yield what an asynchronous iterator gives. Leaving early closes it."""
        iterator: AsyncIterator[T] | None = None

        async def following() -> list[T]:
            nonlocal iterator
            iterator = iterator or call()
            async for item in iterator:
                return [item]
            return []

        async def closing() -> None:
            if isinstance(iterator, AsyncGenerator):
                await iterator.aclose()

        try:
            while found := self.wait_for(following):
                yield found[0]
        finally:
            if iterator is not None:
                self.wait_for(closing)

    def _wait(self, loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[T]]) -> T:
        if _is_running(loop):
            raise ConfigurationError("this is the event loop of the DrSai: `await` its own calls, without `sync`")
        over = threading.Event()
        begun: list[asyncio.Task[T]] = []

        def give_up(*, again: bool) -> None:
            if begun:
                begun[0].cancel()
            elif again:  # A task begins one round after it was made.
                loop.call_soon(functools.partial(give_up, again=False))
            else:
                working.close()
                over.set()

        working = _told(call, begun, over)
        future: Future[T] | None = None
        try:
            future = asyncio.run_coroutine_threadsafe(working, loop)
            return future.result()
        except CancelledError:
            raise NotOpened("this DrSai was closed meanwhile") from None
        except RuntimeError:
            if future is not None:
                raise
            working.close()
            raise NotOpened("this DrSai was closed: make a new one") from None
        except BaseException:
            # This thread was interrupted, and not what it waits for; maybe while that was handed to the loop.
            if future is None or not future.done():
                with contextlib.suppress(RuntimeError):  # The loop is closed.
                    loop.call_soon_threadsafe(functools.partial(give_up, again=True))
                    over.wait(_PATIENCE)
            raise


_TWINS: Final[dict[type, Callable[[Any, SyncDrSai], _Twin]]] = {
    Caller: SyncCaller,
    Handle: SyncHandle,
    Files: SyncFiles,
    ToolCalls: SyncTools,
    AgentCalls: SyncAgents,
    Reports: SyncUsage,
    BudgetRules: SyncBudgets,
    Rules: SyncLimits,
    Switches: SyncSwitches,
    Config: SyncConfig,
    AllRuns: SyncAllRuns,
}


async def _told(call: Callable[[], Awaitable[T]], begun: list[asyncio.Task[T]], over: threading.Event) -> T:
    """Return what a call returns; the thread that waits for it is told its task, and when it is over."""
    task = asyncio.current_task()
    assert task is not None
    begun.append(task)
    try:
        return await call()
    finally:
        over.set()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it is the loop that this thread turns."""
    with contextlib.suppress(RuntimeError):  # there is none
        return asyncio.get_running_loop() is loop
    return False


def _run_loop(running: Future[asyncio.AbstractEventLoop]) -> None:
    """Turn an event loop until it is stopped. Tasks that are left are cancelled: other threads wait for them."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        running.set_result(loop)
        loop.run_forever()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
