"""A stand-in for the engine: it plays scripted events, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from drsai_backend.access.principal import Principal
from drsai_backend.catalog import ListedTeam
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import DrSaiError, NotFound, StaleAnswer, UnknownModel
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page, cut
from drsai_backend.runs.events import Logged, Position, RunEnded
from drsai_backend.runs.messages import new_messages
from drsai_backend.runs.requests import Answer, Ask, InputMessage, Origin, Where
from drsai_backend.runs.threads.views import (
    InputRequestPage,
    RunPage,
    RunView,
    StoredMessage,
    ThreadDetail,
    ThreadPage,
    ThreadSummary,
)
from tests.api.scripts import FakeHandle, Script, Step, echo, follow, said, writers


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
    database: Any = None

    tried = 0

    async def try_write(self) -> None:
        self.tried += 1
        await asyncio.sleep(0)
        if self.broken:
            raise self.broken


class FakeSideCalls:
    """Takes nothing for housekeeping."""

    def kind_of(self, messages: Sequence[InputMessage], said: bool | None = None) -> str | None:
        return None


class FakeRepeats:
    """Joins nothing."""

    @contextmanager
    def listening(self, handle: object) -> Iterator[None]:
        yield

    def withdraw(self, handle: object) -> bool:
        return True


@dataclass
class FakeEngine:
    """`scripts`: by team, its number of speakers and what a run of it does."""

    scripts: dict[str, tuple[int, Script]] = field(
        default_factory=lambda: {"assistant": (1, echo), "writers": (2, writers)}
    )
    refusal: DrSaiError | Exception | None = None
    drained: None = None
    requests: list[Ask] = field(default_factory=list)
    askers: list[Principal] = field(default_factory=list)
    handles: list[FakeHandle] = field(default_factory=list)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    """What else the engine was asked to do."""
    followers: int = 0
    """Logs that are being followed."""

    def __post_init__(self) -> None:
        self.teams = FakeTeams(self.scripts)
        self.side_calls = FakeSideCalls()
        self.calls: Any = None
        self.repeats = FakeRepeats()
        self.db = FakeDatabase()
        self.webhooks: Any = None
        self.tools: Any = None
        self.mcp: Any = None
        self.agents: Any = None
        self.files = SimpleNamespace(reachable=None)

    def play(self, *steps: Step, speakers: int = 1, name: str = "scripted") -> str:
        """Add a team that plays these steps; returns its name."""
        self.scripts[name] = (speakers, lambda _: steps)
        return name

    def check_open(self) -> None:
        pass

    async def check_name(self, who: Principal, body: JsonObject, *, later: bool = False) -> None:
        model = body.get("model")
        if not later and isinstance(model, str) and 0 < len(model) <= 255 and model not in self.scripts:
            raise UnknownModel(f"there is no model {model!r} here", param="model")

    async def check_team(self, who: Principal, team: str, where: Where | None = None) -> None:
        if team not in self.scripts:
            raise UnknownModel(f"there is no model {team!r} here", param="model")

    async def offers(self, who: Principal) -> list[ListedTeam]:
        return [ListedTeam(name, self.teams.description(name)) for name in self.scripts]

    def stops_on_disconnect(self, team: str) -> bool:
        return False

    async def start(self, ask: Ask, who: Principal) -> FakeHandle:
        if self.refusal is not None:
            raise self.refusal
        if ask.team not in self.scripts:
            raise UnknownModel(f"there is no model {ask.team!r} here", param="model")
        if ask.answer is None:
            new_messages(ask.messages, [], known=False, last_system=None)
        self.requests.append(ask)
        self.askers.append(who)
        thread_id = ask.where.thread_id or f"thread-{len(self.requests)}"
        self.threads.setdefault((who.user_id, thread_id), len(self.threads))
        speakers, script = self.scripts[ask.team]
        at = Position(0, len(self.requests))
        handle = FakeHandle(ask, who.user_id, f"run-{len(self.requests)}", thread_id, speakers, script, at)
        self.handles.append(handle)
        return handle

    async def answer(
        self,
        who: Principal,
        thread_id: str,
        answer: Answer,
        *,
        origin: Origin,
    ) -> FakeHandle:
        self._detail(who, thread_id)
        if answer.request_id != "q1":
            raise StaleAnswer("the thread does not wait for this answer", param="id")
        self.asked.append(("answer", who.user_id, thread_id, answer))
        team = next(iter(self.scripts))
        return await self.start(Ask(team, answer=answer, where=Where(thread_id)), who)

    async def _control(self, act: str, who: Principal, thread_id: str) -> ThreadDetail:
        detail = self._detail(who, thread_id)
        self.asked.append((act, who.user_id, thread_id))
        return detail.model_copy(update={"control": act})

    async def cancel(self, who: Principal, thread_id: str) -> ThreadDetail:
        return await self._control("cancel", who, thread_id)

    async def pause(self, who: Principal, thread_id: str) -> ThreadDetail:
        return await self._control("pause", who, thread_id)

    async def resume(self, who: Principal, thread_id: str) -> ThreadDetail:
        return await self._control("resume", who, thread_id)

    async def retry(self, who: Principal, thread_id: str) -> ThreadDetail:
        return await self._control("retry", who, thread_id)

    async def cancel_run(self, who: Principal, run_id: str) -> RunView:
        view = await self.get_run(who, run_id)
        self.asked.append(("cancel_run", who.user_id, run_id))
        return view

    def _handle(self, who: Principal, run_id: str) -> FakeHandle:
        for handle in self.handles:
            if (handle.user_id, handle.run_id) == (who.user_id, run_id):
                return handle
        raise NotFound(f"there is no run {run_id!r}", param="run_id")

    async def get_run(self, who: Principal, run_id: str) -> RunView:
        handle = self._handle(who, run_id)
        ended = handle.played[-1] if handle.played else None
        return RunView(
            run_id=run_id,
            thread_id=handle.thread_id,
            team=handle.team,
            status=ended.status if isinstance(ended, RunEnded) else RunStatus.RUNNING,
            background=handle.ask.how.background,
            created_at=datetime.fromtimestamp(handle.created, UTC),
        )

    async def find_run(self, who: Principal, run_id: str) -> tuple[RunView, Owner]:
        return await self.get_run(who, run_id), who.owner

    async def check_readable(self, who: Principal, thread_id: str | ThreadName) -> None:
        self.asked.append(("check_readable", who.user_id))

    async def run_answered(self, handle: FakeHandle) -> RunView:
        return await self.get_run(Principal(handle.user_id), handle.run_id)

    async def list_runs(
        self, who: Principal, thread_id: str | None, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> RunPage:
        self._detail(who, thread_id)
        own = [handle.run_id for handle in self.handles if handle.thread_id == thread_id][::-1]
        start = own.index(after) + 1 if after else 0
        page = own[start : start + limit]
        return RunPage(
            items=[await self.get_run(who, run_id) for run_id in page],
            next=page[-1] if start + limit < len(own) else None,
        )

    async def follow_run(self, who: Principal, run_id: str, after: Position | None) -> AsyncIterator[Logged]:
        handle = self._handle(who, run_id)
        with self._following():
            async for logged in follow(handle, after):
                yield logged
                if isinstance(logged.event, RunEnded):
                    return

    async def check_thread(self, who: Principal, thread_id: str, right: object = None) -> None:
        self._detail(who, thread_id)

    async def follow_thread(self, who: Principal, thread_id: str, after: Position | None) -> AsyncIterator[Logged]:
        self._detail(who, thread_id)
        with self._following():
            told = 0
            while True:
                own = [handle for handle in self.handles if handle.thread_id == thread_id]
                for handle in own[told:]:
                    async for logged in follow(handle, after):
                        yield logged
                told = len(own)
                await asyncio.sleep(0.01)

    @contextmanager
    def _following(self) -> Iterator[None]:
        self.followers += 1
        try:
            yield
        finally:
            self.followers -= 1

    async def finish(self) -> None:
        """Let every run end."""
        for handle in self.handles:
            handle.task.cancel()  # What a failed test has left waiting.
        await asyncio.gather(*(handle.task for handle in self.handles), return_exceptions=True)

    def _detail(self, who: Principal, thread_id: str) -> ThreadDetail:
        number = self.threads.get((who.user_id, thread_id))
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

    async def list_input_requests(self, who: Principal, *, after: str | None, limit: int) -> InputRequestPage:
        return InputRequestPage(items=[])

    async def list_threads(
        self, who: Principal, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> ThreadPage:
        own = [thread_id for owner, thread_id in self.threads if owner == who.user_id][::-1]
        start = own.index(after) + 1 if after else 0
        items = [
            ThreadSummary.model_validate(self._detail(who, thread_id).model_dump())
            for thread_id in own[start : start + limit]
        ]
        more = start + limit < len(own)
        return ThreadPage(items=items, next=items[-1].thread_id if more else None)

    async def get_thread(self, who: Principal, thread_id: str) -> ThreadDetail:
        return self._detail(who, thread_id)

    async def page_of_messages(
        self, who: Principal, thread_id: str, *, after: int, limit: int, branch: str | None = None
    ) -> Page[StoredMessage, int]:
        detail = self._detail(who, thread_id)
        messages = [said("assistant", f"message {seq}", seq) for seq in range(1, 4)]
        found = [
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
        ]
        return cut(found, limit, lambda each: each.seq)

    async def delete_thread(self, who: Principal, thread_id: str) -> None:
        self._detail(who, thread_id)
        del self.threads[who.user_id, thread_id]
