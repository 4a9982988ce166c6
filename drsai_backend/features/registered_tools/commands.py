"""The commands of `drsai tools` show, change, delete and try the registered tools of a tenant."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import called, missing
from drsai_backend.cli.options import AsJson, DatabaseUrl, Yes
from drsai_backend.cli.screen import (
    age,
    confirm,
    in_line,
    make_console,
    print_below,
    print_filled,
    print_json,
    tell,
    when,
)
from drsai_backend.cli.verbs import Verbs
from drsai_backend.errors import InvalidRequest, ToolError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from drsai_backend.features.registered_tools.calls import ToolInfo, ToolStatistics
    from drsai_backend.json_types import JsonObject

app = typer.Typer(cls=Verbs, help="Register tools of a tenant, look at them, try them.", no_args_is_help=True)

ToolName = Annotated[str, typer.Argument(metavar="NAME", help="What agents call it by.")]
WhoseTools = Annotated[str, typer.Option(metavar="TENANT", help="Whose tools.")]
Who = Annotated[str, typer.Option(metavar="NAME", help="Who does it.")]
_LARGEST: Final = 1_000_000
"""Bytes of a file with a definition or with arguments."""
_SECRET: Final = "DRSAI_TOOL_SECRET_"


@app.command("list")
def list_tools(
    tenant: WhoseTools = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Those whose names come after this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the tools that a tenant has registered, by name."""
    with called(tenant, "anonymous", database_url) as caller:
        found = lists.read(lambda after, many: caller.tools.list(after=after, limit=many), after, limit)
    lists.show(found, _print, as_json=as_json, empty=f"{_whose(tenant)} has no tools here")


@app.command()
def show(
    name: ToolName, tenant: WhoseTools = "default", database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Show what a tool calls, and how often it was called. Never its credentials."""
    with called(tenant, "anonymous", database_url) as caller, _missing(tenant):
        tool, statistics = caller.tools.get(name), caller.tools.statistics(name)
    if as_json:
        print_json({**tool.model_dump(mode="json"), "statistics": statistics.model_dump(mode="json")})
        return
    console = make_console()
    rows = {
        "tool": f"[bold]{in_line(tool.name)}[/]",
        "type": tool.type,
        "version": f"{tool.version}, {when(tool.created_at)} by {in_line(tool.created_by)}",
        "secrets": in_line(", ".join(tool.secrets)),
        "calls": _calls(statistics),
    }
    print_filled(console, rows)
    console.out(json.dumps(tool.config, ensure_ascii=False, indent=2), highlight=False)


@app.command()
def apply(
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
    as_json: AsJson = False,
) -> None:
    """Register a tool, or replace it, its credentials too. They are tried first, where the config says how."""
    config, given = _object_in(file, "config"), {key: _secret(key) for key in secret or ()}
    with called(tenant, user, database_url, must_exist=False) as caller:
        made = caller.tools.put(name, config, secrets=given, type=kind)
    text = f"{in_line(made.name)} of {_whose(tenant)} is version {made.version}; servers have it within two seconds"
    tell(text, made, as_json=as_json)


@app.command()
def history(
    name: ToolName, tenant: WhoseTools = "default", database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List the versions of a tool that are kept, newest first: those of the last 30 days, and what is served."""
    with called(tenant, "anonymous", database_url) as caller, _missing(tenant):
        found = lists.read(lambda after, many: caller.tools.versions(name, after=after, limit=many), None)
    lists.show(found, _print, as_json=as_json)


@app.command()
def rollback(
    name: ToolName,
    to: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="As `history` shows it.")],
    tenant: WhoseTools = "default",
    user: Who = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Serve an older version again, with the credentials that it had; it becomes a new one."""
    with called(tenant, user, database_url) as caller, _missing(tenant):
        made = caller.tools.roll_back(name, to)
    text = f"{in_line(name)} is version {made.version}, equal to {to}; servers have it within two seconds"
    tell(text, made, as_json=as_json)


@app.command()
def remove(
    name: ToolName,
    tenant: WhoseTools = "default",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a tool. Runs that began with it end with it."""
    with called(tenant, "anonymous", database_url) as caller, _missing(tenant):
        caller.tools.get(name)
        confirm(f"Delete the tool {name} of {_whose(tenant)}?", yes=yes)
        caller.tools.delete(name)
    tell(f"deleted {in_line(name)}", {"deleted": [name]}, as_json=as_json)


@app.command("try")
def try_tool(
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
    is_object = arguments.lstrip().startswith("{")
    given = _read_object(arguments, "arguments") if is_object else _object_in(arguments, "file")
    with called(tenant, user, database_url) as caller, _missing(tenant):
        result = caller.tools.invoke(name, given)
    text = result.to_text(replace_image="[image]")
    if as_json:
        print_json({"tool": result.name, "is_error": result.is_error, "content": text})
        if result.is_error:
            raise typer.Exit(1)
    elif result.is_error:
        raise ToolError(text)
    else:
        make_console().out(text, highlight=False)


def _print(console: Console, item: ToolInfo) -> None:
    of = f"{item.type}  version {item.version}, {age(item.created_at)} by {in_line(item.created_by)}"
    console.print(f"[bold]{in_line(item.name)}[/]  {of}", soft_wrap=True)
    print_below(console, f"[dim]{in_line(str(item.config.get('description', '')))}[/]")


def _object_in(file: str, param: str) -> JsonObject:
    """The JSON or YAML object in a file; `-`: in the standard input."""
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
            data = stream.read(_LARGEST + 1)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}", param=param) from None
    if len(data) > _LARGEST:
        raise InvalidRequest(f"{file} has more than {_LARGEST} bytes", param=param)
    return _read_object(data, param)


def _read_object(text: str | bytes, param: str) -> JsonObject:
    import yaml

    try:
        found: object = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{param}: that is neither JSON nor YAML: {error}", param=param) from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in cast(dict[object, object], found)):
        raise InvalidRequest(f"{param}: an object with fields is needed", param=param)
    return cast("JsonObject", found)


def _secret(key: str) -> str:
    """A credential, from the environment: a command line is seen by all users of a machine."""
    value = os.environ.get(_SECRET + key)
    if value is None:
        raise InvalidRequest(f"--secret {key}: its value is read from {_SECRET}{key}, which is not set")
    return value


def _calls(statistics: ToolStatistics) -> str:
    if not statistics.calls:
        return "none"
    half, most = statistics.p50_seconds or 0, statistics.p95_seconds or 0
    return f"{statistics.calls}, {statistics.failures} failed; half within {half:.3g} s, 95 % within {most:.3g} s"


def _whose(tenant: str) -> str:
    return "the default tenant" if tenant == "default" else f"tenant {in_line(tenant)}"


def _missing(tenant: str) -> AbstractContextManager[None]:
    return missing(after=f" of {_whose(tenant)} here; `drsai tools list` shows those there are")
