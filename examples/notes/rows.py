"""The tables. What has the columns `tenant` and `user_id` belongs to a user: it is deleted and exported with them."""

from typing import ClassVar

from sqlmodel import Field, SQLModel

from drsai_backend.datamodel import Record


class Note(Record, table=True):
    """A note of a user."""

    __tablename__: ClassVar[str] = "notes"  # pyright: ignore[reportIncompatibleVariableOverride]

    tenant: str = "default"
    user_id: str = Field(index=True)
    text: str


class EndedRuns(SQLModel, table=True):
    """How many runs of a user have ended."""

    __tablename__: ClassVar[str] = "notes_ended_runs"  # pyright: ignore[reportIncompatibleVariableOverride]

    tenant: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    count: int
