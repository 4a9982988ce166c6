"""The archive has all that is a user's in one file: a ZIP archive that any tool opens.

| name | content |
| --- | --- |
| `threads/000001.thread` … | a thread each, for `drsai threads import`; see `drsai_backend.state.portable` |
| `threads/000001.json` … | the same to read: its fields and the rows of its tables, messages and runs among them |
| `rows/<table>.jsonl` | the rows of a table that has an owner and no threads of its own: a JSON object in each line |
| `files/<sha256>` | the bytes of files, once for all that have the same: `rows/storedfile.jsonl` has names and hashes |
| `<feature>/…` | what a feature has of theirs outside of its tables, as it has it |
| `manifest.json` | `format` (1), `tenant`, `user_id`, `created_at`, and `threads`: which file is which `thread_id` |

API keys are not in it, those of users' model endpoints neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import orjson
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.database.audit import audit
from drsai_backend.database.files import contents_of
from drsai_backend.database.hooks import NO_HOOKS, ExportUser, Hooks
from drsai_backend.database.owned import owned_by
from drsai_backend.database.users import loose_tables, threads_of
from drsai_backend.datamodel import JsonObject, UserInput, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest
from drsai_backend.files import Files
from drsai_backend.state.portable.file import pack
from drsai_backend.state.portable.threads import read_thread

FORMAT_VERSION: Final = 1
_PAGE: Final = 500


class _HookFailed(Exception):
    """What a feature raises is no trouble of the file."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def export_user(files: Files, owner: Owner, path: Path, actor: Actor, hooks: Hooks = NO_HOOKS) -> int:
    """Write all that is a user's to a file, which nobody else may read. Blocks. It is there when it is whole, and when
    the audit log says so; what was there under that name is replaced. A thread, a page of rows, a
    part of a file and what a feature gives at once are in memory at a time. `hooks` bring tables and files of features.

    Returns:
        How many threads are in it.

    Raises:
        ThreadBusy: a run is live on one of the threads.
        StateError: the state of one of them is damaged, or of a later version.
        DatabaseError: the bytes of a file are in a folder that this process does not see, or it is deleted meanwhile.
        InvalidRequest: the file cannot be written.
    """
    database = files.database
    part = path.with_name(f"{path.name}.part")
    try:
        with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "r+b") as opened:
            with ZipFile(opened, "w", ZIP_DEFLATED) as archive:
                threads = _write_threads(database, owner, archive)
                _write_rows(database, owner, archive, hooks)
                _write_files(files, owner, archive)
                for name, hook in hooks.export_user.items():
                    database.read_sync(partial(_write_brought, owner=owner, archive=archive, name=name, hook=hook))
                manifest = {
                    "format": FORMAT_VERSION,
                    **owner._asdict(),
                    "created_at": utcnow().isoformat(),
                    "threads": threads,
                }
                archive.writestr("manifest.json", orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
            opened.flush()
            os.fsync(opened.fileno())
        detail = {"threads": len(threads)}
        database.write_sync(
            partial(audit, actor=actor, action=Action.USER_EXPORTED, subject=owner.user_id, owner=owner, detail=detail)
        )
        part.replace(path)
    except _HookFailed as failed:
        raise failed.error from None
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return len(threads)


def _write_threads(database: Database, owner: Owner, archive: ZipFile) -> list[dict[str, str]]:
    written: list[dict[str, str]] = []
    after = 0
    while page := database.read_sync(partial(threads_of, owner=owner, after=after, limit=_PAGE)):
        for key, thread_id in page:
            content = database.read_sync(partial(read_thread, name=owner.thread(thread_id)))
            file, after = f"threads/{len(written) + 1:06}.thread", key
            archive.writestr(file, pack(content), ZIP_STORED)  # It is compressed already.
            readable = {"thread_id": thread_id, **content.thread, **content.tables}
            archive.writestr(f"{file[:-7]}.json", orjson.dumps(readable, default=_shown, option=orjson.OPT_INDENT_2))
            written.append({"file": file, "thread_id": thread_id})
    return written


def _write_rows(database: Database, owner: Owner, archive: ZipFile, hooks: Hooks) -> None:
    for table in (*loose_tables().values(), *hooks.tables):
        if table is table_of(UserInput):
            continue  # A thread's, with a key in it.
        after: tuple[object, ...] | None = None
        with archive.open(f"rows/{table.name}.jsonl", "w", force_zip64=True) as lines:
            while rows := database.read_sync(partial(_rows, table=table, owner=owner, after=after)):
                lines.write(b"".join(orjson.dumps(row, default=_shown) + b"\n" for row in rows))
                after = tuple(rows[-1][column.name] for column in table.primary_key.columns)


def _write_files(files: Files, owner: Owner, archive: ZipFile) -> None:
    after = 0
    while page := files.database.read_sync(partial(contents_of, owner=owner, after=after, limit=_PAGE)):
        for content in page:
            after = content.place.key
            with archive.open(f"files/{content.sha256}", "w", force_zip64=True) as file:
                for data in files.blocks(content.place, content.bytes):
                    file.write(data)


def _write_brought(session: Session, owner: Owner, archive: ZipFile, name: str, hook: ExportUser) -> None:
    there = {*archive.namelist()}  # Where the connection was lost in the middle, it is called again.
    for file, data in _brought(session, owner, hook):
        if (path := f"{name}/{file}") not in there:
            archive.writestr(path, data)


def _brought(session: Session, owner: Owner, hook: ExportUser) -> Iterator[tuple[str, bytes]]:
    """Yield what a feature has, one after the other."""
    try:
        yield from hook(session, owner)
    except OSError as error:
        raise _HookFailed(error) from error


def _rows(session: Session, table: sa.Table, owner: Owner, after: tuple[object, ...] | None) -> list[JsonObject]:
    key = tuple(table.primary_key.columns)
    query = sa.select(table).where(*owned_by(table, owner))
    if after is not None:
        last = (sa.literal(value, column.type) for value, column in zip(after, key, strict=True))
        query = query.where(sa.tuple_(*key) > sa.tuple_(*last))
    return [dict(row) for row in session.execute(query.order_by(*key).limit(_PAGE)).mappings()]


def _shown(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
