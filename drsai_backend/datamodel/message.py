"""Messages of a thread, a row each."""

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import Record, json_field
from drsai_backend.datamodel.types import big_key


class AutoGenMessage(Record, table=True):
    """One AutoGen `BaseChatMessage` or `BaseAgentEvent`, as `model_dump(mode="json")`, numbered in its thread.

    Rows are append-only: states and journal entries refer to them by `seq`.
    """

    __table_args__ = (
        sa.UniqueConstraint("thread_key", "seq"),
        # For people who ask for a day's messages. On SQLite an index would be one more B-tree to write for each.
        sa.Index(
            "ix_autogenmessage_created_at",
            "created_at",
            postgresql_using="brin",
            postgresql_with={"autosummarize": "on"},
            info={"dialect": "postgresql"},
        ).ddl_if(dialect="postgresql"),
    )

    user_id: str = Field(nullable=False)
    thread_id: str = Field(nullable=False)
    config: dict[str, Any] = json_field(default_factory=dict, nullable=False)
    message_meta: dict[str, Any] | None = json_field()
    thread_key: int | None = Field(
        default=None,
        sa_type=big_key(),
        foreign_key="thread.id",
        ondelete="CASCADE",
        nullable=False,  # pyright: ignore
    )
    seq: int | None = Field(default=None, nullable=False, description="1, 2, 3 … within the thread.")
    run_id: str | None = Field(default=None)
    shown: bool | None = Field(
        default=None, description="Whether a chat window shows it; None: stored by hand, or by an earlier version."
    )
