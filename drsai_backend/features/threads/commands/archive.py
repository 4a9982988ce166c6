"""The archive commands, `drsai threads export | import | prune`, put conversations into files, take them from files,
and delete them by age."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from drsai_backend.cli.database import opened, owner_of, threads_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant, ThreadId, User, Yes
from drsai_backend.cli.screen import check_output, confirm, in_line, read_duration, size_of, tell, whose_name
from drsai_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from drsai_backend.datamodel import RunStatus

app = typer.Typer()

_UNDER_WAY: Final = {
    "running": "; the next worker that looks for work resumes its run",
    "paused": "; its run waits to be resumed",
    "awaiting_input": "; its run waits for a person's answer",
}


@app.command()
def export(
    thread: ThreadId,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="`-`: standard output.")] = "-",
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write a thread to a file, for `import` into another database. API keys are left out."""
    from drsai_backend.database.audit import audit
    from drsai_backend.datamodel.audit import Action
    from drsai_backend.state.portable import export_thread

    check_output(output, "an exported thread is no text", as_json=as_json)
    owner = owner_of(tenant, user)
    with threads_of(owner, database_url) as caller:
        caller.get_thread(thread)
        database = caller.engine.db.database
        data = database.read_sync(lambda session: export_thread(session, owner.thread(thread)))
        # Before anybody has it. A read cannot write, and a write would hold up others for as long as the export takes.
        database.write_sync(
            partial(
                audit, actor=caller.who.actor, action=Action.THREAD_EXPORTED, subject=thread, owner=owner.thread(thread)
            )
        )
    if output == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        # Like the database: it holds what was said.
        with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            if os.path.isfile(output) and hasattr(os, "fchmod"):  # Windows has none before Python 3.13.
                os.fchmod(file.fileno(), 0o600)
            file.write(data)
    except OSError as error:
        raise InvalidRequest(f"{output} cannot be written: {error.strerror}") from None
    text = f"exported {in_line(thread)} to {in_line(output)} ({size_of(len(data))})"
    tell(text, {"thread_id": thread, "file": output, "bytes": len(data)}, as_json=as_json)


@app.command("import")
def import_(
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
    as_json: AsJson = False,
) -> None:
    """Store an exported thread. It continues here exactly where it stood."""
    from drsai_backend.state.portable import MAX_FILE_BYTES, import_thread

    limit = MAX_FILE_BYTES if max_size is None else _bytes(max_size)
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
            data = stream.read(limit + 1)  # enough to be refused
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None
    except (MemoryError, OverflowError):
        raise InvalidRequest(f"--max-size {max_size}: this machine cannot hold so much", param="max_size") from None
    with opened(database_url, must_exist=False) as drsai:
        name = drsai.drsai.database.write_sync(
            lambda session: import_thread(
                session, data, tenant=tenant, user_id=user, thread_id=thread_id, max_bytes=limit, actor=drsai.who.actor
            )
        )
        thread = drsai.user(name.user_id, tenant=tenant).get_thread(name.thread_id)
    who = f"[bold]{in_line(name.thread_id)}[/] of {in_line(whose_name(name.owner))}"
    what = f"{thread.message_count} messages, {thread.status.value}{_UNDER_WAY.get(thread.status, '')}"
    tell(f"imported {who}: {what}", {**name.owner._asdict(), **thread.model_dump(mode="json")}, as_json=as_json)


@app.command()
def prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Unchanged for longer: `30d`, `12h`, `2w`.")],
    status: Annotated[
        str, typer.Option(metavar="LIST", help="Only of these, separated by commas.")
    ] = "created,completed,stopped,error",
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user's. [default: all]")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete threads that have not changed for long. One on which a run is live is never deleted."""
    from drsai_backend.database import retention

    chosen = {
        "older_than": read_duration(older_than, "older_than"),
        "statuses": [_read_status(name.strip()) for name in status.split(",")],
        "tenant": tenant,
        "user_id": user,
    }
    whose = "all users" if user is None else user
    if tenant is not None:
        whose += f" ({tenant})"
    with opened(database_url) as drsai:
        database = drsai.drsai.database
        count = database.read_sync(partial(retention.count_prunable, **chosen))
        if dry_run or count == 0:
            tell(f"{_count(count)} of {in_line(whose)} to delete", {"to_delete": count}, as_json=as_json)
            return
        confirm(f"Delete {_count(count)} of {whose}?", yes=yes)
        deleted, after = 0, 0  # in batches, each in a transaction of its own
        while after is not None:
            batch, after = database.write_sync(partial(retention.prune, **chosen, after=after, actor=drsai.who.actor))
            deleted += batch
    tell(f"deleted {_count(deleted)} of {in_line(whose)}", {"deleted": deleted}, as_json=as_json)


def _bytes(size: str) -> int:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return TypeAdapter(ByteSize).validate_python(size)
    except ValidationError:
        reason = "a size is a number of bytes, or such as 1GiB"
        raise InvalidRequest(f"--max-size {size}: {reason}", param="max_size") from None


def _read_status(name: str) -> RunStatus:
    from drsai_backend.datamodel import RunStatus

    try:
        return RunStatus(name)
    except ValueError:
        known = ", ".join(status.value for status in RunStatus)
        raise InvalidRequest(f"--status {name!r}: there is {known}", param="status") from None


def _count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"
