"""The commands of rules have options and lines in common: how one is named, shown and removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import opened
from drsai_backend.cli.screen import in_line, tell, when

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.features.rules.base import Kind, RuleInfo
    from drsai_backend.page import Page
    from drsai_backend.sync import SyncBudgets, SyncDrSai, SyncLimits

OfKind = Annotated[str, typer.Argument(metavar="KIND", help="`key`, `user`, `tenant`, or `all` together.")]
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="The id of the key, or the user.")]
OfTenant = Annotated[str, typer.Option(metavar="TENANT", help="That of the user or the key, or the tenant itself.")]
OnlyTenant = Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")]
HowMany = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
After = Annotated[str | None, typer.Option(metavar="ID", help="Those before this one.")]


def list_rules(
    verbs: Callable[[SyncDrSai], SyncLimits | SyncBudgets],
    tenant: str | None,
    after: str | None,
    limit: int,
    database_url: str | None,
    said: Callable[[Any], str],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """Show a page of what was set; `said`: of one, what it bounds."""

    def line(console: Console, info: RuleInfo) -> None:
        console.print(f"[bold]{whose(info)}[/]  {said(info)}  [dim]set {when(info.set_at)}[/]", soft_wrap=True)

    def page(after: str | None, many: int) -> Page[Any]:
        return verbs(drsai).list(tenant, after, many)

    with opened(database_url) as drsai:
        found = lists.read(page, after, limit)
    lists.show(found, line, as_json=as_json, empty=empty)


def remove_rule(
    verbs: Callable[[SyncDrSai], SyncLimits | SyncBudgets],
    kind: str,
    name: str,
    tenant: str,
    database_url: str | None,
    *,
    as_json: bool,
) -> None:
    """Have the settings hold again, and tell it."""
    with opened(database_url) as drsai:
        removed = verbs(drsai).remove(cast("Kind", kind), name, tenant=tenant, actor=drsai.who.actor)
    text = "the settings hold again" if removed else "nothing was set"
    tell(f"{in_line(f'{kind} {name}'.strip())}: {text}", {"removed": removed}, as_json=as_json)


def whose(info: RuleInfo) -> str:
    """Return for whom a rule is."""
    name = f"{info.kind} {info.name}".strip()
    return in_line(name if info.tenant in ("", "default") else f"{name} ({info.tenant})")
