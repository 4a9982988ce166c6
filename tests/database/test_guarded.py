"""Guarded transactions: a statement that has to change a row, and the rest, with their COMMIT."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DatabaseManager
from drsai_backend.database.backends.prepared import Prepared, Step, run_guarded
from drsai_backend.errors import Conflict, DatabaseUnavailable

_tables = sa.MetaData()
_counter = sa.Table("counter", _tables, sa.Column("name", sa.Text, primary_key=True), sa.Column("n", sa.Integer))
_notes = sa.Table("note", _tables, sa.Column("word", sa.Text, primary_key=True))
_named = _counter.c.name == sa.bindparam("name")
_guard = Prepared(
    lambda _: sa.update(_counter).where(_named).values(n=_counter.c.n + 1).returning(_counter.c.n, _counter.c.name)
)
_note = Prepared(lambda _: sa.insert(_notes).values(word=sa.bindparam("word")))
_die = Prepared(lambda _: sa.select(sa.func.pg_terminate_backend(sa.func.pg_backend_pid())))


def guarded(
    *words: str, name: str = "a", is_last: bool = True, more: list[Step] | None = None
) -> Callable[[Session], tuple[int, str]]:
    def fn(session: Session) -> tuple[int, str]:
        rest = [*((_note, {"word": word}) for word in words), *(more or [])]
        found = run_guarded(session.connection(), (_guard, {"name": name}), rest, is_last=is_last)
        if found is None:
            raise Conflict("nothing was changed")
        return found

    return fn


def stored(session: Session) -> tuple[int, list[str]]:
    connection = session.connection()
    words = connection.execute(sa.text("SELECT word FROM note ORDER BY word")).scalars()
    return connection.execute(sa.text("SELECT n FROM counter")).scalar_one(), list(words)


@pytest.fixture(autouse=True)
async def tables(db: DatabaseManager) -> None:
    def make(session: Session) -> None:
        _tables.create_all(session.connection())
        session.execute(sa.insert(_counter).values(name="a", n=0))

    await db.database.write(make)


@pytest.mark.parametrize("is_last", [True, False])
async def test_the_rest_is_stored_with_the_guard(db: DatabaseManager, is_last: bool) -> None:
    assert await db.database.write(guarded("x", "y", is_last=is_last)) == (1, "a")
    assert await db.database.read(stored) == (1, ["x", "y"])


@pytest.mark.parametrize("is_last", [True, False])
async def test_a_guard_that_changes_nothing_stores_nothing(db: DatabaseManager, is_last: bool) -> None:
    with pytest.raises(Conflict, match="nothing was changed"):
        await db.database.write(guarded("x", name="b", is_last=is_last))
    assert await db.database.read(stored) == (0, [])


@pytest.mark.parametrize("is_last", [True, False])
async def test_an_error_undoes_all_of_it(db: DatabaseManager, is_last: bool) -> None:
    with pytest.raises(Conflict):
        await db.database.write(guarded("x", "y", "x", is_last=is_last))
    assert await db.database.read(stored) == (0, [])


@pytest.mark.parametrize("earlier", ["x", "y"])
async def test_what_was_written_before_belongs_to_it(db: DatabaseManager, earlier: str) -> None:
    def fn(session: Session) -> None:
        session.execute(sa.text("INSERT INTO note VALUES (:word)"), {"word": earlier})
        guarded("x")(session)

    if earlier == "x":
        with pytest.raises(Conflict):
            await db.database.write(fn)
    else:
        await db.database.write(fn)
    assert await db.database.read(stored) == ((0, []) if earlier == "x" else (1, ["x", "y"]))


@pytest.mark.parametrize("words", [("x",), ("x", "x")])
async def test_the_next_transaction_is_one_again(db: DatabaseManager, words: tuple[str, ...]) -> None:
    """The connection is left as it was, whether it went well or not."""

    def fails_midway(session: Session) -> None:
        session.execute(sa.text("INSERT INTO note VALUES ('z')"))
        raise ValueError("midway")

    for _ in range(12):  # all connections of the pool, and the first ones again
        with contextlib.suppress(Conflict):
            await db.database.write(guarded(*words))
        with pytest.raises(ValueError, match="midway"):
            await db.database.write(fails_midway)
    assert "z" not in (await db.database.read(stored))[1]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # SQLite has no connection to lose.
async def test_a_connection_lost_with_its_commit_is_not_repeated(db: DatabaseManager) -> None:
    calls = 0

    def fn(session: Session) -> None:
        nonlocal calls
        calls += 1
        guarded("x", more=[(_die, {})])(session)

    with pytest.raises(DatabaseUnavailable):
        await db.database.write(fn)
    assert calls == 1
    assert await db.database.read(stored) == (0, [])
    assert await db.database.write(guarded("x")) == (1, "a")


async def test_a_guard_that_changes_nothing_is_no_ones_warning(
    db: DatabaseManager, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody else was faster: that happens all the time, and the driver has nothing to say about it."""
    with pytest.raises(Conflict):  # It is met while the rest is still being sent.
        await db.database.write(guarded(*(str(number) for number in range(500)), name="b"))
    assert not caplog.records
