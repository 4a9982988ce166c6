"""Load: the thread's state into the team, and the task that it is given."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, ThoughtEvent

from drsai_backend.database.runs.values import NewMessage
from drsai_backend.datamodel.base import JsonText
from drsai_backend.errors import DamagedState, InvalidRequest, StateError
from drsai_backend.runs.history.moved import told_before
from drsai_backend.runs.messages import check_types, input_messages, sign
from drsai_backend.runs.start.build import BuiltRun, refuse_unseen_images
from drsai_backend.runs.start.plan import Plan
from drsai_backend.runs.start.read import StoredThread
from drsai_backend.state import Document
from drsai_backend.state.store import decode_stored
from drsai_backend.teams.imported import import_messages, imported_role, in_words, tell
from drsai_backend.teams.kept_calls import NOBODY, is_kept, restore_calls
from drsai_backend.teams.messages import Message, create_message, is_received, misfit
from drsai_backend.teams.recording.recorder import dump_message, storable
from drsai_backend.teams.session import TeamSession

log = logging.getLogger("drsai.run")
_CHANGED: Final = "The team was changed since the last run. What it has no place for is left out: {}."


class NotMovable(Exception):
    """The warm state does not fit the team that was built: load the stored one."""


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """What a team that has the thread's state is to do: the `task`, or with None to resume at the boundary where
    `pending` were held, or without these to continue from an imported history. `rows` are the messages to store first,
    `given` those of them that the client has sent, behind what is to be told of a team that was changed."""

    task: list[BaseChatMessage] | None
    pending: list[str] | None
    rows: list[NewMessage]
    given: Sequence[tuple[int, BaseChatMessage | BaseAgentEvent]]


async def load(built: BuiltRun, thread: StoredThread | None, plan: Plan) -> LoadedRun:
    """Give the team the thread's state and its task.

    Raises:
        StateError: what is stored is damaged, of a later version, or not a state that the team takes.
        InvalidRequest: the team cannot take the request's messages.
        NotMovable: the warm state does not fit.
    """
    last_seq = 0 if thread is None else thread.head.last_seq
    begun = last_seq + 1 if thread is None or thread.run is None else thread.run["first_seq"]
    document, left_out, unconsumed = None, list[str](), list[tuple[int, Message]]()
    if thread is not None:
        with _naming(thread):
            document, left_out = await _load_state(built.session, thread, plan, begun)
            unconsumed = [] if plan.is_moved else _unconsumed_messages(built, thread, document)
    if thread is not None and thread.state is not None and document is not None:
        known = [pair for pair in thread.state.configs.items() if pair[0] <= document.resume.last_seq]
        for container, agent in built.session.recorder.newcomers:
            await tell(container, agent, told_before(built.team, known, thread.shown, is_same=True))
    rows: list[NewMessage] = []
    if plan.received is not None:
        last_seq += 1
        rows.append(NewMessage(last_seq, JsonText(storable(dump_message(plan.received)))))
    note: list[tuple[int, BaseAgentEvent]] = []
    if left_out and thread is not None:
        told = _CHANGED.format("; ".join(left_out))
        log.warning("a team was changed: %s", told, extra={"thread_id": thread.head.thread_id})
        if not plan.resumes:
            last_seq += 1
            note = [(last_seq, ThoughtEvent(content=told, source=NOBODY))]
            rows.append(NewMessage(last_seq, JsonText(storable(dump_message(note[0][1])))))
    recorder, team = built.session.recorder, built.team
    repeats = plan.answers is not None
    # The calls that are kept of a run which is retried are shown once more by the team.
    for seq, message in unconsumed:
        if seq >= begun and is_kept(message):
            recorder.know(seq, message)
    if repeats and document is not None and document.resume.pending is not None:
        recorder.next_seq = last_seq + 1
        return LoadedRun(None, document.resume.pending, rows, ())
    refuse_unseen_images(team, plan.new)
    given_now = check_types(team, () if repeats else plan.new)
    new = list(enumerate(input_messages(team, given_now) if given_now else (), last_seq + 1))
    for seq, message in new:
        sign(message, plan.author)
        config = dump_message(message)
        text = storable(config)
        if text is not config:
            raise InvalidRequest("a message holds NUL or a lone surrogate", param="messages")
        rows.append(NewMessage(seq, JsonText(text)))
    given = [*unconsumed, *new]
    # What runs that have ended have left is a conversation that was had, though no agent has taken it up: it is no part
    # of what is asked now.
    past: list[Message] = []
    if plan.is_moved and thread is not None and thread.state is not None:
        past += told_before(team, thread.state.configs.items(), thread.shown)
        past += [each for _, each in _unconsumed_messages(built, thread, None) if is_kept(each)]
    past += [each for seq, each in given if seq < begun or imported_role(each) is not None]
    task: list[BaseChatMessage] = []
    for kept, group in groupby(past, is_kept):
        messages = [*group]
        said = [each for each in messages if isinstance(each, BaseChatMessage)]
        said = said if built.takes_tools else in_words(said)
        task += await (restore_calls(team, messages) if kept else import_messages(team, said))
    is_past = set(map(id, past))
    for _, message in given:
        if id(message) not in is_past and isinstance(message, BaseChatMessage):
            task.append(message)
    is_task = set(map(id, task))
    for seq, message in given:
        recorder.know(seq, message, is_task=id(message) in is_task)
    for message in task:
        if is_kept(message):
            recorder.know(None, message)
    recorder.next_seq = last_seq + len(new) + 1
    # A history that ends with the results of tools is no task: the team continues from what it was told.
    return LoadedRun(task or None, None, rows, [*note, *new])


async def _load_state(
    session: TeamSession, thread: StoredThread, plan: Plan, begun: int
) -> tuple[Document | None, list[str]]:
    """The document that the state was loaded from, and what of it has no place in the team any more; None: warm, or
    none stored, or it is another team's. `begun`: number of the run's first message."""
    left_out: list[str] = []
    if plan.is_moved:
        return None, left_out
    if thread.warm is not None and thread.warm.state is not None:
        if await session.adopt(thread.warm.state, keep_run=plan.keep_run):
            return None, left_out
        raise NotMovable
    assert thread.state is not None
    configs, keep_run = thread.state.configs, plan.keep_run
    document = decode_stored(thread.state)
    if document is not None:
        resume = document.resume
        later = (seq for seq, config in configs.items() if seq > resume.last_seq and not is_received(config))
        if resume.pending is not None and resume.last_seq < begun and any(later):
            # The speakers of a run that was cut; this one has stored no turn yet.
            keep_run, resume.pending = False, None
        left_out = await session.load(document, configs, keep_run=keep_run)
    return document, left_out


@contextmanager
def _naming(thread: StoredThread) -> Generator[None]:
    """Around the use of what is stored of a thread. What is wrong with it is raised as a StateError, and is logged."""
    try:
        yield
    except (StateError, ValueError, TypeError, KeyError, AttributeError) as error:
        known = error if isinstance(error, StateError) else None
        thread_id = thread.head.thread_id
        why = f"the stored state is not one that this team takes: {misfit(error)}" if known is None else known.message
        text, param = f"thread {thread_id!r}: {why}", "state" if known is None else known.param
        log.error("a stored state cannot be used: %s", text, extra={"thread_id": thread_id}, exc_info=known is None)
        raise (DamagedState if known is None else type(known))(text, param=param) from error


def _unconsumed_messages(built: BuiltRun, thread: StoredThread, document: Document | None) -> list[tuple[int, Message]]:
    """The stored messages that no turn has taken up yet, with their numbers; without a document, all.

    They are the input of a run that was cut before its first turn was stored, what is kept of a turn that was cut, and
    what was appended by hand. Unless the team is told of them, no agent ever sees them.
    """
    if thread.state is None:
        return []  # A warm state has taken up all there is.
    after = 0 if document is None else document.resume.last_seq
    found: list[tuple[int, Message]] = []
    for seq in sorted(seq for seq in thread.state.configs if seq > after):
        factory = built.team._message_factory  # pyright: ignore[reportPrivateUsage]
        message = create_message(factory, thread.state.configs[seq], seq)
        if isinstance(message, BaseChatMessage) or is_kept(message):
            found.append((seq, message))
    return found
