"""The schema of a database is looked at by `drsai db`, and changed by the package's migrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from drsai_backend.cli.database import check_exists, check_reached, read_settings, show_url
from drsai_backend.cli.options import AsJson, DatabaseUrl, Yes
from drsai_backend.cli.screen import confirm, make_console, print_json, warn
from drsai_backend.cli.verbs import Verbs

if TYPE_CHECKING:
    from drsai_backend.database import Database
    from drsai_backend.database.schemas import Schema

app = typer.Typer(cls=Verbs, help="Bring the database schema up to date, or take it back.", no_args_is_help=True)


@app.command()
def upgrade(
    revision: Annotated[str, typer.Argument(help="Where to.")] = "head",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make the tables, or bring them up to date."""
    from drsai_backend.database import migrations

    database, extensions = database_and_schemas(database_url)
    migrations.upgrade(database.url, revision, extensions)
    _print(database, extensions, as_json=as_json)


@app.command(context_settings={"ignore_unknown_options": True})  # -1 is none
def downgrade(
    revision: Annotated[str, typer.Argument(help="Where to: a revision, -1 for one step, or base.")],
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take the tables back to an earlier revision. `base` drops all of them, and what they hold."""
    from drsai_backend.database import migrations

    database, extensions = database_and_schemas(database_url)
    check_exists(database)
    migrations.check_revision(revision)
    question = (
        f"Take {show_url(database)} back to {revision}? The tables and columns that are newer go, and all in them."
    )
    confirm(question, yes=yes)
    migrations.downgrade(database.url, revision, extensions)
    _print(database, extensions, as_json=as_json)


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The URL of the database that is copied.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The URL of an empty one, or of an SQLite file to make.")],
    again: Annotated[bool, typer.Option("--again", help="Empty a copy that was not finished, and begin anew.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy all of a database into another one, SQLite or PostgreSQL, and compare each table by a digest. Stop what
    works on it before."""
    from drsai_backend.database.copying import copy_database, left_behind
    from drsai_backend.runs.recovery.leases import is_proven_dead

    (database, extensions), (to, _) = database_and_schemas(source), database_and_schemas(target)
    check_exists(database)
    for each in (database, to):
        check_reached(each)
    console, tables = make_console(stderr=as_json), list[dict[str, object]]()
    for each in copy_database(database.url, to.url, extensions, again=again, is_dead=is_proven_dead):
        tables.append(asdict(each))
        console.print(f"{each.table:<20} {each.rows:>10} rows  {each.digest[:16]}", soft_wrap=True)
    for sentence in left_behind(database.url, extensions):
        warn(sentence)
    console.print(f"[green]{escape(show_url(to))} has all of {escape(show_url(database))}[/]", soft_wrap=True)
    if as_json:
        print_json(tables)


@app.command()
def encrypt(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Encrypt the stored texts anew with the first of $DRSAI_ENCRYPTION_KEYS; servers may run meanwhile.

    First give all servers the new key behind the present one, then before it. With `plain` as the first, what is
    encrypted is written in clear. After an interruption, run it once more.
    """
    from drsai_backend.database import Database
    from drsai_backend.database.encryption import encrypt as encrypt_anew
    from drsai_backend.database.text_keys import TextKeys

    settings = read_settings(database_url=database_url)
    keys = TextKeys.of(settings.encryption_keys, settings.encryption_keys_file)
    database = Database(settings.database_url, text_keys=keys)
    check_exists(database)
    console, tables = make_console(stderr=as_json), list[dict[str, object]]()
    left = unreadable = 0
    try:
        for each in encrypt_anew(database):
            tables.append(asdict(each))
            left, unreadable = left + each.left, unreadable + each.unreadable
            if each.done or each.left:
                console.print(f"{each.table:<20} {each.done:>10} written anew {each.left:>10} left", soft_wrap=True)
    finally:
        database.close_sync()
    if as_json:
        print_json(tables)
    if left:
        why = f"; {unreadable} of them cannot be read with these keys, or were damaged" if unreadable else ""
        warn(f"{left} rows are left{why}: run it once more")
        raise typer.Exit(1)
    state = "in clear" if keys is None or keys.newest is None else f"encrypted with the key {keys.newest}"
    console.print(f"[green]all texts of {escape(show_url(database))} are {state}[/]", soft_wrap=True)


@app.command()
def show(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show the revision of the database."""
    database, extensions = database_and_schemas(database_url)
    check_exists(database)
    _print(database, extensions, as_json=as_json)


def database_and_schemas(database_url: str | None) -> tuple[Database, Sequence[Schema]]:
    """The database that is named, and the tables of the extensions that the settings name."""
    from drsai_backend.database import Database
    from drsai_backend.features.extensions import kinds_of, schemas_of

    settings = read_settings(database_url=database_url)
    return Database(settings.database_url), schemas_of(kinds_of(settings))


def _print(database: Database, extensions: Sequence[Schema], *, as_json: bool) -> None:
    from drsai_backend.database import migrations, schemas

    console, stands = make_console(stderr=as_json), list[dict[str, object]]()
    for schema in (schemas.CORE, *extensions):
        found, head = migrations.current(database.url, schema), migrations.head(schema)
        serves = found is not None and migrations.serves(found, schema)
        stands.append({"schema": schema.name, "revision": found, "head": head, "is_served": serves})
        if found == head:
            state = f"[green]{head}[/] (head)"
        elif serves and found is not None:
            state = f"[green]{escape(found)}[/]; this version needs {head}, and all of it is there"
        elif found is None:
            state = f"[yellow]no tables[/] {schema.whose}; `drsai db upgrade` makes those of {head}"
        elif found == migrations.UNFINISHED:
            state = "[yellow]a copy that was not finished[/]; `drsai db copy FROM TO --again` begins anew"
        elif not migrations.knows(found, schema):
            upgraded = "package" if schema is schemas.CORE else "extension"
            state = f"[yellow]{escape(found)}[/], of a later version: upgrade the {upgraded}"
        else:
            state = f"[yellow]{escape(found)}[/]; this version needs {head}: `drsai db upgrade`"
        what = escape(show_url(database)) if schema is schemas.CORE else f"extension {schema.name}"
        console.print(f"{what}: {state}", soft_wrap=True)
    if as_json:
        print_json(stands)
