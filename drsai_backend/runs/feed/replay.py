"""A replay gives the answer of a request that was served already, from what is stored, when its idempotency key is used
again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

from sqlalchemy.orm import Session

from drsai_backend.database.runs.reads import RunRow, ThreadHead, find_run, read_head, read_run, read_run_messages
from drsai_backend.database.runs.repeats import find_part, find_repeated
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.lifecycle import PENDING
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import IdempotencyMismatch
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.events import STARTED, MessageDone, MessageRead, Position, RunEnded
from drsai_backend.runs.feed.feed import ended_of
from drsai_backend.runs.feed.live_run import LiveRun, as_done
from drsai_backend.teams.messages import is_received

OF_AN_ANSWER: Final = "a"
"""Follows the digest of a message that has answered a question: its run had begun before."""


@dataclass(slots=True)
class StoredRequest:
    """A request with an idempotency key: the `row` that has the key, the `run` row that served it (the same one, but of
    an answer, or a message that steered), the head of its thread, and the messages that it brought about."""

    head: ThreadHead
    row: RunRow
    run: RunRow
    messages: list[MessageRead]
    answered_at: int | None = None
    """The number of the message by which it has answered the run's question, where the row is that of the run."""

    @property
    def run_id(self) -> str:
        """The run that the client was told of."""
        # The row of an answer begins and ends in one moment; an input that waited in the queue is a run to its client.
        is_answer = self.row["joined"] is not None and self.row["started_at"] == self.row["finished_at"]
        return self.run["run_id"] if is_answer else self.row["run_id"]

    @property
    def created(self) -> int:
        """When the request came; Unix time in seconds."""
        return int(self.row["created_at"].timestamp())

    @property
    def start(self) -> Position | None:
        """Where in the log of its run the request begins; None: with it."""
        if self.answered_at is not None:
            return Position(self.answered_at, self.row["epoch"], STARTED)
        joined = self.row["joined"] is not None
        return Position(self.row["last_seq"], self.row["epoch"], STARTED) if joined else None

    @property
    def is_over(self) -> bool:
        """Whether its client was told an end."""
        return self.row["told"] is not None or self.run["status"] not in PENDING


def find_request(session: Session, name: ThreadName, key: str, fingerprint: str) -> StoredRequest | None:
    """The request that this idempotency key stands for, or None.

    Raises:
        IdempotencyMismatch: it was used with another request.
    """
    head = read_head(session, name)
    row = None if head is None else find_run(session, head.key, key)
    if head is None or row is None:
        return None
    if row["fingerprint"] != fingerprint:
        raise IdempotencyMismatch("this Idempotency-Key was used with another request", param="Idempotency-Key")
    return stored_request(session, head, row)


def stored_request(session: Session, head: ThreadHead, row: RunRow) -> StoredRequest:
    """The request that has made this row, on the thread of that head."""
    run = row if row["joined"] is None else read_run(session, row["joined"])
    assert run is not None
    first = row["first_seq"] if run is row else row["last_seq"] + 1
    if not first:
        return StoredRequest(head, row, run, [])  # It never began.
    kept: JsonObject = row["told"] or {}
    last: int = kept.get("last_seq") or run["last_seq"] or head.last_seq
    messages = [MessageRead(*each) for each in read_run_messages(session, head.key, first, last)]
    return StoredRequest(head, row, run, messages)


def find_repeated_request(
    session: Session, owner: Owner, thread_id: str | None, digest: str, since: str
) -> StoredRequest | None:
    """The newest request with that digest, of a run whose id is more than `since`; on that thread, if it is named.
    None: there is none, or its run was stopped."""
    found = find_repeated(session, owner, thread_id, (digest, digest + OF_AN_ANSWER), since)
    if found is None:
        return None
    return _part(session, *found, digest)


def find_run_of(session: Session, name: ThreadName, run_id: str, digest: str) -> StoredRequest | None:
    """The request with that digest that has started a run, or answered it. None: the run was stopped, or its thread
    deleted."""
    head, row = read_head(session, name), read_run(session, run_id)
    if head is None or row is None or row["status"] is RunStatus.STOPPED:
        return None
    return _part(session, head, find_part(session, run_id, digest) or row, digest)


def _part(session: Session, head: ThreadHead, row: RunRow, digest: str) -> StoredRequest:
    """Return what an unkeyed request with that digest has brought about of a run: all of it, or what follows its
    answer."""
    request = stored_request(session, head, row)
    if row["fingerprint"] == digest + OF_AN_ANSWER:
        answers = (each.seq for each in reversed(request.messages) if is_received(each.config))
        request.answered_at = next(answers, None)
        request.messages = [each for each in request.messages if each.seq > (request.answered_at or 0)]
    return request


def told(ended: RunEnded, *, speakers: int, ignored: Sequence[str], last_seq: int) -> JsonObject:
    """Return what a client is told at the end of a run, or of its part, as `Run.told` keeps it."""
    kept = {**asdict(ended), "status": ended.status.value, "speakers": speakers, "last_seq": last_seq}
    return {**kept, "ignored": list(ignored)} if ignored else kept


def ended_of_request(stored: StoredRequest) -> RunEnded:
    """Return what the client of a request that is over was told, or would have been."""
    kept = stored.row["told"]
    return _ended(kept) if kept else ended_of(stored.run, stored.head)


def replay(stored: StoredRequest) -> LiveRun:
    """The run as a live one that has said all."""
    head, run = stored.head, stored.run
    kept: JsonObject = stored.row["told"] or {}
    said = [done for message in stored.messages if isinstance(done := as_done(message), MessageDone)]
    speakers = kept.get("speakers") or len({done.message.source for done in said if done.shown})
    live = LiveRun(stored.run_id, head.name, run["team"], stored.created, speakers, ignored=kept.get("ignored", ()))
    for done in said:
        live.emit(done)
    live.emit(ended_of_request(stored))
    return live


def _ended(kept: JsonObject) -> RunEnded:
    names = {field.name for field in fields(RunEnded)} - {"status"}
    return RunEnded(RunStatus(kept["status"]), **{name: value for name, value in kept.items() if name in names})
