"""Documents have versions, and come over the API: agents and teams, settings, and tools with how often they were
called."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import (
    NEVER_AGAIN,
    JsonObject,
    KeyedRecord,
    UTCDateTime,
    counter,
    json_field,
    partial_index,
    secret_text,
    short_text,
    utcnow,
)


class DocumentRecord(KeyedRecord):
    """Base of the tables whose rows are versions of documents: what is done with them is in `database.documents`. The
    one that has not ended (`ended_at`) is served to new runs."""

    tenant: str
    name: str
    version: int = Field(description="1 for the first of the name, then one more each.")
    definition: JsonObject = json_field(nullable=False)
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    created_by: str = Field(description="The user who stored this version.")
    ended_at: datetime | None = Field(default=None, sa_type=UTCDateTime, description="When it was replaced or deleted.")


def one_served(table: str, *owner: str) -> tuple[sa.UniqueConstraint, sa.Index]:
    """The constraints of a `DocumentRecord`: of a name, an owner has each version once, and at most one is served."""
    name = (*owner, "name")
    served = partial_index(f"ix_{table}_served", "ended_at IS NULL", *name, unique=True)
    return sa.UniqueConstraint(*name, "version"), served


class StoredDefinition(DocumentRecord, table=True):
    """One version of an agent or team of a user, of a tenant, or for all: then `user_id` is empty, or `tenant`, too.
    `definition` has `agents`, `teams` and `tools`, as in a file. A run that is resumed finds the one that it began
    with, by `Run.definition`."""

    __table_args__ = (*one_served("storeddefinition", "tenant", "user_id"), NEVER_AGAIN)

    user_id: str = Field(description="Empty: it is for all users of the tenant.")
    restores: int | None = Field(default=None, description="The older version that this one is equal to.")


class RegisteredTool(DocumentRecord, table=True):
    """One version of a tool of a tenant: `definition` is what it calls, without its secrets. Older ones are kept for a
    while, so that a run that is resumed finds the tool as it was when the run began."""

    __table_args__ = one_served("registeredtool", "tenant")

    kind: str = short_text(8, description="`http` or `mcp`.")
    secrets: str | None = secret_text(description="Its credentials by name, as JSON.")


class StoredConfig(DocumentRecord, table=True):
    """One version of the settings of an environment (`name`), for all tenants (`tenant` is empty): `definition` has
    `values`, the whole set, what it has `changed`, and the older version that it `restores`."""

    __table_args__ = (*one_served("storedconfig", "tenant"), NEVER_AGAIN)


class ToolStatistic(KeyedRecord, table=True):
    """How often the tools of a name were called in a tenant, how often they failed, and how long they took."""

    __table_args__ = (sa.UniqueConstraint("tenant", "name"),)

    tenant: str
    name: str
    calls: int = counter("Calls that came to an end.")
    failures: int = counter("Those whose result is an error.")
    buckets: JsonObject = json_field(nullable=False, description="Calls by duration: number of the bucket, count.")
    since: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    updated_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
