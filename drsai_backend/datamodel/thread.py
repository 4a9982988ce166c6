"""The thread: one conversation of one user, and the tables that hold its long or fast-changing parts."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import Record, json_field, long_text
from drsai_backend.datamodel.enums import RunStatus
from drsai_backend.datamodel.types import StatusType, UTCDateTime, big_key, json_type


class Thread(Record, table=True):
    """One conversation. `(user_id, thread_id)` is unique and never NULL.

    The stored row holds only short columns, because it is updated at every turn and a database rewrites a row as a
    whole (an SQLite row that holds 300 KB writes 610 KB when a counter in it changes). `messages`, `state`,
    `user_input`, `tasks`, `team_result` and `meta` are therefore declared here, accepted by the constructor and filled
    by the manager when a thread is read, while their columns stay NULL; they are kept in `AutoGenMessage`,
    `ThreadSnapshot` + `JournalEntry`, `UserInput` and `ThreadField`.
    """

    # No index of anything that changes with a turn: PostgreSQL then updates the row within its page (HOT). The threads
    # of a user are found by the first column of this one and sorted when they are listed.
    __table_args__ = (sa.UniqueConstraint("user_id", "thread_id"),)

    user_id: str = Field(nullable=False)
    thread_id: str = Field(nullable=False)
    status: RunStatus = Field(default=RunStatus.CREATED, sa_type=StatusType)
    error_message: str | None = long_text()
    input_request: dict[str, Any] | None = json_field()

    user_input: dict[str, Any] | None = json_field()
    # The empty list is the attribute's default and not the column's.
    messages: list[dict[str, Any]] = json_field(default_factory=list, nullable=True, sa_column_kwargs={"default": None})
    tasks: list[dict[str, Any]] | dict[str, Any] | None = json_field()
    team_result: dict[str, Any] | None = json_field()
    state: str | None = long_text()
    meta: dict[str, Any] | None = json_field()

    team: str | None = Field(default=None, description="Model id of the team that ran last.")
    title: str | None = Field(default=None, description="The first words of the first user message.")
    revision: int = Field(default=0, nullable=False, description="Counts the changes of this row.")
    last_seq: int = Field(default=0, nullable=False, description="`seq` of the newest message; 0: none.")
    turn: int = Field(default=0, nullable=False, description="Number of the newest journal entry; 0: none.")
    journal_debt: int = Field(
        default=0, nullable=False, description="Journal bytes since the snapshot, less what it earned; see state.store."
    )
    run_id: str | None = Field(default=None, description="The latest run.")
    epoch: int = Field(default=0, nullable=False, description="Fencing token: grows with every lease.")
    lease_owner: str | None = Field(default=None)
    lease_expires_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    control: str | None = Field(
        default=None,
        sa_type=sa.String(8),  # pyright: ignore[reportArgumentType]
        description="What the live run is asked to do: `cancel`, `pause`, `steer`.",
    )
    queued: int = Field(
        default=0,
        nullable=False,
        sa_column_kwargs={"default": None, "server_default": "0"},
        description="User inputs that wait.",
    )


class ThreadField(SQLModel, table=True):
    """A long attribute of a thread (`tasks`, `team_result`, `meta`), a row each: changing one rewrites no other."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    thread_key: int = Field(
        primary_key=True,
        sa_type=big_key(),
        foreign_key="thread.id",
        ondelete="CASCADE",  # pyright: ignore
    )
    name: str = Field(primary_key=True)
    value: Any = Field(default=None, sa_type=json_type())  # pyright: ignore[reportArgumentType]


class ThreadSnapshot(SQLModel, table=True):
    """The folded journal of a thread up to and including `turn`, encoded by `drsai_backend.state.codec`."""

    thread_key: int = Field(
        primary_key=True,
        sa_type=big_key(),
        foreign_key="thread.id",
        ondelete="CASCADE",  # pyright: ignore
    )
    turn: int = Field(nullable=False)
    payload: str = Field(sa_type=sa.Text, nullable=False)
