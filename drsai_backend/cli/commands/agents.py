"""`drsai agents`, as it can be typed."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from drsai_backend import cli
from drsai_backend.cli.commands.options import AsJson, DatabaseUrl, Yes

agents_app = typer.Typer(
    help="Agents and teams by definition: check files of them; store, change and try them.", no_args_is_help=True
)

AgentName = Annotated[str, typer.Argument(metavar="NAME", help="What it is asked by.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A file of definitions.")]
OfTenant = Annotated[str, typer.Option(metavar="TENANT", help="Whose tenant.")]
OfUser = Annotated[str, typer.Option(metavar="NAME", help="Which user.")]
For = Annotated[
    Literal["user", "tenant", "all"], typer.Option("--for", help="For whom it is: the user, the tenant, or all.")
]
ForWhom = Annotated[
    Literal["user", "tenant", "all"] | None,
    typer.Option("--for", help="That of the user, of the tenant, or for all. Default: what the user is served."),
]


@agents_app.command("validate")
def agents_validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="YAML or JSON files of definitions.")],
) -> None:
    """Say all that is wrong with files of definitions, by file, line and field; or what each serves."""
    cli.agents.validate(files)


@agents_app.command("show")
def agents_show(
    file: Annotated[str, typer.Argument(metavar="FILE|NAME", help="A file of definitions, or a stored one.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One agent or team of the file.")] = None,
    version: Annotated[int | None, typer.Option(min=1, help="An older version of a stored one.")] = None,
    for_whom: ForWhom = None,
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print what a file of definitions comes to, with what it includes, as JSON; or a stored definition."""
    if name is None and file.isidentifier():
        cli.stored_agents.show(file, tenant, user, for_whom, version, database_url, as_json=as_json)
    else:
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


@agents_app.command("list")
def agents_list(
    for_whom: ForWhom = None,
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the stored definitions that a user may ask, by name."""
    cli.stored_agents.list_agents(tenant, user, for_whom, limit, database_url, as_json=as_json)


@agents_app.command("apply")
def agents_apply(
    file: File,
    name: AgentName,
    for_whom: For = "user",
    check: Annotated[bool, typer.Option("--check", help="Say what is wrong, and store nothing.")] = False,
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
) -> None:
    """Store an agent or team of a file, with those of the file that it needs, or another version of it."""
    cli.stored_agents.apply(file, name, tenant, user, for_whom, database_url, check=check)


@agents_app.command("diff")
def agents_diff(
    file: File,
    name: AgentName,
    for_whom: For = "user",
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
) -> None:
    """Show what `apply` would change."""
    cli.stored_agents.diff(file, name, tenant, user, for_whom, database_url)


@agents_app.command("history")
def agents_history(
    name: AgentName,
    for_whom: ForWhom = None,
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a stored definition, newest first."""
    cli.stored_agents.history(name, tenant, user, for_whom, database_url, as_json=as_json)


@agents_app.command("rollback")
def agents_rollback(
    name: AgentName,
    to: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="As `history` shows it.")],
    for_whom: For = "user",
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
) -> None:
    """Serve an older version again, which becomes a new one."""
    cli.stored_agents.rollback(name, to, tenant, user, for_whom, database_url)


@agents_app.command("delete")
def agents_delete(
    name: AgentName,
    for_whom: For = "user",
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete a stored definition. Runs that began with it end with it."""
    cli.stored_agents.delete(name, tenant, user, for_whom, database_url, yes=yes)


@agents_app.command("try")
def agents_try(
    source: Annotated[str, typer.Argument(metavar="FILE|NAME", help="A file of definitions, or a stored one.")],
    words: Annotated[list[str], typer.Argument(metavar="[NAME] MESSAGE", help="Which of a file; what to say.")],
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
) -> None:
    """Ask a definition once and print its answer. Its thread is deleted."""
    if len(words) > 2:
        raise typer.BadParameter("put the message in quotes", param_hint="MESSAGE")
    name = words[0] if len(words) == 2 else None
    cli.stored_agents.try_agent(source, name, words[-1], tenant, user, database_url)
