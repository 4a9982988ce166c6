"""The commands `drsai threads state | turns | branches | fork | rewind | clear` are about the past of stored
conversations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import owner_of, threads_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant, ThreadId, User
from drsai_backend.cli.screen import Colours, age, in_line, make_console, print_json, tell, whose_name
from drsai_backend.cli.verbs import renamed
from drsai_backend.errors import NotFound

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.runs.threads.travel import BranchView, TurnView

app = typer.Typer()

At = Annotated[
    int | None,
    typer.Option(
        metavar="SEQ",
        min=0,
        help="After the turn that stored this message; of an input, before it. 0: the beginning.",
    ),
]
Turn = Annotated[int | None, typer.Option(metavar="N", min=0, help="After this turn. 0: the beginning.")]
Branch = Annotated[int | None, typer.Option(metavar="N", min=0, help="At the end of this branch.")]


@app.command()
def state(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    turn: Annotated[int | None, typer.Option(metavar="N", help="After this turn. [default: now]")] = None,
    encoded: Annotated[
        bool, typer.Option("--encoded", help="As `Thread.state` holds it, in base64, instead of JSON.")
    ] = False,
    decoded: Annotated[bool, typer.Option("--decoded", hidden=True)] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print what the agents of a thread remember, now or after an earlier turn, as JSON: their saved state."""
    from drsai_backend.state import encode_state
    from drsai_backend.state.travel import Place, state_at

    owner, place = owner_of(tenant, user), Place(turn=turn)
    with threads_of(owner, database_url) as caller:
        found = caller.engine.db.database.read_sync(lambda session: state_at(session, owner.thread(thread), place))
    if found is None:
        raise NotFound(f"thread {thread!r} has no state yet: no turn of it was finished")
    if decoded:
        renamed("threads state --decoded", "threads state")
    if not encoded:
        print_json(found)
    elif as_json:
        print_json({"state": encode_state(found)})
    else:
        make_console().out(encode_state(found))


@app.command()
def turns(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    branch: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Those of this branch. [default: the current one]")
    ] = None,
    after: Annotated[int, typer.Option(metavar="N", min=0, help="Those after this one.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")] = 100,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the turns to which a thread can go back."""
    with threads_of(owner_of(tenant, user), database_url) as caller:
        page = caller.turns(thread, branch=branch, after=after, limit=limit)
    colours = Colours()
    lists.show(
        page,
        lambda console, each: _print_turn(console, each, colours),
        as_json=as_json,
        empty=f"{in_line(thread)} has no turns {'yet' if not after else 'after that'}.",
    )


@app.command()
def branches(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the branches of a thread that was rewound."""
    with threads_of(owner_of(tenant, user), database_url) as caller:
        read = partial(caller.branches, thread)
        found = lists.read(lambda after, many: read(after=-1 if after is None else after, limit=many), None)
    lists.show(found, _print_branch, as_json=as_json)


@app.command()
def fork(
    thread: ThreadId,
    at: At = None,
    turn: Turn = None,
    branch: Branch = None,
    thread_id: Annotated[str | None, typer.Option(metavar="NEW", help="Its id. [default: made up]")] = None,
    to_user: Annotated[str | None, typer.Option(metavar="NAME", help="Whose it shall be. [default: --user]")] = None,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a new thread of what a thread is, or was at a place. Runs stay behind."""
    place = {"at": at, "turn": turn, "branch": branch}
    with threads_of(owner_of(tenant, user), database_url) as caller:
        made = caller.fork(thread, **place, new_thread_id=thread_id, to_user=to_user)
    whose = "" if to_user is None else f" of {in_line(whose_name(owner_of(tenant, to_user)))}"
    what = f"{in_line(thread)} is forked: [bold]{in_line(made.thread_id)}[/]{whose}, {made.message_count} messages"
    tell(what, made, as_json=as_json)


@app.command()
def rewind(
    thread: ThreadId,
    at: At = None,
    turn: Turn = None,
    branch: Branch = None,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have a thread go back to a place. What is left behind stays, on a branch."""
    place = {"at": at, "turn": turn, "branch": branch}
    with threads_of(owner_of(tenant, user), database_url) as caller:
        made = caller.rewind(thread, **place)
        page = caller.branches(thread, after=(made.branch or 0) - 1, limit=1)
    current = page.items[0]
    where = f"turn {current.last_turn}, message {current.last_seq}"
    text = f"{in_line(thread)} continues after {where}; `drsai threads branches` shows what it left."
    tell(text, made, as_json=as_json)


@app.command()
def clear(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have a thread forget what was said. It stays stored, on a branch."""
    with threads_of(owner_of(tenant, user), database_url) as caller:
        made = caller.clear_history(thread)
    text = f"{in_line(thread)} begins anew; `drsai threads branches` shows what it left."
    tell(text, made, as_json=as_json)


def _print_turn(console: Console, item: TurnView, colours: Colours) -> None:
    source = in_line(item.source or "")
    seqs = f"{item.first_seq}-{item.last_seq}" if item.first_seq < item.last_seq else f"{item.last_seq}"
    said = f"messages {seqs}" if item.last_seq >= item.first_seq else "no messages"
    speaker = f"[bold {colours.of(item.source or '')}]{source}[/]"
    when = f"[dim]{in_line(item.run_id)}  {age(item.created_at)}[/]"
    console.print(f"[bold]{item.turn:>4}[/]  {speaker}  {said}  {when}", soft_wrap=True)


def _print_branch(console: Console, item: BranchView) -> None:
    mark = "*" if item.is_current else " "
    left = "" if item.parent is None else f", left {item.parent} after turn {item.at_turn}, message {item.at_seq}"
    ends = f"ends with turn {item.last_turn}, message {item.last_seq}{left}"
    console.print(f"{mark} [bold]{item.number:>3}[/]  {ends}  [dim]{age(item.created_at)}[/]", soft_wrap=True)
