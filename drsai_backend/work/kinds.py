"""A kind of jobs has a name, what does them, and how: how many at a time, for how long, how often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is to be enqueued.

    Attributes:
        kind: one of the kinds of a feature, `<feature>` or `<feature>_…`.
        key: names it: of a kind, an owner has one job of each key, of 500 characters.
        payload: JSON of at most 64 KB; ids of rows rather than what is in them.
        version: the form of the payload. A process whose handler knows only earlier ones leaves the job to others.
        after: seconds until it may be taken up.
        anew: what happens where the job is there already, waits, is under way or has failed. False: nothing. True: it
            gets this payload and is done anew, and what a worker is doing of it is stored no more.
    """

    kind: str
    key: str
    payload: JsonObject
    version: int = 1
    after: float = 0.0
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job that this process has taken up.

    Attributes:
        id: its number.
        owner: whose it is.
        kind, key, payload, version: as it was enqueued.
        epoch: guards what is written for it: `hold` and `finish` refuse when somebody else has taken it up.
        attempts: how often it was taken up, this time included, since it was enqueued or has got further.
        is_last: whether there is no further attempt when this one fails and has got no further.
    """

    id: int
    owner: Owner
    kind: str
    key: str
    payload: JsonObject
    version: int
    epoch: int
    attempts: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class JobState:
    """What is known of a job that is not done: of one that is, there is no row.

    Attributes:
        key: its name.
        status: `queued` (also between attempts, and after its worker died), `running` or `failed`: for good.
        attempts: how often it was taken up.
        error: why the last attempt failed; safe to show.
        created_at: when it was enqueued.
    """

    key: str
    status: Literal["queued", "running", "failed"]
    attempts: int
    error: str | None
    created_at: datetime


Handle = Callable[[Job], Awaitable[None]]
"""Does a job. What it stores last, it stores in one transaction with `finish`; of a job whose handler returns without
that the row is deleted. What it raises fails the attempt. It is cancelled when the job is somebody else's or gone, and
when the process ends: then the attempt does not count."""
Failed = Callable[["Session", Job, str], None]
"""A storage function in the transaction in which a job fails for good, with the reason, a text that is safe to show."""
Lock = Callable[["Session", Job], object]
"""A storage function that locks, before the job is, what others have locked when they come to the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How the jobs of a kind are done.

    Attributes:
        handler: the name of the extension's method that does one (`Handle`).
        failed: that of its method which is told of one that has failed for good (`Failed`); None: none is.
        lock: that of its method which locks what `failed` changes (`Lock`), where the feature's transactions do not
            have `hold`, `finish`, `cancel` or `enqueue` first; None: they do.
        version: the latest form of payloads that the handler reads.
        concurrency: how many of the kind a process does at a time.
        timeout: seconds that an attempt may take.
        retry_seconds: how long each further attempt is waited for, a fifth more or less by chance. One that `hold` has
            told of progress is as good as new.

    Raises:
        ConfigurationError: a value cannot work; the text names the option.
    """

    handler: str
    failed: str | None = None
    lock: str | None = None
    version: int = 1
    concurrency: int = 1
    timeout: float = 3600.0
    retry_seconds: tuple[float, ...] = (1, 5, 30, 120, 600, 1800, 3600)

    @property
    def attempts(self) -> int:
        """How often a job is taken up at most, when it gets no further."""
        return len(self.retry_seconds) + 1

    def __post_init__(self) -> None:
        for name in ("version", "concurrency", "timeout"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name}={getattr(self, name)}: jobs need more than 0")
        if any(each < 0 for each in self.retry_seconds):
            raise ConfigurationError("retry_seconds: none can be below 0")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of jobs, of a feature that was made: its handler, who is told of failures, and what is locked for that."""

    name: str
    options: JobOptions
    handle: Handle
    failed: Failed | None = None
    lock: Lock | None = None
