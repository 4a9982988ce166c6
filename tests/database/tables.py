"""Tables as a user of the package would define them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel import Record, RunStatus, UTCDateTime, json_field
from drsai_backend.datamodel.base import StatusType


class Note(Record, table=True):
    """A table with everything that the manager treats in a way of its own."""

    __tablename__ = "user_note"
    __table_args__ = (sa.UniqueConstraint("owner", "name"),)

    owner: str
    name: str
    text: str | None = None
    code: str | None = Field(default=None, max_length=5)
    rank: int | None = None
    big: int | None = Field(default=None, sa_type=sa.BigInteger)
    score: float | None = None
    done: bool = False
    data: dict[str, Any] | None = json_field()
    tags: list[Any] = json_field(default_factory=list)
    status: RunStatus | None = Field(default=None, sa_type=StatusType)
    due: datetime | None = Field(default=None, sa_type=UTCDateTime)


class Pair(SQLModel, table=True):
    """No Record, and a key of two columns."""

    __tablename__ = "user_pair"

    left: str = Field(primary_key=True)
    right: str = Field(primary_key=True)
    weight: int = 0


class Plain(SQLModel, table=True):
    """No Record, and nothing unique but the key."""

    __tablename__ = "user_plain"

    id: int | None = Field(default=None, primary_key=True)
    text: str = ""
    counter: int = 0


class Missing(SQLModel, table=True):
    """Nobody creates it."""

    __tablename__ = "user_missing"

    id: int | None = Field(default=None, primary_key=True)
