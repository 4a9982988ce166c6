"""Tools that were registered over the API, with their versions, and how often they were called."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import (
    JsonObject,
    UTCDateTime,
    big_key,
    counter,
    json_field,
    secret_text,
    short_text,
    utcnow,
)


class RegisteredTool(SQLModel, table=True):
    """One version of a tool of a tenant. The one that has not ended (`ended_at`) is served to new runs; older ones are
    kept for a while, so that a run that is resumed finds the tool as it was when the run began."""

    __table_args__ = (
        sa.UniqueConstraint("tenant", "name", "version"),
        sa.Index(
            "ix_registeredtool_served",
            "tenant",
            "name",
            unique=True,
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        ),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=big_key())  # pyright: ignore[reportArgumentType]
    tenant: str
    name: str
    version: int = Field(description="1 for the first of the name, then one more each.")
    kind: str = short_text(8, description="`http` or `mcp`.")
    definition: JsonObject = json_field(nullable=False, description="What it calls, without its secrets.")
    secrets: str | None = secret_text(description="Its credentials by name, as JSON.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    created_by: str = Field(description="The user who registered this version.")
    ended_at: datetime | None = Field(default=None, sa_type=UTCDateTime, description="When it was replaced or deleted.")


class ToolStatistic(SQLModel, table=True):
    """How often the tools of a name were called in a tenant, how often they failed, and how long they took."""

    __table_args__ = (sa.UniqueConstraint("tenant", "name"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=big_key())  # pyright: ignore[reportArgumentType]
    tenant: str
    name: str
    calls: int = counter("Calls that came to an end.")
    failures: int = counter("Those whose result is an error.")
    buckets: JsonObject = json_field(nullable=False, description="Calls by duration: number of the bucket, count.")
    since: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    updated_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
