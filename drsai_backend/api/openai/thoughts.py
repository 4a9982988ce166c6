"""What the speakers of a run think, as one text: each thought once, whether it was streamed or came as a message."""

from __future__ import annotations

from drsai_backend.runs import ThoughtDelta

_GAP = "\n\n"


class Thoughts:
    """Turns the thoughts of one run into pieces of text; a blank line separates those of different messages."""

    def __init__(self) -> None:
        self._streamed: dict[str, list[tuple[object, list[str]]]] = {}
        """By speaker: the thoughts that were streamed and are not stored yet, by the id of their message."""
        self._last: object = None

    def delta(self, event: ThoughtDelta) -> str:
        """What a piece of a thought adds to the text."""
        thoughts = self._streamed.setdefault(event.source, [])
        if not thoughts or thoughts[-1][0] != event.message_id:
            thoughts.append((event.message_id, []))
        parts = thoughts[-1][1]
        parts.append(event.text)
        return self._gap(parts) + event.text

    def called(self, source: str) -> None:
        """The speaker calls tools: what it thinks next is another thought, although AutoGen streams it under one id."""
        if thoughts := self._streamed.get(source):
            thoughts[-1] = object(), thoughts[-1][1]

    def done(self, source: str, thought: str) -> str:
        """What a thought that is whole now adds to the text: nothing if it was streamed."""
        thoughts = self._streamed.get(source, [])
        for index, (_, parts) in enumerate(thoughts):
            said = "".join(parts).lstrip()
            if said.startswith(thought):  # What follows is the next one, streamed as part of this.
                parts[:] = [said[len(thought) :]]
                del thoughts[: index + (not parts[0].strip())]
                return ""
            if thought.startswith(said):
                del thoughts[: index + 1]
                rest = thought[len(said) :]
                return rest and self._gap(parts) + rest
        return self._gap(object()) + thought

    def _gap(self, thought: object) -> str:
        gap = "" if self._last is None or self._last is thought else _GAP
        self._last = thought
        return gap
