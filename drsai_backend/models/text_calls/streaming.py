"""Streaming gives the pieces of an answer in the form of ReAct: thoughts as thoughts, the final answer as text, the
rest not at all."""

from __future__ import annotations

from typing import Final

from drsai_backend.models.endpoints.thoughts import ThoughtSplitter
from drsai_backend.models.text_calls.parsing import labels

_LABEL_LENGTH: Final = 40
"""A line may turn out to begin with a label until it is longer than this."""
_OPEN: Final = "<think>"
_CLOSE: Final = "</think>\n"


class StepStream:
    """What of a model's answers is shown while they come. One for a call; `again` before a repair."""

    def __init__(self) -> None:
        self._thoughts = ThoughtSplitter()
        self._kind = "start"
        self._line = ""
        self._blank: list[str] = []
        self._opened = False
        self.has_answered = False
        """Whether anything of the answer was shown."""
        self._closed = False

    def again(self) -> None:
        """Another answer of the model follows."""
        self._thoughts = ThoughtSplitter()
        self._kind = "start"
        self._line = ""
        self._blank.clear()

    def feed(self, piece: str) -> str:
        """Return what is shown of one more piece; "" for nothing."""
        return "".join(
            self._thought(text) if is_thought else self._text(text) for is_thought, text in self._thoughts.feed(piece)
        )

    def end(self) -> str:
        """Return what is shown when nothing follows."""
        rest = "".join(
            self._thought(text) if is_thought else self._text(text) for is_thought, text in self._thoughts.end()
        )
        line, self._line = self._line, ""
        return rest + self._of_line(line)

    def close(self, answer: str | None, thought: str) -> str:
        """Return what is still to be shown of an answer that is understood by now; None: it calls a tool."""
        shown = "" if self._opened or not thought or self.has_answered else self._thought(thought)
        if answer is not None and not self.has_answered:
            return shown + self._answer(answer)
        if self._opened and not self._closed:
            self._closed = True
            shown += _CLOSE
        return shown

    def _text(self, text: str) -> str:
        shown: list[str] = []
        *lines, last = text.split("\n")
        for line in lines:
            whole, self._line = f"{self._line}{line}\n", ""
            shown.append(self._of_line(whole))
        self._line += last
        in_line = self._kind.endswith("…")
        if in_line or len(self._line) > _LABEL_LENGTH:
            line, self._line = self._line, ""
            shown.append(self._of_line(line))
            if not in_line:
                self._kind += "…"  # in the middle of a line, where no label can begin
        return "".join(shown)

    def _of_line(self, line: str) -> str:
        """A line, or the rest of one that has begun."""
        if self._kind.endswith("…"):
            if line.endswith("\n"):
                shown = self._shown(line)
                self._kind = self._kind.removesuffix("…")
                return shown
            return self._shown(line)
        if self._kind == "silent":
            return ""
        found = next(labels(line), None)
        if found is None or (self._kind == "answer" and found[0] not in ("observation", "thought")):
            return self._shown(line)
        kind, _, end = found
        if kind in ("observation", "action", "given", "input") or self._kind == "answer" or "<" in line[:end]:
            self._kind = "silent"
            return ""
        self._kind = "thought" if kind == "reasoning" else kind
        self._blank.clear()
        return self._shown(line[end:])

    def _shown(self, text: str) -> str:
        kind = self._kind.removesuffix("…")
        if kind == "answer":
            return self._answer(text)
        # It may be a call as JSON, which then counts and not an answer behind it.
        text, brace, _ = text.partition("{")
        shown = self._thought(text) if kind == "thought" else ""  # else it is not known yet what this is
        if brace:
            self._kind = "silent"
        return shown

    def _thought(self, text: str) -> str:
        if self._closed:
            return ""
        text = self._without_edges(text, begins=not self._opened)
        if not text:
            return ""
        opened, self._opened = self._opened, True
        return text if opened else _OPEN + text

    def _answer(self, text: str) -> str:
        text = self._without_edges(text, begins=not self.has_answered)
        if not text:
            return ""
        self.has_answered = True
        if self._opened and not self._closed:
            self._closed = True
            return _CLOSE + text
        return text

    def _without_edges(self, text: str, *, begins: bool) -> str:
        """The text without blank space at its beginning and its end, which is held back until something follows."""
        kept = text.rstrip()
        blank = text[len(kept) :]
        if begins:
            self._blank.clear()
            kept = kept.lstrip()
        elif kept:
            kept = "".join([*self._blank, kept])
            self._blank.clear()
        if blank and (kept or not begins):
            self._blank.append(blank)
        return kept
