"""Extensions for tests. Their tables are made by the migrations in `ends/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlmodel import Field, SQLModel

from drsai_backend.database.hooks import EndedRun
from drsai_backend.datamodel import table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.base import Extension


class End(SQLModel, table=True):
    """An end that was told. One that is told twice is refused."""

    __tablename__: ClassVar[str] = "ends_end"

    run_id: str = Field(primary_key=True)
    epoch: int = Field(primary_key=True)
    status: str
    thread_id: str
    told_by: str = Field(primary_key=True)


class Binder(SQLModel, table=True):
    """Nobody's: what is in it has an owner."""

    __tablename__: ClassVar[str] = "leaves_binder"

    name: str = Field(primary_key=True)


class Leaf(SQLModel, table=True):
    """A user's row, in something that is nobody's."""

    __tablename__: ClassVar[str] = "leaves"

    tenant: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    binder: str = Field(foreign_key="leaves_binder.name", ondelete="CASCADE")


class Leaves(Extension):
    """Rows of users that refer to others."""

    name = "leaves"
    tables = (Binder, Leaf)
    migrations = "leaves"


class Ends(Extension):
    """Keeps every end that it is told."""

    name = "ends"
    tables = (End,)
    migrations = "ends"

    def run_ended(self, session: Session, run: EndedRun) -> None:
        keep(session, run, self.name)


class Failing(Extension):
    """Writes, and fails then."""

    name = "failing"
    how: ClassVar[Any] = ZeroDivisionError

    def run_ended(self, session: Session, run: EndedRun) -> None:
        keep(session, run, self.name)
        if self.how is ZeroDivisionError:
            raise ZeroDivisionError
        session.execute(sa.text(self.how))


class Outside(Extension):
    """Keeps something of users outside of the database."""

    name = "outside"
    kept: ClassVar[dict[Owner, int]] = {}
    of_keys: ClassVar[dict[Owner, list[str]]] = {}
    """Whose keys are gone, by their ids."""
    keeps_keys: ClassVar[bool] = False
    is_away: ClassVar[bool] = False
    holds: ClassVar[set[str]] = set()
    """Files that are not to go."""

    def file_deleted(self, session: Session, owner: Owner, file_id: str) -> None:
        if file_id in self.holds:
            raise ConnectionError("it is away")

    def keys_deleted(self, session: Session, owner: Owner, key_ids: Sequence[str]) -> None:
        if self.keeps_keys:
            raise ConnectionError("it is away")
        self.of_keys[owner] = [*key_ids]

    def user_deleted(self, session: Session, owner: Owner) -> int:
        if self.is_away:
            raise ConnectionError("it is away")
        return self.kept.pop(owner, 0)

    def export_user(self, session: Session, owner: Owner) -> list[tuple[str, bytes]]:
        if self.is_away:
            raise ConnectionError("it is away")
        return [("count.txt", str(self.kept.get(owner, 0)).encode())]


class Piece(bytes):
    """Bytes of which it can be seen how many somebody still has."""

    alive: ClassVar[int] = 0

    def __init__(self, _: bytes) -> None:
        Piece.alive += 1

    def __del__(self) -> None:
        Piece.alive -= 1


class Large(Extension):
    """Has much of users, a piece at a time."""

    name = "large"
    held: ClassVar[list[int]] = []
    fails: ClassVar[bool] = False

    def export_user(self, session: Session, owner: Owner) -> Iterator[tuple[str, bytes]]:
        for number in range(5):
            self.held.append(Piece.alive)
            if self.fails and number == 3:
                raise ConnectionError("it is away")
            yield f"{number}.txt", Piece(b"%d" % number)


class Plain(Extension):
    """Uses nothing."""

    name = "plain"


def keep(session: Session, run: EndedRun, told_by: str) -> None:
    row = {"run_id": run.run_id, "epoch": run.epoch, "status": run.status.value, "thread_id": run.name.thread_id}
    session.execute(sa.insert(table_of(End)).values(**row, told_by=told_by))
