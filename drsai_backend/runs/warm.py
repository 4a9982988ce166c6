"""States of threads that stay in the process after a run, so that the next one need not load them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.teams.recording.recorder import WarmState

ThreadId = tuple[str, str]

_THREAD = 1_500
"""Bytes of a thread besides the state of its team."""


@dataclass(slots=True)
class WarmThread:
    """What the last run on a thread left behind. It is believed only if the stored row still is `head`.

    `user_texts` are the newest texts of the user, oldest first; `system_text` the last system text taken.
    """

    head: ThreadHead
    state: WarmState | None
    user_texts: list[str]
    system_text: str | None

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _THREAD + (0 if self.state is None else self.state.size)


class WarmThreads:
    """The warm threads of a process, least recently used first to go.

    Args:
        max_threads: how many are kept; 0 keeps none.
        max_bytes: bound of their estimated size, all together.
    """

    def __init__(self, max_threads: int, max_bytes: int) -> None:
        self._max_threads = max_threads
        self._max_bytes = max_bytes
        self._threads: OrderedDict[ThreadId, WarmThread] = OrderedDict()
        self._bytes = 0

    def take(self, name: ThreadId) -> WarmThread | None:
        """The warm thread of that `(user_id, thread_id)`, which is then the caller's alone."""
        thread = self._threads.pop(name, None)
        if thread is not None:
            self._bytes -= thread.size
        return thread

    def put(self, name: ThreadId, thread: WarmThread) -> None:
        self.take(name)
        if thread.size > self._max_bytes:
            return
        self._threads[name] = thread
        self._bytes += thread.size
        while len(self._threads) > self._max_threads or self._bytes > self._max_bytes:
            _, old = self._threads.popitem(last=False)
            self._bytes -= old.size

    def clear(self) -> None:
        self._threads.clear()
        self._bytes = 0
