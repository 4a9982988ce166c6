"""The commands of `drsai users` show users, and delete them with all that is theirs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import opened, owner_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Yes
from drsai_backend.cli.screen import confirm, in_line, make_console, tell
from drsai_backend.cli.verbs import Verbs
from drsai_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.database.users import UserSummary

app = typer.Typer(cls=Verbs, help="List users, or delete one with all that is theirs.", no_args_is_help=True)


@app.command("list")
def list_users(
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="Whose users.")] = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Those whose names come after this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the users of a tenant to whom anything belongs, with how many threads are theirs."""
    with opened(database_url) as drsai:
        users = drsai.drsai.users
        found = lists.read(lambda after, many: drsai.wait_for(lambda: users.list(tenant, after, many)), after, limit)
    empty = f"nothing belongs to anybody of tenant {in_line(tenant)} here"
    more = "There are more; --limit shows them, or --after {}"
    lists.show(found, _print, as_json=as_json, empty=empty, more=more)


@app.command()
def remove(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who.")],
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="The user's tenant.")] = "default",
    export: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write all that is theirs to a ZIP archive first, a file per thread."),
    ] = None,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Stop what a user runs, and delete their keys, threads and all else that is theirs. The audit log stays.

    What was cut off can be repeated: it deletes the rest.
    """
    import asyncio

    from drsai_backend.state.portable.archive import export_user

    # What was exported is said before anything is deleted; for programs, on stderr.
    owner, console = owner_of(tenant, user), make_console(stderr=as_json)
    whose = user if tenant == "default" else f"{user} of tenant {tenant}"
    if export is not None:
        _check_writable(Path(export))
    with opened(database_url) as drsai:
        users, files, hooks = drsai.drsai.users, drsai.drsai.files, drsai.drsai.engine.hooks
        confirm(f"Delete all that belongs to {whose}: threads, keys, agents?", yes=yes)

        async def write() -> None:
            threads = await asyncio.to_thread(export_user, files, owner, Path(export or ""), drsai.who.actor, hooks)
            console.print(f"exported {_many(threads, 'threads')} to {in_line(export or '')}", soft_wrap=True)

        counts = drsai.wait_for(
            lambda: users.delete(owner, actor=drsai.who.actor, export=None if export is None else write)
        )
    kinds = ", ".join(_many(count, kind) for kind, count in counts.items())
    tell(f"deleted {in_line(whose)}: {kinds}", {**owner._asdict(), "deleted": counts}, as_json=as_json)


def _print(console: Console, item: UserSummary) -> None:
    console.print(f"[bold]{in_line(item.user_id)}[/]  {_many(item.threads, 'threads')}", soft_wrap=True)


def _check_writable(path: Path) -> None:
    """Check that it can be written, before keys are deleted for it. Raises InvalidRequest."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InvalidRequest(f"--export {path}: no file can be written there")


def _many(count: int, kind: str) -> str:
    words = kind.replace("_", " ")
    return f"1 {words.removesuffix('s')}" if count == 1 else f"{count} {words}"
