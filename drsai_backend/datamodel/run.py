"""Runs and the journal of their turns."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import Record, json_field, long_text
from drsai_backend.datamodel.enums import RunStatus
from drsai_backend.datamodel.types import StatusType, UTCDateTime, big_key, utcnow


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
    attempt: int = Field(default=1, nullable=False)
    idempotency_key: str | None = None
    fingerprint: str | None = Field(default=None, description="SHA-256 of the request; with an idempotency key only.")
    usage: dict[str, Any] | None = json_field()
    error_message: str | None = long_text()
    answers: list[dict[str, Any]] | None = json_field(
        description="A person's answers that the turn in flight has not used up yet, in order."
    )
    first_seq: int = Field(default=0, nullable=False, description="The first message of the run.")
    last_seq: int = Field(default=0, nullable=False, description="The last message of the run, once it has ended.")
    stop_reason: str | None = long_text()
    started_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, nullable=False)
    finished_at: datetime | None = Field(default=None, sa_type=UTCDateTime)


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
