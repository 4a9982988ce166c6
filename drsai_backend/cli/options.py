"""Options and arguments are here, as far as several commands have them."""

from __future__ import annotations

from typing import Annotated

import typer

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="`sqlite:///file` or `postgresql://…`. [default: $DRSAI_DATABASE_URL, else sqlite:///drsai.db]",
    ),
]
User = Annotated[str, typer.Option(metavar="NAME", help="Whose threads.")]
Tenant = Annotated[str, typer.Option(metavar="TENANT", help="The user's tenant.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="Its id.")]
