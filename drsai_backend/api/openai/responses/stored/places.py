"""A place is where a request for a response is continued: a new thread, a conversation, or after an earlier
response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from drsai_backend.access.principal import Principal
from drsai_backend.api.openai.files.contents import Noted
from drsai_backend.api.openai.responses.request import items
from drsai_backend.api.openai.responses.request.body import ApprovalResponseItem, NamedConversation, ResponseBody
from drsai_backend.api.openai.responses.request.inputs import PreviousNotFound
from drsai_backend.api.openai.responses.stored.stored import StoredResponse, find
from drsai_backend.database.responses import ConversationRows, answer_row, read_conversation
from drsai_backend.database.runs.reads import Seen, ThreadHead
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a response, checked and of `who`. `remembered`: what the connection knows of responses that are
    not stored, their threads by their ids; None: it is none that remembers."""

    who: Principal
    asked: ResponseBody
    idempotency_key: str | None = None
    remembered: dict[str, str] | None = None
    fingerprint: str | None = None
    """Of the body, where the client has named a key, or repeats requests by itself."""
    repeated: int | None = None
    """As in an `Origin`."""
    noted: Noted = field(default_factory=dict[str, Mapping[str, str]])
    """The files of its messages."""
    unread: Sequence[str] = ()
    """Fields of its options that nobody reads."""
    own_key: str = field(default_factory=lambda: f"response:{uuid4().hex}", init=False)

    @property
    def key(self) -> str:
        """The key under which its answer is kept."""
        return self.idempotency_key or self.own_key

    @property
    def is_stored(self) -> bool:
        return self.asked.store is not False


class PlaceMoved(Exception):
    """The thread is not where it was when its place was looked up, or somebody else has taken the items that wait."""


@dataclass(frozen=True, slots=True)
class Continued:
    """Where a request is to be continued: a thread, None for a new one; what the response before it has kept, None
    where there is none; items that wait for it; and the `conversation`, where it is one by name. With `forks_at` it is
    a new thread that begins as that one was after the message of that number; `problem` says why there is none.
    `seen`: where the thread was for which this is true; None: whatever it does meanwhile, this comes after it."""

    thread_id: str | None = None
    record: JsonObject | None = None
    waiting: Sequence[JsonObject] = ()
    conversation: str | None = None
    forks_at: int | None = None
    problem: InvalidRequest | None = None
    seen: Seen | None = None


async def find_place(engine: Engine, call: Call, approval: ApprovalResponseItem | None) -> Continued:
    """Return where a request is to be continued.

    Raises:
        PreviousNotFound, NotFound: what is to be continued is none of this user's.
        InvalidRequest: the approval is none that was given out, or is of an older response.
    """
    asked, who = call.asked, call.who
    if asked.conversation is not None:
        given = asked.conversation
        name = given.id if isinstance(given, NamedConversation) else given
        return await _of_conversation(engine, who, check_name(name, "conversation"))
    if asked.previous_response_id is not None:
        place = await _after(engine, call, asked.previous_response_id)
        if approval is not None and place.forks_at is not None:
            text = f"nothing waits for an approval after {asked.previous_response_id!r} any more"
            raise InvalidRequest(text, param="previous_response_id")
        return place
    if approval is not None and (found := items.read_approval_id(approval.approval_request_id)) is not None:
        try:
            stored = await find(engine, who, items.response_id(found[0]))
        except NotFound:
            raise InvalidRequest("`approval_request_id` is none that was given out here", param="input") from None
        return _place_after(stored)
    return Continued()


async def _of_conversation(engine: Engine, who: Principal, thread_id: str) -> Continued:
    rows = await conversation_of(engine, who, thread_id)
    waiting: list[JsonObject] = rows.value.get("items", [])
    return Continued(thread_id, rows.record, waiting, thread_id)


async def conversation_of(engine: Engine, who: Principal, thread_id: str) -> ConversationRows:
    """A thread of `who` as a conversation. Raises NotFound."""
    name = who.owner.thread(thread_id)
    rows = await engine.db.database.read(lambda session: read_conversation(session, name))
    if rows is None:
        raise NotFound(f"no conversation {thread_id!r}", param="conversation")
    return rows


async def _after(engine: Engine, call: Call, previous: str) -> Continued:
    remembered = call.remembered or {}
    missing = PreviousNotFound(f"no response {previous!r} can be continued", param="previous_response_id")
    try:
        stored = await find(engine, call.who, previous)
    except NotFound:
        raise missing from None
    mine = previous in remembered
    # A connection that remembers continues what is not stored by that alone.
    if not mine and (not stored.is_shown or (call.remembered is not None and not call.is_stored)):
        raise missing
    place = _place_after(stored)
    if stored.is_newest:
        return place
    if call.idempotency_key is not None and await _is_repeated(engine, call, stored):
        return replace(place, seen=None)  # It is not the newest because this request has come before.
    problem = None
    if (ended := stored.ended) is not None and ended.status is RunStatus.AWAITING_INPUT:
        # The turn that asks is stored when it has its answer: a fork before that would lack the question.
        text = (
            f"response {previous!r} ended with calls or a question, and something has followed it already: continue "
            "after what did, or send the whole conversation as `input`"
        )
        problem = InvalidRequest(text, param="previous_response_id")
    return replace(place, forks_at=stored.last_seq, conversation=None, seen=None, problem=problem)


async def _is_repeated(engine: Engine, call: Call, stored: StoredResponse) -> bool:
    """Whether a request with that idempotency key has continued the thread of a response already."""
    name, key = stored.request.head.name, call.key
    return await engine.db.database.read(lambda session: answer_row(session, name, key)) is not None


def _place_after(stored: StoredResponse) -> Continued:
    conversation: JsonObject = stored.record.get("conversation") or {}
    head = stored.request.head
    return Continued(
        head.thread_id,
        stored.record or None,
        conversation=conversation.get("id"),
        seen=head.seen if stored.is_settled else None,
    )


def check_unmoved(place: Continued, head: ThreadHead | None) -> None:
    """Raise PlaceMoved, if a thread that stands like this is not where its place was found. `head`: None: it is gone,
    or new."""
    if place.seen is None:
        return
    if head is None or head.seen != place.seen or (head.status.is_final and head.queued):
        raise PlaceMoved
