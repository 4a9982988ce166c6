"""What the speakers of a run think, as one text: each thought once, whether it was streamed or came as a message."""

from __future__ import annotations

from autogen_agentchat.messages import ThoughtEvent

from drsai_backend.runs import ThoughtDelta

_GAP = "\n\n"


class Thoughts:
    """Turns the thoughts of one run into pieces of text; a blank line separates those of different messages."""

    def __init__(self) -> None:
        self._streamed: dict[str, list[tuple[str | None, list[str]]]] = {}
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

    def done(self, thought: ThoughtEvent) -> str:
        """What a stored thought adds to it: nothing if it was streamed."""
        thoughts = self._streamed.get(thought.source, [])
        for index, (_, parts) in enumerate(thoughts):
            said = "".join(parts)
            if thought.content.startswith(said):
                del thoughts[: index + 1]
                rest = thought.content[len(said) :]
                return rest and self._gap(parts) + rest
        return self._gap(thought) + thought.content

    def _gap(self, thought: object) -> str:
        gap = "" if self._last is None or self._last is thought else _GAP
        self._last = thought
        return gap
