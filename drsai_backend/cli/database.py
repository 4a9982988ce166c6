"""The settings and the database that a command line names, and `drsai db`: its schema, by the package's migrations."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rich.markup import escape

from drsai_backend.cli.screen import confirm, make_console
from drsai_backend.config import Settings
from drsai_backend.database import Database, migrations
from drsai_backend.datamodel.audit import By
from drsai_backend.drsai import DrSai
from drsai_backend.errors import NotFound
from drsai_backend.sync import SyncDrSai


def read_settings(**options: object) -> Settings:
    """The settings of the environment and of `.env`; options that were given win."""
    return Settings(**{name: value for name, value in options.items() if value is not None})


@contextmanager
def opened(database_url: str | None, *, must_exist: bool = True) -> Generator[SyncDrSai]:
    """The database of an option or of the settings, to read and steer what others run. This process runs nothing."""
    settings = read_settings(database_url=database_url, require_model=False)
    drsai = DrSai(settings=settings, worker=False, by=By.CLI)
    if must_exist:
        _check_exists(drsai.database)
    with drsai.sync as sync:
        yield sync


def show_url(database: Database) -> str:
    """A database's URL to read: absolute, without its password."""
    return database.url if database.dialect == "sqlite" else database.url_safe


def upgrade(revision: str, database_url: str | None) -> None:
    database = _named(database_url)
    migrations.upgrade(database.url, revision)
    _print(database)


def downgrade(revision: str, database_url: str | None, *, yes: bool) -> None:
    database = _named(database_url)
    _check_exists(database)
    migrations.check_revision(revision)
    question = (
        f"Take {show_url(database)} back to {revision}? The tables and columns that are newer go, and all in them."
    )
    confirm(question, yes=yes)
    migrations.downgrade(database.url, revision)
    _print(database)


def current(database_url: str | None) -> None:
    database = _named(database_url)
    _check_exists(database)
    _print(database)


def _named(database_url: str | None) -> Database:
    return Database(read_settings(database_url=database_url).database_url)


def _check_exists(database: Database) -> None:
    """Looking at a database must not make one."""
    if database.sqlite_path is not None and not Path(database.sqlite_path).exists():
        raise NotFound(f"there is no database {database.sqlite_path}; name another with --database-url")


def _print(database: Database) -> None:
    found, head = migrations.current(database.url), migrations.head()
    if found == head:
        state = f"[green]{head}[/] (head)"
    elif migrations.serves(found) and found is not None:
        state = f"[green]{escape(found)}[/]; this version needs {head}, and all of it is there"
    elif found is None:
        state = f"[yellow]no tables[/] of this package; `drsai db upgrade` makes those of {head}"
    else:
        state = f"[yellow]{escape(found)}[/]; this version needs {head}: `drsai db upgrade`"
    make_console().print(f"{escape(show_url(database))}: {state}", soft_wrap=True)
