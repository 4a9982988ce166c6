"""HNSW is pgvector's index on PostgreSQL: it finds the nearest of many vectors without looking at all of them.

It is made by `speed_up` for an index that has become large, in a table beside, which no migration makes, as it needs
the extension: a copy of the database has none until it is made again. What is added later is added there, too; what is
removed goes with the vector.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.database.migrations import connecting
from drsai_backend.datamodel import SearchIndex, SearchVector, table_of
from drsai_backend.errors import DatabaseError

LARGE: Final = 20_000
"""Entries from which on it is faster than to compare all."""
MAX_DIMENSIONS: Final = 2_000
"""Of the vectors that pgvector indexes."""
_AT_ONCE: Final = 500
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS searchhnsw (index_id bigint, number integer, embedding vector NOT NULL,
PRIMARY KEY (index_id, number),
FOREIGN KEY (index_id, number) REFERENCES searchvector (index_id, number) ON DELETE CASCADE)
"""
_INSERT: Final = sa.text(
    "INSERT INTO searchhnsw VALUES (:index_id, :number, CAST(:vector AS vector)) ON CONFLICT DO NOTHING"
)
_EXTENSION: Final = sa.text(
    "SELECT 1 FROM pg_extension WHERE extname = 'vector' AND string_to_array(extversion, '.')::int[] >= ARRAY[0, 8]"
)
"""Earlier ones find too little where there are filters: they have no `hnsw.iterative_scan`."""
_THERE: Final = sa.text("SELECT to_regclass('searchhnsw')")
_ANY: Final = sa.text("SELECT 1 FROM searchhnsw WHERE index_id = :index LIMIT 1")
_WHOLE: Final = sa.text("SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(:name) AND indisvalid")
_index, _vector = table_of(SearchIndex), table_of(SearchVector)


def speed_up(database: Database, index: int) -> bool:
    """Make the HNSW index of an index, and return whether there is one now. Blocks, for a minute with 100,000 vectors;
    others read and write meanwhile. May be repeated, and is to be after it was cut off.

    Raises:
        DatabaseError: the database failed.
    """
    row = database.read_sync(lambda session: session.execute(sa.select(_index).where(_index.c.id == index)).first())
    if database.dialect != "postgresql" or row is None or not row.dimensions or row.dimensions > MAX_DIMENSIONS:
        return False
    with suppress(DatabaseError):  # That there is no such extension, or nobody may install it, is seen below.
        database.write_sync(
            lambda session: session.connection().exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector")
        )
    if database.read_sync(lambda session: session.execute(_EXTENSION).first()) is None:
        return False
    database.write_sync(lambda session: session.connection().exec_driver_sql(_TABLE))
    while database.write_sync(lambda session: _fill(session, index)):
        pass
    name, kind = _name(index), f"((embedding::vector({row.dimensions:d})) vector_ip_ops)"
    with connecting(database.url, write=False) as first, first.engine.connect() as connection:
        # Neither can be done in a transaction.
        bare = connection.execution_options(isolation_level="AUTOCOMMIT")
        broken = sa.text("SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid")
        if bare.execute(broken, {"name": name}).first() is not None:
            bare.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        on = f"{name} ON searchhnsw USING hnsw {kind} WHERE index_id = {index:d}"
        bare.exec_driver_sql(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {on}")
    return True


def _fill(session: Session, index: int) -> int:
    """Add some vectors that are not there yet, under the lock of the index, so that none is missed."""
    session.execute(sa.select(_index.c.id).where(_index.c.id == index).with_for_update())
    missing = sa.text(
        "NOT EXISTS (SELECT 1 FROM searchhnsw h WHERE h.index_id = searchvector.index_id "
        "AND h.number = searchvector.number)"
    )
    c = _vector.c
    query = sa.select(c.index_id, c.number, c.vector).where(c.index_id == index, missing)
    rows = session.execute(query.order_by(c.number).limit(_AT_ONCE)).mappings().all()
    _insert(session, rows)
    return len(rows)


def keep_up(session: Session, index: int, vectors: Sequence[Mapping[str, Any]]) -> None:
    """Add vectors, as their rows, where the index has an HNSW one, or will have."""
    if _has_table(session) and session.execute(_ANY, {"index": index}).first() is not None:
        _insert(session, vectors)


def has_hnsw(session: Session, index: int) -> bool:
    """Whether an index has an HNSW one, and that is whole."""
    return _has_table(session) and session.execute(_WHOLE, {"name": _name(index)}).first() is not None


def forget(session: Session, index: int) -> None:
    """Drop the HNSW index of an index that goes."""
    if has_hnsw(session, index):
        session.execute(sa.text(f"DROP INDEX IF EXISTS {_name(index)}"))


def _has_table(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql" and session.execute(_THERE).scalar() is not None


def _name(index: int) -> str:
    return f"ix_searchhnsw_{index:d}"


def _insert(session: Session, vectors: Sequence[Mapping[Any, Any]]) -> None:
    if vectors:
        rows = [{**each, "vector": _shown(each["vector"])} for each in vectors]
        session.execute(_INSERT, rows)


def _shown(vector: bytes) -> str:
    return f"[{','.join(map(repr, struct.unpack(f'<{len(vector) // 4}f', vector)))}]"


def nearest_of(
    session: Session, row: sa.Row[Any], vector: bytes, most: int, allowed: Sequence[int] | None
) -> list[tuple[int, float]]:
    """The numbers of the entries whose vectors are nearest, with about their cosines; of the best, 95 in 100.

    Args:
        session: reads them.
        row: of the index.
        vector: of the question.
        most: how many.
        allowed: the numbers that may be found; None: all.
    """
    settings = {"hnsw.ef_search": str(min(1_000, 4 * most)), "hnsw.iterative_scan": "relaxed_order"}
    for name, value in settings.items():
        session.execute(sa.text("SELECT set_config(:name, :value, true)"), {"name": name, "value": value})
    # The condition and the type of the index stand in the statement: else it is not used.
    distance = f"(embedding::vector({row.dimensions:d})) <#> CAST(:asked AS vector({row.dimensions:d}))"
    chosen = "" if allowed is None else " AND number = ANY(:allowed)"
    where = f"index_id = {row.id:d}{chosen} ORDER BY {distance} LIMIT :most"
    query = sa.text(f"SELECT number, {distance} FROM searchhnsw WHERE {where}")
    values = {"asked": _shown(vector), "most": most, **({} if allowed is None else {"allowed": allowed})}
    return [(number, -product) for number, product in session.execute(query, values)]
