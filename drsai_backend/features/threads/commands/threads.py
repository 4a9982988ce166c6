"""The commands `drsai threads list | show | remove` show and delete stored conversations, whichever process works on
them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from drsai_backend.cli.database import called, owner_of, threads_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant, ThreadId, User, Yes
from drsai_backend.cli.screen import (
    STATUS_COLOURS,
    Colours,
    age,
    confirm,
    in_line,
    make_console,
    one_line,
    print_filled,
    print_json,
    when,
    whose_name,
)
from drsai_backend.cli.verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.runs.threads.views import StoredMessage, ThreadDetail, ThreadSummary

app = typer.Typer(cls=Verbs, help="Look at stored conversations, move or delete them.", no_args_is_help=True)

_PAGE: Final = 500


@app.command("list")
def list_threads(
    user: User = "anonymous",
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")] = 20,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List a user's threads, newest first."""
    with called(tenant, user, database_url) as caller:
        page = caller.list_threads(limit=limit)
    console = make_console()
    if as_json:
        print_json(page.items)
    elif not page.items:
        console.print(f"{in_line(whose_name(owner_of(tenant, user)))} has no threads here.")
    else:
        print_list(console, page.items)
        if page.next is not None:
            console.print(f"[dim]The newest {limit}; --limit shows more.[/]")


@app.command()
def show(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a thread and its messages."""
    messages: list[StoredMessage] = []
    with threads_of(owner_of(tenant, user), database_url) as caller:
        detail = caller.get_thread(thread)
        read = partial(caller.list_messages, thread, limit=_PAGE)
        while page := read(after=messages[-1].seq if messages else 0):
            messages += page
    if as_json:
        print_json({**detail.model_dump(mode="json"), "messages": [each.model_dump(mode="json") for each in messages]})
        return
    console = make_console()
    _print_detail(console, detail)
    colours = Colours()
    for message in messages:
        kind = "" if message.type == "TextMessage" else f" [dim]{in_line(message.type)}[/]"
        speaker = f"[bold {colours.of(message.source)}]{in_line(message.source)}[/]"
        console.print(f"\n[dim]{message.seq:>3}[/] {speaker}{kind}", soft_wrap=True)
        console.print(Text(message.content))


@app.command()
def remove(
    threads: Annotated[list[str], typer.Argument(metavar="THREAD…", help="Ids.")],
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete threads with all that belongs to them."""
    owner = owner_of(tenant, user)
    with threads_of(owner, database_url) as caller:
        for thread_id in threads:  # all of them must exist
            caller.get_thread(thread_id)
        what = f"thread {threads[0]}" if len(threads) == 1 else f"{len(threads)} threads"
        confirm(f"Delete {what} of {whose_name(owner)}?", yes=yes)
        for thread_id in threads:
            caller.delete_thread(thread_id)
            if not as_json:
                make_console().print(f"deleted {in_line(thread_id)}")
    if as_json:
        print_json({"deleted": threads})


def print_list(console: Console, threads: list[ThreadSummary]) -> None:
    """Print threads, two lines each. Ids are never cut off: they are what the other commands take."""
    from drsai_backend.datamodel import RunStatus

    names = [(one_line(item.thread_id), one_line(item.team or "")) for item in threads]
    ids, teams = (max(map(len, column)) for column in zip(*names, strict=True))
    statuses = max(map(len, RunStatus))
    for item, (thread_id, team) in zip(threads, names, strict=True):
        line = Text(f"{thread_id:<{ids}}  ", "bold")
        line.append(f"{item.status.value:<{statuses}}", STATUS_COLOURS.get(item.status, "default"))
        line.append(f"  {team:<{teams}}  {item.message_count:>4} msgs  {age(item.updated_at)}", "not bold")
        console.print(line, soft_wrap=True)
        console.print(Text(f"  {one_line(item.title or '')}", "dim", no_wrap=True, overflow="ellipsis"))


def _print_detail(console: Console, thread: ThreadDetail) -> None:
    question = thread.input_request or {}
    colour = STATUS_COLOURS.get(thread.status, "default")
    rows = {
        "thread": f"[bold]{in_line(thread.thread_id)}[/]",
        "title": in_line(thread.title or ""),
        "status": f"[{colour}]{thread.status.value}[/]",
        "team": in_line(thread.team or ""),
        "created": when(thread.created_at),
        "changed": when(thread.updated_at),
        "error": f"[red]{in_line(thread.error_message)}[/]" if thread.error_message else "",
        "asks": f"[yellow]{in_line('{source}: {prompt}'.format(**question))}[/]" if question else "",
    }
    print_filled(console, rows)
