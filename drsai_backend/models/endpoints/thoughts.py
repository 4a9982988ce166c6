"""Thoughts of a model are told apart from its answer, which they come before.

Endpoints give reasoning apart (`reasoning_content`) or in the text, as `<think>…</think>` in front of the answer.
AutoGen's stream has it in the text in both cases, and its result has it as `thought` (always, or for models of the R1
family); of an answer that calls tools its result has the text as `thought`, and not what was thought. Here a text that
begins with `<think>` begins with a thought, whichever model it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from autogen_core.models import CreateResult

from drsai_backend.models.answer import ReasonedResult

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
"""Stand around a thought in a text."""
_FIELDS: Final = ("reasoning_content", "reasoning")


class ThoughtSplitter:
    """Splits the pieces of one message into thought and text, as they come. What may be a mark is held back until it is
    known to be one or not."""

    __slots__ = ("_blank", "_held", "_mark", "_skip", "is_text")

    def __init__(self) -> None:
        self._mark: str | None = OPEN  # the one that is looked for; None: all that follows is text
        self._held = ""
        self._blank: list[str] = []  # behind `_held`, in pieces: there may be thousands
        self._skip = False  # blank space after a mark
        self.is_text = False
        """Whether all that follows is text."""

    def feed(self, piece: str) -> list[tuple[bool, str]]:
        """The parts of a piece that are known now: whether each is thought, and its text, which is not empty."""
        parts = self._fed(piece)
        self.is_text = self._mark is None and not self._skip
        return parts

    def _fed(self, piece: str) -> list[tuple[bool, str]]:
        if piece.isspace() and self._mark is not None and not self._skip and not self._held.strip():
            self._blank.append(piece)
            return []
        rest = self._take_held() + piece
        if self._mark == OPEN:
            begun = rest.lstrip()
            if not begun or (len(begun) < len(OPEN) and OPEN.startswith(begun)):
                self._held = rest
                return []
            if not begun.startswith(OPEN):
                self._mark = None
                return [(False, rest)]
            rest, self._mark, self._skip = begun[len(OPEN) :], CLOSE, True
        if self._skip and not (rest := rest.lstrip()):
            return []
        self._skip = False
        if self._mark is None:
            return [(False, rest)] if rest else []
        thought, mark, after = rest.partition(CLOSE)
        if not mark:
            thought, self._held = _without_begun_mark(rest)
            return [(True, thought)] if thought else []
        thought, rest, self._mark = thought.rstrip(), after.lstrip(), None
        self._skip = not rest
        return [part for part in ((True, thought), (False, rest)) if part[1]]

    def end(self) -> list[tuple[bool, str]]:
        """Return what was held back, when nothing follows."""
        held = self._take_held()
        return [(self._mark == CLOSE, held)] if held.strip() or (held and self._mark == OPEN) else []

    def _take_held(self) -> str:
        held = "".join([self._held, *self._blank])
        self._held = ""
        self._blank.clear()
        return held


def _without_begun_mark(text: str) -> tuple[str, str]:
    """A thought, and what at its end is blank or may be the beginning of the mark that ends it."""
    place = text.rfind("<")
    if place < 0 or not CLOSE.startswith(text[place:]):
        place = len(text)
    thought = text[:place].rstrip()
    return thought, text[len(thought) :]


def split(pieces: Iterable[str]) -> tuple[str | None, str]:
    """Thought and text of a message; the thought is None where there is no mark of one."""
    splitter = ThoughtSplitter()
    parts = [part for piece in pieces for part in splitter.feed(piece)] + splitter.end()
    thought = "".join(text for is_thought, text in parts if is_thought)
    return thought or None, "".join(text for is_thought, text in parts if not is_thought)


def with_thought(result: CreateResult, streamed: Iterable[str] = ()) -> CreateResult:
    """The result with its thought apart from its text. `streamed`: the pieces that came before it, for AutoGen loses
    letters of a thought that was streamed (it strips the mark's letters off both ends), and all of it beside calls."""
    if not isinstance(result.content, str):
        if isinstance(result, ReasonedResult):
            return result  # It is told apart already.
        reasoning, said = split(streamed or [result.thought or ""])
        return result if reasoning is None else ReasonedResult.of(result, reasoning, said)
    if result.thought is not None:
        thought, _ = split(streamed)
        return result if thought is None else result.model_copy(update={"thought": thought})
    if result.content.lstrip().startswith(OPEN):
        thought, text = split([result.content])
        return result.model_copy(update={"thought": thought, "content": text})
    return result


def thought_of(said: Any) -> str | None:
    """Return what a message, or a piece of one, has of a thought in a field of its own; None: nothing."""
    extra: dict[str, object] = said.model_extra or {}
    return next((each for name in _FIELDS if isinstance(each := extra.get(name), str) and each), None)


def mark_thought(answer: Any) -> None:
    """Put what AutoGen's client drops of a whole answer where it does not: the thought beside calls, and a refusal,
    into the text."""
    for choice in answer.choices[:1]:
        message, thought = choice.message, thought_of(choice.message)
        message.content = message.content or message.refusal
        if thought is not None:
            message.reasoning_content = thought
            if message.tool_calls:
                message.content = f"{OPEN}{thought}{CLOSE}{message.content or ''}"
