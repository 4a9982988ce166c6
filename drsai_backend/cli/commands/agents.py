"""`drsai agents`, as it can be typed."""

from __future__ import annotations

from typing import Annotated

import typer

from drsai_backend import cli

agents_app = typer.Typer(help="Agents and teams by definition: check files of them.", no_args_is_help=True)


@agents_app.command("validate")
def agents_validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="YAML or JSON files of definitions.")],
) -> None:
    """Say all that is wrong with files of definitions, by file, line and field; or what each serves."""
    cli.agents.validate(files)


@agents_app.command("show")
def agents_show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of definitions.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One agent or team of it.")] = None,
) -> None:
    """Print what a file of definitions comes to, with what it includes, as JSON."""
    cli.agents.show(file, name)


@agents_app.command("schema")
def agents_schema() -> None:
    """Print the JSON Schema of such files, for editors."""
    cli.agents.schema()
