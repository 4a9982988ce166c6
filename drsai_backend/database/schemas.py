"""A schema says which tables belong together, and where their version is kept. `migrations` makes them, with
Alembic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlmodel import SQLModel

from drsai_backend import datamodel

# Not Alembic's default name: an application with migrations of its own may live in the same database.
VERSION_TABLE: Final = "drsai_alembic_version"


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables with migrations and a version of their own.

    Attributes:
        name: of the extension that they come with; "": this package's own.
        folder: of the migrations, which `migrations/env.py` of this package runs; None: beside that.
        tables: their names.
    """

    name: str = ""
    folder: Path | None = None
    tables: frozenset[str] = frozenset()

    @property
    def version_table(self) -> str:
        return f"{VERSION_TABLE}_{self.name}" if self.name else VERSION_TABLE

    @property
    def whose(self) -> str:
        return f"of the extension {self.name}" if self.name else "of this package"


CORE: Final = Schema()
MADE_AGAIN: Final = frozenset({"searchhnsw"})
"""Tables that no migration makes, and which hold nothing that other tables do not: `search.hnsw` fills them."""


def tables() -> list[sa.Table]:
    """This package's tables, by name."""
    return [SQLModel.metadata.tables[name] for name in sorted(own_tables())]


def own_tables() -> frozenset[str]:
    """The names of this package's tables."""
    exported = (getattr(datamodel, name) for name in datamodel.__all__)
    return frozenset(str(item.__tablename__) for item in exported if hasattr(item, "__table__"))
