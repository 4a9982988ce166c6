"""Access is given by API keys."""

from datetime import datetime
from typing import NewType

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import NEVER_AGAIN, KeyedRecord, UTCDateTime, json_field, long_text, utcnow

KeyDigest = NewType("KeyDigest", str)
"""SHA-256 of a whole key as 64 hexadecimal digits: what is stored of it, and what it is looked up by.

A plain hash, as 256 random bits cannot be guessed; passwords would need a slow one.
"""


class ApiKey(KeyedRecord, table=True):
    """An API key of a user's: its SHA-256 and never the key, so that whoever reads the row cannot ask with it.

    Of a row only `last_used_at` and `webhook_url` change, and once and for good `revoked_at` and `revoked_by`.
    Processes remember the rest, see `drsai_backend.access.warm_keys`: who may do something else needs another key.
    """

    __table_args__ = (
        sa.UniqueConstraint("key_id"),
        sa.UniqueConstraint("digest"),
        sa.Index(None, "tenant", "user_id"),
        NEVER_AGAIN,
    )

    key_id: str = Field(description="Its public name.")
    digest: str = Field(repr=False, description="SHA-256 of the key, hexadecimal.")
    tenant: str
    user_id: str = Field(description="Who asks with it.")
    name: str | None = None
    scopes: list[str] = json_field(default_factory=list, nullable=False)
    roles: list[str] = json_field(
        default_factory=list, nullable=False, description="The application's, for approvals and shares."
    )
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    created_by: str | None = Field(
        default=None, description="The user who made it; None: the command line or a program."
    )
    expires_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UTCDateTime, description="To the minute.")
    revoked_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    revoked_by: str | None = Field(
        default=None, description="The user who revoked it; None: the command line or a program."
    )
    webhook_url: str | None = long_text(description="Where background runs are told of that name no URL themselves.")
