"""The events of a response are made from those of its run: they have the grammar of Open Responses, and numbers that
every process gives alike.

A `sequence_number` says where an event stands in what is *stored*, so that a reader may continue with
`starting_after` in another process, after the one that streamed was killed. Each message of the answer has a block of
2^20 numbers: its beginning, then one for each character of its text (a delta has that of its last character), and at
the end of the block what closes it. A delta of which a reader has had a part is cut. Pieces of text are not stored, so
where a turn was repeated and its text is another one, `response.output_text.done` and the last event tell what counts.

In the answer's text each message of a group chat begins with its heading, as in `api.openai.speech`: the texts of all
items, joined, are the text that Chat Completions gives.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import orjson
from autogen_agentchat.messages import ThoughtEvent, ToolCallExecutionEvent, ToolCallRequestEvent

from drsai_backend.api.http.errors import error_body
from drsai_backend.api.http.json import dumps
from drsai_backend.api.openai.responses.request import items
from drsai_backend.api.openai.responses.request.tools import call_item, search_item
from drsai_backend.api.openai.responses.wire import Subject, response_object, status_of
from drsai_backend.api.openai.route import failure
from drsai_backend.api.openai.speech import Piece, Speech
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.citations import as_annotations, citations_of
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import MessageDone, RunEnded, RunEvent, RunStarted
from drsai_backend.teams.client_tools.definitions import calls_of
from drsai_backend.teams.hosted_tools import HOSTED
from drsai_backend.teams.messages import aside_of
from drsai_backend.teams.replay.steps import ToolFinished, ToolStarted

BLOCK: Final = 2**20
_CLOSING: Final = BLOCK - 16
_THOUGHTS: Final = BLOCK - 12
_SEARCHES: Final = 2**16
"""Numbers at the end of a block that are for searches in files."""
_DELTA: Final = "response.output_text.delta"
_ASKING: Final = 4
"""Numbers that an item has which a client answers."""
_WRITTEN: Final = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
"""Of an item that is written like a text: the kind of its events, and the field."""


@dataclass(slots=True)
class _OpenItem:
    """A message that is being said: its block of numbers, its place in the output, and its text so far."""

    id: str
    index: int
    base: int
    text: str = ""


class EventWriter:
    """Writes the events of one response, which is of `speakers` agents. `output` are its items so far that are
    complete, `ended` is its end, once there is one."""

    def __init__(self, subject: Subject, speakers: int) -> None:
        self.subject = subject
        self.ended: RunEnded | None = None
        self._speech = Speech(marks=speakers > 1 and _is_text(subject.record))
        self._items: list[JsonObject | None] = []
        self._ids: set[str] = set()
        self._open: _OpenItem | None = None
        self._void = False
        """The turn is repeated, and it is not known yet whether the open item is said again."""
        self._stored = 0
        self._ahead = 0
        """Messages whose items have begun, and that are not stored yet."""
        self._thoughts: list[str] = []
        self._searches: dict[str, str] = {}
        """Calls of the hosted tool that are not told yet, by their ids: their arguments."""
        self._searched: set[str] = set()
        """Those that are told."""
        self._searching = any(each["type"] in HOSTED for each in subject.record.get("tools", ()))
        self._last = -1

    @property
    def output(self) -> list[JsonObject]:
        return [item for item in self._items if item is not None]

    def snapshot(self) -> JsonObject:
        """The response as far as it was told."""
        ended = self.ended
        if ended is None:
            return response_object(self.subject, "in_progress", self.output)
        return response_object(self.subject, status_of(ended), self.output, ended, completed_at=int(time.time()))

    def opening(self, *, queued: bool = False) -> list[JsonObject]:
        """The first events, of a response that `queued` says waits in the queue."""
        first = "queued" if queued else "in_progress"
        events = [self._event(0, "response.created", response=self._in(first))]
        if queued:
            events.append(self._event(1, "response.queued", response=self._in("queued")))
        else:
            events.append(self._event(2, "response.in_progress", response=self._in("in_progress")))
        return events

    def _in(self, status: str) -> JsonObject:
        return response_object(self.subject, status, ())

    def take(self, event: RunEvent) -> list[JsonObject]:
        """The events that one of the run becomes."""
        if isinstance(event, RunEnded):
            return self._ending(event)
        if (
            isinstance(event, MessageDone)
            and isinstance(event.message, ThoughtEvent)
            and aside_of(event.message) is None
        ):
            self._thoughts.append(event.message.content)
        found: list[JsonObject] = self._search(event) if self._searching else []
        if isinstance(event, RunStarted):
            if self._last == 1:  # It was told as one that waits in the queue.
                found.append(self._event(2, "response.in_progress", response=self._in("in_progress")))
            if event.attempt > 1:
                self._void, self._ahead = self._open is not None, 0
        for piece in self._speech.hear(event):
            if not piece.thought:  # Thoughts are told as they are stored.
                found += self._say(piece)
        if isinstance(event, MessageDone) and event.shown:
            self._stored += 1
            self._ahead = max(0, self._ahead - 1)
            self._void = False
        if not self._speech.is_open and not self._void:
            found += self._close()
        return found

    def _search(self, event: RunEvent) -> list[JsonObject]:
        """Return the events of searches in files: as they end, and of those that nobody has told, once they are
        stored."""
        message = event.message if isinstance(event, MessageDone) else None
        if isinstance(event, ToolStarted) and event.name in HOSTED:
            self._searches[event.call_id] = event.arguments
        elif isinstance(event, ToolFinished) and event.name in HOSTED:
            return self._found(event.call_id, event.result, failed=event.is_error)
        elif isinstance(message, ToolCallRequestEvent):
            self._searches |= {each.id: each.arguments for each in message.content if each.name in HOSTED}
        elif isinstance(message, ToolCallExecutionEvent):
            results = [each for each in message.content if each.name in HOSTED]
            return [
                event
                for each in results
                for event in self._found(each.call_id, each.content, failed=bool(each.is_error))
            ]
        return []

    def _found(self, call_id: str, result: str, *, failed: bool) -> list[JsonObject]:
        """Return the events of one search. They are in the block before that of the message that it leads to."""
        if call_id in self._searched:
            return []
        number, index = len(self._searched), len(self._items)
        self._searched.add(call_id)
        item_id = f"fs_{self.subject.run_id.removeprefix(items.RUN)}_{number}"
        told = bool(self.subject.record.get("search_results"))
        done = search_item(item_id, self._searches.pop(call_id, ""), result, failed=failed, told=told)
        self._items.append(done)
        at = (self._stored + self._ahead + 1) * BLOCK - _SEARCHES + 5 * number
        place = {"output_index": index, "item_id": item_id}
        begun = {**done, "status": "in_progress", "results": None}
        kind = "response.file_search_call"
        return [
            self._event(at, "response.output_item.added", output_index=index, item=begun),
            self._event(at + 1, f"{kind}.in_progress", **place),
            self._event(at + 2, f"{kind}.searching", **place),
            self._event(at + 3, f"{kind}.completed", **place),
            self._event(at + 4, "response.output_item.done", output_index=index, item=done),
        ]

    def _say(self, piece: Piece) -> list[JsonObject]:
        found: list[JsonObject] = []
        if piece.begins or self._open is None:
            found += self._close()
            found += self._begin()
        item = self._open
        assert item is not None
        self._void = False
        item.text += piece.text
        place = self._place(item)
        found.append(self._event(item.base + 1 + len(item.text), _DELTA, **place, delta=piece.text, logprobs=[]))
        return found

    def _begin(self) -> list[JsonObject]:
        number = self._stored + self._ahead
        self._ahead += 1
        item_id = f"msg_{self.subject.run_id.removeprefix(items.RUN)}_{number}"
        while item_id in self._ids:
            item_id += "r"  # A repeated turn says something else.
        self._ids.add(item_id)
        item = self._open = _OpenItem(item_id, len(self._items), (number + 1) * BLOCK)
        self._items.append(None)
        shown = items.message_item(item_id, None, status="in_progress")
        return [
            self._event(item.base, "response.output_item.added", output_index=item.index, item=shown),
            self._event(item.base + 1, "response.content_part.added", **self._place(item), part=items.text_part("")),
        ]

    def _place(self, item: _OpenItem) -> JsonObject:
        return {"item_id": item.id, "output_index": item.index, "content_index": 0}

    def _close(self) -> list[JsonObject]:
        """The end of the item that is open; of a void one, as incomplete, and it is no part of the answer."""
        item, self._open = self._open, None
        if item is None:
            return []
        at, place = item.base + _CLOSING, self._place(item)
        cited = self._citations(item.text) if self._speech.cites else []
        status = "incomplete" if self._void else "completed"
        shown = items.message_item(item.id, item.text, status=status, cited=cited)
        self._items[item.index] = None if self._void else shown
        kind, after = "response.output_text.annotation.added", item.base + 2 + len(item.text)
        found = [
            *(
                self._event(after + number, kind, **place, annotation_index=number, annotation=each)
                for number, each in enumerate(cited)
            ),
            self._event(at, "response.output_text.done", **place, text=item.text, logprobs=[]),
            self._event(at + 1, "response.content_part.done", **place, part=items.text_part(item.text, cited)),
            self._event(at + 2, "response.output_item.done", output_index=item.index, item=shown),
        ]
        self._void = False
        return found + self._think(item.base)

    def _citations(self, text: str) -> list[JsonObject]:
        """Return what the text of an item cites. It may begin with a heading, and with what came before it."""
        for done in reversed(self._speech.stored):
            if text.endswith(said := done.message.to_text()):
                return as_annotations(citations_of(done.message.metadata), len(text) - len(said))
        return []

    def _think(self, base: int) -> list[JsonObject]:
        """Return what was thought meanwhile, as an item in the block of the message that it led to. After that one,
        because its text is shown while it is produced, and thoughts are known when their turn is stored."""
        text, self._thoughts = "\n\n".join(self._thoughts), []
        if not text:
            return []
        index, at = len(self._items), base + _THOUGHTS
        item_id = f"rs_{self.subject.run_id.removeprefix(items.RUN)}_{base // BLOCK - 1}"
        done = items.reasoning_item(item_id, text)
        self._items.append(done)
        place = {"item_id": item_id, "output_index": index, "summary_index": 0}
        kind = "response.reasoning_summary"
        empty = items.reasoning_item(item_id, None)
        return [
            self._event(at, "response.output_item.added", output_index=index, item=empty),
            self._event(at + 1, f"{kind}_part.added", **place, part=items.summary_part("")),
            self._event(at + 2, f"{kind}_text.delta", **place, delta=text),
            self._event(at + 3, f"{kind}_text.done", **place, text=text),
            self._event(at + 4, f"{kind}_part.done", **place, part=items.summary_part(text)),
            self._event(at + 5, "response.output_item.done", output_index=index, item=done),
        ]

    def _ending(self, ended: RunEnded) -> list[JsonObject]:
        if ended.status is RunStatus.RUNNING:
            return [self.failure(error_body(failure(ended), code=ended.error_code))]
        self.ended = ended
        found, asked = list[JsonObject](), self._asked(ended)
        said = str((ended.input_request or {}).get("content") or "") if asked else ""
        # What is open now was never stored as a message: a question keeps what was said beside calls that it asks for.
        self._void = self._open is not None and not (said and self._open.text.endswith(said))
        if ended.status is not RunStatus.ERROR:
            for piece in self._speech.hear(ended):
                if not piece.thought:
                    found += self._say(piece)
        found += self._close()
        base = (self._stored + self._ahead + 1) * BLOCK
        if asked and (thought := (ended.input_request or {}).get("thought")):
            self._thoughts.append(thought)
        found += self._think(base)
        for offset, item in enumerate(asked):
            found += self._ask(item, base + _ASKING * offset)
        kind = {"completed": "completed", "failed": "failed"}.get(status_of(ended), "incomplete")
        return [*found, self._event(base + BLOCK - 1, f"response.{kind}", response=self.snapshot())]

    def _ask(self, item: JsonObject, at: int) -> list[JsonObject]:
        """An item that a client answers. That of a call has its arguments in events of their own."""
        index = len(self._items)
        self._items.append(item)
        kind, name = _WRITTEN.get(item["type"], ("", ""))
        begun = {**item, name: "", "status": "in_progress"} if name else item
        found = [self._event(at, "response.output_item.added", output_index=index, item=begun)]
        if name:
            place = {"item_id": item["id"], "output_index": index}
            told = {"name": item["name"]} if name == "arguments" else {}
            found += [
                self._event(at + 1, f"{kind}.delta", **place, delta=item[name]),
                self._event(at + 2, f"{kind}.done", **place, **told, **{name: item[name]}),
            ]
        return [*found, self._event(at + 3, "response.output_item.done", output_index=index, item=item)]

    def _asked(self, ended: RunEnded) -> list[JsonObject]:
        """Return what the run waits for, as items that a client answers by items."""
        asked = ended.input_request
        if ended.status is not RunStatus.AWAITING_INPUT or asked is None or ended.queued_behind is not None:
            return []
        if calls := calls_of(asked):
            part = self.subject.run_id.removeprefix(items.RUN)
            return [call_item(part, place, call) for place, call in enumerate(calls)]
        if asked.get("type") != "approval" or asked.get("kind") != "approval" or asked.get("for_others"):
            return []
        tool: JsonObject = asked.get("tool") or {}
        arguments: object = tool.get("arguments")
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
        return [items.approval_item(self.subject.run_id, asked, text)]

    def failure(self, body: JsonObject) -> JsonObject:
        """The event that ends a stream which broke off; `body` as `http.errors.error_body` makes it."""
        error: JsonObject = body["error"]
        told = {name: error[name] for name in ("code", "message", "param")}
        return self._event(self._last + 1, "error", **told, error=error)

    def _event(self, number: int, kind: str, **fields: object) -> JsonObject:
        self._last = max(number, self._last + 1)
        return {"type": kind, "sequence_number": self._last, **fields}


def _is_text(record: JsonObject) -> bool:
    """Whether the answer is to be plain text, which may have headings."""
    text: JsonObject = record.get("text") or {}
    form: JsonObject = text.get("format") or {}
    return form.get("type", "text") == "text"


def after(events: Iterable[JsonObject], number: int) -> list[JsonObject]:
    """Return what of the events follows that number: a delta of which a part was read is cut."""
    found: list[JsonObject] = []
    for event in events:
        at: int = event["sequence_number"]
        if at <= number:
            continue
        if event["type"] == _DELTA and (had := number - (at - len(event["delta"]))) > 0:
            event = {**event, "delta": event["delta"][had:]}
        found.append(event)
    return found


def frames(events: Iterable[JsonObject]) -> bytes:
    """The events as server-sent ones."""
    return b"".join(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), dumps(event)) for event in events)
