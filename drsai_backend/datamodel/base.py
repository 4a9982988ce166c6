"""What every table has: times, a version string, and names that Alembic can rely on."""

from datetime import datetime
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.types import UTCDateTime, big_key, json_type, utcnow

SCHEMA_VERSION: Final = "0.0.1"

# Constraint names must not depend on the database, or a migration could not drop them by name.
SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Record(SQLModel):
    """Base of the tables: an integer key (`id`), UTC times and the version of the row's shape.

    `created_at` and `updated_at` are set by the manager when it stores the row.
    """

    id: int | None = Field(default=None, primary_key=True, sa_type=big_key())  # pyright: ignore[reportArgumentType]
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, nullable=False)
    updated_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime, nullable=False)
    version: str = Field(default=SCHEMA_VERSION)


def table_of(model: type[SQLModel]) -> sa.Table:
    """The table of a model, for statements."""
    return cast("sa.Table", cast("Any", model).__table__)


def json_field(**kwargs: Any) -> Any:
    """A JSON column that may be NULL unless `nullable=False` is given."""
    if "default_factory" not in kwargs:
        kwargs.setdefault("default", None)
    return Field(sa_type=json_type(), **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]


def long_text(**kwargs: Any) -> Any:
    """A text column without a length limit."""
    kwargs.setdefault("default", None)
    return Field(sa_type=sa.Text, **kwargs)
