"""Agents and teams that were defined over the API, with their versions."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import JsonObject, UTCDateTime, big_key, json_field, utcnow


class StoredDefinition(SQLModel, table=True):
    """One version of an agent or team of a user, a tenant, or all. The one that has not ended (`ended_at`) is served to
    new runs; a run that is resumed finds the one that it began with, by `Run.definition`."""

    __table_args__ = (
        sa.UniqueConstraint("tenant", "user_id", "name", "version"),
        sa.Index(
            "ix_storeddefinition_served",
            "tenant",
            "user_id",
            "name",
            unique=True,
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        ),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=big_key())  # pyright: ignore[reportArgumentType]
    tenant: str = Field(description="Empty: it is for all tenants.")
    user_id: str = Field(description="Empty: it is for all users of the tenant.")
    name: str
    version: int = Field(description="1 for the first of the name, then one more each.")
    definition: JsonObject = json_field(nullable=False, description="`agents`, `teams`, `tools`, as in a file.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    created_by: str = Field(description="The user who stored this version.")
    restores: int | None = Field(default=None, description="The older version that this one is equal to.")
    ended_at: datetime | None = Field(default=None, sa_type=UTCDateTime, description="When it was replaced or deleted.")
