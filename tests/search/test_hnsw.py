"""A large index on PostgreSQL is asked by pgvector's HNSW, where it is there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sqlalchemy as sa

from drsai_backend.search import Entry, Search, parse_filter, speed_up
from drsai_backend.search import hnsw as tested
from tests.search.conftest import Shelf

COUNT, DIMENSIONS = 2_000, 32


@pytest.fixture
def large(migrated_postgres: str) -> Iterator[Shelf]:
    made = Shelf(migrated_postgres)
    made.search = Search(made.database, large=100)
    yield made
    made.database.close_sync()


def fill(shelf: Shelf, index: int, vectors: np.ndarray, start: int = 0) -> None:  # type: ignore[type-arg]
    for at in range(0, len(vectors), 500):
        entries = [Entry(f"{start + at + n}", "x", attributes={"third": n % 3}) for n in range(500)]
        shelf.add(index, *entries, vectors=[each.tobytes() for each in vectors[at : at + 500]])


def test_the_nearest_are_found(large: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(3).standard_normal((COUNT, DIMENSIONS), dtype="<f4")
    index, other = large.make(model="m"), large.make(model="m")
    fill(large, index, vectors[:1_500])
    fill(large, other, vectors[:500])
    assert speed_up(large.database, index)
    assert speed_up(large.database, index), "it may be repeated"
    fill(large, index, vectors[1_500:], 1_500)
    asked: list[int] = []
    nearest_of = tested.nearest_of
    monkeypatch.setattr("drsai_backend.search.vectors.nearest_of", lambda *of: asked.append(1) or nearest_of(*of))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for filters, passing in ((None, range(3)), (parse_filter({"type": "eq", "key": "third", "value": 1}), [1])):
        right = 0
        for question in vectors[:50] + 0.5:
            order = [at for at in np.argsort(-(unit @ question)).tolist() if at % 500 % 3 in passing]
            found = large.refs(index, "", vector=question.tobytes(), mode="vector", top_k=10, filters=filters)
            right += len({*found} & {str(at) for at in order[:10]})
        assert right >= 0.95 * 500
    assert len(asked) == 100
    assert len(large.refs(other, "", vector=vectors[0].tobytes(), mode="vector")) == 10
    assert len(asked) == 100, "one that has none is looked through"
    plan = sa.text(
        f"EXPLAIN SELECT number FROM searchhnsw WHERE index_id = {index} ORDER BY "
        f"(embedding::vector({DIMENSIONS})) <#> CAST(:asked AS vector({DIMENSIONS})) LIMIT 10"
    )
    shown = {"asked": str(unit[0].tolist())}
    lines = large.database.read_sync(lambda session: session.execute(plan, shown).scalars().all())
    assert any(f"ix_searchhnsw_{index}" in line for line in lines)
    removed = [str(number) for number in range(500)]
    large.remove(index, *removed)
    found = large.refs(index, "", vector=vectors[3].tobytes(), mode="vector")
    assert not {*found} & {*removed}
    count = sa.text("SELECT count(*) FROM searchhnsw")
    assert large.database.read_sync(lambda session: session.execute(count).scalar_one()) == 1_500
    named = sa.text("SELECT count(*) FROM pg_class WHERE relname LIKE 'ix_searchhnsw_%'")
    assert large.database.read_sync(lambda session: session.execute(named).scalar_one()) == 1
    large.drop(index)
    assert large.database.read_sync(lambda session: session.execute(named).scalar_one()) == 0
    assert large.database.read_sync(lambda session: session.execute(count).scalar_one()) == 0


def test_without_the_extension_all_are_compared(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    index = shelf.make(model="m")
    assert not speed_up(shelf.database, index), "there are no vectors yet"
    shelf.add(index, Entry("a", "x"), vectors=[np.ones(3_000, "<f4").tobytes()])
    assert not speed_up(shelf.database, index), "there are too many dimensions"
    assert not speed_up(shelf.database, 999)


def test_an_extension_that_is_too_old_is_not_used(large: Shelf) -> None:
    index = large.make(model="m")
    fill(large, index, np.ones((500, DIMENSIONS), dtype="<f4"))
    assert speed_up(large.database, index)
    change = sa.text("UPDATE pg_extension SET extversion = :version WHERE extname = 'vector'")
    for version, is_used in (("0.7.4", False), ("0.8.1", True)):
        large.database.write_sync(lambda session, version=version: session.execute(change, {"version": version}))
        assert speed_up(large.database, index) is is_used
