"""`drsai notes`. What is heavy is imported when a command runs, as in the package."""

from __future__ import annotations

from typing import Annotated

import typer

from drsai_backend.cli.options import DatabaseUrl, Tenant

app = typer.Typer(help="Look at the notes of users.", no_args_is_help=True)

OfUser = Annotated[str, typer.Option(metavar="NAME", help="Whose notes.")]


@app.command("list")
def list_notes(user: OfUser, tenant: Tenant = "default", database_url: DatabaseUrl = None) -> None:
    """List the notes of a user."""
    from drsai_backend.cli.database import opened
    from drsai_backend.datamodel.owner import Owner

    from .extension import Notes

    with opened(database_url) as drsai:
        notes = drsai.drsai.extension(Notes)
        for note in drsai.wait_for(lambda: notes.list(Owner(tenant, user))):
            typer.echo(f"{note.id}  {note.text}")


@app.command("add")
def add_note(
    text: Annotated[str, typer.Argument(help="The note.")],
    user: OfUser,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Keep a note for a user."""
    from drsai_backend.cli.database import opened
    from drsai_backend.datamodel.owner import Owner

    from .extension import Notes

    with opened(database_url, must_exist=False) as drsai:
        notes = drsai.drsai.extension(Notes)
        note = drsai.wait_for(lambda: notes.add(Owner(tenant, user), text))
    typer.echo(f"noted as number {note.id}")
