"""A child is a sandbox's process as it is seen from outside: what it says, what it uses, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import stat
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Final, TypeVar

import psutil

from drsai_backend.tools.code import tree
from drsai_backend.tools.code.base import CodeFile, CodeLimits, CodeResult

T = TypeVar("T")

log = logging.getLogger("drsai.tools.code")

_CHUNK: Final = 65_536
_FLOOD: Final = 200
"""So many times the output that is kept may be written before the run is stopped."""
_SOCKET_BYTES: Final = 512 << 10
"""The most that one of them has in its buffers, both ways, by the usual settings of Linux."""
_LOOK_SECONDS: Final = 0.1
_END_SECONDS: Final = 10.0
_PARENT_SECONDS: Final = 2.0


class Printed:
    """The first bytes of a stream."""

    def __init__(self, most: int) -> None:
        self._kept, self._most, self.total = bytearray(), most, 0

    async def read(self, stream: asyncio.StreamReader, flooded: asyncio.Event) -> None:
        """Read to the end, keep the beginning, and tell when it is far too much."""
        while chunk := await stream.read(_CHUNK):
            self._kept += chunk[: self._most - len(self._kept)]
            self.total += len(chunk)
            if self.total > _FLOOD * self._most:
                flooded.set()

    def text(self) -> str:
        """Return what was kept, as text."""
        return self._kept.decode("utf-8", "replace")

    def note(self, name: str) -> str:
        """A sentence where something was left out."""
        return f"{name} was cut: {self._most} of {self.total} bytes." if self.total > self._most else ""


def memory_of(processes: Sequence[psutil.Process], enough: int) -> int:
    """Bytes of memory of processes together. What they share is counted once where it matters: above `enough`."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            total += process.memory_info().rss
    if total <= enough:
        return total
    exact = 0
    for process in processes:
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            exact += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
        except (OSError, ValueError):
            with contextlib.suppress(psutil.Error):
                exact += process.memory_info().rss
    return exact


def socket_bytes(processes: Sequence[psutil.Process]) -> int:
    """Memory of the kernel that the local sockets of processes may have, which no other look finds."""
    sockets = set[int]()
    for process in processes:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{process.pid}/fd"):
                with contextlib.suppress(OSError):
                    seen = os.stat(entry.path)
                    if stat.S_ISSOCK(seen.st_mode):
                        sockets.add(seen.st_ino)
    return len(sockets) * _SOCKET_BYTES


def entries_in_memory(pid: int) -> int:
    """Files and folders in the sandbox's folders in memory: those without content take room that is not theirs."""
    count = 0
    for folder in ("/tmp", "/dev/shm"):
        with contextlib.suppress(OSError):
            found = os.statvfs(f"/proc/{pid}/root{folder}")
            count += found.f_files - found.f_ffree
    return count


def family(pid: int) -> list[psutil.Process]:
    """A process and all that come from it."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def excess(pid: int, folder: str, limits: CodeLimits) -> str:
    """Return which limit the processes are above, as a sentence; "": none. The folder has its own bound of bytes."""
    processes = family(pid)
    sockets = socket_bytes(processes)
    if memory_of(processes, limits.memory - sockets) + sockets > limits.memory:
        return f"It was stopped, as it used more than {limits.memory >> 20} MiB of memory."
    if entries_in_memory(pid) > limits.files:
        return f"It was stopped. /tmp and /dev/shm may have {limits.files} files and folders."
    return excess_of_folder(folder, limits)


def excess_of_folder(folder: str | Path, limits: CodeLimits) -> str:
    """Return which limit a sandbox's folder is above, as `excess` does."""
    above = tree.measure(folder, limits.files).excess(limits)
    return f"It was stopped. {above}" if above else ""


class Child:
    """A process that has started a sandbox, and what is in there.

    Args:
        process: with pipes for what it prints, the leader of a session.
        limits: of the run.
        remove: ends what is not among its children; called after its end.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        limits: CodeLimits,
        remove: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.process, self.limits = process, limits
        self._remove = remove
        self.first: int | None = None
        """A handle (pidfd) of the sandbox's first process, with which all in it end; None: it is not known."""
        self.out, self.err = Printed(limits.output), Printed(limits.output)
        self.stopped = ""
        self._flooded = asyncio.Event()
        self._reading = [
            asyncio.create_task(printed.read(stream, self._flooded))
            for printed, stream in ((self.out, process.stdout), (self.err, process.stderr))
            if stream is not None
        ]

    async def watch(self, look: Callable[[], str] | None) -> None:
        """Wait for its end, or for the first limit that it is above, which `stopped` names then. Nothing of it is alive
        afterwards, also when this is cancelled.

        Args:
            look: names a limit that it is above; called in a thread, again and again.
        """
        ended = asyncio.create_task(_ended(self.process))
        others: list[asyncio.Task[object]] = [asyncio.create_task(self._flooded.wait())]
        if look is not None:
            others.append(asyncio.create_task(self._look(look)))
        try:
            await asyncio.wait([ended, *others], timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done() and not self.stopped:
                self.stopped = f"It was stopped after {self.limits.seconds:g} seconds."
                if self._flooded.is_set():
                    self.stopped = f"It was stopped, as it printed more than {_FLOOD * self.limits.output} bytes."
        finally:
            for task in (ended, *others):
                task.cancel()
            await self.end()
            await asyncio.gather(ended, *others, return_exceptions=True)

    def result(self, files: Sequence[CodeFile], notes: Sequence[str], killed: str) -> CodeResult:
        """Return what came of it, with the files and notes of its folder. `killed`: what its exit code says of its
        end."""
        stopped = self.stopped or killed
        notes = (*notes, self.out.note("stdout"), self.err.note("stderr"))
        return CodeResult(
            stdout=self.out.text(),
            stderr=self.err.text(),
            exit_code=None if self.stopped else self.process.returncode,
            stopped=stopped,
            files=tuple(files),
            notes=tuple(note for note in notes if note),
        )

    async def end(self) -> None:
        """Kill it with all that is in the sandbox, and wait for their end, also when this is cancelled."""
        await through(self._end())

    async def _end(self) -> None:
        if self.first is None:
            self._kill()
        else:
            # Its parent, which we have started, sees its end and ends too.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.first, signal.SIGKILL)
        try:
            async with asyncio.timeout(_PARENT_SECONDS):
                await _ended(self.process)
        except TimeoutError:
            self._kill()
            await _ended(self.process)
        if self.first is not None:
            if not await _gone(self.first):
                log.error("a sandbox did not end within %g seconds", _END_SECONDS)
            _bury(self.first)
        if self._remove is not None:
            await self._remove()
        await asyncio.wait(self._reading, timeout=_END_SECONDS)
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    def _kill(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def _look(self, look: Callable[[], str]) -> None:
        while not self.stopped:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                self.stopped = await asyncio.to_thread(look)
            except OSError as error:
                log.warning("what a sandbox uses cannot be measured", exc_info=error)
                self.stopped = "It was stopped, as the server could not measure what it used."


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a process. Its own `wait` waits for its pipes too, in some releases of Python."""
    pause = 0.001
    while process.returncode is None:
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.005)


def _bury(handle: int) -> None:
    """Take note of an end that is told to this process where it is the machine's first one."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG)


async def through(work: Coroutine[object, object, T]) -> T:
    """Wait for the end of work, however this task is cancelled meanwhile, and be cancelled then."""
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return task.result()


async def _gone(handle: int) -> bool:
    """Wait for the end of a process by its pidfd. Returns whether it came."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        async with asyncio.timeout(_END_SECONDS):
            await ended.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
    return True
