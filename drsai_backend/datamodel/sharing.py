"""Sharing lets others than its owner see a thread."""

from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import KeyedRecord, UTCDateTime, short_text, thread_key_field, utcnow
from drsai_backend.errors import InvalidRequest


class Right(StrEnum):
    """What somebody may do with a thread. Each right has those before it."""

    READ = "read"
    ANSWER = "answer"
    WRITE = "write"
    SHARE = "share"

    @property
    def rank(self) -> int:
        """Where it stands among the rights."""
        return [*Right].index(self)

    def covers(self, other: "Right") -> bool:
        """Whether who has this right has that one, too."""
        return self.rank >= other.rank


def read_right(text: str) -> Right:
    """A right that can be given, by its name.

    Raises:
        InvalidRequest: there is none of that name.
    """
    if text not in (Right.READ, Right.ANSWER, Right.WRITE):
        raise InvalidRequest(f"`right` must be read, answer or write, not {text!r}", param="right")
    return Right(text)


class ThreadShare(KeyedRecord, table=True):
    """A thread that another user of its tenant, or everybody there with a role, may read, answer or write.

    The grantee is of the thread's tenant by construction: a share names no other one.
    """

    __table_args__ = (
        sa.UniqueConstraint("thread_key", "with_user"),
        sa.UniqueConstraint("thread_key", "with_role"),
        sa.CheckConstraint("(with_user IS NULL) <> (with_role IS NULL)", name="one_grantee"),
        sa.Index(None, "tenant", "with_user"),
        sa.Index(None, "tenant", "with_role"),
    )

    thread_key: int = thread_key_field()
    tenant: str
    with_user: str | None = None
    with_role: str | None = None
    right: str = short_text(8, description="`read`, `answer` or `write`.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    created_by: str = Field(description="The user who shared it, or changed the right last.")
