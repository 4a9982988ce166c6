"""Lists of what is stored: their pages are read until the limit, and printed for people or as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from drsai_backend.cli.screen import in_line, make_console, print_json

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

T = TypeVar("T", bound="BaseModel")
T_co = TypeVar("T_co", bound="BaseModel", covariant=True)


class Page(Protocol[T_co]):
    """Some of a list, and where it continues."""

    @property
    def items(self) -> Sequence[T_co]: ...
    @property
    def next(self) -> str | None: ...


class Listed(NamedTuple, Generic[T]):
    """The beginning of a list, or all of it.

    Attributes:
        items: in order.
        next: the place after them; None: there are no more.
    """

    items: Sequence[T]
    next: str | None

    @property
    def more(self) -> str:
        """Say which option shows the rest."""
        return "" if self.next is None else f"There are more: --after {in_line(self.next)}"


def read(
    page: Callable[[str | None, int], Page[T]], after: str | None, limit: float = math.inf, many: int = 500
) -> Listed[T]:
    """Read pages of a list until it ends, or `limit` items are there.

    Args:
        page: reads one, by the place after which it begins and how many items it may have.
        after: the place after which the first one begins.
        limit: how many items are wanted.
        many: how many a page may have.
    """
    found: list[T] = []
    while len(found) < limit:
        part = page(after, int(min(limit - len(found), many)))
        found += part.items
        after = part.next
        if after is None:
            break
    return Listed(found, after)


def show(
    items: Sequence[T], line: Callable[[Console, T], object], *, as_json: bool, empty: str = "", more: str = ""
) -> None:
    """Print items as JSON, or each by `line`.

    Args:
        items: what is printed.
        line: prints one of them.
        as_json: print all of them as one JSON array, and nothing else.
        empty: what to say when there are none.
        more: what to say at the end.
    """
    if as_json:
        print_json([item.model_dump(mode="json") for item in items])
        return
    console = make_console()
    if empty and not items:
        console.print(empty, soft_wrap=True)
    for item in items:
        line(console, item)
    if more:
        console.print(f"[dim]{more}[/]", soft_wrap=True)
