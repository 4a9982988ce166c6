"""Where messages refer to images of tools is found again without a look at what was looked at before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.models.calls.seen_images import MAX_IMAGES, ImageReferences, reference

HEAD = SystemMessage(content="You look at pictures.")


def said(text: str = "x") -> UserMessage:
    return UserMessage(content=text, source="user")


def returned(*files: int) -> FunctionExecutionResultMessage:
    lines = "\n".join(reference(f"{each}.png", "image/png", 9, f"file-{each}") for each in files)
    result = FunctionExecutionResult(content=f"Done.\n{lines}", name="look", call_id="c", is_error=False)
    return FunctionExecutionResultMessage(content=[result])


def seen(references: ImageReferences, messages: list[LLMMessage]) -> list[tuple[int, list[str]]]:
    return [(each.at, [file_id for _, file_id in each.named]) for each in references.of(messages)]


class Counting(list[LLMMessage]):
    """Counts what is taken out of it."""

    taken = 0

    def __getitem__(self, which: Any) -> Any:
        found = super().__getitem__(which)
        self.taken += len(found) if isinstance(which, slice) else 1
        return found

    def __iter__(self) -> Iterator[LLMMessage]:
        self.taken += len(self)
        return super().__iter__()


def test_what_is_known_is_not_looked_at_again() -> None:
    references, messages = ImageReferences(), Counting([HEAD, returned(1), *(said() for _ in range(10_000))])
    for number in range(50):
        messages.taken = 0
        assert seen(references, messages) == [(1, ["file-1"])]
        assert messages.taken < (20_000 if number == 0 else 20)
        # A new list at each call, as agents make it.
        messages = Counting([*list.__iter__(messages), said(), AssistantMessage(content="y", source="a")])
    assert len(references._known) == 1


def test_only_the_newest_are_found() -> None:
    messages: list[LLMMessage] = [HEAD, *(returned(number) for number in range(20))]
    found = seen(ImageReferences(), messages)
    assert found == [(number + 1, [f"file-{number}"]) for number in range(20 - MAX_IMAGES, 20)]


def test_messages_that_are_gone_hold_nothing() -> None:
    """Numbers of objects come again."""
    references = ImageReferences()
    for number in range(200):
        messages: list[LLMMessage] = [HEAD, returned(number) if number % 2 else said(), said()]
        assert seen(references, messages) == ([(1, [f"file-{number}"])] if number % 2 else [])
        del messages
        gc.collect(0)


_MADE = st.sampled_from([said, lambda: returned(1, 2), lambda: returned(3), lambda: returned()])
_DONE = st.one_of(
    st.tuples(st.just("add"), _MADE),
    st.tuples(st.just("cut"), st.integers(0, 12)),
    st.tuples(st.just("drop"), st.integers(0, 12)),
    st.tuples(st.just("replace"), st.tuples(st.integers(0, 12), _MADE)),
    st.tuples(st.just("insert"), st.just(said)),
)


@given(done=st.lists(_DONE, max_size=30), asked=st.lists(st.booleans(), min_size=30, max_size=30))
def test_it_is_what_a_look_at_all_finds(done: list[Any], asked: list[bool]) -> None:
    """Whatever becomes of a list between two calls: it grows, ends earlier, loses its beginning, also for a summary, or
    has an older result replaced by one that says less, as contexts have it."""
    references, messages = ImageReferences(), list[LLMMessage]([HEAD])
    for (what, value), is_asked in zip(done, asked, strict=False):
        match what:
            case "add":
                messages = [*messages, value()]
            case "cut":
                messages = messages[: value + 1]
            case "drop":
                messages = [HEAD, *messages[value + 1 :]]
            case "insert":
                messages = [HEAD, value(), *messages[1:]]
            case _:
                place, make = value
                if place < len(messages) and isinstance(messages[place], FunctionExecutionResultMessage):
                    refers = seen(ImageReferences(), [messages[place]])
                    new = make() if refers else returned()
                    messages = [*messages[:place], new, *messages[place + 1 :]]
        if is_asked:
            assert seen(references, messages) == seen(ImageReferences(), messages)
