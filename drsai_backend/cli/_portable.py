"""`drsai threads export | import`: threads as files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

from pydantic import ByteSize, TypeAdapter, ValidationError

from drsai_backend.cli._screen import in_line, make_console
from drsai_backend.cli._threads import find_thread, open_manager
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import InvalidRequest
from drsai_backend.state.portable import MAX_FILE_BYTES, export_thread, import_thread

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
        # Like the database: it holds what was said.
        with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            if os.path.isfile(output):
                os.fchmod(file.fileno(), 0o600)
            file.write(data)
    except OSError as error:
        raise InvalidRequest(f"{output} cannot be written: {error.strerror}", param="output") from None
    make_console().print(f"exported {in_line(thread_id)} to {in_line(output)} ({_size(len(data))})", soft_wrap=True)


def import_(
    file: str, user_id: str | None, thread_id: str | None, database_url: str | None, max_size: str | None
) -> None:
    """Store the thread of a file, or of stdin (`-`). `max_size`: bytes of the file and of what it unpacks to, such as
    `1GiB`.

    Raises:
        InvalidRequest: the file cannot be read, `max_size` is no size, or a name cannot be one.
        Conflict, StateError: as `import_thread`.
    """
    limit = MAX_FILE_BYTES if max_size is None else _bytes(max_size)
    data = _read(file, limit)
    with open_manager(database_url, must_exist=False) as db:
        names = db.database.write_sync(
            lambda session: import_thread(session, data, user_id=user_id, thread_id=thread_id, max_bytes=limit)
        )
        thread = find_thread(db, *names)
    line = f"imported [bold]{in_line(thread.thread_id)}[/] of {in_line(thread.user_id)}: {thread.last_seq} messages, "
    line += RunStatus(thread.status).value
    if more := _UNDER_WAY.get(RunStatus(thread.status)):
        line += f"; {more}"
    make_console().print(line, soft_wrap=True)


def _read(file: str, limit: int) -> bytes:
    """The file, or enough of it to be refused."""

    def head(stream: BinaryIO) -> bytes:
        return stream.read(limit + 1)

    if file == "-":
        return head(sys.stdin.buffer)
    try:
        with Path(file).open("rb") as stream:
            return head(stream)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}", param="file") from None


def _bytes(size: str) -> int:
    try:
        return TypeAdapter(ByteSize).validate_python(size)
    except ValidationError:
        raise InvalidRequest(
            f"--max-size {size}: a size is a number of bytes, or such as 1GiB", param="max_size"
        ) from None


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} {_UNITS[-1]}"
