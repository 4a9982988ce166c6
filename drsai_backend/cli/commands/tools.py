"""`drsai tools` and `drsai files`, as they can be typed."""

from __future__ import annotations

from typing import Annotated

import typer

from drsai_backend import cli
from drsai_backend.cli.commands.options import AsJson, DatabaseUrl, Tenant, Yes

tools_app = typer.Typer(help="Register tools of a tenant, look at them, try them.", no_args_is_help=True)
files_app = typer.Typer(help="Store files of a user, read and delete them.", no_args_is_help=True)

ToolName = Annotated[str, typer.Argument(metavar="NAME", help="What agents call it by.")]
WhoseTools = Annotated[str, typer.Option(metavar="TENANT", help="Whose tools.")]
Who = Annotated[str, typer.Option(metavar="NAME", help="Who does it.")]
OfUser = Annotated[str, typer.Option(metavar="NAME", help="Whose files.")]
FileId = Annotated[str, typer.Argument(metavar="FILE_ID", help="`file-…`, as `list` shows it.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]


@tools_app.command("list")
def tools_list(
    tenant: WhoseTools = "default",
    limit: Limit = 100,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Those whose names come after this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the tools that a tenant has registered, by name."""
    cli.tools.list_tools(tenant, after, limit, database_url, as_json=as_json)


@tools_app.command("show")
def tools_show(
    name: ToolName, tenant: WhoseTools = "default", database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Show what a tool calls, and how often it was called. Never its credentials."""
    cli.tools.show(name, tenant, database_url, as_json=as_json)


@tools_app.command("put")
def tools_put(
    name: ToolName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Its config, as JSON or YAML; `-` for stdin.")],
    kind: Annotated[str, typer.Option("--type", metavar="TYPE", help="`http`, or `mcp` for a server.")] = "http",
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="A credential that the config names. Its value is that of $DRSAI_TOOL_SECRET_KEY, say, for `KEY`. May "
            "be given several times.",
        ),
    ] = None,
    tenant: WhoseTools = "default",
    user: Who = "anonymous",
    database_url: DatabaseUrl = None,
) -> None:
    """Register a tool, or replace it, its credentials too. They are tried first, where the config says how."""
    cli.tools.put(name, file, kind, secret or [], tenant, user, database_url)


@tools_app.command("delete")
def tools_delete(
    name: ToolName, tenant: WhoseTools = "default", database_url: DatabaseUrl = None, yes: Yes = False
) -> None:
    """Delete a tool. Runs that began with it end with it."""
    cli.tools.delete(name, tenant, database_url, yes=yes)


@tools_app.command("invoke")
def tools_invoke(
    name: ToolName,
    arguments: Annotated[
        str, typer.Argument(metavar="[ARGUMENTS]", help="A JSON object, or a file of one; `-` for stdin.")
    ] = "{}",
    tenant: WhoseTools = "default",
    user: Who = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Call a tool once, outside any run, to try it. An error of the tool is exit code 1."""
    cli.tools.invoke(name, arguments, tenant, user, database_url, as_json=as_json)


@files_app.command("list")
def files_list(
    user: OfUser,
    tenant: Tenant = "default",
    purpose: Annotated[str | None, typer.Option(metavar="PURPOSE", help="Only these. [default: all]")] = None,
    limit: Limit = 100,
    after: Annotated[str | None, typer.Option(metavar="FILE_ID", help="Those before this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List a user's files, newest first."""
    cli.files.list_files(cli.files.Owner(tenant, user), purpose, after, limit, database_url, as_json=as_json)


@files_app.command("show")
def files_show(
    file_id: FileId, user: OfUser, tenant: Tenant = "default", database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Show what is known of a file."""
    cli.files.show(cli.files.Owner(tenant, user), file_id, database_url, as_json=as_json)


@files_app.command("upload")
def files_upload(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The file; `-` for stdin.")],
    user: OfUser,
    tenant: Tenant = "default",
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="Its name. [default: that of PATH]")] = None,
    purpose: Annotated[str, typer.Option(metavar="PURPOSE", help="What it is for, as in OpenAI's API.")] = "user_data",
    media_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="`text/plain`, say. [default: by its name]")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it is deleted: `12h`, `7d`. [default: never]")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Store a file, and print its id. What it is goes to stderr."""
    cli.files.upload(
        cli.files.Owner(tenant, user), path, name, purpose, media_type, expires, database_url, as_json=as_json
    )


@files_app.command("download")
def files_download(
    file_id: FileId,
    user: OfUser,
    tenant: Tenant = "default",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="PATH", help="Where to; `-` for stdout. [default: its name]")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Write the content of a file."""
    cli.files.download(cli.files.Owner(tenant, user), file_id, output, database_url)


@files_app.command("delete")
def files_delete(
    file_ids: Annotated[list[str], typer.Argument(metavar="FILE_ID…", help="`file-…`, as `list` shows them.")],
    user: OfUser,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete files."""
    cli.files.delete(cli.files.Owner(tenant, user), file_ids, database_url, yes=yes)
