"""What a reader sees of a run: its events as one text, pieces in the order they can be shown.

Speakers of one turn may talk at once, and a message is stored (`MessageDone`) only when its turn is over, after its
deltas. A plain chat window has one column. So the text is kept in segments, one for each message that somebody
started, in the order they were started: the first of them is shown live, the others are held back until it is complete.
Text is never mixed and never shown twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

from drsai_backend.runs.events import MessageDone, TextDelta


class Piece(NamedTuple):
    """The next piece of the text, and who says it."""

    source: str
    text: str


class _Segment:
    """A message in the making. `shown` parts were given out, `held` parts wait for their turn."""

    __slots__ = ("complete", "held", "message_id", "queued", "shown", "source", "stored")

    def __init__(self, source: str, message_id: str | None) -> None:
        self.source = source
        self.message_id = message_id
        self.shown: list[str] = []
        self.held: list[str] = []
        self.complete = False  # nothing follows, so the next segment may be shown
        self.stored = False
        self.queued = True

    def text(self) -> str:
        return "".join(self.shown) + "".join(self.held)


class Speech:
    """Turns the events of one run into pieces of text. The pieces, joined, are the whole answer.

    With `marks` (a group chat) each message is a block that begins with a line `**name**`; blocks are separated by a
    blank line.
    """

    def __init__(self, *, marks: bool) -> None:
        self._marks = marks
        self._queue: list[_Segment] = []
        self._open: dict[str, list[_Segment]] = {}  # by speaker, oldest first: segments whose message is not stored
        self._settled: set[str] = set()
        self._began = False
        self.stored: list[MessageDone] = []

    def delta(self, event: TextDelta) -> list[Piece]:
        """Take text that a speaker is producing."""
        if not event.text or (event.message_id is not None and event.message_id in self._settled):
            return []
        open_segments = self._open.setdefault(event.source, [])
        segment = open_segments[-1] if open_segments else None
        if segment is None or segment.complete or segment.message_id != event.message_id:
            if segment is not None:
                segment.complete = True  # its speaker went on to the next message
            segment = self._begin(event.source, event.message_id)
            open_segments.append(segment)
        elif self._queue[0] is segment and not segment.held:
            segment.shown.append(event.text)
            return [Piece(event.source, event.text)]
        segment.held.append(event.text)
        return self._drain()

    def done(self, event: MessageDone) -> list[Piece]:
        """Take a stored message: what of it was not shown yet, and what waited for it."""
        message = event.message
        if not event.shown:
            self._settle_hidden(message)
            return self._drain()
        self.stored.append(event)
        text = message.to_text()
        segment = self._match(message, text)
        self._close_before(message.source, segment)
        if isinstance(message_id := getattr(message, "id", None), str):
            self._settled.add(message_id)
        if segment is None:
            if not text:
                return self._drain()
            segment = self._begin(message.source, None)
            segment.held.append(text)
        else:
            self._complete_text(segment, text)
        segment.complete = segment.stored = True
        return self._drain()

    def question(self, source: str, prompt: str) -> list[Piece]:
        """The question that the run ends with, unless a message that was shown ends with it already."""
        pieces = self.end()
        asked = prompt.strip()
        if not asked or (self.stored and self.stored[-1].message.to_text().strip().endswith(asked)):
            return pieces
        return [*pieces, Piece(source, self._heading(source) + prompt)]

    def end(self) -> list[Piece]:
        """What is stored but still held back. Text that never became a message is not shown any more."""
        for segment in self._queue:
            segment.complete = True
            if not segment.stored:
                segment.held.clear()
        return self._drain()

    def _begin(self, source: str, message_id: str | None) -> _Segment:
        segment = _Segment(source, message_id)
        self._queue.append(segment)
        return segment

    def _drain(self) -> list[Piece]:
        """Give out what may be shown now: all of the first segment, and of each next one while those before are
        complete."""
        pieces: list[Piece] = []
        queue = self._queue
        while queue:
            head = queue[0]
            if head.held:
                text = "".join(head.held)
                pieces.append(Piece(head.source, text if head.shown else self._heading(head.source) + text))
                head.shown.append(text)
                head.held.clear()
            if not head.complete:
                break
            head.queued = False
            del queue[0]
        return pieces

    def _heading(self, source: str) -> str:
        gap = "\n\n" if self._began else ""
        self._began = True
        return f"{gap}**{source}**\n\n" if self._marks else gap

    def _match(self, message: BaseChatMessage | BaseAgentEvent, text: str) -> _Segment | None:
        """The segment that became this message: by id, else by its text (agents may store under another id)."""
        candidates = self._open.get(message.source, ())
        message_id = getattr(message, "id", None)
        for segment in candidates:
            if segment.message_id is not None and segment.message_id == message_id:
                return segment
        for segment in candidates:
            so_far = segment.text()
            if so_far.endswith(text) or (segment.queued and text.startswith(so_far)):
                return segment
        return None

    def _complete_text(self, segment: _Segment, text: str) -> None:
        """Add to the segment what its final text has and it has not."""
        so_far = segment.text()
        if so_far.endswith(text):
            return
        if not segment.shown:
            segment.held = [text]
        elif text.startswith(so_far):
            segment.held.append(text[len(so_far) :])
        else:
            segment.held.append("\n\n" + text)  # the agent changed what it had said
        if not segment.queued:
            # Others have spoken since: the rest is a block of its own.
            segment.shown.clear()
            segment.held = ["".join(segment.held).lstrip("\n")]
            segment.queued = True
            self._queue.append(segment)

    def _close_before(self, source: str, segment: _Segment | None) -> None:
        """A stored message ends what its speaker had begun up to it."""
        open_segments = self._open.get(source, [])
        end = len(open_segments) if segment is None else open_segments.index(segment) + 1
        for earlier in open_segments[:end]:
            earlier.complete = True
        del open_segments[:end]

    def _settle_hidden(self, message: BaseChatMessage | BaseAgentEvent) -> None:
        """A stored message that is not shown: its deltas, where they were not shown live, are not shown either."""
        message_id = getattr(message, "id", None)
        for segment in self._open.get(message.source, ()):
            if segment.message_id is not None and segment.message_id == message_id:
                # A thought can share its id with text that goes on, so the segment stays open for a match.
                segment.complete = True
                if not segment.shown and segment.text() == message.to_text():
                    segment.held.clear()
            elif isinstance(message, BaseChatMessage):
                segment.complete = True  # a chat message is the last thing that a speaker does in its turn


def message_entry(event: MessageDone) -> dict[str, Any]:
    """A stored message as the `drsai` field of an answer lists it."""
    message = event.message
    return {
        "seq": event.seq,
        "source": message.source,
        "type": getattr(message, "type", type(message).__name__),
        "content": message.to_text(),
    }
