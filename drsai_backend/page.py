"""A page is some of a list, and what the next one is asked with: the same wherever something is listed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import typing_extensions
from pydantic import BaseModel

from drsai_backend.errors import InvalidRequest

T = TypeVar("T")
U = TypeVar("U")
N = typing_extensions.TypeVar("N", bound=str | int, default=str)

NUMBER: Final = r"^[0-9]{1,18}$"
"""What the `next` of a page looks like where it is the number of a row."""


class Page(BaseModel, Generic[T, N], frozen=True):
    """A page of a list, `items`. `next` is the `after` of the page that follows, if any."""

    items: list[T]
    next: N | None = None

    def map(self, shown: Callable[[T], U]) -> Page[U, N]:
        """Return the page with something else in place of each item."""
        return _Page(items=[*map(shown, self.items)], next=self.next)


_Page: Final = Page[Any, Any]
"""What is made here is checked by types, and not once more when it runs."""


def cut(found: Sequence[T], limit: int, place: Callable[[T], N]) -> Page[T, N]:
    """Return the page of a list of which one more than `limit` was read, where there are so many. `place` says what the
    next page is asked with, after an item."""
    items = found[:limit]
    return _Page(items=[*items], next=place(items[-1]) if len(found) > limit else None)


async def every(read: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """Yield all items of a list. `read` reads the page after a place; None: the first one."""
    after: str | None = None
    while True:
        page = await read(after)
        for item in page.items:
            yield item
        if (after := page.next) is None:
            return


def read_cursor(pattern: str, after: str) -> re.Match[str]:
    """Return what the `next` of a page says. Raises InvalidRequest where `after` is none."""
    found = re.fullmatch(pattern, after)
    if found is None:
        raise InvalidRequest("`after` is not the `next` of an earlier page", param="after")
    return found
