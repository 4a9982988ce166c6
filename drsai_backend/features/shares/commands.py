"""The commands `drsai threads share | unshare | shares` show conversations to other users and roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import called, owner_of, threads_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant, ThreadId, User
from drsai_backend.cli.screen import age, in_line, tell

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.runs.threads.views import ShareView

app = typer.Typer()

WithUser = Annotated[str | None, typer.Option("--with", metavar="NAME", help="A user of the same tenant.")]
WithRole = Annotated[str | None, typer.Option("--role", metavar="NAME", help="Everybody of the tenant who has it.")]


@app.command()
def share(
    thread: ThreadId,
    with_user: WithUser = None,
    with_role: WithRole = None,
    right: Annotated[str, typer.Option(metavar="RIGHT", help="read, answer or write.")] = "read",
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a thread to another user or role, or change what they may do with it."""
    from drsai_backend.datamodel.sharing import read_right

    with threads_of(owner_of(tenant, user), database_url) as caller:
        made = caller.share_thread(thread, with_user=with_user, with_role=with_role, right=read_right(right))
    tell(f"{in_line(thread)} is shared: {_grantee(made)} may {made.right.value} it.", made, as_json=as_json)


@app.command()
def unshare(
    thread: ThreadId,
    with_user: WithUser = None,
    with_role: WithRole = None,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take a share of a thread back."""
    with called(tenant, user, database_url) as caller:
        caller.unshare_thread(thread, with_user=with_user, with_role=with_role)
    text = f"{in_line(thread)} is not shared with {in_line(with_user or with_role or '')} any more."
    tell(text, {"thread_id": thread, "with_user": with_user, "with_role": with_role}, as_json=as_json)


@app.command("shares")
def list_shares(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List with whom a thread is shared."""
    from drsai_backend.page import Page

    with threads_of(owner_of(tenant, user), database_url) as caller:
        found = caller.list_shares(thread)
    lists.show(Page(items=found), _print, as_json=as_json, empty=f"{in_line(thread)} is shared with nobody.")


def _print(console: Console, item: ShareView) -> None:
    line = f"{_grantee(item)}  {item.right.value}  [dim]{age(item.created_at)} by {in_line(item.created_by)}[/]"
    console.print(line, soft_wrap=True)


def _grantee(share: ShareView) -> str:
    return in_line(share.with_user) if share.with_user is not None else f"role {in_line(share.with_role or '')}"
