"""`drsai users`: users are listed, and deleted with all that is theirs."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Final

from drsai_backend.cli.database import opened
from drsai_backend.cli.screen import confirm, in_line, make_console, print_json
from drsai_backend.database.users import UserPage, UserSummary
from drsai_backend.datamodel.audit import CLI
from drsai_backend.datamodel.owner import DEFAULT_TENANT, Owner
from drsai_backend.errors import InvalidRequest
from drsai_backend.state.portable.archive import export_user

_PAGE: Final = 500


def list_users(tenant: str, after: str | None, limit: int, database_url: str | None, *, as_json: bool) -> None:
    with opened(database_url) as drsai:
        users = drsai.drsai.users
        page, found = UserPage(items=[], next=after), list[UserSummary]()
        while len(found) < limit:
            page = drsai.wait_for(partial(users.list, tenant, page.next, min(limit - len(found), _PAGE)))
            found += page.items
            if page.next is None:
                break
    if as_json:
        print_json([item.model_dump() for item in found])
        return
    console = make_console()
    if not found:
        console.print(f"nothing belongs to anybody of tenant {in_line(tenant)} here", soft_wrap=True)
    for item in found:
        threads = "1 thread" if item.threads == 1 else f"{item.threads} threads"
        console.print(f"[bold]{in_line(item.user_id)}[/]  {threads}", soft_wrap=True)
    if page.next is not None:
        console.print(f"[dim]There are more; --limit shows them, or --after {in_line(page.next)}[/]", soft_wrap=True)


def delete(user_id: str, tenant: str, export: str | None, database_url: str | None, *, yes: bool) -> None:
    owner, console = Owner(tenant, user_id), make_console()
    whose = user_id if tenant == DEFAULT_TENANT else f"{user_id} of tenant {tenant}"
    if export is not None:
        _check_writable(Path(export))
    with opened(database_url) as drsai:
        users, files = drsai.drsai.users, drsai.drsai.files
        confirm(f"Delete all that belongs to {whose}: threads, keys, agents?", yes=yes)

        async def write() -> None:
            threads = await asyncio.to_thread(export_user, files, owner, Path(export or ""), CLI)
            console.print(f"exported {_many(threads, 'threads')} to {in_line(export or '')}", soft_wrap=True)

        counts = drsai.wait_for(lambda: users.delete(owner, actor=CLI, export=None if export is None else write))
    kinds = ", ".join(_many(count, kind) for kind, count in counts.items())
    console.print(f"deleted {in_line(whose)}: {kinds}", soft_wrap=True)


def _check_writable(path: Path) -> None:
    """Before keys are deleted for it. Raises InvalidRequest."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InvalidRequest(f"--export {path}: no file can be written there", param="export")


def _many(count: int, kind: str) -> str:
    words = kind.replace("_", " ")
    return f"1 {words.removesuffix('s')}" if count == 1 else f"{count} {words}"
