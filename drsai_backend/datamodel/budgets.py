"""Budgets have two tables: what was set for somebody, and what is used and reserved of each day and month."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import NEVER_AGAIN, KeyedRecord, UTCDateTime, short_text, utcnow


class BudgetRule(KeyedRecord, table=True):
    """What a key, a user, a thread, a tenant or all may spend, in place of the settings. One that is changed is another
    row: so the sum of the ids says whether anything has changed. Money is in 0.00000001 of the currency."""

    __table_args__ = (sa.UniqueConstraint("tenant", "kind", "name"), NEVER_AGAIN)

    at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, description="When it was set.")
    tenant: str = Field(description="Empty: of all.")
    kind: str = short_text(8, description="`key`, `user`, `thread`, `tenant` or `all`.")
    name: str = Field(description="The id of the key, or the user; of a thread `USER/THREAD`; else empty.")
    tokens_day: int | None = Field(
        default=None, sa_type=sa.BigInteger, description="In a day; 0: no budget; NULL: as the settings say."
    )
    tokens_month: int | None = Field(default=None, sa_type=sa.BigInteger, description="In a month, likewise.")
    cost_day: int | None = Field(default=None, sa_type=sa.BigInteger, description="In a day, likewise.")
    cost_month: int | None = Field(default=None, sa_type=sa.BigInteger, description="In a month, likewise.")


class BudgetState(SQLModel, table=True):
    """What is used in a day or a month, or reserved for a run."""

    subject: str = Field(primary_key=True, description="Kind, tenant and name.")
    period: str = Field(
        primary_key=True, sa_type=sa.String(10), description="A day or a month, in UTC; empty: it is reserved."
    )  # pyright: ignore[reportArgumentType]
    holder: str = Field(primary_key=True, description="The run for which it is reserved; empty: it is used.")
    tokens: int = Field(default=0, sa_type=sa.BigInteger)
    cost: int = Field(default=0, sa_type=sa.BigInteger, description="In 0.00000001 of the currency.")
