"""`drsai tools`: the registered tools of a tenant are listed, changed, deleted and tried."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final, cast

import typer
import yaml

from drsai_backend.cli.database import opened
from drsai_backend.cli.screen import age, confirm, in_line, make_console, print_below, print_json, print_rows, when
from drsai_backend.datamodel.owner import DEFAULT_TENANT
from drsai_backend.errors import InvalidRequest, NotFound, ToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.registered.calls import ToolInfo, ToolInfoPage, ToolStatistics

_PAGE: Final = 500
_LARGEST: Final = 1_000_000
"""Bytes of a file with a definition or with arguments."""
_SECRET: Final = "DRSAI_TOOL_SECRET_"


def list_tools(tenant: str, after: str | None, limit: int, database_url: str | None, *, as_json: bool) -> None:
    with opened(database_url) as drsai:
        page, found = ToolInfoPage(items=[], next=after), list[ToolInfo]()
        while len(found) < limit:
            page = drsai.tools.list(tenant=tenant, after=page.next, limit=min(limit - len(found), _PAGE))
            found += page.items
            if page.next is None:
                break
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    console = make_console()
    if not found:
        console.print(f"{_whose(tenant)} has no tools here")
    for item in found:
        of = f"{item.type}  version {item.version}, {age(item.created_at)} by {in_line(item.created_by)}"
        console.print(f"[bold]{in_line(item.name)}[/]  {of}", soft_wrap=True)
        print_below(console, f"[dim]{in_line(str(item.config.get('description', '')))}[/]")
    if page.next is not None:
        console.print(f"[dim]There are more: --after {in_line(page.next)}[/]", soft_wrap=True)


def show(name: str, tenant: str, database_url: str | None, *, as_json: bool) -> None:
    with opened(database_url) as drsai:
        try:
            tool, statistics = drsai.tools.get(name, tenant=tenant), drsai.tools.statistics(name, tenant=tenant)
        except NotFound as error:
            raise _missed(error, tenant) from None
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
    print_rows(console, [(label, value) for label, value in rows.items() if value], indent=0)
    console.out(json.dumps(tool.config, ensure_ascii=False, indent=2), highlight=False)


def put(
    name: str, file: str, kind: str, secrets: list[str], tenant: str, user_id: str, database_url: str | None
) -> None:
    config, given = _object_in(file, "config"), {key: _secret(key) for key in secrets}
    with opened(database_url, must_exist=False) as drsai:
        made = drsai.tools.put(name, config, secrets=given, type=kind, tenant=tenant, user_id=user_id)
    text = f"{in_line(made.name)} of {_whose(tenant)} is version {made.version}; servers have it within two seconds"
    make_console().print(text, soft_wrap=True)


def delete(name: str, tenant: str, database_url: str | None, *, yes: bool) -> None:
    with opened(database_url) as drsai:
        try:
            drsai.tools.get(name, tenant=tenant)
            confirm(f"Delete the tool {name} of {_whose(tenant)}?", yes=yes)
            drsai.tools.delete(name, tenant=tenant)
        except NotFound as error:
            raise _missed(error, tenant) from None
    make_console().print(f"deleted {in_line(name)}")


def invoke(name: str, arguments: str, tenant: str, user_id: str, database_url: str | None, *, as_json: bool) -> None:
    given = (
        _read_object(arguments, "arguments") if arguments.lstrip().startswith("{") else _object_in(arguments, "file")
    )
    with opened(database_url) as drsai:
        try:
            result = drsai.tools.invoke(name, given, tenant=tenant, user_id=user_id)
        except NotFound as error:
            raise _missed(error, tenant) from None
    text = result.to_text(replace_image="[image]")
    if as_json:
        print_json({"tool": result.name, "is_error": result.is_error, "content": text})
        if result.is_error:
            raise typer.Exit(1)
    elif result.is_error:
        raise ToolError(text)
    else:
        make_console().out(text, highlight=False)


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
    try:
        found: Any = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{param}: that is neither JSON nor YAML: {error}", param=param) from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in cast(dict[object, object], found)):
        raise InvalidRequest(f"{param}: an object with fields is needed", param=param)
    return cast(JsonObject, found)


def _secret(key: str) -> str:
    """A credential, from the environment: a command line is seen by all users of a machine."""
    value = os.environ.get(_SECRET + key)
    if value is None:
        raise InvalidRequest(f"--secret {key}: its value is read from {_SECRET}{key}, which is not set", param="secret")
    return value


def _calls(statistics: ToolStatistics) -> str:
    if not statistics.calls:
        return "none"
    half, most = statistics.p50_seconds or 0, statistics.p95_seconds or 0
    return f"{statistics.calls}, {statistics.failures} failed; half within {half:.3g} s, 95 % within {most:.3g} s"


def _whose(tenant: str) -> str:
    return "the default tenant" if tenant == DEFAULT_TENANT else f"tenant {in_line(tenant)}"


def _missed(error: NotFound, tenant: str) -> NotFound:
    return NotFound(f"{error.message} of {_whose(tenant)} here; `drsai tools list` shows those there are")
