"""`drsai threads`: stored conversations are read, steered, moved and deleted, whichever process runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import ByteSize, TypeAdapter, ValidationError
from rich.console import Console
from rich.text import Text

from drsai_backend.cli.database import opened
from drsai_backend.cli.screen import (
    Colours,
    age,
    confirm,
    in_line,
    make_console,
    one_line,
    print_json,
    print_rows,
    read_duration,
    when,
    whose_name,
)
from drsai_backend.database import retention
from drsai_backend.database.audit import audit
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.audit import CLI, Action
from drsai_backend.datamodel.owner import Owner
from drsai_backend.datamodel.sharing import read_right
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.threads.views import ShareView, StoredMessage, ThreadDetail, ThreadSummary
from drsai_backend.state import encode_state
from drsai_backend.state.portable import MAX_FILE_BYTES, export_thread, import_thread
from drsai_backend.state.travel import Place, state_at
from drsai_backend.sync import SyncDrSai

_COLOURS: Final = {
    RunStatus.RUNNING: "cyan",
    RunStatus.AWAITING_INPUT: "yellow",
    RunStatus.COMPLETED: "green",
    RunStatus.ERROR: "red",
}
_UNDER_WAY: Final = {
    RunStatus.RUNNING: "; the next worker that looks for work resumes its run",
    RunStatus.PAUSED: "; its run waits to be resumed",
    RunStatus.AWAITING_INPUT: "; its run waits for a person's answer",
}
_PAGE: Final = 500
_STATUS_WIDTH: Final = max(len(status.value) for status in RunStatus)


@contextmanager
def threads_of(owner: Owner, database_url: str | None) -> Generator[SyncDrSai]:
    """The database, in which a thread that is not found is missed in words for who types."""
    with opened(database_url) as drsai:
        try:
            yield drsai
        except NotFound as error:  # "no thread 't'"
            whose = whose_name(owner)
            raise NotFound(f"{whose} has {error.message} here; `drsai threads list` shows those there are") from None


# --- read -----------------------------------------------------------------------------------------------------------


def list_threads(owner: Owner, limit: int, database_url: str | None, *, as_json: bool) -> None:
    with opened(database_url) as drsai:
        page = drsai.list_threads(owner.user_id, tenant=owner.tenant, limit=limit)
    console = make_console()
    if as_json:
        print_json([item.model_dump(mode="json") for item in page.items])
    elif not page.items:
        console.print(f"{in_line(whose_name(owner))} has no threads here.")
    else:
        print_list(console, page.items)
        if page.next is not None:
            console.print(f"[dim]The newest {limit}; --limit shows more.[/]")


def show_thread(owner: Owner, thread_id: str, database_url: str | None, *, as_json: bool) -> None:
    messages: list[StoredMessage] = []
    with threads_of(owner, database_url) as drsai:
        thread = drsai.get_thread(owner.user_id, thread_id, tenant=owner.tenant)
        read = partial(drsai.list_messages, owner.user_id, thread_id, tenant=owner.tenant, limit=_PAGE)
        while page := read(after=messages[-1].seq if messages else 0):
            messages += page
    if as_json:
        print_json({**thread.model_dump(mode="json"), "messages": [each.model_dump(mode="json") for each in messages]})
        return
    console = make_console()
    _print_detail(console, thread)
    colours = Colours()
    for message in messages:
        kind = "" if message.type == "TextMessage" else f" [dim]{in_line(message.type)}[/]"
        speaker = f"[bold {colours.of(message.source)}]{in_line(message.source)}[/]"
        console.print(f"\n[dim]{message.seq:>3}[/] {speaker}{kind}", soft_wrap=True)
        console.print(Text(message.content))


def print_state(owner: Owner, thread_id: str, turn: int | None, database_url: str | None, *, decoded: bool) -> None:
    name, place = owner.thread(thread_id), Place(turn=turn)
    with threads_of(owner, database_url) as drsai:
        state = drsai.drsai.database.read_sync(lambda session: state_at(session, name, place))
    if state is None:
        raise NotFound(f"thread {thread_id!r} has no state yet: no turn of it was finished")
    if decoded:
        print_json(state)
    else:
        make_console().out(encode_state(state))


def print_list(console: Console, threads: list[ThreadSummary]) -> None:
    """Print threads, two lines each. Ids are never cut off: they are what the other commands take."""
    names = [(one_line(item.thread_id), one_line(item.team or "")) for item in threads]
    ids, teams = (max(map(len, column)) for column in zip(*names, strict=True))
    for item, (thread_id, team) in zip(threads, names, strict=True):
        line = Text(f"{thread_id:<{ids}}  ", "bold")
        line.append(f"{item.status.value:<{_STATUS_WIDTH}}", _COLOURS.get(item.status, "default"))
        line.append(f"  {team:<{teams}}  {item.message_count:>4} msgs  {age(item.updated_at)}", "not bold")
        console.print(line, soft_wrap=True)
        console.print(Text(f"  {one_line(item.title or '')}", "dim", no_wrap=True, overflow="ellipsis"))


def _print_detail(console: Console, thread: ThreadDetail) -> None:
    question = thread.input_request or {}
    colour = _COLOURS.get(thread.status, "default")
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
    print_rows(console, [(label, value) for label, value in rows.items() if value], indent=0)


# --- steer ----------------------------------------------------------------------------------------------------------


def cancel(owner: Owner, thread_id: str, database_url: str | None) -> None:
    with threads_of(owner, database_url) as drsai:
        thread = drsai.stop(owner.user_id, thread_id, tenant=owner.tenant)
    _say(thread_id, "will stop in a few seconds" if thread.status is RunStatus.RUNNING else "is stopped")


def pause(owner: Owner, thread_id: str, database_url: str | None) -> None:
    with threads_of(owner, database_url) as drsai:
        thread = drsai.pause(owner.user_id, thread_id, tenant=owner.tenant)
    is_live = thread.status is RunStatus.RUNNING
    _say(thread_id, "will pause when the turn in flight is over" if is_live else "is paused")


def resume(owner: Owner, thread_id: str, database_url: str | None) -> None:
    with threads_of(owner, database_url) as drsai:
        drsai.resume(owner.user_id, thread_id, tenant=owner.tenant)
    _say(thread_id, "is resumed: a server or a worker continues it within seconds")


def retry(owner: Owner, thread_id: str, database_url: str | None) -> None:
    with threads_of(owner, database_url) as drsai:
        drsai.retry(owner.user_id, thread_id, tenant=owner.tenant)
    _say(thread_id, "is run again: a server or a worker continues it within seconds")


# --- share ----------------------------------------------------------------------------------------------------------


def share(
    user_id: str,
    thread_id: str,
    with_user: str | None,
    with_role: str | None,
    right: str,
    tenant: str,
    database_url: str | None,
) -> None:
    with threads_of(Owner(tenant, user_id), database_url) as drsai:
        whom = {"with_user": with_user, "with_role": with_role}
        made = drsai.share_thread(user_id, thread_id, **whom, right=read_right(right), tenant=tenant)
    _say(thread_id, f"is shared: {_grantee(made)} may {made.right.value} it")


def unshare(
    user_id: str, thread_id: str, with_user: str | None, with_role: str | None, tenant: str, database_url: str | None
) -> None:
    with opened(database_url) as drsai:
        drsai.unshare_thread(user_id, thread_id, with_user=with_user, with_role=with_role, tenant=tenant)
    _say(thread_id, f"is not shared with {in_line(with_user or with_role or '')} any more")


def list_shares(user_id: str, thread_id: str, tenant: str, database_url: str | None, *, as_json: bool) -> None:
    with threads_of(Owner(tenant, user_id), database_url) as drsai:
        shares = drsai.list_shares(user_id, thread_id, tenant=tenant)
    if as_json:
        print_json([each.model_dump(mode="json") for each in shares])
        return
    if not shares:
        _say(thread_id, "is shared with nobody")
    for each in shares:
        line = f"{_grantee(each)}  {each.right.value}  [dim]{age(each.created_at)} by {in_line(each.created_by)}[/]"
        make_console().print(line, soft_wrap=True)


def _grantee(share: ShareView) -> str:
    return in_line(share.with_user) if share.with_user is not None else f"role {in_line(share.with_role or '')}"


def _say(thread_id: str, what: str) -> None:
    make_console().print(f"{in_line(thread_id)} {what}.")


# --- delete ---------------------------------------------------------------------------------------------------------


def delete_threads(owner: Owner, thread_ids: list[str], database_url: str | None, *, yes: bool) -> None:
    with threads_of(owner, database_url) as drsai:
        for thread_id in thread_ids:  # all of them must exist
            drsai.get_thread(owner.user_id, thread_id, tenant=owner.tenant)
        what = f"thread {thread_ids[0]}" if len(thread_ids) == 1 else f"{len(thread_ids)} threads"
        confirm(f"Delete {what} of {whose_name(owner)}?", yes=yes)
        for thread_id in thread_ids:
            drsai.delete_thread(owner.user_id, thread_id, tenant=owner.tenant)
            make_console().print(f"deleted {in_line(thread_id)}")


def prune(
    older_than: str,
    status: str,
    tenant: str | None,
    user_id: str | None,
    database_url: str | None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    chosen: JsonObject = {
        "older_than": read_duration(older_than, "older_than"),
        "statuses": [_read_status(name.strip()) for name in status.split(",")],
        "tenant": tenant,
        "user_id": user_id,
    }
    console = make_console()
    whose = "all users" if user_id is None else user_id
    if tenant is not None:
        whose += f" ({tenant})"
    with opened(database_url) as drsai:
        database = drsai.drsai.database
        count = database.read_sync(partial(retention.count_prunable, **chosen))
        if dry_run or count == 0:
            console.print(f"{_count(count)} of {in_line(whose)} to delete", soft_wrap=True)
            return
        confirm(f"Delete {_count(count)} of {whose}?", yes=yes)
        deleted = 0  # in batches, each in a transaction of its own
        while batch := database.write_sync(partial(retention.prune, **chosen, actor=CLI)):
            deleted += batch
    console.print(f"deleted {_count(deleted)} of {in_line(whose)}", soft_wrap=True)


def _read_status(name: str) -> RunStatus:
    try:
        return RunStatus(name)
    except ValueError:
        known = ", ".join(status.value for status in RunStatus)
        raise InvalidRequest(f"--status {name!r}: there is {known}", param="status") from None


def _count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


# --- move -----------------------------------------------------------------------------------------------------------


def export(owner: Owner, thread_id: str, output: str, database_url: str | None) -> None:
    if output == "-" and sys.stdout.isatty():
        raise InvalidRequest("an exported thread is no text for a terminal: say `> FILE` or --output FILE")
    with threads_of(owner, database_url) as drsai:
        drsai.get_thread(owner.user_id, thread_id, tenant=owner.tenant)
        database = drsai.drsai.database
        data = database.read_sync(lambda session: export_thread(session, owner.thread(thread_id)))
        # Before anybody has it. A read cannot write, and a write would hold up others for as long as the export takes.
        noted = partial(audit, actor=CLI, action=Action.THREAD_EXPORTED, subject=thread_id)
        database.write_sync(partial(noted, owner=owner, thread_id=thread_id))
    if output == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        # Like the database: it holds what was said.
        with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            if os.path.isfile(output):
                os.fchmod(file.fileno(), 0o600)
            file.write(data)
    except OSError as error:
        raise InvalidRequest(f"{output} cannot be written: {error.strerror}", param="output") from None
    size = ByteSize(len(data)).human_readable(separator=" ")
    make_console().print(f"exported {in_line(thread_id)} to {in_line(output)} ({size})", soft_wrap=True)


def import_(
    file: str, tenant: str, user_id: str | None, thread_id: str | None, database_url: str | None, max_size: str | None
) -> None:
    limit = MAX_FILE_BYTES if max_size is None else _bytes(max_size)
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
            data = stream.read(limit + 1)  # enough to be refused
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}", param="file") from None
    with opened(database_url, must_exist=False) as drsai:
        name = drsai.drsai.database.write_sync(
            partial(
                import_thread,
                data=data,
                tenant=tenant,
                user_id=user_id,
                thread_id=thread_id,
                max_bytes=limit,
                actor=CLI,
            )
        )
        thread = drsai.get_thread(name.user_id, name.thread_id, tenant=tenant)
    whose = f"[bold]{in_line(name.thread_id)}[/] of {in_line(whose_name(name.owner))}"
    what = f"{thread.message_count} messages, {thread.status.value}{_UNDER_WAY.get(thread.status, '')}"
    make_console().print(f"imported {whose}: {what}", soft_wrap=True)


def _bytes(size: str) -> int:
    try:
        return TypeAdapter(ByteSize).validate_python(size)
    except ValidationError:
        reason = "a size is a number of bytes, or such as 1GiB"
        raise InvalidRequest(f"--max-size {size}: {reason}", param="max_size") from None
