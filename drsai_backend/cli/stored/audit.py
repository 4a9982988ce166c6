"""`drsai audit`: who did what."""

from __future__ import annotations

from functools import partial
from typing import cast

from drsai_backend.cli.database import opened
from drsai_backend.cli.screen import (
    confirm,
    in_line,
    make_console,
    one_line,
    print_below,
    print_json,
    read_duration,
    when,
)
from drsai_backend.cli.stored.keys import rights_of
from drsai_backend.database.audit import AuditPage, AuditRecord
from drsai_backend.datamodel.audit import CLI, By
from drsai_backend.datamodel.owner import DEFAULT_TENANT
from drsai_backend.json_types import JsonObject

_PAGE = 500


def list_audit(
    only: JsonObject,
    after: str | None,
    limit: int,
    database_url: str | None,
    *,
    as_json: bool,
) -> None:
    """`only`: the arguments of `AuditLog.list` that say which entries."""
    with opened(database_url) as drsai:
        log = drsai.drsai.audit
        page, found = AuditPage(items=[], next=after), list[AuditRecord]()
        while len(found) < limit:
            wanted = min(limit - len(found), _PAGE)
            page = drsai.wait_for(partial(log.list, **only, after=page.next, limit=wanted))
            found += page.items
            if page.next is None:
                break
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    console = make_console()
    if not found:
        console.print("there are no such entries here")
    for item in found:
        console.print(_line(item), soft_wrap=True)
        if rest := ", ".join(_shown(name, value) for name, value in (item.detail or {}).items() if value is not None):
            print_below(console, f"[dim]{in_line(rest)}[/]")
    if page.next is not None:
        console.print(f"[dim]There are more: --after {page.next}[/]")


def _line(item: AuditRecord) -> str:
    what = f"[bold]{item.action}[/] {in_line(item.subject)}"
    whose = "" if item.owner is None else f" of {_named(item.tenant, item.owner)}"
    return f"[dim]{when(item.at)}[/]  {what}{whose} by {_who(item)}"


def _shown(name: str, value: object) -> str:
    if name == "scopes" and isinstance(value, list):
        value = rights_of([str(scope) for scope in cast("list[object]", value)])
    return f"{one_line(name)} {one_line(str(value))}"


def _who(item: AuditRecord) -> str:
    if item.by != By.USER:
        return "the command line" if item.by == By.CLI else "a program"
    who = in_line(item.actor or "somebody")
    who += f" through {in_line(item.acted_by)}" if item.acted_by is not None else ""
    return f"{who} with {in_line(item.key_id)}" if item.key_id is not None else who


def _named(tenant: str | None, user_id: str) -> str:
    return in_line(user_id) if tenant in (None, DEFAULT_TENANT) else f"{in_line(user_id)} ({in_line(tenant)})"


def prune(older_than: str, tenant: str | None, database_url: str | None, *, yes: bool) -> None:
    age = read_duration(older_than, "older_than")
    with opened(database_url) as drsai:
        whose = "all tenants" if tenant is None else f"tenant {tenant}"
        confirm(f"Delete the entries of the audit log of {whose} that are older than {older_than}?", yes=yes)
        gone = drsai.wait_for(lambda: drsai.drsai.audit.prune(age, tenant=tenant, actor=CLI))
    make_console().print(f"deleted {gone} {'entry' if gone == 1 else 'entries'}")
