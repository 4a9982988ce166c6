"""`drsai db`: the schema, by the package's migrations."""

from __future__ import annotations

from rich.markup import escape

from drsai_backend.cli._screen import confirm, make_console
from drsai_backend.cli._settings import named_database, show_url
from drsai_backend.database import Database, migrations


def upgrade(revision: str, database_url: str | None) -> None:
    """Bring the schema to a revision. Raises as `migrations.upgrade`."""
    database = named_database(database_url, must_exist=False)
    migrations.upgrade(database.url, revision)
    _print(database)


def downgrade(revision: str, database_url: str | None, *, yes: bool) -> None:
    """Take the schema back to a revision. Raises as `migrations.downgrade`."""
    database = named_database(database_url)
    confirm(f"Take {show_url(database)} back to {revision}? What is in tables that it has not is lost.", yes=yes)
    migrations.downgrade(database.url, revision)
    _print(database)


def current(database_url: str | None) -> None:
    """Show the revision, and whether it is the one that this version needs."""
    _print(named_database(database_url))


def _print(database: Database) -> None:
    found, head = migrations.current(database.url), migrations.head()
    if found == head:
        state = f"[green]{head}[/] (head)"
    elif found is None:
        state = f"[yellow]no tables[/] of this package; `drsai db upgrade` makes those of {head}"
    else:
        state = f"[yellow]{escape(found)}[/]; this version needs {head}: `drsai db upgrade`"
    make_console().print(f"{escape(show_url(database))}: {state}", soft_wrap=True)
