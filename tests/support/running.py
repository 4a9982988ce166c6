"""Run teams on stock AutoGen and on the turn runtime, and make what comes out comparable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage
from autogen_agentchat.teams import BaseGroupChat

from drsai_backend.state import Document, Entry, decode_document, encode_document, fold
from drsai_backend.state.codec import dump_json, load_json
from drsai_backend.teams.recording.recorder import Turn
from drsai_backend.teams.session import TeamSession, Watcher

Build = Callable[[], BaseGroupChat]

_VOLATILE = {"id", "created_at", "asked_at", "request_id", "full_message_id"}


def comparable(value: Any) -> Any:
    """JSON without ids and times. Tool calls keep theirs: scripts choose them."""
    if isinstance(value, (BaseChatMessage, BaseAgentEvent)):
        value = dict(value.dump())
    if isinstance(value, dict):
        keep = "arguments" in value and "name" in value
        return {k: comparable(v) for k, v in value.items() if keep or k not in _VOLATILE}
    if isinstance(value, (list, tuple)):
        return [comparable(item) for item in value]
    return load_json(dump_json(value))


def as_messages(task: Any) -> list[BaseChatMessage]:
    """A fresh list of fresh messages for a task."""
    if isinstance(task, str):
        return [TextMessage(content=task, source="user")]
    if isinstance(task, list):
        return [message.model_copy(deep=True) for message in task]
    return [task.model_copy(deep=True)]


async def run_stock(team: BaseGroupChat, task: Any) -> tuple[list[Any], str | None]:
    """Everything `run_stream` yields on AutoGen's own runtime, and the stop reason."""
    seen = [item async for item in team.run_stream(task=as_messages(task))]
    result = seen.pop()
    assert isinstance(result, TaskResult)
    return [comparable(message) for message in seen], result.stop_reason


class Stored:
    """What a database would hold of a thread: encoded journal, message dumps."""

    def __init__(self) -> None:
        self.payloads: list[str] = []
        self.configs: dict[int, dict[str, Any]] = {}
        self.pending: list[list[str] | None] = []
        self.counts: list[int] = []
        self.states: list[Any] = []

    def add(self, turn: Turn) -> None:
        self.payloads.append(turn.entry.encode(short=len(self.payloads) % 3 > 0))
        for message in turn.messages:
            self.configs[message.seq] = load_json(message.config.encode())
        self.pending.append(turn.entry.resume.pending)
        self.counts.append(len(self.configs))

    def document(self, upto: int | None = None, *, snapshot_at: int | None = None) -> Document:
        payloads = self.payloads[:upto]
        document = None
        if snapshot_at is not None:
            document = fold(None, map(Entry.decode, payloads[:snapshot_at]))
            assert document is not None
            document = decode_document(encode_document(document))
            payloads = payloads[snapshot_at:]
        document = fold(document, map(Entry.decode, payloads))
        assert document is not None
        return document


class TurnRun:
    """A run on the turn runtime that keeps what is emitted, in order, and stores every turn in `stored`."""

    def __init__(
        self,
        team: BaseGroupChat,
        stored: Stored,
        *,
        check_state: bool = False,
        first_boundary: bool = True,
        **options: Any,
    ) -> None:
        self.stored = stored
        self.seen: list[Any] = []
        self.boundaries: list[list[str] | None] = []
        self.session = TeamSession(team, next_seq=len(stored.configs) + 1, **options)
        self.session.report_first_boundary = first_boundary
        self._check_state = check_state
        # What `session.run` tells; a test may put something else in their place.
        self.on_turn: Any = self._turn
        self.on_chunk: Any = self.seen.append
        self.on_resumed: Any = None

    async def prepare(self) -> None:
        await self.session.prepare()
        recorder = self.session.recorder
        emit = recorder.emit

        def tap(message: Any) -> None:
            self.seen.append(message)
            emit(message)

        recorder.emit = tap  # type: ignore[method-assign]

    async def _turn(self, turn: Turn) -> None:
        self.boundaries.append(turn.entry.resume.pending)
        self.stored.add(turn)
        if self._check_state:
            self.stored.states.append(load_json(dump_json(await self.session.team.save_state())))

    async def run(self, task: Any = None, pending: list[str] | None = None) -> str | None:
        messages = None if task is None else as_messages(task)
        result, last = await self.run_session(messages, pending=pending)
        await self._turn(last)
        return result.stop_reason

    def run_session(self, messages: Any, **options: Any) -> Coroutine[Any, Any, tuple[TaskResult, Turn]]:
        """`TeamSession.run`, watched."""
        return self.session.run(messages, watcher=Watcher(self.on_turn, self.on_chunk, self.on_resumed), **options)

    @property
    def emitted(self) -> list[Any]:
        return [comparable(message) for message in self.seen]


async def prepared(team: BaseGroupChat, stored: Stored | None = None, **options: Any) -> TurnRun:
    run = TurnRun(team, stored or Stored(), **options)
    await run.prepare()
    return run


async def same_as_stock(build: Build, tasks: Sequence[Any] = ("Begin.", "Go on.")) -> TurnRun:
    """Two runs, each on a fresh team, like two runs of one team on stock. Returns the last."""
    stock, stored = build(), Stored()
    run: TurnRun | None = None
    for task in tasks:
        expected, reason = await run_stock(stock, task)
        run = await prepared(build(), stored)
        if stored.payloads:
            await run.session.load(stored.document(), stored.configs)
        async with asyncio.timeout(30):
            assert await run.run(task) == reason
        assert run.emitted == expected
        assert comparable(await run.session.team.save_state()) == comparable(await stock.save_state())
    assert run is not None
    return run
