"""`drsai threads export | import`: threads as files."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.markup import escape

from drsai_backend.cli._screen import make_console
from drsai_backend.cli._threads import find_thread, open_manager
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import InvalidRequest
from drsai_backend.state.portable import export_thread, import_thread

_UNDER_WAY = {
    RunStatus.RUNNING: "its run goes on with the next worker that looks for work",
    RunStatus.PAUSED: "its run waits to be resumed",
    RunStatus.AWAITING_INPUT: "its run waits for a person's answer",
}
_UNITS = ("B", "KiB", "MiB", "GiB")


def export(user_id: str, thread_id: str, output: str, database_url: str | None) -> None:
    """Write a thread to a file, or to stdout (`-`).

    Raises:
        InvalidRequest: stdout is a terminal, or the file cannot be written.
        NotFound, ThreadBusy, StateError: as `export_thread`.
    """
    if output == "-" and sys.stdout.isatty():
        raise InvalidRequest("an exported thread is no text for a terminal: say `> FILE` or --output FILE")
    with open_manager(database_url) as db:
        find_thread(db, user_id, thread_id)
        data = db.database.read_sync(lambda session: export_thread(session, user_id, thread_id))
    if output == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        Path(output).write_bytes(data)
    except OSError as error:
        raise InvalidRequest(f"{output} cannot be written: {error.strerror}", param="output") from None
    make_console().print(f"exported {escape(thread_id)} to {escape(output)} ({_size(len(data))})", soft_wrap=True)


def import_(file: str, user_id: str | None, thread_id: str | None, database_url: str | None) -> None:
    """Store the thread of a file, or of stdin (`-`).

    Raises:
        InvalidRequest: the file cannot be read.
        Conflict, StateError: as `import_thread`.
    """
    data = _read(file)
    with open_manager(database_url, must_exist=False) as db:
        names = db.database.write_sync(
            lambda session: import_thread(session, data, user_id=user_id, thread_id=thread_id)
        )
        thread = find_thread(db, *names)
    line = f"imported [bold]{escape(thread.thread_id)}[/] of {escape(thread.user_id)}: {thread.last_seq} messages, "
    line += RunStatus(thread.status).value
    if more := _UNDER_WAY.get(RunStatus(thread.status)):
        line += f"; {more}"
    make_console().print(line, soft_wrap=True)


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}", param="file") from None


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} {_UNITS[-1]}"
