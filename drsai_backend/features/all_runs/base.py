"""The base of all runs says which runs are looked for, what of a run its operators are shown, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, Field

from drsai_backend.datamodel import RunStatus

Order: TypeAlias = Literal["newest", "slow"]
Verb: TypeAlias = Literal["cancel", "pause", "resume", "retry"]
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
MOST: Final = 1_000
"""Runs that one call of `steer_all` changes."""
MOST_COUNTED: Final = 100_000
"""What is counted no further."""
LONGEST: Final = 1_000_000_000
"""Seconds that are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which runs are looked for; what is None is not looked at.

    Attributes:
        user: whose thread they are on.
        error_code: of a run that has failed: `model_timeout`, say.
        error: a part of the text of a run's error, in capitals or not.
        text: a part of what was said in it, in capitals or not: a message, the result of a tool, the argument of one.
        tool: the name of a tool that was called in it.
        since: when they were created, at the earliest.
        until: before when.
        slower_than: seconds that they have run at least, up to now where they are live.
    """

    user: str | None = None
    thread: str | None = None
    team: str | None = None
    status: RunStatus | None = None
    error_code: str | None = None
    error: str | None = None
    text: str | None = None
    tool: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    slower_than: float | None = None


ALL: Final = Wanted()


class AnyRun(BaseModel):
    """A run as its row says it, and nothing of what was said in it. Times are aware and in UTC."""

    run_id: str
    tenant: str
    user: str = Field(description="Whose thread it is on.")
    thread_id: str
    team: str
    status: RunStatus
    attempt: int = Field(description="1, and one more for each time that another worker had to take it up.")
    background: bool
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    turns: int = Field(description="Turns that are stored.")
    seconds: float = Field(description="For how long it has run, up to now where it is live; waiting does not count.")
    usage: dict[str, int] | None = Field(default=None, description="Tokens so far.")
    error_code: str | None = Field(
        default=None,
        description="What kind of failure it was. `given_up`: it has killed its processes, time and again.",
    )
    error_message: str | None = Field(default=None, description="Why it failed; safe to show.")
    stop_code: str | None = Field(default=None, description="The bound that ended it, e.g. `max_turns`.")
    worker: str | None = Field(
        default=None, description="Host and process that held it last, where it was ended because that was gone."
    )


class ErrorGroup(BaseModel):
    """The runs of a team that have failed in one way."""

    error_code: str
    team: str
    runs: int = Field(description="How many there are.")
    first_at: datetime = Field(description="When the first of them was created.")
    last_at: datetime = Field(description="When the last one was.")
    run_id: str = Field(description="The newest of them.")
    error_message: str = Field(description="What that one says.")


class Steered(AnyRun):
    """What became of a run that was to be changed, or would be changed."""

    outcome: Literal["done", "asked", "refused", "found"] = Field(
        description="`asked`: the process that runs it does it within seconds; `refused`: `reason` says why; `found`: "
        "nothing was to be done yet."
    )
    reason: str | None = None


class SteeredAll(BaseModel):
    """What became of all of them.

    Attributes:
        found: how many there were that the verb can change, counted up to 100,000; more than `runs` has: ask again.
        runs: those that were changed, or with `dry_run` would be: live ones first, and of each status the oldest.
    """

    verb: Verb
    dry_run: bool
    found: int
    runs: list[Steered]


class Holder(BaseModel):
    """A worker that lives, and how many live runs it holds."""

    worker: str
    seen_at: datetime = Field(description="Its last heartbeat.")
    since: datetime = Field(description="From when on it has lived.")
    runs: int


class LiveRun(AnyRun):
    """A live run, and who holds it."""

    worker: str | None = Field(default=None, description="Who runs it; null: nobody does now.")
    control: str | None = Field(default=None, description="What it is asked to do and has not done yet.")


class JobQueue(BaseModel):
    """The jobs of a kind."""

    kind: str
    due: int = Field(description="Not done yet, those under way included.")
    failed: int = Field(description="Failed for good.")
    oldest_at: datetime | None = Field(default=None, description="When the oldest that is not done was enqueued.")


class Board(BaseModel):
    """What is live and what waits. Counts go up to 100,000."""

    at: datetime
    live: int = Field(description="Runs that are live.")
    waiting: dict[RunStatus, int] = Field(description="Runs that wait: in a queue, paused, for a person.")
    runs: list[LiveRun] = Field(description="The live runs that began first.")
    workers: list[Holder]
    jobs: list[JobQueue]
    webhooks: int = Field(description="Events that are to be sent.")
    webhooks_oldest_at: datetime | None = Field(default=None, description="When the oldest of them happened.")
