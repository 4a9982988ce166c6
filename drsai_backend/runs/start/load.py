"""Load puts the thread's state into the team, and gives the task."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage, ThoughtEvent
from autogen_agentchat.teams import BaseGroupChat

from drsai_backend.database.runs.values import NewMessage
from drsai_backend.datamodel.base import JsonText
from drsai_backend.errors import DamagedState, StateError
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.messages import as_message, check_types, input_messages, storable_dumps
from drsai_backend.runs.requests import InputMessage
from drsai_backend.runs.start.build import BuiltRun, refuse_unseen_images
from drsai_backend.runs.start.plan import Plan
from drsai_backend.runs.start.read import StoredThread
from drsai_backend.runs.transcript import asked_after, is_shown, said_to
from drsai_backend.state import Document
from drsai_backend.state.store import decode_stored
from drsai_backend.teams.imported import answers, import_messages, imported_role, in_words, mark, tell
from drsai_backend.teams.kept_calls import NOBODY, is_kept, restore_calls
from drsai_backend.teams.messages import Message, aside_of, create_message, is_received, misfit, read_message
from drsai_backend.teams.recording.recorder import dump_message, storable
from drsai_backend.teams.session import TeamSession
from drsai_backend.teams.team_tree import tree_of

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
    recorder, team = built.session.recorder, built.team
    document, changed, unconsumed = None, "", list[tuple[int, Message]]()
    if thread is not None:
        document, changed, unconsumed = await _restore(built, thread, plan, begun)
    first = [] if plan.received is None else [(last_seq + 1, plan.received)]
    last_seq += len(first)
    note: list[tuple[int, BaseAgentEvent]] = []
    if changed and not plan.resumes:
        last_seq += 1
        note = [(last_seq, ThoughtEvent(content=changed, source=NOBODY))]
    rows = [NewMessage(seq, JsonText(storable(dump_message(message)))) for seq, message in (*first, *note)]
    repeats = plan.answers is not None
    if repeats and document is not None and document.resume.pending is not None:
        recorder.next_seq = last_seq + 1
        return LoadedRun(None, document.resume.pending, rows, ())
    refuse_unseen_images(team, plan.new)
    given_now = check_types(team, () if repeats else plan.new)
    messages = input_messages(team, given_now) if given_now else []
    new = list(enumerate(messages, last_seq + 1))
    rows += map(NewMessage, range(last_seq + 1, last_seq + 1 + len(new)), storable_dumps(messages, plan.author))
    given = [*unconsumed, *new]
    # What runs that have ended have left is a conversation that was had, though no agent has taken it up: it is no part
    # of what is asked now.
    past: list[Message] = []
    if plan.is_moved and thread is not None and thread.state is not None:
        past += told_before(team, thread.state.configs.items(), thread.shown)
        past += [each for _, each in _unconsumed_messages(built, thread, None) if is_kept(each)]
    past += [each for seq, each in given if seq < begun or imported_role(each) is not None]
    task = await _as_had(built, past) if past else []
    is_past = set(map(id, past))
    task += [each for _, each in given if id(each) not in is_past and isinstance(each, BaseChatMessage)]
    is_task = set(map(id, task))
    for seq, message in given:
        recorder.know(seq, message, is_task=id(message) in is_task)
    for message in filter(is_kept, task):
        recorder.know(None, message)
    recorder.next_seq = last_seq + len(new) + 1
    # A history that ends with the results of tools is no task: the team continues from what it was told.
    return LoadedRun(task or None, None, rows, [*note, *new])


async def _restore(
    built: BuiltRun, thread: StoredThread, plan: Plan, begun: int
) -> tuple[Document | None, str, list[tuple[int, Message]]]:
    """Give the team the thread's state. Returns the document that it was loaded from, as `_load_state`, what to say of
    a team that was changed since ("": nothing), and the messages that no turn has taken up."""
    with _naming(thread):
        document, left_out = await _load_state(built.session, thread, plan, begun)
        unconsumed = [] if plan.is_moved else _unconsumed_messages(built, thread, document)
    if thread.state is not None and document is not None:
        known = [pair for pair in thread.state.configs.items() if pair[0] <= document.resume.last_seq]
        for container, agent in built.session.recorder.newcomers:
            await tell(container, agent, told_before(built.team, known, thread.shown, is_same=True))
    # The calls that are kept of a run which is retried are shown once more by the team.
    for seq, message in unconsumed:
        if seq >= begun and is_kept(message):
            built.session.recorder.know(seq, message)
    changed = ""
    if left_out:
        changed = _CHANGED.format("; ".join(left_out))
        log.warning("a team was changed: %s", changed, extra={"thread_id": thread.head.thread_id})
    return document, changed, unconsumed


async def _as_had(built: BuiltRun, past: Iterable[Message]) -> list[BaseChatMessage]:
    """Let the team know a conversation that was had. Returns what of it is part of its task all the same."""
    task: list[BaseChatMessage] = []
    for kept, group in groupby(past, is_kept):
        messages = [*group]
        said = [each for each in messages if isinstance(each, BaseChatMessage)]
        said = said if built.takes_tools else in_words(said)
        task += await (restore_calls(built.team, messages) if kept else import_messages(built.team, said))
    return task


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


def told_before(
    team: BaseGroupChat,
    messages: Iterable[tuple[int, JsonObject]],
    shown: Mapping[int, bool | None],
    *,
    is_same: bool = False,
) -> list[BaseChatMessage]:
    """The stored messages of another team, numbered dumps, as a history that `team` has had: what the user said, and
    what they were shown. `shown` says of each number whether it was (None: not known). `is_same`: they are its own, and
    who said them said them, unless one agent alone is left to have done so."""
    told: list[BaseChatMessage] = []
    by_name = is_same and len(tree_of(team).agents) > 1
    last: str | None = None
    for seq, config in messages:
        role = imported_role(config)
        if is_received(config):
            told += answers(team, asked_after(config.get("input_request"), last))
            if (said := said_to(config)).strip():
                told.append(as_message(InputMessage("user", said), mark("user")))
            last = None
            continue
        message = read_message(config)
        if not isinstance(message, BaseChatMessage) or role == "system":
            continue
        known = shown.get(seq)
        if role in ("assistant", "calls") or (role is None and (is_shown(message) if known is None else known)):
            last = message.to_text()
            mine = TextMessage(content=last, source=message.source, metadata=mark("assistant"))
            told += [mine] if by_name and last else answers(team, last)
        elif role == "user" or (message.source == "user" and aside_of(message) is None):
            last = None
            given = InputMessage("user", InputMessage.of(message).content)
            if not given.is_empty:
                told.append(as_message(given, mark("user")))
    return told


@contextmanager
def _naming(thread: StoredThread) -> Generator[None]:
    """Name the thread around the use of what is stored of it. What is wrong with that is raised as a StateError, and is
    logged."""
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
