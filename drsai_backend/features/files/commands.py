"""The commands of `drsai files` show, store, read and delete the files of a user, a part of one in memory at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import elsewhere, missing, opened, owner_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant, Yes
from drsai_backend.cli.screen import (
    age,
    check_output,
    confirm,
    in_line,
    make_console,
    print_filled,
    print_json,
    read_duration,
    size_of,
    tell,
    when,
    whose_name,
)
from drsai_backend.cli.verbs import Verbs
from drsai_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from drsai_backend.database.files import FileInfo
    from drsai_backend.datamodel.owner import Owner

app = typer.Typer(cls=Verbs, help="Store files of a user, read and delete them.", no_args_is_help=True)

OfUser = Annotated[str, typer.Option(metavar="NAME", help="Whose files.")]
FileId = Annotated[str, typer.Argument(metavar="FILE_ID", help="`file-…`, as `list` shows it.")]
_PART: Final = 256 * 1024


@app.command("list")
def list_files(
    user: OfUser,
    tenant: Tenant = "default",
    purpose: Annotated[str | None, typer.Option(metavar="PURPOSE", help="Only these. [default: all]")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="FILE_ID", help="Those before this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List a user's files, newest first."""
    owner = owner_of(tenant, user)
    with opened(database_url) as drsai:
        found = lists.read(
            lambda after, many: drsai.files.list(owner, after=after, limit=many, purpose=purpose), after, limit
        )
    empty = f"{in_line(whose_name(owner))} has no files here"
    lists.show(found, _print, as_json=as_json, empty=empty)


@app.command()
def show(
    file_id: FileId, user: OfUser, tenant: Tenant = "default", database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Show what is known of a file."""
    owner = owner_of(tenant, user)
    with opened(database_url) as drsai, _missing(owner):
        info = drsai.files.get(owner, file_id)
    if as_json:
        print_json(info)
        return
    rows = {
        "file": f"[bold]{info.file_id}[/]",
        "name": in_line(info.filename),
        "type": in_line(info.media_type),
        "purpose": info.purpose,
        "size": size_of(info.bytes),
        "created": when(info.created_at),
        "expires": "" if info.expires_at is None else when(info.expires_at),
    }
    print_filled(make_console(), rows)


@app.command()
def add(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The file; `-` for stdin.")],
    user: OfUser,
    tenant: Tenant = "default",
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="Its name. [default: that of PATH]")] = None,
    purpose: Annotated[str, typer.Option(metavar="PURPOSE", help="What it is for, as in OpenAI's API.")] = "user_data",
    media_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="`text/plain`, say. [default: by its name]")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it is deleted: `12h`, `7d`. [default: never]")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Store a file, and print its id. What it is goes to stderr."""
    owner = owner_of(tenant, user)
    expires_after = None if expires is None else read_duration(expires, "expires")
    if path == "-" and name is None:
        raise InvalidRequest("a file from the standard input needs --name", param="name")
    try:
        with (
            sys.stdin.buffer if path == "-" else Path(path).open("rb") as file,
            opened(database_url, must_exist=False) as drsai,
        ):
            info = drsai.files.create(
                owner,
                name or Path(path).name,
                _parts(file),
                purpose=purpose,
                media_type=media_type,
                expires_after=expires_after,
            )
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None
    if as_json:
        print_json(info)
        return
    # Alone on stdout, for `FILE=$(drsai files add …)`.
    whose = f"{in_line(info.filename)} of {in_line(whose_name(owner))}"
    make_console(stderr=True).print(f"{whose}, {size_of(info.bytes)}, is stored:", soft_wrap=True)
    make_console().out(info.file_id)


@app.command()
def download(
    file_id: FileId,
    user: OfUser,
    tenant: Tenant = "default",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="PATH", help="Where to; `-` for stdout. [default: its name]")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write the content of a file."""
    check_output(output, "a file may be no text", as_json=as_json)
    owner = owner_of(tenant, user)
    with opened(database_url) as drsai:
        with _missing(owner):
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
    written = {**info.model_dump(mode="json"), "file": str(target)}
    tell(f"wrote {in_line(str(target))} ({size_of(info.bytes)})", written, as_json=as_json)


@app.command()
def remove(
    file_ids: Annotated[list[str], typer.Argument(metavar="FILE_ID…", help="`file-…`, as `list` shows them.")],
    user: OfUser,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete files."""
    from drsai_backend.datamodel.audit import CLI

    owner = owner_of(tenant, user)
    with opened(database_url) as drsai, _missing(owner):
        for file_id in file_ids:  # all of them must exist
            drsai.files.get(owner, file_id)
        what = f"file {file_ids[0]}" if len(file_ids) == 1 else f"{len(file_ids)} files"
        confirm(f"Delete {what} of {whose_name(owner)}?", yes=yes)
        for file_id in file_ids:
            drsai.files.delete(owner, file_id, actor=CLI)
            if not as_json:
                make_console().print(f"deleted {in_line(file_id)}")
    if as_json:
        print_json({"deleted": file_ids})


def _print(console: Console, item: FileInfo) -> None:
    of = f"{size_of(item.bytes):>10}  {age(item.created_at)}  {in_line(item.filename)}"
    console.print(f"[bold]{item.file_id}[/]  {of}", soft_wrap=True)


def _parts(file: BinaryIO) -> Iterator[bytes]:
    while part := file.read(_PART):
        yield part


def _write(target: Path, parts: Iterator[bytes], *, replaces: bool) -> None:
    """Write a file that nobody else may read. It is there when it is whole."""
    part = target.with_name(f"{target.name}.part")
    if not replaces and target.exists():
        raise InvalidRequest(f"{target} exists; --output names another file, or replaces it")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)  # Windows has none.
    try:
        with open(os.open(part, flags, 0o600), "wb") as file:
            for each in parts:
                file.write(each)
        part.replace(target)
    except OSError as error:
        raise InvalidRequest(f"{target} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _missing(owner: Owner) -> AbstractContextManager[None]:
    return missing(after=f" of {whose_name(owner)}{elsewhere('files', owner)}")
