"""Lists show what is stored: their pages are read until the limit, and printed for people or as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from drsai_backend.cli.screen import in_line, make_console, print_json

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    from drsai_backend.page import Page

T = TypeVar("T", bound="BaseModel")
N = TypeVar("N", str, int)


def read(
    page: Callable[[N | None, int], Page[T, N]], after: N | None, limit: float = math.inf, many: int = 500
) -> Page[T, N]:
    """Read pages of a list until it ends, or `limit` items are there: the whole is a page of so many.

    Args:
        page: reads one, by the place after which it begins and how many items it may have.
        after: the place after which the first one begins.
        limit: how many items are wanted.
        many: how many a page may have.
    """
    found: list[T] = []
    while True:
        part = page(after, int(min(limit - len(found), many)))
        found += part.items
        after = part.next
        if after is None or len(found) >= limit:
            return part.model_copy(update={"items": found})


def show(
    page: Page[T, N],
    line: Callable[[Console, T], object],
    *,
    as_json: bool,
    empty: str = "",
    more: str = "There are more: --after {}",
) -> None:
    """Print a list, or the beginning of it, as JSON or each item by `line`.

    Args:
        page: what is printed.
        line: prints one of them.
        as_json: print all of them as one JSON array, and nothing else.
        empty: what to say when there are none.
        more: which option shows the rest, where there is one.
    """
    items = page.items
    if as_json:
        print_json(items)
        return
    console = make_console()
    if empty and not items:
        console.print(empty, soft_wrap=True)
    for item in items:
        line(console, item)
    if page.next is not None:
        console.print(f"[dim]{more.format(in_line(str(page.next)))}[/]", soft_wrap=True)
