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
    tenant: str = Field(description="Empty: in all.")
    kind: str = short_text(8, description="`team`, `model`, `tool`, `tenant`, `all` or `worker`.")
    name: str = Field(description="Of the team, model, tool or tenant; else empty.")
    message: str = Field(description="What who asks for it is told.")
    until: datetime | None = Field(
        default=None, sa_type=UTCDateTime, description="When it is on again by itself; NULL: never."
    )


_switch = table_of(Switch)
is_of_a_move: Final = sa.or_(_switch.c.message == CLOSED, _switch.c.message.startswith(MOVING, autoescape=True))
"""Whether a switch is one of a move of its tenant, in the database that it comes from or goes to."""


def is_moved(tenant: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return what says whether a tenant is moved from here, or is being moved here: nobody but who asks for it goes on
    with a run of it then."""
    return sa.exists().where(_switch.c.tenant == tenant, _switch.c.kind == "tenant", is_of_a_move)
