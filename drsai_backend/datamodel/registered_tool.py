"""Tools that were registered over the API, with their versions, and how often they were called."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import (
    DocumentRecord,
    JsonObject,
    UTCDateTime,
    big_key,
    counter,
    json_field,
    one_served,
    secret_text,
    short_text,
    utcnow,
)


class RegisteredTool(DocumentRecord, table=True):
    """One version of a tool of a tenant: `definition` is what it calls, without its secrets. Older ones are kept for a
    while, so that a run that is resumed finds the tool as it was when the run began."""

    __table_args__ = one_served("registeredtool", "tenant")

    kind: str = short_text(8, description="`http` or `mcp`.")
    secrets: str | None = secret_text(description="Its credentials by name, as JSON.")


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
