"""A stand-in for the engine: it plays scripted events, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from autogen_agentchat.messages import TextMessage

from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import DrSaiError, NotFound, UnknownModel
from drsai_backend.runs.events import MessageDone, RunEnded, RunEvent, RunRequest, TextDelta
from drsai_backend.runs.history import new_messages
from drsai_backend.runs.views import StoredMessage, ThreadDetail, ThreadPage, ThreadSummary

USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
COMPLETED = RunEnded(RunStatus.COMPLETED, "done", USAGE, 0.25)

# A step is an event, a pause in seconds, or something to wait for.
Step: TypeAlias = "RunEvent | float | asyncio.Event"
Script: TypeAlias = Callable[[RunRequest], Iterable[Step]]


def said(source: str, text: str, seq: int = 1, *, shown: bool = True, id: str | None = None) -> MessageDone:
    """A stored text message."""
    message = TextMessage(source=source, content=text)
    if id is not None:
        message.id = id
    return MessageDone(seq, message, shown)


def spoken(source: str, *parts: str, seq: int = 1, id: str | None = None) -> list[RunEvent]:
    """A text message as an agent streams it."""
    return [*(TextDelta(source, part, id) for part in parts), said(source, "".join(parts), seq, id=id)]


def echo(request: RunRequest) -> Iterable[Step]:
    """A lone agent that repeats the last words, streamed."""
    text = request.messages[-1].text
    yield said("user", text, 1, shown=False)
    yield from spoken("assistant", "You said: ", text, seq=2)
    yield COMPLETED


def writers(request: RunRequest) -> Iterable[Step]:
    """A group chat of two."""
    yield said("user", request.messages[-1].text, 1, shown=False)
    yield from spoken("writer", "A draft", " of it.", seq=2)
    yield said("reviewer", "APPROVE", 3)
    yield COMPLETED


class FakeHandle:
    """A run of the fake engine: a task that plays the script, whoever listens."""

    def __init__(self, request: RunRequest, run_id: str, thread_id: str, speakers: int, script: Script) -> None:
        self.run_id = run_id
        self.thread_id = thread_id
        self.team = request.team
        self.user_id = request.user_id
        self.created = 1_700_000_000
        self.speakers = speakers
        self.played: list[RunEvent] = []
        self.closed = False
        self._seen = 0
        self._news = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._play(script(request)))

    async def _play(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                self.played.append(step)
                self._news.set()

    async def events(self) -> AsyncIterator[RunEvent]:
        try:
            while True:
                while self._seen == len(self.played):
                    if self.task.done():
                        self.task.result()
                        return
                    self._news.clear()
                    waiter = asyncio.create_task(self._news.wait())
                    try:
                        await asyncio.wait({waiter, self.task}, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        waiter.cancel()
                self._seen += 1
                yield self.played[self._seen - 1]
                if isinstance(self.played[self._seen - 1], RunEnded):
                    return
        finally:
            self.closed = True

    def poll(self) -> list[RunEvent]:
        ready = self.played[self._seen :]
        self._seen = len(self.played)
        return ready

    async def wait(self) -> RunEnded:
        await self.task
        return next(event for event in self.played if isinstance(event, RunEnded))

    def transcript(self) -> list[MessageDone]:
        return [event for event in self.played if isinstance(event, MessageDone)]


class FakeTeams:
    created = 1_600_000_000

    def __init__(self, scripts: dict[str, tuple[int, Script]]) -> None:
        self.scripts = scripts

    def names(self) -> list[str]:
        return list(self.scripts)

    def description(self, name: str, /) -> str:
        return f"the {name}"


class FakeDatabase:
    broken: Exception | None = None

    async def get(
        self, model: type[Any], /, filters: dict[str, Any] | None = None, *, limit: int | None = None
    ) -> list[Any]:
        if self.broken:
            raise self.broken
        return []


@dataclass
class FakeEngine:
    """`scripts`: by team, its number of speakers and what a run of it does."""

    scripts: dict[str, tuple[int, Script]] = field(
        default_factory=lambda: {"assistant": (1, echo), "writers": (2, writers)}
    )
    refusal: DrSaiError | Exception | None = None
    requests: list[RunRequest] = field(default_factory=list)
    handles: list[FakeHandle] = field(default_factory=list)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.teams = FakeTeams(self.scripts)
        self.db = FakeDatabase()

    def play(self, *steps: Step, speakers: int = 1, name: str = "scripted") -> str:
        """Add a team that plays these steps; returns its name."""
        self.scripts[name] = (speakers, lambda _: steps)
        return name

    async def start(self, request: RunRequest) -> FakeHandle:
        if self.refusal is not None:
            raise self.refusal
        if request.team not in self.scripts:
            raise UnknownModel(f"there is no model {request.team!r} here", param="model")
        new_messages(request.messages, [], known=False, last_system=None)
        self.requests.append(request)
        thread_id = request.thread_id or f"thread-{len(self.requests)}"
        self.threads.setdefault((request.user_id, thread_id), len(self.threads))
        speakers, script = self.scripts[request.team]
        handle = FakeHandle(request, f"run-{len(self.requests)}", thread_id, speakers, script)
        self.handles.append(handle)
        return handle

    async def finish(self) -> None:
        """Let every run end."""
        await asyncio.gather(*(handle.task for handle in self.handles), return_exceptions=True)

    def _detail(self, user_id: str, thread_id: str) -> ThreadDetail:
        number = self.threads.get((user_id, thread_id))
        if number is None:
            raise NotFound(f"there is no thread {thread_id!r}", param="thread_id")
        time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
        return ThreadDetail(
            thread_id=thread_id,
            title=f"Title {number}",
            status=RunStatus.COMPLETED,
            team="assistant",
            created_at=time,
            updated_at=time,
            message_count=3,
            meta={"color": "blue"},
            run_id="run-1",
        )

    async def list_threads(self, user_id: str, *, after: str | None, limit: int) -> ThreadPage:
        own = [thread_id for owner, thread_id in self.threads if owner == user_id][::-1]
        start = own.index(after) + 1 if after else 0
        items = [
            ThreadSummary.model_validate(self._detail(user_id, thread_id).model_dump())
            for thread_id in own[start : start + limit]
        ]
        more = start + limit < len(own)
        return ThreadPage(items=items, next=items[-1].thread_id if more else None)

    async def get_thread(self, user_id: str, thread_id: str) -> ThreadDetail:
        return self._detail(user_id, thread_id)

    async def list_messages(self, user_id: str, thread_id: str, *, after: int, limit: int) -> Sequence[StoredMessage]:
        detail = self._detail(user_id, thread_id)
        messages = [said("assistant", f"message {seq}", seq) for seq in range(1, 4)]
        return [
            StoredMessage(
                seq=done.seq,
                id=f"m{done.seq}",
                source=done.message.source,
                type="TextMessage",
                content=done.message.to_text(),
                created_at=detail.created_at,
                run_id="run-1",
                message=done.message.model_dump(mode="json"),
            )
            for done in messages
            if done.seq > after
        ][:limit]

    async def delete_thread(self, user_id: str, thread_id: str) -> None:
        self._detail(user_id, thread_id)
        del self.threads[user_id, thread_id]
