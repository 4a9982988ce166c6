"""Pages of lists: what is cut off is asked for with `next`, and all of a list is read once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from drsai_backend.errors import InvalidRequest
from drsai_backend.page import NUMBER, Page, cut, read_cursor


@given(count=st.integers(0, 30), limit=st.integers(1, 12))
def test_pages_have_all_of_a_list_once(count: int, limit: int) -> None:
    seen: list[int] = []
    after: int | None = -1
    while after is not None:
        behind = [*range(after + 1, count)]
        page = cut(behind[: limit + 1], limit, lambda item: item)
        assert page.items == behind[:limit]
        assert (page.next is None) == (len(behind) <= limit)
        seen += page.items
        after = page.next
    assert seen == [*range(count)]


def test_a_page_is_written_as_the_items_that_it_has() -> None:
    page = cut([1, 2, 3], 2, str).map(lambda number: Page(items=[number]))
    assert page.model_dump() == {
        "items": [{"items": [1], "next": None}, {"items": [2], "next": None}],
        "next": "2",
    }
    assert page == Page(items=[Page(items=[1]), Page(items=[2])], next="2")


def test_a_page_stays_as_it_is() -> None:
    page = Page[int](items=[1])
    with pytest.raises(ValidationError):
        page.next = "2"  # pyright: ignore[reportAttributeAccessIssue] - that is what is tried


@pytest.mark.parametrize("after", ["", "x", "-1", "1\n", "1" * 19, "\u0661"])
def test_what_is_no_next_is_refused(after: str) -> None:
    with pytest.raises(InvalidRequest, match="`after` is not the `next` of an earlier page") as raised:
        read_cursor(NUMBER, after)
    assert raised.value.param == "after"
