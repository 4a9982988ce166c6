"""The commands of `drsai limits` show, set and remove what keys, users, tenants and all may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import opened
from drsai_backend.cli.options import AsJson, DatabaseUrl
from drsai_backend.cli.screen import in_line, tell, when
from drsai_backend.cli.verbs import ListedAlone
from drsai_backend.features.limits.base import MEASURES

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.features.limits.base import Kind, LimitInfo

app = typer.Typer(
    cls=ListedAlone, no_args_is_help=False, help="Set how many requests, tokens and runs somebody may have."
)

OfKind = Annotated[str, typer.Argument(metavar="KIND", help="`key`, `user`, `tenant`, or `all` together.")]
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="The id of the key, or the user.")]
OfTenant = Annotated[str, typer.Option(metavar="TENANT", help="That of the user or the key, or the tenant itself.")]
Many = typer.Option(metavar="N", help="0: no limit. [default: as the settings say]")


@app.command("list")
def list_limits(
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those before this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what was set, the newest first. `drsai limits` alone is the same. The settings are not among it."""
    with opened(database_url) as drsai:
        found = lists.read(lambda after, many: drsai.limits.list(tenant, after, many), after, limit)
    lists.show(found, _print, as_json=as_json, empty="no limits were set here; DRSAI_LIMIT_* say what all have")


@app.command("set")
def set_limit(
    kind: OfKind,
    name: Name = "",
    tenant: OfTenant = "default",
    requests: Annotated[int | None, Many] = None,
    tokens: Annotated[int | None, Many] = None,
    runs: Annotated[int | None, Many] = None,
    streams: Annotated[int | None, Many] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set requests and tokens a minute, and runs and streams at once, in place of what was set before.

    Servers go by it within two seconds.
    """
    from drsai_backend.datamodel.audit import CLI

    with opened(database_url, must_exist=False) as drsai:
        said = {"requests": requests, "tokens": tokens, "runs": runs, "streams": streams}
        made = drsai.limits.set(cast("Kind", kind), name, tenant=tenant, **said, actor=CLI)
    tell(f"{_whose(made)}: {_said(made)}", made, as_json=as_json)


@app.command()
def remove(
    kind: OfKind,
    name: Name = "",
    tenant: OfTenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have the settings hold again."""
    from drsai_backend.datamodel.audit import CLI

    with opened(database_url) as drsai:
        removed = drsai.limits.remove(cast("Kind", kind), name, tenant=tenant, actor=CLI)
    text = "the settings hold again" if removed else "nothing was set"
    tell(f"{in_line(f'{kind} {name}'.strip())}: {text}", {"removed": removed}, as_json=as_json)


def _print(console: Console, info: LimitInfo) -> None:
    console.print(f"[bold]{_whose(info)}[/]  {_said(info)}  [dim]set {when(info.set_at)}[/]", soft_wrap=True)


def _whose(info: LimitInfo) -> str:
    name = f"{info.kind} {info.name}".strip()
    return in_line(name if info.tenant in ("", "default") else f"{name} ({info.tenant})")


def _said(info: LimitInfo) -> str:
    given = info.given
    said = (f"{name} {given[name] or 'without limit'}" for name in MEASURES if name in given)
    return ", ".join(said)
