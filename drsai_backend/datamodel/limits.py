"""Limits have two tables: what was set for somebody, and how far each limit is used up."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import NEVER_AGAIN, KeyedRecord, UTCDateTime, short_text, utcnow


class LimitRule(KeyedRecord, table=True):
    """What a key, a user, a tenant or all may do, in place of the settings. One that is changed is another row: so the
    sum of the ids says whether anything has changed."""

    __table_args__ = (sa.UniqueConstraint("tenant", "kind", "name"), NEVER_AGAIN)

    at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, description="When it was set.")
    tenant: str = Field(description="Empty: of all.")
    kind: str = short_text(8, description="`key`, `user`, `tenant` or `all`.")
    name: str = Field(description="The id of the key, or the user; else empty.")
    requests: int | None = Field(default=None, description="A minute; 0: no limit; NULL: as the settings say.")
    tokens: int | None = Field(default=None, description="A minute, likewise.")
    runs: int | None = Field(default=None, description="At once, likewise.")
    streams: int | None = Field(default=None, description="At once in each process, likewise.")


class LimitState(SQLModel, table=True):
    """How far a limit of requests or tokens is used up."""

    subject: str = Field(primary_key=True, description="Measure, kind, tenant and name.")
    tat: int = Field(
        sa_type=sa.BigInteger,
        description="When all of it is free again, in nanoseconds since 1970: the theoretical arrival time of GCRA.",
    )
