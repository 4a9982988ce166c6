"""The database is the one that a command line names; its settings are read here.

asyncio, AutoGen, the openai client and SQLAlchemy take seconds to import, and no help needs them. Hence modules of
commands import them inside the functions that do something; `main` keeps the garbage collector away until then.
"""

from __future__ import annotations

import gc
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from drsai_backend.cli.screen import whose_name
from drsai_backend.errors import DatabaseUnavailable, DrSaiError, NotFound

if TYPE_CHECKING:
    from drsai_backend.config import Settings
    from drsai_backend.database import Database
    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.sync import SyncCaller, SyncDrSai


def read_settings(**options: object) -> Settings:
    """The settings of the environment and of `.env`; options that were given win. What is imported before stays."""
    from drsai_backend.config import Settings

    gc.freeze()
    gc.enable()
    return Settings(**{name: value for name, value in options.items() if value is not None})


@contextmanager
def opened(database_url: str | None, *, must_exist: bool = True) -> Generator[SyncDrSai]:
    """The database of an option or of the settings, to read and steer what others run. This process runs nothing."""
    from drsai_backend.datamodel.audit import By
    from drsai_backend.drsai import DrSai

    settings = read_settings(database_url=database_url, require_model=False)
    drsai = DrSai(settings=settings, worker=False, by=By.CLI)
    if must_exist:
        check_exists(drsai.database)
    with drsai.sync as sync:
        yield sync


@contextmanager
def called(tenant: str, user_id: str, database_url: str | None, *, must_exist: bool = True) -> Generator[SyncCaller]:
    """Give what a user can do in that database."""
    with opened(database_url, must_exist=must_exist) as drsai:
        yield drsai.user(user_id, tenant=tenant)


def check_exists(database: Database) -> None:
    """Looking at a database must not make one."""
    if database.sqlite_path is not None and not Path(database.sqlite_path).exists():
        raise NotFound(f"there is no database {database.sqlite_path}; name another with --database-url")


def named(error: DrSaiError, database_url: str | None) -> DrSaiError:
    """Return an error; where the database of an option, or of the settings, is not available, with its URL, without the
    password."""
    from drsai_backend.database import Database

    if not isinstance(error, DatabaseUnavailable) or error.__cause__ is not None:  # It names a file or a server.
        return error
    url = database_url or read_settings(require_model=False).database_url
    return DatabaseUnavailable(f"{error.message}: {show_url(Database(url))}")


def check_reached(database: Database) -> None:
    """Raise DatabaseUnavailable, which names it: a command that works on two has to say which it does not reach."""
    from drsai_backend.database import migrations

    try:
        if database.dialect == "postgresql":
            migrations.current(database.url)
    except DatabaseUnavailable as error:
        raise named(error, database.url) from None


def elsewhere(noun: str, owner: Owner) -> str:
    """The end of what is said where something of an owner is missing: the command that lists what there is."""
    whose = ["--user", owner.user_id] if owner.user_id else ["--shared"]
    whose += [] if owner.tenant == "default" else ["--tenant", owner.tenant]
    return f" here; `drsai {noun} list {shlex.join(whose)}` shows those there are"


@contextmanager
def missing(before: str = "", after: str = "") -> Generator[None]:
    """Say what is not found in words for who types: between `before` and `after`."""
    try:
        yield
    except NotFound as error:
        raise NotFound(f"{before}{error.message}{after}") from None


def owner_of(tenant: str, user_id: str) -> Owner:
    """Make the owner that the options `--tenant` and `--user` name."""
    from drsai_backend.datamodel.owner import Owner

    return Owner(tenant, user_id)


def show_url(database: Database) -> str:
    """A database's URL to read: absolute, without its password."""
    return database.url if database.dialect == "sqlite" else database.url_safe


@contextmanager
def threads_of(owner: Owner, database_url: str | None, noun: str = "threads") -> Generator[SyncCaller]:
    """Give what a user can do in the database, where a thread that is not found is missed in words for who types.
    `noun`: whose list shows what there is."""
    with (
        called(*owner, database_url) as caller,
        missing(f"{whose_name(owner)} has ", elsewhere(noun, owner)),  # "no thread 't'"
    ):
        yield caller
