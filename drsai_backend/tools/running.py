"""A running call of a tool knows the run that it belongs to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from drsai_backend.errors import ToolError

if TYPE_CHECKING:
    from drsai_backend.config import Settings
    from drsai_backend.datamodel.owner import ThreadName
    from drsai_backend.tools.middleware import Middleware

T = TypeVar("T")
MAX_OUTPUT: Final = 1 << 20
"""Characters of a tool's result, where the settings say nothing else."""


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file that is kept. `bytes` is its size."""

    id: str
    name: str
    bytes: int
    media_type: str


class FileSaver(Protocol):
    """Keeps the files of a run for its owner."""

    async def save(self, name: str, data: bytes, media_type: str) -> FileRef:
        """Keep a file. The same content of the same owner gives the same file."""
        ...

    async def read(self, file_id: str) -> bytes:
        """The content of a file of who asks.

        Raises:
            NotFound: there is no such file for them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Lazy:
    """Something provided that is made when it is first asked for in a run."""

    make: Callable[[], Awaitable[object]]


class Asking(Protocol):
    """Asks the person who talks to the thread; see `ToolRun.ask`."""

    def __call__(
        self,
        prompt: str,
        *,
        choices: Sequence[str] | None = None,
        deadline: datetime | timedelta | None = None,
        by: str | None = None,
        not_by: str | None = None,
    ) -> str: ...


def _nothing(_: object) -> None: ...


async def _none(_: int) -> Mapping[str, bytes]:
    return {}


def _nobody(prompt: str, **_: object) -> str:
    raise ToolError("Nobody can be asked here: this tool asks a person in a run of the server only.")


@dataclass(slots=True)
class ToolRun:
    """One call of a tool, as the tool sees it.

    Attributes:
        agent: path of the agent that calls; "" outside of a run.
        call_id: the model's id of the call.
        provided: what can be injected by its type: RunContext, Principal, DatabaseManager, and what an agent adds.
        files: keeps files; None: nobody does.
        given: reads the newest files that users have sent in the chat, of up to so many bytes together, by their names.
        emit: shows a partial result to whoever follows the run. It is not stored.
        allows: whether who asks has a scope; None: nobody is asking (tests, scripts), and everything is allowed.
        cache: values of dependencies, one per run.
        overrides: dependencies that stand in for others.
        asker: tenant and user who asks, as one text to be shown; "" outside of a run. A name may hold "/": what tells
            users apart is the `Principal` that is provided.
        max_output: characters of a result's texts together, whatever the tool itself says.
        middleware: what runs around the call, the outermost first.
        settings: those of the server, as they are now: how long an attempt may take; None: there are none.
        ask: the answer of a person to a question; outside of a run it raises ToolError. Where there is none yet, the
            run ends as one that waits, and the call is made once more when the answer is there: until then the tool is
            to have no effect. The question travels up as an exception that is no `Exception`.
        thread: that of the run, which may be another user's; None: outside of a run.
    """

    agent: str = ""
    call_id: str = ""
    provided: Mapping[type, object] = field(default_factory=dict[type, object])
    files: FileSaver | None = None
    given: Callable[[int], Awaitable[Mapping[str, bytes]]] = _none
    emit: Callable[[object], None] = _nothing
    allows: Callable[[str], bool] | None = None
    cache: dict[object, object] = field(default_factory=dict[object, object])
    overrides: Mapping[Callable[..., object], Callable[..., object]] = field(
        default_factory=dict[Callable[..., object], Callable[..., object]]
    )
    asker: str = ""
    max_output: int = MAX_OUTPUT
    middleware: Sequence[Middleware] = ()
    settings: Settings | None = field(default=None, repr=False)
    ask: Asking = _nobody
    thread: ThreadName | None = None

    def get(self, wanted: type[T]) -> T | None:
        """Return what is provided of a type; None: nothing is."""
        found = self.provided.get(wanted)
        if found is None:
            found = next((value for value in self.provided.values() if isinstance(value, wanted)), None)
        return cast("T | None", found)


_current: ContextVar[ToolRun | None] = ContextVar("drsai_tool_run", default=None)


def current_tool_run() -> ToolRun | None:
    """The call that the running code belongs to; None outside of a run."""
    return _current.get()


@contextmanager
def tool_run(run: ToolRun) -> Generator[ToolRun]:
    """Make `run` the current call while the block runs."""
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)
