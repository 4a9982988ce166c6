"""`drsai threads`, as it can be typed."""

from __future__ import annotations

from typing import Annotated

import typer

from drsai_backend import cli
from drsai_backend.cli.commands.options import AsJson, DatabaseUrl, Tenant, ThreadId, User, Yes

threads_app = typer.Typer(help="Look at stored conversations, move or delete them.", no_args_is_help=True)


@threads_app.command("list")
def threads_list(
    user: User = "anonymous",
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")] = 20,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List a user's threads, newest first."""
    cli.threads.list_threads(cli.threads.Owner(tenant, user), limit, database_url, as_json=as_json)


@threads_app.command("show")
def threads_show(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a thread and its messages."""
    cli.threads.show_thread(cli.threads.Owner(tenant, user), thread, database_url, as_json=as_json)


@threads_app.command("steps")
def threads_steps(
    run_or_thread: Annotated[
        str, typer.Argument(metavar="RUN_OR_THREAD", help="Id of a run, or of a thread: then of its newest run.")
    ],
    user: User = "anonymous",
    tenant: Tenant = "default",
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    after: Annotated[str | None, typer.Option(metavar="PLACE", help="Those after an earlier list.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")] = 100,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what a run has done, step by step: thoughts, calls of tools with what they returned, answers."""
    page = cli.steps.Page("desc" if newest else "asc", after, limit)
    cli.steps.list_steps(cli.threads.Owner(tenant, user), run_or_thread, page, database_url, as_json=as_json)


@threads_app.command("state")
def threads_state(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    turn: Annotated[int | None, typer.Option(metavar="N", help="After this turn. [default: now]")] = None,
    decoded: Annotated[bool, typer.Option("--decoded", help="As JSON instead of base64.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Print what the agents of a thread remember, now or after an earlier turn: their saved state."""
    cli.threads.print_state(cli.threads.Owner(tenant, user), thread, turn, database_url, decoded=decoded)


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


@threads_app.command("turns")
def threads_turns(
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
    cli.travel.list_turns(cli.threads.Owner(tenant, user), thread, branch, after, limit, database_url, as_json=as_json)


@threads_app.command("branches")
def threads_branches(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the branches of a thread that was rewound."""
    cli.travel.list_branches(cli.threads.Owner(tenant, user), thread, database_url, as_json=as_json)


@threads_app.command("fork")
def threads_fork(
    thread: ThreadId,
    at: At = None,
    turn: Turn = None,
    branch: Branch = None,
    thread_id: Annotated[str | None, typer.Option(metavar="NEW", help="Its id. [default: made up]")] = None,
    to_user: Annotated[str | None, typer.Option(metavar="NAME", help="Whose it shall be. [default: --user]")] = None,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Make a new thread of what a thread is, or was at a place. Runs stay behind."""
    owner = cli.threads.Owner(tenant, user)
    cli.travel.fork(owner, thread, at, turn, branch, thread_id, to_user, database_url)


@threads_app.command("rewind")
def threads_rewind(
    thread: ThreadId,
    at: At = None,
    turn: Turn = None,
    branch: Branch = None,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Have a thread go back to a place. What is left behind stays, on a branch."""
    cli.travel.rewind(cli.threads.Owner(tenant, user), thread, at, turn, branch, database_url)


@threads_app.command("clear")
def threads_clear(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Have a thread forget what was said. It stays stored, on a branch."""
    cli.travel.clear(cli.threads.Owner(tenant, user), thread, database_url)


@threads_app.command("delete")
def threads_delete(
    threads: Annotated[list[str], typer.Argument(metavar="THREAD…", help="Ids.")],
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete threads with all that belongs to them."""
    cli.threads.delete_threads(cli.threads.Owner(tenant, user), threads, database_url, yes=yes)


@threads_app.command("cancel")
def threads_cancel(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Stop what a thread does or waits for. Its finished turns stay."""
    cli.threads.cancel(cli.threads.Owner(tenant, user), thread, database_url)


@threads_app.command("pause")
def threads_pause(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Pause a thread's live run at its next turn boundary."""
    cli.threads.pause(cli.threads.Owner(tenant, user), thread, database_url)


@threads_app.command("resume")
def threads_resume(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Resume a paused run, in a running server or worker."""
    cli.threads.resume(cli.threads.Owner(tenant, user), thread, database_url)


@threads_app.command("retry")
def threads_retry(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Run a run that has failed again, from the turn that failed, in a running server or worker."""
    cli.threads.retry(cli.threads.Owner(tenant, user), thread, database_url)


WithUser = Annotated[str | None, typer.Option("--with", metavar="NAME", help="A user of the same tenant.")]
WithRole = Annotated[str | None, typer.Option("--role", metavar="NAME", help="Everybody of the tenant who has it.")]


@threads_app.command("share")
def threads_share(
    thread: ThreadId,
    with_user: WithUser = None,
    with_role: WithRole = None,
    right: Annotated[str, typer.Option(metavar="RIGHT", help="read, answer or write.")] = "read",
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Show a thread to another user or role, or change what they may do with it."""
    cli.threads.share(user, thread, with_user, with_role, right, tenant, database_url)


@threads_app.command("unshare")
def threads_unshare(
    thread: ThreadId,
    with_user: WithUser = None,
    with_role: WithRole = None,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Take a share of a thread back."""
    cli.threads.unshare(user, thread, with_user, with_role, tenant, database_url)


@threads_app.command("shares")
def threads_shares(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List with whom a thread is shared."""
    cli.threads.list_shares(user, thread, tenant, database_url, as_json=as_json)


@threads_app.command("export")
def threads_export(
    thread: ThreadId,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="`-`: standard output.")] = "-",
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Write a thread to a file, for `import` into another database. API keys are left out."""
    cli.threads.export(cli.threads.Owner(tenant, user), thread, output, database_url)


@threads_app.command("import")
def threads_import(
    file: Annotated[str, typer.Argument(metavar="FILE", help="`-`: standard input.")],
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose it shall be. [default: as in the file]")
    ] = None,
    tenant: Tenant = "default",
    thread_id: Annotated[str | None, typer.Option(metavar="NEW", help="Its id here. [default: as in the file]")] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="What the file, and what it unpacks to, may have; it takes up to eight times as much memory. "
            "[default: 64MiB]",
        ),
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Store an exported thread. It continues here exactly where it stood."""
    cli.threads.import_(file, tenant, user, thread_id, database_url, max_size)


@threads_app.command("prune")
def threads_prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Unchanged for longer: `30d`, `12h`, `2w`.")],
    status: Annotated[
        str, typer.Option(metavar="LIST", help="Only of these, separated by commas.")
    ] = "created,completed,stopped,error",
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user's. [default: all]")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete threads that have not changed for long. One on which a run is live is never deleted."""
    cli.threads.prune(older_than, status, tenant, user, database_url, dry_run=dry_run, yes=yes)
