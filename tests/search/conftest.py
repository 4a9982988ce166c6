"""Indexes in a fresh database, each call in a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner
from drsai_backend.search import Entry, Found, Index, Query, Search, indexes

ANN = Owner("acme", "ann")
TABLES = ("searchindex", "searchentry", "searchposting", "searchvector")


class Shelf:
    """The indexes of a database."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.search = Search(self.database)

    def make(self, owner: Owner = ANN, **values: Any) -> int:
        return self.database.write_sync(lambda session: indexes.create_index(session, owner, "test", **values))

    def add(self, index: int, *entries: Entry, vectors: Sequence[bytes | None] | None = None) -> int:
        """Half of them as a program would that has many."""
        given = entries if len(entries) % 2 else indexes.prepare(entries)
        return self.database.write_sync(lambda session: indexes.add(session, index, given, vectors))

    def remove(self, index: int, *refs: str) -> int:
        return self.database.write_sync(lambda session: indexes.remove(session, index, refs))

    def remove_family(self, index: int, family: str, **values: Any) -> int:
        return self.database.write_sync(lambda session: indexes.remove_family(session, index, family, **values))

    def drop(self, index: int, limit: int | None = None) -> int:
        return self.database.write_sync(lambda session: indexes.drop_index(session, index, limit=limit))

    def index(self, index: int) -> Index | None:
        return self.database.read_sync(lambda session: indexes.find_index(session, index))

    def entries(self, index: int, **values: Any) -> list[Entry]:
        return self.database.read_sync(lambda session: [*indexes.read_entries(session, index, **values)])

    def find(self, index: int | Sequence[int], text: str, **values: Any) -> Found:
        of = [index] if isinstance(index, int) else index
        query = Query(text, **{"mode": "keyword", **values})
        return self.database.read_sync(partial(self.search.search, indexes=of, query=query))

    def refs(self, index: int | Sequence[int], text: str, **values: Any) -> list[str]:
        return [hit.ref for hit in self.find(index, text, **values).hits]

    def rows(self) -> dict[str, int]:
        """How many rows each table has."""
        count = {name: sa.select(sa.func.count()).select_from(sa.table(name)) for name in TABLES}
        return self.database.read_sync(
            lambda session: {name: session.execute(query).scalar_one() for name, query in count.items()}
        )


@pytest.fixture
def shelf(database_url: str) -> Iterator[Shelf]:
    made = Shelf(database_url)
    yield made
    made.database.close_sync()


@pytest.fixture
def both(migrated_sqlite: str, migrated_postgres: str) -> Iterator[list[Shelf]]:
    """One on each database."""
    made = [Shelf(migrated_sqlite), Shelf(migrated_postgres)]
    yield made
    for each in made:
        each.database.close_sync()
