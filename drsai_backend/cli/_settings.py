"""Settings with the command line on top, and the database that they name."""

from __future__ import annotations

from pathlib import Path

from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.errors import NotFound


def read_settings(**options: object) -> Settings:
    """The settings of the environment and of `.env`; options that were given win.

    Raises:
        ConfigurationError: one of them cannot be used.
    """
    return Settings(**{name: value for name, value in options.items() if value is not None})


def named_database(database_url: str | None, *, must_exist: bool = True) -> Database:
    """The database of an option or of the settings, not opened yet.

    Raises:
        ConfigurationError: the URL cannot be used.
        NotFound: an SQLite file that is not there: looking at a database must not make one.
    """
    settings = read_settings(database_url=database_url)
    database = Database(settings.database_url, sqlite_synchronous=settings.sqlite_synchronous)
    if must_exist and database.sqlite_path is not None and not Path(database.sqlite_path).exists():
        raise NotFound(f"there is no database {database.sqlite_path}; name another with --database-url")
    return database


def show_url(database: Database) -> str:
    """A database's URL to read: absolute, without its password."""
    return database.url if database.dialect == "sqlite" else database.url_safe
