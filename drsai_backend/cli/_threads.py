"""`drsai threads`: stored conversations, read and deleted without an engine."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from drsai_backend.cli._screen import Colours, confirm, in_line, make_console, one_line, print_rows
from drsai_backend.cli._settings import named_database
from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import RunStatus, Thread
from drsai_backend.errors import NotFound
from drsai_backend.runs import _queries
from drsai_backend.runs.views import StoredMessage, ThreadDetail, ThreadSummary
from drsai_backend.state import decode_state
from drsai_backend.state.store import JournalStateStore

STATUS_COLOURS: Final = {
    RunStatus.RUNNING: "cyan",
    RunStatus.AWAITING_INPUT: "yellow",
    RunStatus.COMPLETED: "green",
    RunStatus.ERROR: "red",
}
_PAGE: Final = 500
_STATUS_WIDTH: Final = max(len(status.value) for status in RunStatus)


def list_threads(user_id: str, limit: int, database_url: str | None, *, as_json: bool) -> None:
    """Print a user's threads, newest first."""
    with open_manager(database_url) as db:
        page = db.database.read_sync(lambda session: _queries.list_threads(session, user_id, None, limit))
    console = make_console()
    if as_json:
        _print_json([item.model_dump(mode="json") for item in page.items])
    elif not page.items:
        console.print(f"{in_line(user_id)} has no threads here.")
    else:
        print_list(console, page.items)
        if page.next is not None:
            console.print(f"[dim]The newest {limit}; --limit shows more.[/]")


def show_thread(user_id: str, thread_id: str, database_url: str | None, *, as_json: bool) -> None:
    """Print a thread and all its messages."""
    with open_manager(database_url) as db:
        detail = _queries.detail(find_thread(db, user_id, thread_id))
        messages: list[StoredMessage] = []
        while True:
            after = messages[-1].seq if messages else 0
            page = db.database.read_sync(
                lambda session, after=after: _queries.list_messages(session, user_id, thread_id, after, _PAGE)
            )
            messages += page
            if len(page) < _PAGE:
                break
    if as_json:
        _print_json(
            {**detail.model_dump(mode="json"), "messages": [message.model_dump(mode="json") for message in messages]}
        )
        return
    console = make_console()
    _print_detail(console, detail)
    _print_messages(console, messages)


def print_state(user_id: str, thread_id: str, database_url: str | None, *, decoded: bool) -> None:
    """Print a thread's state: the base64 text that `decode_state` takes, or what is in it as JSON."""
    with open_manager(database_url) as db:
        state = find_thread(db, user_id, thread_id, load_state=True).state
    if state is None:
        raise NotFound(f"thread {thread_id!r} has no state yet: no turn of it was finished")
    if decoded:
        _print_json(decode_state(state))
    else:
        make_console().out(state)


def delete_threads(user_id: str, thread_ids: list[str], database_url: str | None, *, yes: bool) -> None:
    """Delete threads; all of them must exist. Raises `ThreadBusy` at one that runs."""
    with open_manager(database_url) as db:
        for thread_id in thread_ids:
            find_thread(db, user_id, thread_id)
        what = f"thread {thread_ids[0]}" if len(thread_ids) == 1 else f"{len(thread_ids)} threads"
        confirm(f"Delete {what} of {user_id}?", yes=yes)
        for thread_id in thread_ids:
            db.sync.delete(Thread, {"user_id": user_id, "thread_id": thread_id})
            make_console().print(f"deleted {in_line(thread_id)}")


def print_list(console: Console, threads: list[ThreadSummary]) -> None:
    """Threads, two lines each. Ids are never cut off: they are what the other commands take."""
    names = [(one_line(item.thread_id), one_line(item.team or "")) for item in threads]
    ids, teams = (max(map(len, column)) for column in zip(*names, strict=True))
    for item, (thread_id, team) in zip(threads, names, strict=True):
        line = Text(f"{thread_id:<{ids}}  ", "bold")
        line.append(f"{item.status.value:<{_STATUS_WIDTH}}", STATUS_COLOURS.get(item.status, "default"))
        line.append(f"  {team:<{teams}}  {item.message_count:>4} msgs  {_age(item.updated_at)}", "not bold")
        console.print(line, soft_wrap=True)
        title = Text(f"  {one_line(item.title or '')}", "dim", no_wrap=True, overflow="ellipsis")
        console.print(title)


def find_thread(db: DatabaseManager, user_id: str, thread_id: str, *, load_state: bool = False) -> Thread:
    """A thread without its messages. Raises `NotFound`."""
    filters = {"user_id": user_id, "thread_id": thread_id}
    rows = db.sync.get(Thread, filters, load_messages=False, load_state=load_state)
    if not rows:
        raise NotFound(f"{user_id} has no thread {thread_id!r} here; `drsai threads list` shows those there are")
    return rows[0]


@contextmanager
def open_manager(database_url: str | None, *, must_exist: bool = True) -> Generator[DatabaseManager]:
    """The database of an option or of the settings. Raises as `named_database`, or when it cannot be used."""
    database = named_database(database_url, must_exist=must_exist)
    try:
        db = DatabaseManager(database=database, state_store=JournalStateStore())
        db.ensure_schema_sync()
        yield db
    finally:
        database.close_sync()


def _print_detail(console: Console, thread: ThreadDetail) -> None:
    rows = [
        ("thread", f"[bold]{in_line(thread.thread_id)}[/]"),
        ("title", in_line(thread.title or "")),
        ("status", _status(thread.status).markup),
        ("team", in_line(thread.team or "")),
        ("created", _when(thread.created_at)),
        ("changed", _when(thread.updated_at)),
    ]
    if thread.error_message:
        rows.append(("error", f"[red]{in_line(thread.error_message)}[/]"))
    if thread.input_request:
        question = f"{thread.input_request.get('source')}: {thread.input_request.get('prompt')}"
        rows.append(("asks", f"[yellow]{in_line(question)}[/]"))
    print_rows(console, [(label, value) for label, value in rows if value], indent=0)


def _print_messages(console: Console, messages: list[StoredMessage]) -> None:
    colours = Colours()
    for message in messages:
        kind = "" if message.type == "TextMessage" else f" [dim]{in_line(message.type)}[/]"
        console.print()
        console.print(
            f"[dim]{message.seq:>3}[/] [bold {colours.of(message.source)}]{in_line(message.source)}[/]{kind}",
            soft_wrap=True,
        )
        console.print(Text(message.content))


def _status(status: RunStatus) -> Text:
    return Text(status.value, style=STATUS_COLOURS.get(status, "default"))


def _age(moment: datetime) -> str:
    minutes = int((datetime.now(UTC) - moment).total_seconds() // 60)
    if minutes < 1:
        return "now"
    if minutes < 60:
        return f"{minutes} min ago"
    if minutes < 24 * 60:
        return f"{minutes // 60} h ago"
    return _when(moment)[:10]


def _when(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def _print_json(value: Any) -> None:
    make_console().out(json.dumps(value, ensure_ascii=False, indent=2), highlight=False)
