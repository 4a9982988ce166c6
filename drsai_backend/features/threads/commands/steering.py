"""`drsai threads delete | cancel | pause | resume | retry`: conversations are steered, whichever process runs them."""

from __future__ import annotations

from typing import Annotated

import typer

from drsai_backend.cli.database import owner_of, threads_of
from drsai_backend.cli.options import DatabaseUrl, Tenant, ThreadId, User, Yes
from drsai_backend.cli.screen import confirm, in_line, make_console, say, whose_name

app = typer.Typer()


@app.command()
def delete(
    threads: Annotated[list[str], typer.Argument(metavar="THREAD…", help="Ids.")],
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
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
            make_console().print(f"deleted {in_line(thread_id)}")


@app.command()
def cancel(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Stop what a thread does or waits for. Its finished turns stay."""
    with threads_of(owner_of(tenant, user), database_url) as caller:
        status = caller.stop(thread).status
    say(thread, "will stop in a few seconds" if status == "running" else "is stopped")


@app.command()
def pause(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Pause a thread's live run at its next turn boundary."""
    with threads_of(owner_of(tenant, user), database_url) as caller:
        status = caller.pause(thread).status
    say(thread, "will pause when the turn in flight is over" if status == "running" else "is paused")


@app.command()
def resume(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Resume a paused run, in a running server or worker."""
    with threads_of(owner_of(tenant, user), database_url) as caller:
        caller.resume(thread)
    say(thread, "is resumed: a server or a worker continues it within seconds")


@app.command()
def retry(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Run a run that has failed again, from the turn that failed, in a running server or worker."""
    with threads_of(owner_of(tenant, user), database_url) as caller:
        caller.retry(thread)
    say(thread, "is run again: a server or a worker continues it within seconds")
