"""Everything of a run that comes before its first write: find the thread, decide what the request means, build and
load the team. Nothing is stored here, so whatever fails leaves the thread as it was."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
import pydantic
from autogen_agentchat.messages import BaseChatMessage
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.teams._group_chat._graph._digraph_group_chat import GraphFlowManager
from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager
from autogen_agentchat.teams._group_chat._swarm_group_chat import SwarmGroupChatManager
from autogen_core import Image
from sqlalchemy.orm import Session

from drsai_backend.database.runs.reads import StoredState, ThreadHead, read_head, read_run, read_state
from drsai_backend.database.runs.steps import read_steps
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import DamagedState, DrSaiError, InvalidRequest
from drsai_backend.models.images import with_images
from drsai_backend.runs._answers import answer_from_text, answer_to, check_current, check_in_time, received, text_of
from drsai_backend.runs._warm import WarmThread
from drsai_backend.runs.events import Answer, InputMessage, RunRequest
from drsai_backend.runs.history import first_new, new_messages, system_text
from drsai_backend.state import Document
from drsai_backend.state.store import decode_stored
from drsai_backend.teams.imported import imported_role
from drsai_backend.teams.messages import UserInputReceivedEvent, dump_of, is_received
from drsai_backend.teams.runtime.wiring import manager_of
from drsai_backend.teams.session import TeamSession

# How many of the user's newest texts a warm thread remembers, to recognise a history that is sent again.
KNOWN_TEXTS = 100

# These choose the next speaker without asking a model, so the way to the first boundary costs nothing to repeat.
_CHEAP_MANAGERS = (RoundRobinGroupChatManager, SwarmGroupChatManager, GraphFlowManager)


@dataclass(slots=True)
class Known:
    """What is stored of a thread, as far as a new run needs it. `stored=None`: the warm state stands for it."""

    head: ThreadHead
    user_texts: list[str]
    system_text: str | None
    stored: StoredState | None
    run: Any = None
    steps: Sequence[Any] = ()
    warm: WarmThread | None = None


_UNFINISHED = frozenset({RunStatus.RUNNING, RunStatus.AWAITING_INPUT, RunStatus.PAUSED})


def read_known(session: Session, user_id: str, thread_id: str, texts: int) -> Known | None:
    """Read everything about a thread in one go; None: it does not exist."""
    head = read_head(session, user_id, thread_id)
    if head is None:
        return None
    run = None
    if head.status in _UNFINISHED and head.run_id is not None:
        run = read_run(session, head.run_id)
    # Of a run that is over as well: somebody may have ended it by hand.
    steps = read_steps(session, head.key)
    stored = read_state(session, head.key)
    user_texts = _newest_texts(stored, "user", texts)
    return Known(head, user_texts, _newest_prompt(stored), stored, run, steps)


def _newest_prompt(stored: StoredState) -> str | None:
    """The client's system message that counts. Those stored before there was a mark are part of the conversation."""
    found = (config for config in reversed(stored.configs.values()) if imported_role(config) == "system")
    newest = next(found, None)
    return None if newest is None else _text(newest)


def _newest_texts(stored: StoredState, source: str, limit: int) -> list[str]:
    """The newest texts of one source, oldest first."""
    found: list[str] = []
    for config in reversed(stored.configs.values()):
        if len(found) == limit:
            break
        if config.get("source") == source and not is_received(config):
            found.append(_text(config))
    return found[::-1]


def fingerprint(request: RunRequest) -> str:
    """SHA-256 over what makes a request the same request."""
    texts = [
        [each.role, each.text] if each.message is None else [each.role, dump_of(each.message)]
        for each in request.messages
    ]
    value = [request.team, request.user_id, request.thread_id, texts, request.params.create_args(), request.extra]
    digest = hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str))
    for index, message in enumerate(request.messages):
        for place, part in enumerate(message.content):
            if isinstance(part, Image):
                picture = part.image
                digest.update(f"{index}.{place} {picture.mode} {picture.size}".encode() + picture.tobytes())
    return digest.hexdigest()


def _text(config: dict[str, Any]) -> str:
    content = config.get("content")
    if isinstance(content, list):
        return "\n\n".join(part for part in cast("list[Any]", content) if isinstance(part, str))
    return str(content)


@dataclass(slots=True)
class Plan:
    """What a request means for its thread.

    `new` are the messages to take; with `answers` the last of them answers a question of the turn in flight, and is no
    message of its own. `goes_on`: the run that is there already goes on (`run_id`). `received` keeps what was answered.
    """

    new: list[InputMessage]
    raw: list[dict[str, Any]]
    run_id: str | None = None
    keep_run: bool = True
    answers: list[dict[str, Any]] | None = None
    system: str | None = None
    texts: list[str] = field(default_factory=list)
    goes_on: bool = False
    received: UserInputReceivedEvent | None = None


def plan_to_go_on(known: Known) -> Plan:
    """How a run that was cut, or paused, goes on where it stood."""
    answers = [] if known.run is None else list(known.run["answers"] or [])
    return Plan(
        [],
        [],
        run_id=known.head.run_id,
        answers=answers,
        system=known.system_text,
        texts=known.user_texts[-KNOWN_TEXTS:],
        goes_on=True,
    )


def plan(request: RunRequest, known: Known | None) -> Plan:
    """Decide what a request adds to its thread.

    Raises:
        InvalidRequest: nothing new in `messages`, the thread is another team's, or the answer is none to its question.
        Conflict: the question was answered already, or is another one, or its time is over.
    """
    if request.answer is not None:
        return _plan_answer(request.answer, known)
    sent = request.messages
    texts = [] if known is None else known.user_texts
    system = None if known is None else known.system_text
    is_known = known is not None and known.head.last_seq > 0
    if any(message.message is not None for message in sent):
        new, raw = list(sent), list(request.raw_messages)
    else:
        new = new_messages(sent, texts, known=is_known, last_system=system)
        raw = list(request.raw_messages[first_new(sent, texts, known=is_known) :])
    sent_system = system_text(sent)
    made = Plan(new, raw, system=system if sent_system is None else sent_system)
    made.texts = [*texts, *(message.text for message in new if message.role == "user")][-KNOWN_TEXTS:]
    if known is None:
        return made
    head = known.head
    if head.team is not None and head.team != request.team and (head.turn or head.status is RunStatus.AWAITING_INPUT):
        raise InvalidRequest(
            f"thread {head.thread_id!r} is a conversation with model {head.team!r}; start a new thread to talk to "
            f"{request.team!r}",
            param="model",
        )
    made.keep_run = head.status not in (RunStatus.ERROR, RunStatus.STOPPED, RunStatus.PAUSED)
    if head.status is RunStatus.AWAITING_INPUT:
        made.run_id, made.goes_on = head.run_id, True
        question = head.input_request or {}
        check_in_time(question)
        if question.get("kind") == "handoff":
            made.received = received(question, head.user_id, {"content": new[-1].text})
        else:
            _give(made, known, answer_from_text(question, new[-1].text))
    return made


def _give(made: Plan, known: Known, answer: dict[str, Any]) -> None:
    given = [] if known.run is None else list(known.run["answers"] or [])
    made.answers = [*given, answer]
    made.received = received(known.head.input_request or {}, known.head.user_id, answer)


def _plan_answer(answer: Answer, known: Known | None) -> Plan:
    head = None if known is None else known.head
    question = None if head is None else head.input_request
    check_current(question, answer)
    assert known is not None
    assert question is not None
    check_in_time(question)
    made = Plan([], [], run_id=known.head.run_id, system=known.system_text, texts=known.user_texts, goes_on=True)
    if question.get("kind") == "handoff":
        text = text_of(answer)
        made.new = [InputMessage("user", text)]
        made.raw = [{"role": "user", "content": text}]
        made.texts = [*known.user_texts, text][-KNOWN_TEXTS:]
        made.received = received(question, known.head.user_id, {"content": text})
    else:
        _give(made, known, answer_to(question, answer))
    return made


async def load(session: TeamSession, known: Known | None, made: Plan) -> Document | None:
    """Give a prepared team the thread's state. Returns the document it was loaded from; None: warm, or none stored.

    Raises:
        StateError: what is stored is damaged, of a later version, or not a state that the team takes.
    """
    if known is None:
        return None
    if known.warm is not None and known.warm.state is not None:
        if await session.adopt(known.warm.state, keep_run=made.keep_run):
            return None
        raise NotMovable
    assert known.stored is not None
    try:
        document = decode_stored(known.stored)
        if document is not None:
            resume = document.resume
            if resume.pending is not None and any(
                seq > resume.last_seq and not is_received(config) for seq, config in known.stored.configs.items()
            ):
                # The speakers of a run that was cut; the one that waits now has asked before its first turn was stored.
                made.keep_run, resume.pending = False, None
            await session.load(document, known.stored.configs, keep_run=made.keep_run)
    except DrSaiError as error:
        error.args = (f"thread {known.head.thread_id!r}: {error.message}",)
        error.message = error.args[0]
        raise
    except (ValueError, TypeError, KeyError, AttributeError, pydantic.ValidationError) as error:
        raise DamagedState(
            f"thread {known.head.thread_id!r}: the stored state is not one that this team takes", param="state"
        ) from error
    return document


class NotMovable(Exception):
    """The warm state does not fit the team that was built: load the stored one."""


def untaken(team: BaseGroupChat, known: Known | None, document: Document | None) -> list[tuple[int, BaseChatMessage]]:
    """The stored messages that no turn has taken up yet, with their numbers.

    They are the input of a run that was cut before its first turn was stored, and what was appended by hand. Unless the
    next task has them, no agent ever sees them.
    """
    if known is None or known.stored is None:
        return []  # A warm state has taken up all there is.
    after = 0 if document is None else document.resume.last_seq
    found: list[tuple[int, BaseChatMessage]] = []
    for seq in sorted(seq for seq in known.stored.configs if seq > after):
        message = team._message_factory.create(with_images(known.stored.configs[seq]))  # pyright: ignore[reportPrivateUsage]
        if isinstance(message, BaseChatMessage):
            found.append((seq, message))
    return found


def needs_first_boundary(team: BaseGroupChat) -> bool:
    """Whether the way from the task to the first speaker is worth storing, because a model chose him."""
    return type(manager_of(team)) not in _CHEAP_MANAGERS
