"""Stored responses and their items are read again here, whichever process made them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, cast

from autogen_agentchat.messages import TextMessage, ThoughtEvent

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.json import listed
from drsai_backend.api.openai.responses.events import EventWriter
from drsai_backend.api.openai.responses.request import items
from drsai_backend.api.openai.responses.request.tools import call_item, output_item
from drsai_backend.api.openai.responses.wire import Subject, response_object
from drsai_backend.database.responses import read_response
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.citations import CITATIONS, as_annotations, citations_of
from drsai_backend.datamodel.lifecycle import PENDING
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.page import cut
from drsai_backend.runs import Engine, MessageDone, Position, RunEnded
from drsai_backend.runs.events import MessageRead
from drsai_backend.runs.feed.live_run import as_done
from drsai_backend.runs.feed.replay import StoredRequest, ended_of_request, stored_request
from drsai_backend.teams.client_tools.definitions import calls_of
from drsai_backend.teams.imported import imported_role, kept_in
from drsai_backend.teams.messages import UserInputReceivedEvent, aside_of

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.orm import Session

DELETED: Final = "deleted"


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as its rows tell it. `record`: what is kept of its request (see `inputs.record_of`); the path of its
    thread ends with message `newest_seq`."""

    request: StoredRequest
    record: JsonObject
    newest_seq: int

    @property
    def run_id(self) -> str:
        """The row that the response's id names."""
        return self.request.row["run_id"]

    @property
    def subject(self) -> Subject:
        """What it is told as."""
        request = self.request
        return Subject(self.run_id, request.created, request.run["team"], request.head.thread_id, self.record)

    @property
    def is_shown(self) -> bool:
        """Whether it may be asked for: it was to be stored, and was not deleted."""
        return self.record.get("store", True) is not False and not self.record.get(DELETED)

    @property
    def ended(self) -> RunEnded | None:
        """How it ended, or its part of the run did; None: it is not over."""
        request = self.request
        told, status = request.row["told"], RunStatus(request.run["status"])
        if told is not None and (told["status"] != RunStatus.PAUSED or status is RunStatus.PAUSED):
            return ended_of_request(request)
        if status in PENDING:
            return None
        return ended_of_request(StoredRequest(request.head, {**request.row, "told": None}, request.run, []))

    @property
    def is_newest(self) -> bool:
        """Whether nothing has followed it on its thread, and nothing waits to."""
        head = self.request.head
        is_last = head.run_id == self.request.run["run_id"] or self.request.run["status"] is RunStatus.CREATED
        if not is_last or self.ended is None:
            return is_last
        return not (head.status.is_final and head.queued) and self.last_seq in (0, self.newest_seq)

    @property
    def is_settled(self) -> bool:
        """Whether its run changes nothing any more by itself, and no result of a tool is waited for."""
        head = self.request.head
        asks = head.status is RunStatus.AWAITING_INPUT and not calls_of(head.input_request)
        return self.ended is not None and (head.status.is_final or asks)

    @property
    def last_seq(self) -> int:
        """The number of its newest message, in its thread; 0: it is not over, or has none."""
        told: JsonObject = self.request.row["told"] or {}
        return cast(int, told.get("last_seq") or self.request.run["last_seq"] or 0)

    @property
    def start(self) -> Position | None:
        """Where in the log of its run it begins; None: with the run."""
        return self.request.start

    @property
    def speakers(self) -> int:
        """How many agents may speak, or have spoken, as far as that is known."""
        told: JsonObject = self.request.row["told"] or {}
        if (known := self.record.get("speakers", told.get("speakers"))) is not None:
            return cast(int, known)
        return len({each.message.source for each in self._done() if each.shown}) or 1

    def _done(self) -> Iterable[MessageDone]:
        for message in self.request.messages:
            if isinstance(done := as_done(message), MessageDone):
                yield done

    def new_writer(self) -> EventWriter:
        """One that has told nothing yet."""
        return EventWriter(self.subject, self.speakers)

    def writer(self) -> tuple[EventWriter, list[JsonObject]]:
        """A writer that has told all that is stored, and the events of that; to the end, if it is over."""
        writer = self.new_writer()
        events = writer.opening()
        for done in self._done():
            events += writer.take(done)
        if (ended := self.ended) is not None:
            events += writer.take(ended)
        return writer, events

    def shown(self) -> JsonObject:
        """The response object, as it is now."""
        writer, _ = self.writer()
        ended = self.ended
        if ended is None:
            waits = self.request.run["status"] is RunStatus.CREATED
            return response_object(self.subject, "queued" if waits else "in_progress", writer.output)
        return {**writer.snapshot(), **_finished(writer, self.request.run["finished_at"])}

    def output(self) -> list[JsonObject]:
        """Return its items."""
        return self.writer()[0].output

    def input_items(self) -> list[JsonObject]:
        """Return what came in with its request, oldest first."""
        part = self.run_id.removeprefix(items.RUN)
        system: list[str] = self.record.get("system_items", [])
        found = [items.given_item(f"msg_{part}_s{place}", "system", text) for place, text in enumerate(system)]
        row = self.request.row
        if row["joined"] is not None or not row["first_seq"]:
            return [*found, *self.record.get("given", [])]  # The run had begun before, or has not yet.
        for place, done in enumerate(self._done()):
            role = role_of(done)
            if role is None:
                break
            if role != "system":
                found += items_of(done, f"{part}_i{place}", self.request.run["run_id"])
        return found


def _finished(writer: EventWriter, finished: datetime | None) -> JsonObject:
    """Return when it was completed, where that is known."""
    if finished is None or writer.snapshot()["completed_at"] is None:
        return {}
    return {"completed_at": int(finished.timestamp())}


def role_of(done: MessageDone) -> str | None:
    """The role of a message that came from a client; None: the team has said it."""
    message = done.message
    imported = imported_role(message)
    if imported is not None:
        return imported
    if isinstance(message, UserInputReceivedEvent):
        return "user"
    return "user" if message.source == "user" and not done.shown and aside_of(message) is None else None


def items_of(done: MessageDone, place: str, run_id: str) -> list[JsonObject]:
    """A stored message as items of a conversation; `place` is a part of their ids. What came back for calls of the
    client's tools is told with the calls."""
    message, imported = done.message, imported_role(done.message)
    if isinstance(message, TextMessage) and imported == "tool":
        returned = enumerate(kept_in(message))
        return [output_item(f"fco_{place}_{number}", each["call_id"], each["content"]) for number, each in returned]
    if isinstance(message, TextMessage) and imported == "calls":
        found = [items.message_item(f"msg_{place}", message.content)] if message.content.strip() else []
        made = enumerate(kept_in(message))
        return found + [call_item(place, number, {"type": "function", **each}) for number, each in made]
    calls = calls_of(message.input_request) if isinstance(message, UserInputReceivedEvent) else []
    if not calls or not isinstance(message, UserInputReceivedEvent):
        return [_item_of(done, place, run_id)]
    beside: object = message.input_request.get("content")
    found = [items.message_item(f"msg_{place}", beside)] if isinstance(beside, str) and beside.strip() else []
    found += [call_item(place, number, call) for number, call in enumerate(calls)]
    results: list[str] = (message.arguments or {}).get("results", [])
    pairs = enumerate(zip(calls, results, strict=False))
    return found + [
        output_item(f"fco_{place}_{number}", call["id"], text, is_custom=call["type"] == "custom")
        for number, (call, text) in pairs
    ]


def _item_of(done: MessageDone, place: str, run_id: str) -> JsonObject:
    """A stored message as one item."""
    message, item_id = done.message, f"msg_{place}"
    if isinstance(message, ThoughtEvent):
        return items.reasoning_item(f"rs_{place}", message.content)
    if isinstance(message, UserInputReceivedEvent):
        approve = message.decision in ("approve", "edit")
        if approve or message.decision in ("deny", "expired"):
            question = items.approval_id(run_id, str(message.input_request["id"]))
            return items.approval_answer_item(f"mcpa_{place}", question, approve=approve, reason=message.reason)
        return items.given_item(item_id, "user", message.content)
    role = role_of(done)
    if role is None:
        cited = as_annotations(citations_of(message.metadata)) if CITATIONS in message.metadata else ()
        return items.message_item(item_id, message.to_text(), cited=cited)
    content = getattr(message, "content", None)
    if role == "user" and isinstance(content, list):
        return items.given_item(item_id, role, [_part(part) for part in cast(list[object], content)])
    return items.given_item(item_id, role, message.to_text())


def _part(part: object) -> JsonObject:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    return {"type": "input_image", "image_url": getattr(part, "data_uri", None), "detail": "auto"}


async def find(engine: Engine, who: Principal, response: str) -> StoredResponse:
    """A response of `who`, shown or not. Raises NotFound: it is none of theirs."""
    owner, run_id = who.owner, items.run_of(response)
    found = await engine.db.database.read(lambda session: _find(session, owner, run_id))
    if found is None:
        raise NotFound(f"no response {response!r}", param="response_id")
    return found


async def find_known(engine: Engine, who: Principal, responses: Sequence[str]) -> list[StoredResponse]:
    """Return those of the responses that are there and `who`'s, read in one transaction."""
    owner, runs = who.owner, [items.run_of(each) for each in responses]
    found = await engine.db.database.read(lambda session: [_find(session, owner, run_id) for run_id in runs])
    return [each for each in found if each is not None]


def _find(session: Session, owner: Owner, run_id: str) -> StoredResponse | None:
    rows = read_response(session, owner, run_id)
    if rows is None:
        return None
    return StoredResponse(stored_request(session, rows.head, rows.row), rows.record, rows.newest_seq)


def read_as_done(seq: int, config: JsonObject, shown: bool | None) -> MessageDone | None:
    """A message row as the message that it is; None: its class is not known."""
    done = as_done(MessageRead(seq, config, shown))
    return done if isinstance(done, MessageDone) else None


def page(data: Sequence[JsonObject], after: str | None, limit: int, *, newest_first: bool) -> JsonObject:
    """A page of items, given oldest first, as OpenAI lists them. Raises InvalidRequest: `after` is none of them."""
    shown = list(reversed(data)) if newest_first else list(data)
    if after is not None:
        places = [place for place, item in enumerate(shown) if item["id"] == after]
        if not places:
            raise InvalidRequest(f"`after`: there is no item {after!r}", param="after")
        shown = shown[places[0] + 1 :]
    return listed(cut(shown, limit, itemgetter("id")))
