"""The stored conversation of a thread is read as its client has it: from the newest point that a run has left, and what
was said since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from autogen_agentchat.messages import BaseAgentEvent

from drsai_backend.database.runs.history import (
    StoredPoint,
    first_point,
    newest_point,
    newest_points,
    numbered_since,
    said_since,
)
from drsai_backend.database.runs.paths import END
from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.lifecycle import UNFINISHED
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.history.digest import Conversation, History, flat_dump
from drsai_backend.runs.transcript import asked_after, is_shown, said_to
from drsai_backend.teams.imported import imported_role
from drsai_backend.teams.messages import aside_of, is_received, read_message

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_REWORDED: Final = 4
"""How many points back a question is looked for that was sent in other words, and how many turns after that may be
changed."""


def read_conversation(
    session: Session, head: ThreadHead, team: str, last: StoredPoint | None = None
) -> tuple[Conversation, int]:
    """The conversation that a thread has had with a team, and the number of the message at its newest point (0: there
    is none). Reads what was said since that point: of a thread that keeps no points, or had them with another team,
    all of it. `last`: the point of the thread's last run, if it was read already.

    What a run that waits for a person has said counts from its beginning: who answers without a text, by a button,
    continues its answer.
    """
    point = None
    if head.team == team:
        point = newest_point(session, head, before=head.run_id if head.status in UNFINISHED else None, last=last)
    start = Conversation.begin(head.name.owner, team) if point is None else Conversation(point.digest)
    last_seq = 0 if point is None else point.last_seq
    if last_seq == head.last_seq:
        return start, last_seq
    walk = Walk(start)
    walk.take(said_since(session, head.line, last_seq))
    walk.asks(head.input_request)
    return walk.conversation, last_seq


def walk_beginning(session: Session, head: ThreadHead) -> Walk:
    """The beginning of a path, with what was imported, up to the first point that a run has left; all of it, if none
    has. What comes after that has points that are stored."""
    first = first_point(session, head)
    walk = Walk(Conversation.begin(head.name.owner, head.team or ""))
    walk.take(said_since(session, head.line, 0, END if first is None else first.last_seq))
    return walk


def reworded_point(session: Session, head: ThreadHead, team: str, history: History) -> tuple[StoredPoint, int] | None:
    """The newest of a thread's last points that a history comes by, but for the words of the newest questions before it
    (`History.met_in_other_words`), and how many messages lead there."""
    turns = _newest_turns(session, head, team, _REWORDED)
    for drop in range(_REWORDED):
        for point, walk in turns:
            length = history.met_in_other_words(point.digest, walk.asked, drop)
            if length is not None and not (drop and point.asks):
                return point, length
    return None


def newest_turn(session: Session, head: ThreadHead, team: str) -> Conversation | None:
    """The newest turn of a thread that has an answer, as `said` and `answered`; None: it has none."""
    turns = _newest_turns(session, head, team, 1)
    return turns[0][1].conversation if turns else None


def _newest_turns(session: Session, head: ThreadHead, team: str, count: int) -> list[tuple[StoredPoint, Walk]]:
    """A thread's last points, newest first, and what was said since the one before."""
    found = newest_points(session, head, team, count + 1)
    if not found:
        return []
    base = found[count].last_seq if len(found) > count else 0
    messages = numbered_since(session, head.line, base)
    turns: list[tuple[StoredPoint, Walk]] = []
    for index, point in enumerate(found[:count]):
        waits = head.status is RunStatus.AWAITING_INPUT and point.run_id == head.run_id
        if point.asks and not waits:
            continue  # A question is no place to go back to: its turn is not stored.
        before = found[index + 1].last_seq if index + 1 < len(found) else 0
        walk = Walk(Conversation(b""))
        walk.take((config, shown) for seq, config, shown in messages if before < seq <= point.last_seq)
        if waits:
            walk.asks(head.input_request)
        turns.append((point, walk))
    return turns


class Walk:
    """Goes along stored messages. `passed` are the points after which something was said; `began` is what the user has
    said before the first of them, or so far."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.passed: set[bytes] = set()
        self.began = bytearray()
        self._asked: list[bytearray] = []
        self._last: str | None = None

    @property
    def asked(self) -> list[bytearray]:
        """What counts of what the user has said in each turn that has an answer."""
        return [*self._asked, *([self.conversation.said] if self.conversation.answered else [])]

    def take(self, messages: Iterable[tuple[JsonObject, bool | None]]) -> None:
        """Hear dumps of messages, each with whether it is shown."""
        for config, shown in messages:
            role = imported_role(config)
            if is_received(config):
                # What a run had asked before it was ended is part of the point that it has left.
                if self.conversation.said or self.conversation.answered:
                    self.asks(config.get("input_request"))
                self._user(said_to(config))
            elif role in ("assistant", "calls") or (role is None and self._is_shown(config, shown)):
                self._last = _text(config)
                self.conversation.answer(self._last)
            elif role == "user" or (role is None and config.get("source") == "user" and aside_of(config) is None):
                self._user(flat_dump(config))

    def asks(self, question: Mapping[str, object] | None) -> None:
        """A question comes next."""
        if shown := asked_after(question, self._last):
            self._last = shown
            self.conversation.answer(shown)

    def _user(self, text: str) -> None:
        self._last = None
        said = self.conversation.said
        if self.conversation.user(text):
            self._asked.append(said)
            self.passed.add(self.conversation.digest)
        if not self.passed:
            self.began = self.conversation.said

    def _is_shown(self, config: Mapping[str, object], shown: bool | None) -> bool:
        return is_shown(read_message(config)) if shown is None else shown


def _text(config: Mapping[str, object]) -> str:
    content = config.get("content")
    if isinstance(content, str) and "format_string" not in config:
        return content
    message = read_message(config)
    return "" if isinstance(message, BaseAgentEvent) else message.to_text()
