"""Switches have a table: what operators have switched off."""

from datetime import datetime
from typing import Final

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import NEVER_AGAIN, KeyedRecord, UTCDateTime, short_text, table_of, utcnow

CLOSED: Final = "this tenant is moved to another database"
"""What clients of a tenant are told in the database that it is moved from, unless an operator had refused it before."""
MOVING: Final = "this tenant is being moved to another database: try again in some minutes"
"""What the message of a tenant that is being moved here begins with."""


class Switch(KeyedRecord, table=True):
    """Something that is switched off. What is switched off in other words is another row: so the sum of the ids says
    whether anything has changed."""

    __table_args__ = (sa.UniqueConstraint("tenant", "kind", "name"), NEVER_AGAIN)

    at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, description="When it was switched off.")
    tenant: str = Field(description="Empty: in all; of a tenant, that it is moved.")
    kind: str = short_text(8, description="`team`, `model`, `tool`, `tenant`, `all` or `worker`.")
    name: str = Field(description="Of the team, model, tool or tenant; else empty.")
    message: str = Field(description="What who asks for it is told.")
    until: datetime | None = Field(
        default=None, sa_type=UTCDateTime, description="When it is on again by itself; NULL: never."
    )


_switch = table_of(Switch)


def is_of_move(tenant: sa.ColumnElement[str] | str) -> sa.ColumnElement[bool]:
    """Return which switch is the one of a move of a tenant, in the database that it comes from or goes to. It is of no
    tenant, as only a move makes one: beside it is what operators have switched off, in whatever words."""
    return sa.and_(_switch.c.tenant == "", _switch.c.kind == "tenant", _switch.c.name == tenant)


def is_moved(tenant: sa.ColumnElement[str] | str) -> sa.ColumnElement[bool]:
    """Return what says whether a tenant is moved from here, or is being moved here: nobody but who asks for it goes on
    with a run of it then."""
    return sa.exists().where(is_of_move(tenant))
