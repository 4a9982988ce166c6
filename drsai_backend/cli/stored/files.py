"""`drsai files`: the files of a user are listed, stored, read and deleted, a part of one in memory at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ByteSize

from drsai_backend.cli.database import opened
from drsai_backend.cli.screen import (
    age,
    confirm,
    in_line,
    make_console,
    print_json,
    print_rows,
    read_duration,
    when,
    whose_name,
)
from drsai_backend.database.files import FileInfo, FilePage
from drsai_backend.datamodel.audit import CLI
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest, NotFound

_PAGE: Final = 500
_PART: Final = 256 * 1024


def list_files(
    owner: Owner, purpose: str | None, after: str | None, limit: int, database_url: str | None, *, as_json: bool
) -> None:
    with opened(database_url) as drsai:
        page, found = FilePage(items=[], next=after), list[FileInfo]()
        while len(found) < limit:
            many = min(limit - len(found), _PAGE)
            page = drsai.files.list(owner, after=page.next, limit=many, purpose=purpose)
            found += page.items
            if page.next is None:
                break
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    console = make_console()
    if not found:
        console.print(f"{in_line(whose_name(owner))} has no files here", soft_wrap=True)
    for item in found:
        of = f"{_size(item.bytes):>10}  {age(item.created_at)}  {in_line(item.filename)}"
        console.print(f"[bold]{item.file_id}[/]  {of}", soft_wrap=True)
    if page.next is not None:
        console.print(f"[dim]There are more: --after {page.next}[/]")


def show(owner: Owner, file_id: str, database_url: str | None, *, as_json: bool) -> None:
    with opened(database_url) as drsai, _missed(owner):
        info = drsai.files.get(owner, file_id)
    if as_json:
        print_json(info.model_dump(mode="json"))
        return
    rows = {
        "file": f"[bold]{info.file_id}[/]",
        "name": in_line(info.filename),
        "type": in_line(info.media_type),
        "purpose": info.purpose,
        "size": _size(info.bytes),
        "created": when(info.created_at),
        "expires": "" if info.expires_at is None else when(info.expires_at),
    }
    print_rows(make_console(), [(label, value) for label, value in rows.items() if value], indent=0)


def upload(
    owner: Owner,
    path: str,
    name: str | None,
    purpose: str,
    media_type: str | None,
    expires: str | None,
    database_url: str | None,
    *,
    as_json: bool,
) -> None:
    expires_after = None if expires is None else read_duration(expires, "expires")
    if path == "-" and name is None:
        raise InvalidRequest("a file from the standard input needs --name", param="name")
    try:
        with (
            sys.stdin.buffer if path == "-" else Path(path).open("rb") as file,
            opened(database_url, must_exist=False) as drsai,
        ):
            create = partial(drsai.files.create, owner, name or Path(path).name, _parts(file), purpose=purpose)
            info = create(media_type=media_type, expires_after=expires_after)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", param="path") from None
    if as_json:
        print_json(info.model_dump(mode="json"))
        return
    # Alone on stdout, for `FILE=$(drsai files upload …)`.
    whose = f"{in_line(info.filename)} of {in_line(whose_name(owner))}"
    make_console(stderr=True).print(f"{whose}, {_size(info.bytes)}, is stored:", soft_wrap=True)
    make_console().out(info.file_id)


def download(owner: Owner, file_id: str, output: str | None, database_url: str | None) -> None:
    if output == "-" and sys.stdout.isatty():
        raise InvalidRequest("a file may be no text for a terminal: say `> FILE` or --output FILE", param="output")
    with opened(database_url) as drsai:
        with _missed(owner):
            info, place = drsai.files.open(owner, file_id)
        parts = drsai.files.stream(place, 0, info.bytes)
        if output == "-":
            for part in parts:
                sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
            return
        # Its own name comes from whoever uploaded it: it has no folders, and replaces nothing.
        target = Path(info.filename if output is None else output)
        _write(target, parts, replaces=output is not None)
    make_console().print(f"wrote {in_line(str(target))} ({_size(info.bytes)})", soft_wrap=True)


def delete(owner: Owner, file_ids: list[str], database_url: str | None, *, yes: bool) -> None:
    with opened(database_url) as drsai, _missed(owner):
        for file_id in file_ids:  # all of them must exist
            drsai.files.get(owner, file_id)
        what = f"file {file_ids[0]}" if len(file_ids) == 1 else f"{len(file_ids)} files"
        confirm(f"Delete {what} of {whose_name(owner)}?", yes=yes)
        for file_id in file_ids:
            drsai.files.delete(owner, file_id, actor=CLI)
            make_console().print(f"deleted {in_line(file_id)}")


def _parts(file: BinaryIO) -> Iterator[bytes]:
    while part := file.read(_PART):
        yield part


def _write(target: Path, parts: Iterator[bytes], *, replaces: bool) -> None:
    """Write a file that nobody else may read. It is there when it is whole."""
    part = target.with_name(f"{target.name}.part")
    if not replaces and target.exists():
        raise InvalidRequest(f"{target} exists; --output names another file, or replaces it", param="output")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            for each in parts:
                file.write(each)
        part.replace(target)
    except OSError as error:
        raise InvalidRequest(f"{target} cannot be written: {error.strerror}", param="output") from None
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _missed(owner: Owner) -> Generator[None]:
    """A file that is not found is missed in words for who types."""
    try:
        yield
    except NotFound as error:
        text = f"{error.message} of {whose_name(owner)} here; `drsai files list` shows those there are"
        raise NotFound(text) from None


def _size(many: int) -> str:
    return ByteSize(many).human_readable(separator=" ")
