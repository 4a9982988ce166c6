"""The base of all tables has column types, field defaults, and constraint names that Alembic can rely on."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.lifecycle import RunStatus
from drsai_backend.datamodel.owner import DEFAULT_TENANT
from drsai_backend.json_types import JsonObject

Column: TypeAlias = sa.Column[Any]  # of any type

SCHEMA_VERSION: Final = "0.0.1"
_SECRET: Final = "drsai_secret"

# Constraint names must not depend on the database, or a migration could not drop them by name.
SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def utcnow() -> datetime:
    """The current time, aware and in UTC."""
    return datetime.now(UTC)


def to_epoch_us(value: datetime) -> int:
    """Microseconds since 1970-01-01 UTC, as SQLite rows hold them. A naive value is taken as UTC."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return (value - _EPOCH) // _MICROSECOND


class UTCDateTime(TypeDecorator[datetime]):
    """An aware UTC time: `TIMESTAMP WITH TIME ZONE` on PostgreSQL, integer microseconds on SQLite.

    SQLite has no time type. An integer takes 8 bytes where ISO text takes 26 (three times in every message row) and
    needs no parsing; `datetime(created_at / 1e6, 'unixepoch')` shows it in the sqlite3 shell.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(sa.BigInteger() if dialect.name == "sqlite" else sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | datetime | None:
        if value is None:
            return None
        if dialect.name == "sqlite":  # as `to_epoch_us`: a run's first write converts ten
            return ((value.replace(tzinfo=UTC) if value.tzinfo is None else value) - _EPOCH) // _MICROSECOND
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def process_result_value(self, value: int | datetime | None, dialect: Dialect) -> datetime | None:
        if isinstance(value, int):
            return _EPOCH + timedelta(microseconds=value)
        return None if value is None else value.astimezone(UTC)


class StatusType(TypeDecorator[RunStatus]):
    """A `RunStatus`, stored as its lower-case string."""

    impl = sa.String(16)
    cache_ok = True

    def process_bind_param(self, value: RunStatus | str | None, dialect: Dialect) -> str | None:
        return None if value is None else RunStatus(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> RunStatus | None:
        return None if value is None else RunStatus(value)


class JsonText(str):
    """JSON that is text already. A JSON column takes it as it is instead of encoding a value."""

    __slots__ = ()


def json_type() -> sa.JSON:
    """JSON, as JSONB on PostgreSQL. Python's None is SQL's NULL."""
    return sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def big_key() -> TypeEngine[int]:
    """A 64-bit key that SQLite still takes as its rowid."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def json_field(**kwargs: Any) -> Any:
    """A JSON column that may be NULL unless `nullable=False` is given."""
    if "default_factory" not in kwargs:
        kwargs.setdefault("default", None)
    return Field(sa_type=json_type(), **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]


def long_text(**kwargs: Any) -> Any:
    """A text column without a length limit."""
    kwargs.setdefault("default", None)
    return Field(sa_type=sa.Text, **kwargs)


def secret_text(**kwargs: Any) -> Any:
    """A text column that holds ciphertext: the manager encrypts and decrypts it, `drsai keys rotate-secret` re-encrypts
    it, and it is left out of `repr` and of every dump. For tables of this package, whose primary key is `id`."""
    return long_text(repr=False, exclude=True, sa_column_kwargs={"info": {_SECRET: True}}, **kwargs)


def is_secret(column: Column) -> bool:
    """Whether it was declared with `secret_text`."""
    return _SECRET in column.info


def short_text(length: int, **kwargs: Any) -> Any:
    """A text column for one of a few words."""
    return Field(sa_type=sa.String(length), **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]


def thread_key_field(**kwargs: Any) -> Any:
    """The key of the thread that the row belongs to, and goes with."""
    return Field(sa_type=big_key(), foreign_key="thread.id", ondelete="CASCADE", **kwargs)


def by_database(value: object) -> JsonObject:
    """`sa_column_kwargs` of a default that the database fills in: most rows never write the column."""
    return {"default": None, "server_default": value}


def counter(description: str, start: float = 0) -> Any:
    """A number that begins at 0, for the database to fill in."""
    return Field(default=start, sa_column_kwargs=by_database("0"), description=description)


NEVER_AGAIN: Final = {"sqlite_autoincrement": True}
"""Of the tables whose ids somebody may hold when their row is gone: SQLite gives them to no other row, as PostgreSQL
never does. Not of those that each run writes: it costs a page in each transaction that inserts a row."""


class KeyedRecord(SQLModel):
    """Base of the tables that have an integer key (`id`)."""

    id: int | None = Field(default=None, primary_key=True, sa_type=big_key())  # pyright: ignore[reportArgumentType]


class Record(KeyedRecord):
    """Base of the tables: an integer key (`id`), UTC times and the version of the row's shape.

    `created_at` and `updated_at` are set by the manager when it stores the row.
    """

    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    updated_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    version: str = Field(default=SCHEMA_VERSION)


def tenant_field() -> Any:
    """The tenant of the user whom the row belongs to. The database knows the default: rows are older than tenants."""
    return Field(default=DEFAULT_TENANT, sa_column_kwargs={"server_default": DEFAULT_TENANT})


class NamedRecord(Record):
    """Base of the tables whose rows name their thread."""

    tenant: str = tenant_field()
    user_id: str
    thread_id: str


def partial_index(name: str, where: str, *columns: str, unique: bool = False) -> sa.Index:
    """An index of the rows of which a condition is true."""
    condition = sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def table_of(model: type[SQLModel]) -> sa.Table:
    """The table of a model, for statements."""
    return cast("sa.Table", cast("Any", model).__table__)
