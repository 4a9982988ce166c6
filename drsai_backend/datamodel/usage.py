"""Usage has one table: what each model call has used and cost, and sums of days that are long over."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import KeyedRecord, UTCDateTime, partial_index, short_text


class UsageEntry(KeyedRecord, table=True):
    """A model call that was answered, or the sum of a day (`number` is NULL). It outlives its thread and its user, so
    it names them in columns of its own, as the audit log does."""

    __table_args__ = (
        # A call that is stored again, because nobody knows whether it was, is the same one.
        sa.UniqueConstraint("run", "epoch", "number"),
        sa.Index(None, "tenant", "used_by", "at"),
        partial_index("ix_usageentry_call", "number IS NOT NULL", "at"),
    )

    at: datetime = Field(sa_type=UTCDateTime, description="When it was answered; of a sum, when its day began, UTC.")
    tenant: str
    used_by: str = Field(description="The user who asked; empty: somebody who was deleted.")
    kind: str = short_text(16, description="`run`, or what it was made for beside runs: `title`, `embeddings` …")
    model: str | None = None
    profile: str | None = Field(default=None, description="The model profile that gave the answer.")
    team: str | None = None
    agent: str | None = None
    tool: str | None = Field(default=None, description="The tool that has asked the model.")
    thread: str | None = None
    run: str | None = None
    epoch: int = Field(default=0, description="The thread's, when the call was made.")
    number: int | None = Field(default=None, description="Of the call in its process; NULL: a sum.")
    turn: int | None = None
    calls: int = Field(default=1, description="How many it is the sum of.")
    prompt_tokens: int = Field(default=0, sa_type=sa.BigInteger)
    cached_tokens: int = Field(default=0, sa_type=sa.BigInteger, description="Of the prompt's.")
    completion_tokens: int = Field(default=0, sa_type=sa.BigInteger)
    reasoning_tokens: int = Field(default=0, sa_type=sa.BigInteger, description="Of the completion's.")
    milliseconds: int = Field(default=0, sa_type=sa.BigInteger)
    cost: int | None = Field(
        default=None, sa_type=sa.BigInteger, description="In 0.00000001 of the currency; NULL: no price is known."
    )
