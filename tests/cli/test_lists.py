"""Lists that commands print: pages are read until the limit, whatever a page holds."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from drsai_backend.cli import lists
from drsai_backend.cli.app import app
from drsai_backend.page import Page


class Item(BaseModel):
    number: int


class Shelf:
    """Reads pages of numbered items, as stores do: `next` is the last item's number, where more follow."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[int] = []

    def page(self, after: str | None, limit: int) -> Page[Item]:
        self.asked.append(limit)
        begin = 0 if after is None else int(after) + 1
        end = min(begin + limit, self.count)
        return Page(
            items=[Item(number=each) for each in range(begin, end)], next=str(end - 1) if end < self.count else None
        )


@given(
    count=st.integers(0, 60),
    limit=st.integers(1, 70) | st.just(math.inf),
    many=st.integers(1, 20),
    after=st.none() | st.integers(0, 5).map(str),
)
def test_a_list_is_read_to_its_end_or_its_limit(count: int, limit: float, many: int, after: str | None) -> None:
    shelf = Shelf(count)
    found = lists.read(shelf.page, after, limit, many)
    begin = 0 if after is None else int(after) + 1
    wanted = list(range(begin, count))
    shown = [item.number for item in found.items]
    assert shown == wanted[: int(min(limit, len(wanted)))]
    assert (found.next is None) == (len(shown) == len(wanted))
    assert all(1 <= asked <= many for asked in shelf.asked)


@pytest.mark.parametrize(("count", "said"), [(0, ["nothing here"]), (2, ["item 0", "item 1"])])
def test_what_people_read(capsys: pytest.CaptureFixture[str], count: int, said: list[str]) -> None:
    page = Page(items=[Item(number=each) for each in range(count)], next="[7]")
    lists.show(page, lambda console, item: console.print(f"item {item.number}"), as_json=False, empty="nothing here")
    assert capsys.readouterr().out.splitlines() == [*said, "There are more: --after [7]"]


def test_what_programs_read_is_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page(items=[Item(number=1)], next="2")
    lists.show(page, lambda *_: pytest.fail("a line"), as_json=True, empty="none")
    assert json.loads(capsys.readouterr().out) == [{"number": 1}]


def test_no_two_modules_of_a_group_have_a_command_of_one_name() -> None:
    for group in filter(None, (each.typer_instance for each in app.registered_groups)):
        names = [each.name or (each.callback and each.callback.__name__) for each in group.registered_commands]
        assert len(names) == len(set(names))
