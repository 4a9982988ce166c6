"""Warm states of threads stay in the process after a run, so that the next one need not load them."""

from __future__ import annotations

from dataclasses import dataclass

from cachetools import LRUCache

from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.runs.history.digest import Conversation
from drsai_backend.teams.recording.recorder import WarmState

_THREAD = 1_700
"""Bytes of a thread besides the state of its team."""


@dataclass(slots=True)
class WarmThread:
    """What the last run on a thread left behind. It is believed only if the stored row still is `head`.

    `user_texts` are the newest texts of the user, oldest first; `system_text` the last system text taken;
    `conversation` is what its client has; `hidden` are its hidden words (`runs.history.hidden`; None: not known).
    """

    head: ThreadHead
    state: WarmState | None
    user_texts: list[str]
    system_text: str | None
    conversation: Conversation | None = None
    hidden: frozenset[bytes] | None = None

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _THREAD + (0 if self.state is None else self.state.size)


class WarmThreads(LRUCache[ThreadName, WarmThread]):
    """The warm threads of a process, least recently used first to go.

    A thread that is larger than all of them may be is kept beside them, the last such one only: it was in memory a
    moment ago, and to load it for each of its runs costs more the longer it gets.

    Args:
        max_threads: how many are kept; 0 keeps none.
        max_bytes: bound of their estimated size, all together; 0 keeps none.
    """

    def __init__(self, max_threads: int, max_bytes: int) -> None:
        super().__init__(max_bytes, lambda thread: thread.size)
        self._max_threads = max_threads
        self._large: tuple[ThreadName, WarmThread] | None = None
        self._at: LRUCache[bytes, ThreadName] = LRUCache(max(1, max_threads))

    def take(self, name: ThreadName) -> WarmThread | None:
        """The warm thread of that name, which is then the caller's alone."""
        if self._large is not None and self._large[0] == name:
            (_, thread), self._large = self._large, None
            return thread
        return self.pop(name, None)

    def peek(self, name: ThreadName) -> WarmThread | None:
        """The warm thread of that name, which stays here."""
        if self._large is not None and self._large[0] == name:
            return self._large[1]
        return self.get(name)

    def at(self, point: bytes) -> WarmThread | None:
        """The one that has come last of those whose conversation is at that point; it stays here."""
        name = self._at.get(point)
        thread = None if name is None else self.peek(name)
        said = None if thread is None else thread.conversation
        return thread if said is not None and said.digest == point and not said.said and not said.answered else None

    def put(self, name: ThreadName, thread: WarmThread) -> None:
        self.take(name)
        if thread.size <= self.maxsize:
            self[name] = thread
        elif self._max_threads and self.maxsize:
            self._large = name, thread
        while len(self) > self._max_threads:
            self.popitem()
        if thread.conversation is not None:
            self._at[thread.conversation.digest] = name

    def clear(self) -> None:
        super().clear()
        self._at.clear()
        self._large = None
