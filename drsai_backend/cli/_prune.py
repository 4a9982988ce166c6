"""`drsai threads prune`: delete what nobody has touched for long."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Any, Final

from drsai_backend.cli._screen import confirm, in_line, make_console
from drsai_backend.cli._threads import open_manager
from drsai_backend.database import retention
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import InvalidRequest

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def prune(
    older_than: str, status: str, user_id: str | None, database_url: str | None, *, dry_run: bool, yes: bool
) -> None:
    """Delete threads in batches, each in a transaction of its own.

    Raises:
        InvalidRequest: no such age or status; or neither `yes` nor a terminal.
    """
    chosen: dict[str, Any] = {
        "older_than": read_age(older_than),
        "statuses": _read_statuses(status),
        "user_id": user_id,
    }
    console = make_console()
    with open_manager(database_url) as db:
        count = db.database.read_sync(partial(retention.count_prunable, **chosen))
        whose = "all users" if user_id is None else user_id
        if dry_run or count == 0:
            console.print(f"{_threads(count)} of {in_line(whose)} to delete", soft_wrap=True)
            return
        confirm(f"Delete {_threads(count)} of {whose}?", yes=yes)
        deleted = 0
        while batch := db.database.write_sync(partial(retention.prune, **chosen)):
            deleted += batch
    console.print(f"deleted {_threads(deleted)} of {in_line(whose)}", soft_wrap=True)


def read_age(text: str) -> timedelta:
    """`30d`, `12h`, `2w`, `90m`. Raises `InvalidRequest` for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", text.strip())
    try:
        if found is not None:
            return timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        pass
    raise InvalidRequest(f"--older-than {text}: an age is a number with m, h, d or w, such as 30d", param="older_than")


def _read_statuses(text: str) -> list[RunStatus]:
    known = [status.value for status in RunStatus]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InvalidRequest(f"--status {name!r}: there is {', '.join(known)}", param="status")
    return [RunStatus(name) for name in names]


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
