"""Switches have a table: what operators have switched off."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import NEVER_AGAIN, KeyedRecord, UTCDateTime, short_text, utcnow


class Switch(KeyedRecord, table=True):
    """Something that is switched off. What is switched off in other words is another row: so the sum of the ids says
    whether anything has changed."""

    __table_args__ = (sa.UniqueConstraint("tenant", "kind", "name"), NEVER_AGAIN)

    at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, description="When it was switched off.")
    tenant: str = Field(description="Empty: in all.")
    kind: str = short_text(8, description="`team`, `model`, `tool`, `tenant`, `all` or `worker`.")
    name: str = Field(description="Of the team, model, tool or tenant; else empty.")
    message: str = Field(description="What who asks for it is told.")
    until: datetime | None = Field(
        default=None, sa_type=UTCDateTime, description="When it is on again by itself; NULL: never."
    )
