"""What the API asks of the engine. `drsai_backend.runs.engine` offers it; tests use a scripted stand-in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from drsai_backend.datamodel import RunStatus
from drsai_backend.runs.events import Answer, Logged, RunEvent, RunRequest
from drsai_backend.runs.position import Position
from drsai_backend.runs.views import InputRequestPage, RunPage, RunView, StoredMessage, ThreadDetail, ThreadPage


class RunHandle(Protocol):
    """A run that was started. It belongs to the engine: whoever reads a handle may stop reading at any time."""

    @property
    def run_id(self) -> str: ...
    @property
    def thread_id(self) -> str: ...
    @property
    def team(self) -> str: ...
    @property
    def created(self) -> int:
        """Unix time in seconds."""
        ...

    @property
    def speakers(self) -> int:
        """Number of the team's participants; 1: a lone agent."""
        ...

    def events(self) -> AsyncIterator[RunEvent]:
        """Every event of the run from its beginning; ends after `RunEnded`."""
        ...

    def poll(self) -> Sequence[RunEvent]:
        """The events that are ready now, after those that `events()` has yielded; they are not yielded again."""
        ...


class Teams(Protocol):
    """The registry of what can be asked."""

    @property
    def created(self) -> int:
        """Unix time in seconds."""
        ...

    def names(self) -> Sequence[str]: ...
    def description(self, name: str, /) -> str: ...


class Database(Protocol):
    """The part of the database manager that readiness needs."""

    async def try_write(self) -> None:
        """Raises DatabaseError while the database takes no writes."""
        ...


class Engine(Protocol):
    """Starts, steers and follows runs, and reads threads. Its errors are those of `drsai_backend.errors`."""

    @property
    def teams(self) -> Teams: ...
    @property
    def db(self) -> Database: ...

    def check_open(self) -> None:
        """Raises NotOpened while the application cannot be served: nobody has run its lifespan."""
        ...

    async def start(self, request: RunRequest) -> RunHandle: ...
    async def answer(self, user_id: str, thread_id: str, answer: Answer) -> RunHandle: ...
    async def cancel(self, user_id: str, thread_id: str) -> ThreadDetail: ...
    async def pause(self, user_id: str, thread_id: str) -> ThreadDetail: ...
    async def resume(self, user_id: str, thread_id: str) -> ThreadDetail: ...
    async def cancel_run(self, user_id: str, run_id: str) -> RunView: ...
    async def get_run(self, user_id: str, run_id: str) -> RunView: ...
    async def list_runs(
        self, user_id: str, thread_id: str | None, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> RunPage: ...
    async def list_input_requests(self, user_id: str, *, after: str | None, limit: int) -> InputRequestPage: ...

    def follow_run(self, user_id: str, run_id: str, after: Position | None) -> AsyncIterator[Logged]:
        """What a run tells after a position; ends with its `RunEnded`. Raises at the first step."""
        ...

    def follow_thread(self, user_id: str, thread_id: str, after: Position | None) -> AsyncIterator[Logged]:
        """What all runs of a thread tell after a position, for ever. Raises at the first step."""
        ...

    async def check_thread(self, user_id: str, thread_id: str) -> None:
        """Raises NotFound for an unknown or foreign thread."""
        ...

    async def list_threads(
        self, user_id: str, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> ThreadPage: ...
    async def get_thread(self, user_id: str, thread_id: str) -> ThreadDetail: ...
    async def list_messages(
        self, user_id: str, thread_id: str, *, after: int, limit: int
    ) -> Sequence[StoredMessage]: ...
    async def delete_thread(self, user_id: str, thread_id: str) -> None: ...


class ApiSettings(Protocol):
    """The settings that the API reads."""

    @property
    def cors_origins(self) -> Sequence[str]: ...
    @property
    def allowed_hosts(self) -> Sequence[str]: ...
    @property
    def max_body_bytes(self) -> int: ...
    @property
    def max_bodies_bytes(self) -> int: ...
    @property
    def max_messages(self) -> int: ...
    @property
    def is_demo(self) -> bool: ...
