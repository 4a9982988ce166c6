"""`drsai db copy` of a database with extensions: their tables go along, and the extensions work on the copy."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.database import migrations
from drsai_backend.database.copying import copy_database, left_behind
from drsai_backend.database.migrations import connecting
from drsai_backend.datamodel import table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest, SchemaOutdated
from drsai_backend.features.extensions import kinds_of, schemas_of
from tests.features.kinds import Binder, Leaf, Leaves
from tests.support.threads import settings

ADA = Owner("acme", "ada")


@pytest.fixture(params=["sqlite to postgresql", "postgresql to sqlite"])
def urls(request: pytest.FixtureRequest, migrated_sqlite: str, migrated_postgres: str) -> list[str]:
    both = [migrated_sqlite, migrated_postgres]
    return both if request.param.startswith("sqlite") else both[::-1]


def _rows(url: str, table: sa.Table) -> list[dict[str, Any]]:
    with connecting(url, write=False) as connection:
        query = sa.select(table).order_by(*table.primary_key.columns)
        return [dict(row) for row in connection.execute(query).mappings()]


async def test_the_tables_of_extensions_go_along(urls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from notes.extension import Notes
    from notes.rows import EndedRuns, Note

    source, target = urls
    given: Any = settings()
    kinds = (Leaves, Notes)
    schemas = schemas_of(kinds_of(given, kinds))
    tables = [table_of(each) for each in (Binder, Leaf, Note, EndedRuns)]
    migrations.upgrade(source, extensions=schemas)
    async with DrSai({}, source, settings=given, extensions=kinds) as drsai:
        notes: Any = drsai.extension(Notes)
        made = [await notes.add(ADA, text) for text in ("The tide turns at noon.", "Buy bread.", "Ask Bob.")]
        await notes.delete(ADA, made[-1].id)  # so that the newest number is of no row
    with connecting(source) as connection:
        connection.execute(sa.insert(Binder), [{"name": "green"}])
        connection.execute(sa.insert(Leaf), [{**ADA._asdict(), "binder": "green"}])
        connection.execute(sa.insert(EndedRuns), [{**ADA._asdict(), "count": 3}])
    before = [_rows(source, table) for table in tables]
    assert all(before)
    with pytest.raises(InvalidRequest, match="not in DRSAI_EXTENSIONS: notes"):
        next(copy_database(source, target, schemas[:1], is_dead=lambda _: True))

    cut = copy_database(source, target, schemas, is_dead=lambda _: True)
    while next(cut).table != "notes":
        pass
    cut.close()
    with pytest.raises(SchemaOutdated, match="not finished"):
        await DrSai({}, target, settings=given, extensions=kinds).open()
    copied = {
        each.table: each.rows for each in copy_database(source, target, schemas, again=True, is_dead=lambda _: True)
    }
    assert {name: copied[name] for name in ("leaves_binder", "leaves", "notes", "notes_ended_runs")} == {
        "leaves_binder": 1,
        "leaves": 1,
        "notes": 2,
        "notes_ended_runs": 1,
    }
    assert [_rows(target, table) for table in tables] == before == [_rows(source, table) for table in tables]
    assert left_behind(source, schemas) == []
    async with DrSai({}, target, settings=given, extensions=kinds) as drsai:
        notes = drsai.extension(Notes)
        assert [each.text for each in await notes.list(ADA)] == ["The tide turns at noon.", "Buy bread."]
        assert (await notes.add(ADA, "Pay rent.")).id > made[1].id


def test_tables_of_an_extension_that_are_older_are_refused(migrated_sqlite: str, migrated_postgres: str) -> None:
    [schema] = schemas_of(kinds_of(settings(), [Leaves]))
    migrations.upgrade(migrated_sqlite, extensions=[schema])
    with connecting(migrated_sqlite) as connection:
        connection.execute(sa.text(f"DELETE FROM {schema.version_table}"))
    with pytest.raises(SchemaOutdated, match="leaves"):
        list(copy_database(migrated_sqlite, migrated_postgres, [schema]))
