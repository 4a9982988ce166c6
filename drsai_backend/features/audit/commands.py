"""The commands of `drsai audit` show who did what, and delete old entries."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import opened
from drsai_backend.cli.options import AsJson, DatabaseUrl, Yes
from drsai_backend.cli.screen import (
    confirm,
    in_line,
    in_utc,
    one_line,
    print_below,
    read_duration,
    rights_of,
    tell,
    when,
)
from drsai_backend.cli.verbs import ListedAlone

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.database.audit import AuditRecord

app = typer.Typer(
    cls=ListedAlone, no_args_is_help=False, help="Look at who did what: keys, deletions, exports, shares, answers."
)


@app.command("list")
def list_entries(
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what they did, or others did to what is theirs.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="ACTION", help="Only these: `thread.deleted`, or all of a kind: `thread`.")
    ] = None,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Only what was done to this thread.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only from then on, UTC.")] = None,
    until: Annotated[datetime | None, typer.Option(help="Only before then, UTC.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those before this entry.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List who did what, newest first. `drsai audit` alone is the same."""
    with opened(database_url) as drsai:
        entries = partial(
            drsai.drsai.audit.list,
            tenant=tenant,
            user_id=user,
            action=action,
            thread_id=thread,
            since=in_utc(since),
            until=in_utc(until),
        )
        found = lists.read(lambda after, many: drsai.wait_for(lambda: entries(after=after, limit=many)), after, limit)
    lists.show(found, _print, as_json=as_json, empty="there are no such entries here")


@app.command()
def prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Older than that: `365d`, `52w`.")],
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete old entries. New ones say how many are gone."""
    age = read_duration(older_than, "older_than")
    with opened(database_url) as drsai:
        whose = "all tenants" if tenant is None else f"tenant {tenant}"
        confirm(f"Delete the entries of the audit log of {whose} that are older than {older_than}?", yes=yes)
        gone = drsai.wait_for(lambda: drsai.drsai.audit.prune(age, tenant=tenant, actor=drsai.who.actor))
    tell(f"deleted {gone} {'entry' if gone == 1 else 'entries'}", {"deleted": gone}, as_json=as_json)


def _print(console: Console, item: AuditRecord) -> None:
    what = f"[bold]{item.action}[/] {in_line(item.subject)}"
    whose = "" if item.owner is None else f" of {_named(item.tenant, item.owner)}"
    console.print(f"[dim]{when(item.at)}[/]  {what}{whose} by {_who(item)}", soft_wrap=True)
    if rest := ", ".join(_shown(name, value) for name, value in (item.detail or {}).items() if value is not None):
        print_below(console, f"[dim]{in_line(rest)}[/]")


def _shown(name: str, value: object) -> str:
    if name == "scopes" and isinstance(value, list):
        value = rights_of([str(scope) for scope in cast("list[object]", value)])
    return f"{one_line(name)} {one_line(str(value))}"


def _who(item: AuditRecord) -> str:
    if item.by != "user":
        return "the command line" if item.by == "cli" else "a program"
    who = in_line(item.actor or "somebody")
    who += f" through {in_line(item.acted_by)}" if item.acted_by is not None else ""
    return f"{who} with {in_line(item.key_id)}" if item.key_id is not None else who


def _named(tenant: str | None, user_id: str) -> str:
    return in_line(user_id) if tenant in (None, "default") else f"{in_line(user_id)} ({in_line(tenant)})"
