"""The recorder keeps what a team emits and how its state changes, turn by turn."""

from __future__ import annotations

# Private: how AutoGen's teams, conditions and workbenches keep what they are. tests/teams/test_upstream.py.
# pyright: reportPrivateUsage=false
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from typing import Any

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._graph._digraph_group_chat import GraphFlowManager

from drsai_backend.errors import DamagedState
from drsai_backend.json_types import JsonObject, storable_value
from drsai_backend.state import Document, Entry, Item, ResumeRecord, expand
from drsai_backend.state.codec import dump_json, load_json
from drsai_backend.state.journal import Path, put
from drsai_backend.teams.messages import Message, create_message, dump_of
from drsai_backend.teams.recording.cells import ListCell, MessageBook, MessageObjects, fitting, weight_of
from drsai_backend.teams.recording.structure import MEMORY, Counts, survey
from drsai_backend.teams.runtime.wiring import container_of, manager_of
from drsai_backend.teams.team_tree import TeamTree, is_a


@dataclass(slots=True)
class RecordedMessage:
    """A message the turn emitted; `config` is its dump as JSON text."""

    seq: int
    message: Message
    config: str


@dataclass(slots=True)
class Turn:
    """What one turn adds to the stored thread."""

    entry: Entry
    messages: list[RecordedMessage] = field(default_factory=list)


@dataclass(slots=True)
class WarmState:
    """The state of a team at a stored turn, as objects to be moved into a fresh team of the same shape.

    It holds messages and values only: neither the team nor its agents and model clients.
    """

    signature: list[tuple[Path, type]]
    contents: list[Any]
    book: MessageBook
    conditions: list[JsonObject | None]
    movable: bool
    size: int
    """About how many bytes it takes: within 0.8 to 1.3 times what it does."""


class Recorder:
    """Watches one wired team. `next_seq` is the number of the next message of the thread."""

    def __init__(self, tree: TeamTree, next_seq: int) -> None:
        self._team = tree.team
        self._teams = tree.teams
        conditions = [each._termination_condition for each in tree.teams]
        self._counts = [None if each is None else Counts.of(each) for each in conditions]
        self._structure = survey(tree.team)
        self._book = MessageBook()
        self._emitted: list[tuple[int, Message]] = []
        self._awaited: list[Message] = []
        """Task messages, which are stored already and which the team is about to show."""
        self._has_document = False
        self.newcomers: Sequence[tuple[ChatAgentContainer, object]] = ()
        """The agents that the state which was loaded does not know."""
        self.next_seq = next_seq

    # --- taking a state in --------------------------------------------------------------------------------------

    async def load(self, document: Document, configs: Mapping[int, JsonObject], *, keep_run: bool) -> list[str]:
        """Load a stored state into the team. `keep_run=False` leaves out what belongs to the run it was cut from.
        Returns what of the state a team that was changed since has no place for, in words.

        Raises:
            DamagedState: the document refers to messages that are not in `configs`.
            ValueError, pydantic.ValidationError: AutoGen does not accept the state.
        """
        left_out: list[str] = []
        mine = [cell.path for cell in self._structure.cells]
        same = _but_memories(mine) == _but_memories(document.cells)
        if same:
            await self._restore(document, configs)
            self._has_document = mine == document.cells
        else:
            # A team that was changed since keeps what fits; its next turn stores a whole new document.
            state, _ = expand(document, configs)
            fresh = dict(await self._team.save_state())
            left_out = [*_left_out(fresh, state)]
            try:
                await self._team.load_state(_fitted(fresh, state))
            except ValueError:
                for seq, config in configs.items():
                    create_message(
                        manager_of(self._team)._message_factory, config, seq
                    )  # Raises for the one that it is.
                raise
            self.newcomers = [*_newcomers(self._team, fresh, state)]
            for container, _ in self.newcomers:
                container._message_buffer.clear()  # It is part of what they are to be told.
        await self._settle(document.resume.conditions if same else [], keep_run=keep_run)
        return left_out

    async def adopt(self, warm: WarmState, *, keep_run: bool) -> bool:
        """Move the objects of `warm` into the team. False, and nothing done, when the shapes differ."""
        mine = self._structure
        if not (mine.movable and warm.movable) or mine.signature != warm.signature:
            return False
        for cell, content in zip((*mine.cells, *mine.derived), warm.contents, strict=True):
            await cell.adopt(content)
        self._book = warm.book
        self._has_document = True
        await self._settle(warm.conditions, keep_run=keep_run)
        return True

    def give(self, resume: ResumeRecord) -> WarmState:
        """The team's state as objects, for a later `adopt`. The team must not run again."""
        mine = self._structure
        cells = (*mine.cells, *mine.derived)
        contents: list[object] = [cell.release() for cell in cells]
        size = self._book.weight + sum(map(weight_of, cells, contents))
        return WarmState(mine.signature, contents, self._book, resume.conditions, mine.movable, size)

    async def _restore(self, document: Document, configs: Mapping[int, JsonObject]) -> None:
        """Fill every cell. What `load_state` would do by way of the full state, in which every message is held several
        times; here it is made into an object once, and shared as it is in a team that has run."""
        messages = MessageObjects(configs)
        numbers = {path: number for number, path in enumerate(document.cells)}
        cells = [(numbers[cell.path], cell) for cell in self._structure.cells if cell.path in numbers]
        # Model contexts are made from messages, so those come first.
        cells.sort(key=lambda numbered: isinstance(numbered[1], ListCell) and numbered[1].is_context)
        for number, cell in cells:
            with fitting(cell.path):
                if isinstance(cell, ListCell):
                    try:
                        cell.restore(document.lists[number], messages)
                    except (KeyError, IndexError, TypeError, AttributeError):
                        text = "the state refers to a message that is not stored"
                        raise DamagedState(text, param="messages") from None
                else:
                    value: object = reduce(getitem, cell.path, document.skeleton)
                    await cell.restore(value)
        self._book.add_all(messages.made)
        for manager in self._structure.selectors:
            # As its load_state would.
            chat = [message for message in manager._message_thread if isinstance(message, BaseChatMessage)]
            await manager._add_messages_to_context(manager._model_context, chat)

    async def _settle(self, conditions: Sequence[JsonObject | None], *, keep_run: bool) -> None:
        if keep_run:
            for counts, state in zip(self._counts, conditions, strict=False):
                if counts is not None:
                    counts.restore(state)
        else:
            for team in self._teams:
                manager = manager_of(team)
                manager._current_turn = 0
                if isinstance(manager, GraphFlowManager):
                    manager._reset_execution_state()
                    manager._triggered_activation_groups = {}

    # --- what happens -------------------------------------------------------------------------------------------

    def know(self, seq: int | None, message: Message, *, is_task: bool = True) -> None:
        """`message` is stored already, under this number, or with None is not to be stored; as part of the task, it
        will be shown by the team."""
        if seq is not None:
            self._book.add(seq, message)
        if is_task:
            self._awaited.append(message)

    def emit(self, message: Message) -> None:
        """The team shows `message`. Task messages, which are stored before the run, are passed over."""
        # Once each, for an agent may well show an object again that it, or the user, has shown before.
        for position, awaited in enumerate(self._awaited):
            if awaited is message or _is_again(awaited, message):
                del self._awaited[position]
                return
        self._emitted.append((self.next_seq, message))
        self.next_seq += 1

    async def capture(self, pending: list[str] | None, *, paused: bool = False) -> Turn:
        """Return what has changed since the last call. `pending`: the held speakers; None at the end of the run.
        `paused`: the agents have been told of a pause."""
        messages = [self._record(seq, message) for seq, message in self._emitted]
        self._emitted = []
        self._awaited.clear()
        resume = ResumeRecord(
            pending,
            [None if counts is None else counts.capture() for counts in self._counts],
            self.next_seq - 1,
            paused,
        )
        cells = self._structure.cells
        if self._has_document:
            entry = Entry(resume)
            for number, cell in enumerate(cells):
                waiting = cell.delta(number, self._book, entry)
                if waiting is not None:
                    await waiting
        else:
            entry = Entry(resume, doc=await self._document(resume))
            self._has_document = True
        return Turn(entry, messages)

    def _record(self, seq: int, message: Message) -> RecordedMessage:
        config = dump_message(message)
        stored = storable(config)
        if stored is config:
            self._book.add(seq, message)
        return RecordedMessage(seq, message, stored)

    async def _document(self, resume: ResumeRecord) -> Document:
        skeleton = self._structure.skeleton  # Made for this run; only its first turn needs it.
        cells = self._structure.cells
        lists: dict[int, list[Item]] = {}
        for number, cell in enumerate(cells):
            if isinstance(cell, ListCell):
                lists[number] = cell.whole(self._book)
            else:
                put(skeleton, cell.path, await cell.whole())
        return Document(skeleton, [cell.path for cell in cells], lists, resume)


def _is_again(known: Message, event: Message) -> bool:
    """Whether an event, of a turn that is repeated, is one that is stored already."""
    said = {"type", "source", "content"}
    return isinstance(known, BaseAgentEvent) and known.model_dump(include=said) == event.model_dump(include=said)


def _but_memories(paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths if path[-1] != MEMORY]


def dump_message(message: Message) -> str:
    """`dump_of` as JSON text."""
    return dump_json(dump_of(message)).decode()


def storable(config: str) -> str:
    """The text itself, or what is left of it without characters that a database cannot hold in a JSON column."""
    if "\\u0000" not in config and "\\ud" not in config:
        return config
    value = load_json(config.encode())
    clean = storable_value(value)
    return config if clean == value else dump_json(clean).decode()


def _left_out(fresh: JsonObject, stored: JsonObject, name: str = "the team") -> Iterator[str]:
    """Yield what of a stored state `_fitted` drops, by the names of agents and teams; what starts fresh and had nothing
    to keep is not told."""
    if "agent_states" in fresh and "agent_states" in stored:
        new, old = fresh["agent_states"], stored["agent_states"]
        for each, state in old.items():
            if each in new:
                yield from _left_out(new[each], state, each)
            elif "message_thread" not in state:
                yield f"{each} is gone"
    elif "message_buffer" in fresh and "message_buffer" in stored:
        yield from _left_out(fresh["agent_state"], stored["agent_state"], name)
    elif "message_thread" not in stored and (fresh.keys() != stored.keys() or fresh.get("type") != stored.get("type")):
        yield f"{name} is another kind of agent"


def _newcomers(
    team: BaseGroupChat, fresh: JsonObject, stored: JsonObject | None
) -> Iterator[tuple[ChatAgentContainer, object]]:
    """The agents that `_fitted` lets start fresh; all, where nothing is stored of their team."""
    new: JsonObject | None = fresh.get("agent_states")
    old: JsonObject | None = {} if stored is None else stored.get("agent_states")
    if new is None or old is None:
        return  # The team saves its state in a way of its own.
    for position, (name, agent) in enumerate(zip(team._participant_names, team._participants, strict=True)):
        kept: JsonObject = old.get(name, {})
        mine, theirs = new[name]["agent_state"], kept.get("agent_state")
        if is_a(agent, BaseGroupChat):
            yield from _newcomers(agent, mine, theirs)
        elif theirs is None or _fitted(mine, theirs) is mine:
            yield container_of(team, position), agent


def _fitted(fresh: JsonObject, stored: JsonObject) -> JsonObject:
    """A stored state made to fit a team that has been changed: what it has no place for is dropped, what is new starts
    fresh. A manager whose participants have changed keeps its message thread alone."""
    if "agent_states" in fresh and "agent_states" in stored:
        new, old = fresh["agent_states"], stored["agent_states"]
        agents = {name: _fitted(state, old.get(name, {})) for name, state in new.items()}
        if new.keys() != old.keys():
            for name, state in new.items():
                if "message_thread" in state and "message_thread" in old.get(name, {}):
                    agents[name] = {**state, "message_thread": old[name]["message_thread"]}
        return {**fresh, "agent_states": agents}
    if "message_buffer" in fresh and "message_buffer" in stored:
        inner = _fitted(fresh["agent_state"], stored["agent_state"])
        return {**fresh, "message_buffer": stored["message_buffer"], "agent_state": inner}
    same = fresh.keys() == stored.keys() and fresh.get("type") == stored.get("type")
    return stored if same else fresh
