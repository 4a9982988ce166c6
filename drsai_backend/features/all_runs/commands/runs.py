"""Commands of `drsai runs` show lists of runs, those of all users too, and change many of them at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import opened, owner_of, threads_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Yes
from drsai_backend.cli.screen import (
    STATUS_COLOURS,
    age,
    confirm,
    in_line,
    in_utc,
    make_console,
    print_below,
    print_json,
    read_duration,
    when,
    whose_name,
)
from drsai_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.features.all_runs.base import AnyRun, ErrorGroup, Order, Steered, Wanted
    from drsai_backend.runs.threads.views import RunView

app = typer.Typer()

Status: TypeAlias = Literal["created", "running", "awaiting_input", "paused", "completed", "stopped", "error"]
OfUser = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Only on threads of this user.")]
OfTenant = Annotated[str | None, typer.Option("--tenant", metavar="TENANT", help="Only this one's. [default: all]")]
OfThread = Annotated[str | None, typer.Option("--thread", metavar="ID", help="Only on threads of this id.")]
OfTeam = Annotated[str | None, typer.Option("--team", metavar="NAME", help="Only of this team.")]
OfStatus = Annotated[Status | None, typer.Option("--status", help="Only those of this status.")]
OfCode = Annotated[str | None, typer.Option(metavar="CODE", help="Only what has failed so: `model_timeout`.")]
OfError = Annotated[str | None, typer.Option(metavar="TEXT", help="Only where the text of the error has this in it.")]
OfText = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Only where this was said: by people, agents or tools. It looks at all messages."
    ),
]
OfTool = Annotated[str | None, typer.Option(metavar="NAME", help="Only where a tool of this name was called.")]
From = Annotated[datetime | None, typer.Option("--from", help="Only those created from then on, UTC.")]
To = Annotated[datetime | None, typer.Option("--to", help="Only those created before then, UTC.")]
SlowerThan = Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Only what has run for so long.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
After = Annotated[str | None, typer.Option(metavar="ID", help="Those behind this one.")]


@app.command("list")
def list_runs(
    thread: Annotated[str | None, typer.Argument(metavar="[THREAD]", help="Only this one's. [default: all]")] = None,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="Search the runs of all users, and of all tenants.")
    ] = False,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose threads. [default: anonymous, or with --all-users all]")
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="TENANT", help="The user's tenant. [default: default, or with --all-users all]"),
    ] = None,
    status: OfStatus = None,
    team: OfTeam = None,
    error_code: OfCode = None,
    error: OfError = None,
    since: From = None,
    until: To = None,
    slower_than: SlowerThan = None,
    text: OfText = None,
    tool: OfTool = None,
    limit: Limit = 20,
    after: After = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of a user, or of one thread, newest first; with --all-users those of everybody, by what is said of
    them."""
    only = {"status": status, "team": team, "error_code": error_code, "error": error, "slower_than": slower_than}
    of = _wanted(since, until, user=user, thread=thread, text=text, tool=tool, **only)
    if all_users:
        _list(of, tenant, after, limit, database_url, as_json=as_json)
        return
    if of != _wanted(None, None, user=user, thread=thread):
        why = "that searches the runs of all users: say --all-users, and with --user whose alone"
        raise InvalidRequest(why, param="all_users")
    owner = owner_of(tenant or "default", user or "anonymous")
    with threads_of(owner, database_url) as caller:
        found = lists.read(lambda at, many: caller.list_runs(thread, after=at, limit=many), after, limit)
    lists.show(found, _print, as_json=as_json, empty=f"{in_line(whose_name(owner))} has no runs here")


@app.command()
def slow(
    last: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Those created since: `2h`. [default: the last day, and all live ones]"),
    ] = None,
    tenant: OfTenant = None,
    user: OfUser = None,
    team: OfTeam = None,
    status: OfStatus = None,
    limit: Limit = 20,
    after: After = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of all users that have run longest. Waiting for a person does not count."""
    of = _wanted(None if last is None else _ago(last), None, user=user, team=team, status=status)
    _list(of, tenant, after, limit, database_url, as_json=as_json, order="slow")


@app.command()
def errors(
    last: Annotated[str, typer.Option(metavar="AGE", help="Of the runs created since.")] = "1d",
    tenant: OfTenant = None,
    user: OfUser = None,
    team: OfTeam = None,
    limit: Limit = 100,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List in which ways the runs of which teams have failed, the most frequent first, each with its newest run."""
    of = _wanted(_ago(last), None, user=user, team=team)
    with opened(database_url) as drsai:
        found = drsai.all_runs.errors(of, tenant=tenant, limit=limit)
    if as_json:
        print_json(found)
        return
    console = make_console()
    for group in found:
        _print_group(console, group)
    if not found:
        console.print(f"no run has failed within {in_line(last)}", soft_wrap=True)


@app.command()
def stopped(
    last: Annotated[str | None, typer.Option(metavar="AGE", help="Those created since: `2h`. [default: all]")] = None,
    tenant: OfTenant = None,
    user: OfUser = None,
    team: OfTeam = None,
    limit: Limit = 20,
    after: After = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of all users that were given up, as they have killed their processes time and again: the newest
    first, with the worker that held each last.

    `drsai runs all retry --error-code given_up` has them tried once more.
    """
    of = _wanted(None if last is None else _ago(last), None, user=user, team=team, error_code="given_up")
    _list(of, tenant, after, limit, database_url, as_json=as_json, empty="no run was given up here")


@app.command("all")
def steer_all(
    verb: Annotated[Literal["cancel", "pause", "resume", "retry"], typer.Argument(help="What is done with each.")],
    tenant: OfTenant = None,
    user: OfUser = None,
    thread: OfThread = None,
    status: OfStatus = None,
    team: OfTeam = None,
    error_code: OfCode = None,
    error: OfError = None,
    since: From = None,
    until: To = None,
    slower_than: SlowerThan = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="With how many, the oldest first.")
    ] = 100,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count and list them, and do nothing.")] = False,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel, pause, resume or retry the runs of all users of which something is said.

    It can be repeated: what was done is not done again.
    """
    only = {"status": status, "team": team, "error_code": error_code, "error": error, "slower_than": slower_than}
    of = _wanted(since, until, user=user, thread=thread, **only)
    with opened(database_url) as drsai:
        every = drsai.all_runs
        done = every.steer_all(verb, of, tenant=tenant, limit=limit, dry_run=True)
        if not dry_run and done.found:
            confirm(f"{verb.capitalize()} {min(limit, done.found)} of {done.found} runs?", yes=yes)
            done = every.steer_all(verb, of, tenant=tenant, limit=limit, actor=drsai.who.actor)
    if as_json:
        print_json(done)
        return
    console = make_console()
    for run in done.runs:
        _print(console, run)
    console.print(f"{done.found} runs are such; {len(done.runs)} are listed", soft_wrap=True)


def _wanted(since: datetime | None, until: datetime | None, **fields: Any) -> Wanted:
    from drsai_backend.datamodel import RunStatus
    from drsai_backend.features.all_runs.base import Wanted

    if fields.get("status") is not None:
        fields["status"] = RunStatus(fields["status"])
    return Wanted(since=in_utc(since), until=in_utc(until), **fields)


def _ago(text: str) -> datetime:
    return datetime.now(UTC) - min(read_duration(text, "last"), timedelta(days=36_500))


def _list(
    of: Wanted,
    tenant: str | None,
    after: str | None,
    limit: int,
    database_url: str | None,
    *,
    as_json: bool,
    order: Order = "newest",
    empty: str = "there are no such runs here",
) -> None:
    """List runs of all users."""
    with opened(database_url) as drsai:
        every = drsai.all_runs
        found = lists.read(
            lambda at, many: every.list(of, tenant=tenant, order=order, after=at, limit=many), after, limit
        )
    lists.show(found, _print, as_json=as_json, empty=empty)


def _print(console: Console, item: RunView | AnyRun | Steered) -> None:
    status = f"[{STATUS_COLOURS.get(item.status, 'default')}]{item.status.value:<14}[/]"
    line = f"[bold]{in_line(item.run_id)}[/]  {status}  {in_line(item.team)}  {age(item.created_at)}"
    console.print(line, soft_wrap=True)
    why = f": {in_line(item.error_message)}" if item.error_message else ""
    fields = {**dict(item)}
    whose = f"{in_line(whose_name(owner_of(fields['tenant'], fields['user'])))}, " if "user" in fields else ""
    what = f"{whose}{in_line(item.thread_id)}, {item.turns} {'turn' if item.turns == 1 else 'turns'}"
    print_below(console, f"[dim]{what} in {item.seconds:.1f} s{why}[/]")
    if fields.get("worker"):
        print_below(console, f"[dim]attempt {fields['attempt']}, held last by {in_line(fields['worker'])}[/]")
    if became := " ".join(filter(None, (fields.get("outcome"), fields.get("reason")))):
        print_below(console, f"[yellow]{in_line(became)}[/]")


def _print_group(console: Console, group: ErrorGroup) -> None:
    count = f"[bold red]{group.runs:>6}[/]"
    console.print(f"{count}  {in_line(group.error_code)}  {in_line(group.team)}  {when(group.last_at)}", soft_wrap=True)
    print_below(console, f"[dim]{in_line(group.run_id)}: {in_line(group.error_message)}[/]")
