"""Tenants are moved from one database to another by `drsai tenants move`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Final

import typer

from drsai_backend.cli.database import check_exists, check_reached, show_url
from drsai_backend.cli.options import AsJson, Yes
from drsai_backend.cli.schema import database_and_schemas
from drsai_backend.cli.screen import confirm, in_line, make_console, print_json
from drsai_backend.cli.verbs import Verbs

app = typer.Typer(cls=Verbs, help="Move a tenant to another database.", no_args_is_help=True)
_UNTIL_KNOWN: Final = 2.0
"""Seconds after which all servers go by what was switched off."""


@app.callback()
def tenants() -> None:
    """Move a tenant to another database."""


@app.command()
def move(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Its name.")],
    source: Annotated[str, typer.Argument(metavar="FROM", help="The URL of the database that it is in.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The URL of the one it goes to, with its tables.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move all of a tenant to another database: copied, the same by a digest, and only then deleted where it was.

    Servers of both work on. New runs of the tenant are refused in both from now on, and begin in the other when this is
    done; while one is not over, nothing is moved. Whatever ends this: do it again, and it goes on.
    """
    from drsai_backend.database.moving import move_tenant, refuse_runs

    (database, extensions), (to, _) = database_and_schemas(source), database_and_schemas(target)
    for each in (database, to):
        check_exists(each)
        check_reached(each)
    here, there = (in_line(show_url(each)) for each in (database, to))
    confirm(f"Move {in_line(tenant)} from {here} to {there}? It is deleted here when it is there.", yes=yes)
    console = make_console(stderr=as_json)

    def close() -> None:
        refuse_runs(database.url, tenant)
        back = f"`drsai switches on tenant {tenant} --database-url FROM` takes that back"
        console.print(f"new runs of {in_line(tenant)} are refused in {here}: {in_line(back)}", soft_wrap=True)
        time.sleep(_UNTIL_KNOWN)  # What begins until then is found, and waited for.

    def tell(sentence: str) -> None:
        console.print(in_line(sentence), soft_wrap=True)

    moved = move_tenant(database.url, to.url, tenant, extensions, close=close, tell=tell)
    for each in moved:
        console.print(f"{each.table:<20} {each.rows:>10} rows  {each.digest[:16]}", soft_wrap=True)
    console.print(f"[green]{in_line(tenant)} is in {there}[/]: route it there", soft_wrap=True)
    if as_json:
        print_json([asdict(each) for each in moved])
