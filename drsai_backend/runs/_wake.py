"""How one process has another look at a thread."""

from __future__ import annotations

from typing import Protocol


class Waker(Protocol):
    """Has some worker look at a thread soon. It only wakes: what there is to do, the thread's rows say."""

    async def wake(self, thread_key: int) -> None:
        """Have `Engine.look_at(thread_key)` called somewhere. May be lost: whoever sweeps finds the thread as well."""
        ...

    async def tell(self, thread_key: int) -> None:
        """Have `Engine.controls_changed(thread_key)` called in the process that runs the thread. May be lost: the next
        heartbeat there finds it out as well."""
        ...
