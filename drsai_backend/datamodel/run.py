"""Runs and the journal of their turns."""

from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import Record, json_field, long_text
from drsai_backend.datamodel.enums import RunStatus
from drsai_backend.datamodel.types import StatusType, UTCDateTime, big_key, json_type, utcnow


def _default(value: Any) -> dict[str, Any]:
    """A default that the database fills in, too: most runs never write the column."""
    return {"default": None, "server_default": value}


WAITING_STATUSES: Final = ("created", "paused", "awaiting_input")
"""Of runs that are not over and that nobody runs: a partial index has them. SQLite uses it for a query that asks for
these, in this order."""
_WAITING: Final = f"status IN {WAITING_STATUSES}"


class Run(Record, table=True):
    """One execution of a team on a thread, from user input to a final status."""

    __table_args__ = (
        sa.UniqueConstraint("run_id"),
        sa.Index(None, "thread_key"),
        sa.Index(
            "ix_run_live",
            "thread_key",
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        ),
        sa.Index(
            "uq_run_idempotency",
            "thread_key",
            "idempotency_key",
            unique=True,
            sqlite_where=sa.text("idempotency_key IS NOT NULL"),
            postgresql_where=sa.text("idempotency_key IS NOT NULL"),
        ),
        sa.Index(
            "ix_run_deadline",
            "deadline",
            sqlite_where=sa.text("deadline IS NOT NULL"),
            postgresql_where=sa.text("deadline IS NOT NULL"),
        ),
        sa.Index("ix_run_waiting", "thread_key", sqlite_where=sa.text(_WAITING), postgresql_where=sa.text(_WAITING)),
    )

    run_id: str = Field(nullable=False)
    thread_key: int | None = Field(
        default=None,
        sa_type=big_key(),
        foreign_key="thread.id",
        ondelete="CASCADE",
        nullable=False,  # pyright: ignore
    )
    team: str = Field(nullable=False)
    status: RunStatus = Field(default=RunStatus.RUNNING, sa_type=StatusType)
    attempt: int = Field(
        default=1, nullable=False, description="How often a worker has taken it up; 1: never taken over."
    )
    idempotency_key: str | None = None
    fingerprint: str | None = Field(default=None, description="SHA-256 of the request; with an idempotency key only.")
    usage: dict[str, Any] | None = json_field(
        description="What its model calls have used so far, in all processes; None: it has not begun."
    )
    usage_before: dict[str, Any] | None = json_field(
        description="What it had used when it was resumed last, after a question or a pause; None: it never was."
    )
    told: dict[str, Any] | None = json_field(
        description="With an idempotency key: what the client was told when the part of the run that its request "
        "brought about had ended. See `drsai_backend.runs.events.RunEnded`."
    )
    error_message: str | None = long_text()
    answers: list[dict[str, Any]] | None = json_field(
        description="A person's answers that the turn in flight has not used up yet, in order."
    )
    first_seq: int = Field(default=0, nullable=False, description="The first message of the run.")
    last_seq: int = Field(default=0, nullable=False, description="The last message of the run, once it has ended.")
    stop_reason: str | None = long_text()
    started_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, nullable=False)
    finished_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    epoch: int = Field(
        default=0,
        nullable=False,
        sa_column_kwargs=_default("0"),
        description="The thread's epoch when it was taken up last.",
    )
    retries: int = Field(
        default=0,
        nullable=False,
        sa_column_kwargs=_default("0"),
        description="How often its worker has died since turn `retry_turn` was stored.",
    )
    retry_turn: int | None = None
    background: bool = Field(default=False, nullable=False, sa_column_kwargs=_default(sa.false()))
    joined: str | None = Field(default=None, description="The run that took this one's input up.")
    deadline: datetime | None = Field(
        default=None, sa_type=UTCDateTime, description="Until when a person may answer what the run waits for."
    )
    turns: int = Field(
        default=0,
        nullable=False,
        sa_column_kwargs=_default("0"),
        description="The turns that are stored, those of nested teams included.",
    )
    seconds: float = Field(
        default=0.0,
        nullable=False,
        sa_column_kwargs=_default("0"),
        description="For how long it ran, in all processes; the time that it waited for a person is not part of it.",
    )
    limits: dict[str, Any] | None = json_field(description="The bounds that its request asked for, where it did.")
    stop_code: str | None = Field(default=None, description="Which bound ended it.")
    request_id: str | None = Field(default=None, description="`X-Request-Id` of the request that brought its input.")


class JournalEntry(SQLModel, table=True):
    """What one turn added to the state of a thread; see `drsai_backend.state.journal`."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    thread_key: int = Field(
        primary_key=True,
        sa_type=big_key(),
        foreign_key="thread.id",
        ondelete="CASCADE",  # pyright: ignore
    )
    turn: int = Field(primary_key=True, sa_type=sa.Integer, sa_column_kwargs={"autoincrement": False})
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, nullable=False)
    run_id: str = Field(nullable=False)
    epoch: int = Field(nullable=False)
    first_seq: int = Field(nullable=False, description="First message the turn stored.")
    last_seq: int = Field(nullable=False, description="Last message the turn stored; below first_seq: none.")
    payload: str = Field(sa_type=sa.Text, nullable=False)


class TurnStep(SQLModel, table=True):
    """What an agent did in the turn in flight: an answer of its model that calls tools, or the result of a tool call.

    A run that was cut inside a turn repeats it, and is given these again instead of asking the model and calling the
    tools once more; see `drsai_backend.teams.replay.steps`. The rows go when the turn is stored.
    """

    __table_args__ = ({"sqlite_with_rowid": False},)

    thread_key: int = Field(
        primary_key=True,
        sa_type=big_key(),
        foreign_key="thread.id",
        ondelete="CASCADE",  # pyright: ignore
    )
    agent: str = Field(primary_key=True, description="Names from the outermost team's member down, joined by `/`.")
    step: str = Field(primary_key=True, description="Names the step among those of the agent in the turn.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, nullable=False)
    run_id: str = Field(nullable=False)
    turn: int = Field(nullable=False)
    epoch: int = Field(nullable=False)
    digest: str = Field(nullable=False, description="Hash of what was asked.")
    value: Any = Field(default=None, sa_type=json_type(), nullable=False)  # pyright: ignore[reportArgumentType]


class QueuedInput(SQLModel, table=True):
    """A user input that waits until the run on its thread has ended, or until its next turn boundary (`steer`)."""

    __table_args__ = (sa.UniqueConstraint("run_id"), sa.Index(None, "thread_key"))

    id: int | None = Field(default=None, primary_key=True, sa_type=big_key())  # pyright: ignore[reportArgumentType]
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, nullable=False)
    thread_key: int = Field(sa_type=big_key(), foreign_key="thread.id", ondelete="CASCADE", nullable=False)  # pyright: ignore
    run_id: str = Field(nullable=False, description="The run that the input will be, status CREATED until then.")
    policy: str = Field(sa_type=sa.String(12), nullable=False, description="The request's `on_busy`.")  # pyright: ignore[reportArgumentType]
    request: dict[str, Any] = json_field(default_factory=dict, nullable=False)
    api_key: str | None = long_text(repr=False)
    on_question: str = Field(
        default="wait",
        sa_type=sa.String(12),  # pyright: ignore[reportArgumentType]
        nullable=False,
        sa_column_kwargs={"default": None, "server_default": "wait"},
        description="What it is to a question that is asked while it waits: `wait`, or the `answer`.",
    )
