"""Speech is what a reader sees of a run: its events as one text, pieces in the order in which they can be shown.

Speakers of one turn may talk at once, and a message is stored (`MessageDone`) only when its turn is over, after its
deltas. A plain chat window has one column. So the text is kept in segments, one for each message that somebody
started, in the order they were started: the first of them is shown live, the others are held back until it is complete.
Text is never mixed and never shown twice.

A turn that is repeated (`RunStarted` with attempt 2, 3, …) leaves text behind that was shown and never became a
message, and a chat window cannot take text back. Where the repeated message begins with it, only the rest is shown,
else the message is a block of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, ThoughtEvent

from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.citations import CITATIONS, as_annotations, citations_of
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import MessageDone, RunEnded, RunEvent, RunStarted, TextDelta, ThoughtDelta
from drsai_backend.runs.transcript import asked_text, is_asked, notice_of
from drsai_backend.teams.messages import aside_of
from drsai_backend.teams.replay.steps import ToolStarted

_QUEUED: Final = (
    "This message waits in the queue and is worked on later: a question came first, and what you send next is the "
    "answer to it.\n\n"
)
_QUEUED_BEHIND_OTHERS: Final = (
    "This message waits in the queue and is worked on later, when somebody else has answered this:\n\n"
)


class Piece(NamedTuple):
    """The next piece of the text, and who says it. `thought`: it is a piece of what they think, no part of the text.
    `begins`: with it a block begins."""

    source: str
    text: str
    thought: bool = False
    begins: bool = False


@dataclass(slots=True, eq=False)
class _Segment:
    """A message in the making. `shown` parts were given out, `held` parts wait for their turn; before them is what an
    earlier attempt had shown of the message (`repeats`)."""

    source: str
    message_id: str | None
    repeats: _Segment | None = None
    unsure: bool = False
    """Whether it repeats something is not known yet."""
    headed: bool = False
    """Its block has begun."""
    shown: list[str] = field(default_factory=list[str])
    held: list[str] = field(default_factory=list[str])
    complete: bool = False
    """Nothing follows, so the next segment may be shown."""
    stored: bool = False

    def text(self) -> str:
        return (self.repeats.text() if self.repeats else "") + "".join(self.shown) + "".join(self.held)


class Speech:
    """Turns the events of one run into pieces of text. The pieces, joined, are the whole answer.

    With `marks` (a group chat) each message is a block that begins with a line `**name**`; blocks are separated by a
    blank line. With `thoughts` the pieces of what the speakers think are among them, as they come; joined, they are a
    text of their own. `after`: the reader has this beginning of the first message, which is continued.
    """

    def __init__(self, *, marks: bool, thoughts: bool = False, after: str = "") -> None:
        self._marks = marks
        self._after = self._began_with = after
        self._thoughts = Thoughts() if thoughts else None
        self._queue: list[_Segment] = []
        self._open: dict[str, list[_Segment]] = {}  # by speaker, oldest first: segments whose message is not stored
        self._settled: set[str] = set()
        self._void: dict[str, list[_Segment]] = {}  # by speaker: shown, never stored, may be said again
        self._repeating = False  # the turn that `_void` is of is not stored yet
        self._last: _Segment | None = None  # whose text was given out last
        self.stored: list[MessageDone] = []
        self.cites = False
        """Whether a message that was shown cites files."""
        self._aside: dict[int, MessageDone] = {}  # by number: what speakers have said who are not shown

    def hear(self, event: RunEvent) -> list[Piece]:
        """Return what an event adds to the text; the end of a run adds what was held back, and the question or
        the notice it ends with."""
        match event:
            case TextDelta():
                return self.delta(event)
            case MessageDone():
                return self.done(event)
            case ThoughtDelta(shown=True) if self._thoughts is not None:
                return [Piece(event.source, self._thoughts.delta(event), thought=True)]
            case ToolStarted() if self._thoughts is not None:
                self._thoughts.called(event.source)
                return []
            case RunStarted():
                return self.restart()
            case RunEnded(shown=int(seq)) if seq in self._aside:
                return [*self.done(replace(self._aside.pop(seq), shown=True)), *self.hear(event)]
            case RunEnded(status=RunStatus.AWAITING_INPUT, input_request=dict() as asked):
                source = str(asked.get("source") or "assistant")
                if asked.get("kind") == "client_tool" and event.queued_behind is None:
                    return self._beside_calls(source, asked)
                return self._question(source, asked, queued=event.queued_behind is not None)
            case RunEnded():
                pieces, notice = self.end(), notice_of(event.stop_code, event.stop_reason)
                return [*pieces, Piece("assistant", self._gap() + notice, begins=True)] if notice else pieces
            case _:
                return []

    @property
    def said(self) -> list[MessageDone]:
        """What the team has said, in order: also what is no part of the text."""
        return sorted([*self.stored, *self._aside.values()], key=lambda done: done.seq)

    def annotations(self) -> list[JsonObject]:
        """Return what the whole text cites, at its places in the text that is made of what is stored."""
        found: list[JsonObject] = []
        again, text = Speech(marks=self._marks, after=self._began_with), ""
        for place, event in enumerate(self.stored):
            text += "".join(piece.text for piece in again.done(event))
            if cited := citations_of(event.message.metadata):
                said = event.message.to_text()
                had = len(self._began_with) if place == 0 and said.startswith(self._began_with) else 0
                found += as_annotations(cited, max(text.rfind(said[had:]), 0) - had)
        return found

    @property
    def is_open(self) -> bool:
        """Whether the block that was given out last may still grow, or it is not known yet."""
        head = self._queue[0] if self._queue else None
        return head is not None and (head.unsure or self._last in (head, head.repeats))

    def delta(self, event: TextDelta) -> list[Piece]:
        """Take text that a speaker is producing."""
        if not event.shown or not event.text or (event.message_id is not None and event.message_id in self._settled):
            return []
        if self._void and not self._repeating:
            self._void.clear()  # the next turn has begun
        open_segments = self._open.setdefault(event.source, [])
        segment = open_segments[-1] if open_segments else None
        if segment is None or segment.complete or segment.message_id != event.message_id:
            if segment is not None:
                segment.complete = True  # its speaker continues with the next message
            segment = self._begin(event.source, event.message_id)
            open_segments.append(segment)
        elif self._queue[0] is segment and segment.headed and not segment.held:
            segment.shown.append(event.text)
            return [Piece(event.source, event.text)]
        segment.held.append(event.text)
        if event.source in self._void and not segment.headed and segment.repeats is None:
            self._compare(segment, final=False)
        return self._drain()

    def restart(self) -> list[Piece]:
        """The turn in flight is repeated: its text is void, and what of it was shown may be said again."""
        for source, segments in self._open.items():
            for segment in segments:
                segment.complete = True
                segment.held.clear()
                shown = segment if segment.headed else segment.repeats
                if shown is not None:
                    self._void.setdefault(source, []).append(shown)
        self._open.clear()
        self._repeating = True
        return self._drain()

    def done(self, event: MessageDone) -> list[Piece]:
        """Take a stored message: what of it was not shown yet, and what waited for it."""
        message = event.message
        self._repeating = False
        if not event.shown:
            was_shown = self._settle_hidden(message)
            if isinstance(message, BaseChatMessage) and aside_of(message) in ("speaker", "last"):
                self._aside[event.seq] = event
            if (
                self._thoughts is not None
                and isinstance(message, ThoughtEvent)
                and not (was_shown or aside_of(message))
            ):
                text = self._thoughts.done(message.source, message.content)
                return [*([Piece(message.source, text, thought=True)] if text else []), *self._drain()]
            return self._drain()
        self.stored.append(event)
        self.cites = self.cites or CITATIONS in message.metadata
        text = message.to_text()
        if self._after:
            text, self._after = text.removeprefix(self._after), ""
        segment = self._match(message, text)
        begun = self._open.get(message.source, [])
        end = len(begun) if segment is None else begun.index(segment) + 1
        for earlier in begun[:end]:  # a stored message ends what its speaker had begun up to it
            earlier.complete = True
        del begun[:end]
        if isinstance(message_id := getattr(message, "id", None), str):
            self._settled.add(message_id)
        if segment is None:
            if not text:
                return self._drain()
            segment = self._begin(message.source, None)
        self._complete_text(segment, text)
        segment.complete = segment.stored = True
        if segment.repeats is None:
            self._void.pop(message.source, None)  # it says something else this time
        return self._drain()

    def end(self) -> list[Piece]:
        """Return what is stored but still held back. Text that never became a message is not shown any more."""
        for segment in self._queue:
            segment.complete = True
            if not segment.stored:
                segment.held.clear()
        return self._drain()

    def _question(self, source: str, asked: JsonObject, *, queued: bool) -> list[Piece]:
        """The question that the run ends with, unless a message that was shown ends with it already. `queued`: another
        run asks it, and the message that this answers waits behind that one."""
        text = asked_text(asked)
        if queued:
            waits = _QUEUED_BEHIND_OTHERS if asked.get("for_others") else _QUEUED
            return [Piece(source, waits + self._heading(source) + text, begins=True)]
        pieces = self.end()
        if is_asked(text, self.stored[-1].message.to_text() if self.stored else None):
            return pieces
        return [*pieces, Piece(source, self._heading(source) + text, begins=True)]

    def _beside_calls(self, source: str, asked: JsonObject) -> list[Piece]:
        """Return what was thought and said along with calls of the client's tools, unless it was shown as it came."""
        text, thought = (str(asked.get(name) or "") for name in ("content", "thought"))
        was_shown = any(segment.shown for segment in self._open.get(source, ()))
        pieces = self.end()
        if self._thoughts is not None and (thought := thought and self._thoughts.done(source, thought)):
            pieces.append(Piece(source, thought, thought=True))
        return pieces if was_shown or not text.strip() else [*pieces, Piece(source, self._heading(source) + text)]

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
            if head.unsure and not head.complete:
                break
            if text := "".join(head.held):
                begun = head.headed or (head.repeats is not None and head.repeats is self._last)
                pieces.append(
                    Piece(head.source, text if begun else self._heading(head.source) + text, begins=not begun)
                )
                head.headed = True
                head.shown.append(text)
                head.held.clear()
                self._last = head
            if not head.complete:
                break
            del queue[0]
        return pieces

    def _heading(self, source: str) -> str:
        return f"{self._gap()}**{source}**\n\n" if self._marks else self._gap()

    def _gap(self) -> str:
        return "" if self._last is None else "\n\n"

    def _match(self, message: BaseChatMessage | BaseAgentEvent, text: str) -> _Segment | None:
        """The segment that became this message: by id, else by its text (agents may store under another id)."""
        candidates = self._open.get(message.source, ())
        message_id = getattr(message, "id", None)
        by_id = (one for one in candidates if one.message_id is not None and one.message_id == message_id)
        by_text = (
            one
            for one in candidates
            if one.text().endswith(text) or (one in self._queue and text.startswith(one.text()))
        )
        return next(by_id, None) or next(by_text, None)

    def _complete_text(self, segment: _Segment, text: str) -> None:
        """Add to the segment what its final text has and it has not."""
        so_far = segment.text()
        if not so_far.endswith(text):
            if not segment.headed:
                if segment.repeats is not None:  # it does not, after all
                    self._void.setdefault(segment.source, []).append(segment.repeats)
                    segment.repeats = None
                segment.held = [text]
            elif text.startswith(so_far):
                segment.held.append(text[len(so_far) :])
            else:
                segment.held.append("\n\n" + text)  # the agent changed what it had said
        if not segment.headed and segment.repeats is None:
            self._compare(segment, final=True)
        if segment.held and segment not in self._queue:
            # Others have spoken since: the rest is a block of its own.
            if segment.headed:
                segment.headed = False
                segment.held = ["".join(segment.held).lstrip("\n")]
            self._queue.append(segment)

    def _compare(self, segment: _Segment, *, final: bool) -> None:
        """Find out whether a segment says again what an earlier attempt had shown. While its text may still become
        that, it is `unsure`, and nothing of it is given out."""
        text = segment.text()
        void = self._void.get(segment.source, [])
        longer = (one for one in void if len(one.text()) > len(text))
        segment.unsure = not final and any(one.text().startswith(text) for one in longer)
        said = [one for one in void if text.startswith(one.text())]
        if segment.unsure or not said:
            return
        segment.repeats = max(said, key=lambda one: len(one.text()))
        void.remove(segment.repeats)
        segment.held = [text[len(segment.repeats.text()) :]]

    def _settle_hidden(self, message: BaseChatMessage | BaseAgentEvent) -> bool:
        """A stored message that is not shown: its deltas, where they were not shown live, are not shown either. Whether
        they were: what a model writes beside its tool calls is known to be no answer only afterwards."""
        was_shown = False
        message_id = getattr(message, "id", None)
        for segment in self._open.get(message.source, ()):
            if segment.message_id is not None and segment.message_id == message_id:
                # A thought can share its id with text that continues, so the segment stays open for a match.
                segment.complete = True
                if segment.text() == message.to_text():
                    was_shown = bool(segment.shown)
                    if not was_shown:
                        segment.held.clear()
            elif isinstance(message, BaseChatMessage):
                segment.complete = True  # a chat message is the last thing that a speaker does in its turn
        return was_shown


class Thoughts:
    """What the speakers of a run think, as one text: each thought once, whether it was streamed or came as a message. A
    blank line separates those of different messages."""

    def __init__(self) -> None:
        self._streamed: dict[str, list[tuple[object, list[str]]]] = {}
        """By speaker: the thoughts that were streamed and are not stored yet, by the id of their message."""
        self._last: object = None

    def delta(self, event: ThoughtDelta) -> str:
        """Return what a piece of a thought adds to the text."""
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
        """Return what a thought that is whole now adds to the text: nothing if it was streamed."""
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
        gap = "" if self._last is None or self._last is thought else "\n\n"
        self._last = thought
        return gap
