"""Async methods of an object that a test intercepts: held back, slowed, failing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from drsai_backend.errors import DatabaseUnavailable


class Intercepted:
    """Takes the method's place; `call` is the method itself."""

    def __init__(self, thing: Any, name: str) -> None:
        self.call = getattr(thing, name)
        setattr(thing, name, self)


class Gate(Intercepted):
    """Holds calls back until it is opened."""

    def __init__(self, thing: Any, name: str) -> None:
        super().__init__(thing, name)
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.reached.set()
        await self.opened.wait()
        return await self.call(*args, **kwargs)


class Slow(Intercepted):
    """Keeps callers waiting after their call was done: for a write, after it was committed."""

    def __init__(self, thing: Any, name: str) -> None:
        super().__init__(thing, name)
        self.done = asyncio.Event()

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = await self.call(*args, **kwargs)
        self.done.set()
        await asyncio.sleep(0.2)
        return result


class Outage(Intercepted):
    """Makes the next calls fail, one for each entry of `fail`: "before" they are done, or "after"."""

    def __init__(self, thing: Any, name: str, fail: Sequence[str]) -> None:
        super().__init__(thing, name)
        self.fail = list(fail)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind = self.fail.pop(0) if self.fail else "works"
        result = None if kind == "before" else await self.call(*args, **kwargs)
        if kind != "works":
            raise DatabaseUnavailable("away")
        return result
