"""`DrSai.sync`: the same calls without asyncio, for scripts, notebooks and threads.

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
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from datetime import timedelta
from typing import Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from drsai_backend.database import SyncDatabaseManager
from drsai_backend.database.files import FileInfo, Place
from drsai_backend.datamodel.owner import Owner
from drsai_backend.drsai import DrSai
from drsai_backend.errors import ConfigurationError, NotOpened
from drsai_backend.features.registered_tools.calls import ToolCalls
from drsai_backend.features.stored_definitions.calls import AgentCalls
from drsai_backend.files import Files
from drsai_backend.runs import Handle, MessageDone, RunEnded, RunEvent

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

_PATIENCE: Final = 10.0
"""Seconds for what was interrupted to end: a run is stopped, which takes a write."""


def _waits(method: Callable[Concatenate[DrSai, P], Awaitable[T]]) -> Callable[Concatenate[SyncDrSai, P], T]:
    @functools.wraps(method)
    def call(self: SyncDrSai, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.wait_for(lambda: method(self.drsai, *args, **kwargs))

    return call


def _iterates(
    method: Callable[Concatenate[DrSai, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncDrSai, P], Iterator[T]]:
    @functools.wraps(method)
    def call(self: SyncDrSai, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.iterate(lambda: method(self.drsai, *args, **kwargs))

    return call


def _starts(
    method: Callable[Concatenate[DrSai, P], Awaitable[Handle]],
) -> Callable[Concatenate[SyncDrSai, P], SyncHandle]:
    @functools.wraps(method)
    def call(self: SyncDrSai, *args: P.args, **kwargs: P.kwargs) -> SyncHandle:
        return SyncHandle(self, self.wait_for(lambda: method(self.drsai, *args, **kwargs)))

    return call


class SyncHandle:
    """A run that was started, as `DrSai.start` returns it, for threads. `run_id`, `name`, `thread_id`, `user_id`,
    `team`, `created` and `speakers` are those of the `Handle`."""

    def __init__(self, sync: SyncDrSai, handle: Handle) -> None:
        self._sync = sync
        self._handle = handle
        self.run_id = handle.run_id
        self.name = handle.name
        self.thread_id = handle.thread_id
        self.user_id = handle.user_id
        self.team = handle.team
        self.created = handle.created
        self.speakers = handle.speakers

    def events(self) -> Iterator[RunEvent]:
        """Every event of the run from its beginning; ends after `RunEnded`."""
        return self._sync.iterate(self._handle.events)

    def wait(self) -> RunEnded:
        """The end of the run."""
        return self._sync.wait_for(self._handle.wait)

    def poll(self) -> list[RunEvent]:
        """The events that are ready now, after those that `events()` has yielded; they are not yielded again."""
        return self._sync.wait_for(self._poll)

    async def _poll(self) -> list[RunEvent]:
        return list(self._handle.poll())

    def transcript(self) -> list[MessageDone]:
        """The stored messages of the run that were read so far, in order, its input included."""
        return list(self._handle.transcript())

    @property
    def ignored(self) -> Sequence[str]:
        """Fields of the request that nobody of the team takes: parameters, and `tools`, the client's."""
        return self._handle.ignored

    @property
    def imported(self) -> bool:
        """Whether the request's history was imported, though there are conversations that look like it."""
        return self._handle.imported

    @property
    def failure(self) -> BaseException | None:
        """What was raised in this process when the run ended as ERROR."""
        return self._handle.failure

    @property
    def failed_agent(self) -> str | None:
        """The agent whose turn failed, when the run ended as ERROR in this process."""
        return self._handle.failed_agent


class _Part(Generic[S]):
    def __init__(self, sync: SyncDrSai, inner: S) -> None:
        self.sync = sync
        self.inner = inner


def _asks(method: Callable[Concatenate[S, P], Awaitable[T]]) -> Callable[Concatenate[_Part[S], P], T]:
    @functools.wraps(method)
    def call(self: _Part[S], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.sync.wait_for(lambda: method(self.inner, *args, **kwargs))

    return call


class SyncFiles(_Part[Files]):
    """`DrSai.files` for threads."""

    list = _asks(Files.list)
    get = _asks(Files.get)
    open = _asks(Files.open)
    read = _asks(Files.read)
    delete = _asks(Files.delete)

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
        create = functools.partial(self.inner.create, owner, name, given, purpose=purpose)
        return self.sync.wait_for(lambda: create(media_type=media_type, expires_after=expires_after))

    def stream(self, place: Place, start: int, stop: int) -> Iterator[bytes]:
        """The bytes of a file, in parts, as `Files.stream` gives them."""
        return self.sync.iterate(lambda: self.inner.stream(place, start, stop))


class SyncTools(_Part[ToolCalls]):
    """`DrSai.tools` for threads."""

    list = _asks(ToolCalls.list)
    get = _asks(ToolCalls.get)
    put = _asks(ToolCalls.put)
    delete = _asks(ToolCalls.delete)
    invoke = _asks(ToolCalls.invoke)
    statistics = _asks(ToolCalls.statistics)


class SyncAgents(_Part[AgentCalls]):
    """`DrSai.agents` for threads."""

    list = _asks(AgentCalls.list)
    get = _asks(AgentCalls.get)
    put = _asks(AgentCalls.put)
    delete = _asks(AgentCalls.delete)
    versions = _asks(AgentCalls.versions)
    roll_back = _asks(AgentCalls.roll_back)


class SyncDrSai:
    """The calls of a `DrSai` for programs without asyncio, from any thread. Use it as `with drsai.sync as sync`.

    A call that is interrupted (KeyboardInterrupt) stops its run, as cancelling the asynchronous one does. Calls from
    inside another event loop (Jupyter) block that one, and work.

    Attributes:
        files: `DrSai.files`, with the same calls.
        tools: `DrSai.tools`, with the same calls.
        agents: `DrSai.agents`, with the same calls.

    Raises (all calls):
        NotOpened: it is not open, or was closed while the call waited. What is stored stays, and runs are resumed by
            the next process.
        ConfigurationError: it was called from inside the event loop that it would have to wait for.
    """

    def __init__(self, drsai: DrSai) -> None:
        self.drsai = drsai
        self._thread: threading.Thread | None = None

        self.files = SyncFiles(self, drsai.files)
        self.tools = SyncTools(self, drsai.tools)
        self.agents = SyncAgents(self, drsai.agents)

    @property
    def db(self) -> SyncDatabaseManager:
        """The database: rows of all tables."""
        return self.drsai.db.sync

    run = _waits(DrSai.run)
    run_stream = _iterates(DrSai.run_stream)
    start = _starts(DrSai.start)
    answer = _starts(DrSai.answer)
    stop = _waits(DrSai.stop)
    pause = _waits(DrSai.pause)
    resume = _waits(DrSai.resume)
    retry = _waits(DrSai.retry)
    input_requests = _waits(DrSai.input_requests)
    cancel_run = _waits(DrSai.cancel_run)
    get_run = _waits(DrSai.get_run)
    list_runs = _waits(DrSai.list_runs)
    get_thread = _waits(DrSai.get_thread)
    list_threads = _waits(DrSai.list_threads)
    list_messages = _waits(DrSai.list_messages)
    steps = _waits(DrSai.steps)
    turns = _waits(DrSai.turns)
    branches = _waits(DrSai.branches)
    fork = _waits(DrSai.fork)
    rewind = _waits(DrSai.rewind)
    load_history = _waits(DrSai.load_history)
    clear_history = _waits(DrSai.clear_history)
    delete_thread = _waits(DrSai.delete_thread)
    share_thread = _waits(DrSai.share_thread)
    unshare_thread = _waits(DrSai.unshare_thread)
    list_shares = _waits(DrSai.list_shares)
    list_shared_threads = _waits(DrSai.list_shared_threads)
    drain = _waits(DrSai.drain)

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
        """What an asynchronous iterator gives. Leaving early closes it."""
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
        with contextlib.suppress(RuntimeError):  # there is none
            if asyncio.get_running_loop() is loop:
                raise ConfigurationError("this is the event loop of the DrSai: `await` its own calls, without `sync`")
        over = threading.Event()
        begun: list[asyncio.Task[T]] = []

        async def work() -> T:
            task = asyncio.current_task()
            assert task is not None
            begun.append(task)
            try:
                return await call()
            finally:
                over.set()

        def give_up() -> None:
            if begun:
                begun[0].cancel()
            else:
                loop.call_soon(never)  # A task begins one round after it was made.

        def never() -> None:
            if begun:
                begun[0].cancel()
            else:
                working.close()
                over.set()

        working = work()
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
                    loop.call_soon_threadsafe(give_up)
                    over.wait(_PATIENCE)
            raise


def _run_loop(running: Future[asyncio.AbstractEventLoop]) -> None:
    """Turn an event loop until it is stopped. Tasks that are left are cancelled: other threads wait for them."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        running.set_result(loop)
        loop.run_forever()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
