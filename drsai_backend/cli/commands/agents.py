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


@agents_app.command("convert")
def agents_convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A YAML or JSON file of another framework's agent.")],
    format: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help="agent-entity, function-list, action-books; default: found out."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", metavar="OUT", help="A .yaml or .json file; default: stdout.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, which has no comments.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write another framework's agent as a definition. What has no place in one is named on stderr, and so are secrets,
    which are never written."""
    cli.agents.convert(file, format, out, as_json=as_json, force=force)
