"""`drsai agents`: the stored definitions of agents and teams are listed, applied, compared, rolled back and tried."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
from pathlib import Path
from uuid import uuid4

from drsai_backend.cli.database import opened, read_settings
from drsai_backend.cli.screen import age, confirm, in_line, make_console, print_below, print_json, print_rows, when
from drsai_backend.datamodel.audit import By
from drsai_backend.definitions import Means, factories, read_definitions
from drsai_backend.definitions.check import needed_by
from drsai_backend.definitions.stored.calls import AgentInfo, AgentInfoPage
from drsai_backend.definitions.stored.store import Visibility
from drsai_backend.drsai import DrSai
from drsai_backend.errors import ConfigurationError, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.sync import SyncDrSai
from drsai_backend.teams.context import TeamFactory

_PAGE = 100
_FOR: dict[Visibility, str] = {"user": "for its user", "tenant": "for the tenant", "all": "for all"}


def list_agents(
    tenant: str,
    user_id: str,
    visibility: Visibility | None,
    limit: int,
    database_url: str | None,
    *,
    as_json: bool,
) -> None:
    with opened(database_url) as drsai:
        page, found = AgentInfoPage(items=[]), list[AgentInfo]()
        while len(found) < limit:
            whose = {"user_id": user_id, "tenant": tenant}
            many = min(limit - len(found), _PAGE)
            page = drsai.agents.list(visibility=visibility, after=page.next, limit=many, **whose)
            found += page.items
            if page.next is None:
                break
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    console = make_console()
    if not found:
        console.print("no definitions are stored here")
    for item in found:
        of = f"{_for(item)}  version {item.version}, {age(item.created_at)} by {in_line(item.created_by)}"
        console.print(f"[bold]{in_line(item.name)}[/]  {of}", soft_wrap=True)
        print_below(console, f"[dim]{in_line(_description(item))}[/]")
    if page.next is not None:
        console.print("[dim]There are more: --limit shows them[/]")


def show(
    name: str,
    tenant: str,
    user_id: str,
    visibility: Visibility | None,
    version: int | None,
    database_url: str | None,
    *,
    as_json: bool,
) -> None:
    with opened(database_url) as drsai:
        item = drsai.agents.get(name, visibility=visibility, version=version, user_id=user_id, tenant=tenant)
    if as_json:
        print_json(item.model_dump(mode="json"))
        return
    console = make_console()
    print_rows(console, _rows(item), indent=0)
    console.out(_text(item.definition), highlight=False)


def apply(
    file: str, name: str, tenant: str, user_id: str, visibility: Visibility, database_url: str | None, *, check: bool
) -> None:
    definition = document_in(file, name)
    with opened(database_url, must_exist=False) as drsai:
        made = drsai.agents.put(
            name, definition, visibility=visibility, validate_only=check, user_id=user_id, tenant=tenant
        )
    if made is None:
        make_console().print(f"{in_line(name)} can be stored")
        return
    text = f"{in_line(name)}, {_for(made)}, is version {made.version}; servers have it within two seconds"
    make_console().print(text, soft_wrap=True)


def diff(file: str, name: str, tenant: str, user_id: str, visibility: Visibility, database_url: str | None) -> None:
    new = _text(document_in(file, name)).splitlines()
    old: list[str] = []
    stored = f"{name}, not stored"
    with opened(database_url) as drsai:
        try:
            item = drsai.agents.get(name, visibility=visibility, user_id=user_id, tenant=tenant)
            old, stored = _text(item.definition).splitlines(), f"{name}, version {item.version}"
        except NotFound:
            pass
    console = make_console()
    for line in difflib.unified_diff(old, new, stored, file, lineterm=""):
        console.out(line, highlight=False)
    if old == new:
        console.print(f"{in_line(name)} is stored as it is in {in_line(file)}", soft_wrap=True)


def history(
    name: str, tenant: str, user_id: str, visibility: Visibility | None, database_url: str | None, *, as_json: bool
) -> None:
    with opened(database_url) as drsai:
        found, after = list[AgentInfo](), None
        while True:
            page = drsai.agents.versions(name, visibility=visibility, user_id=user_id, tenant=tenant, after=after)
            found += page.items
            after = page.next
            if after is None:
                break
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    console = make_console()
    for item in found:
        told = "" if item.restores is None else f", as version {item.restores}"
        served = "  [green]served[/]" if item.is_served else ""
        line = f"version {item.version}  {when(item.created_at)} by {in_line(item.created_by)}{told}{served}"
        console.print(line, soft_wrap=True)


def rollback(name: str, to: int, tenant: str, user_id: str, visibility: Visibility, database_url: str | None) -> None:
    with opened(database_url) as drsai:
        _check_stored(drsai, name, tenant, user_id, visibility)
        made = drsai.agents.roll_back(name, to, visibility=visibility, user_id=user_id, tenant=tenant)
    text = f"{in_line(name)} is version {made.version}, equal to {to}; servers have it within two seconds"
    make_console().print(text, soft_wrap=True)


def delete(
    name: str, tenant: str, user_id: str, visibility: Visibility, database_url: str | None, *, yes: bool
) -> None:
    with opened(database_url) as drsai:
        _check_stored(drsai, name, tenant, user_id, visibility)
        confirm(f"Delete the definition {name} for {visibility}?", yes=yes)
        drsai.agents.delete(name, visibility=visibility, user_id=user_id, tenant=tenant)
    make_console().print(f"deleted {in_line(name)}")


def _check_stored(drsai: SyncDrSai, name: str, tenant: str, user_id: str, visibility: Visibility) -> None:
    """Raises NotFound: there is none for whom the command is; the text says where the one is that `show` shows."""
    try:
        drsai.agents.get(name, visibility=visibility, user_id=user_id, tenant=tenant)
    except NotFound:
        served = drsai.agents.get(name, user_id=user_id, tenant=tenant)
        where = f"the one that is served is {_for(served)}: --for {served.visibility}"
        raise NotFound(f"there is no agent {name!r} {_FOR[visibility]}; {where}") from None


def try_agent(source: str, name: str | None, message: str, tenant: str, user_id: str, database_url: str | None) -> None:
    """Ask a definition of a file (`source`, `name`), or a stored one (`source`), once; its thread is deleted."""
    settings = read_settings(database_url=database_url)
    made: dict[str, TeamFactory] = {}
    chosen = source
    if Path(source).is_file():
        means = Means.of(settings)
        made |= factories(read_definitions(source, means.python), means)
        chosen = name or next(iter(made))
        if chosen not in made:
            raise ConfigurationError(f"{source} serves no {chosen!r}: it serves {', '.join(made)}")
    elif not source.isidentifier():
        raise ConfigurationError(f"{source}: there is no such file")
    elif name is not None:
        raise ConfigurationError(f"there is no file {source}; of a stored definition, give its name alone")
    text = asyncio.run(_answer(DrSai(made, settings=settings, by=By.CLI), chosen, message, user_id, tenant))
    make_console().out(text, highlight=False)


async def _answer(drsai: DrSai, team: str, message: str, user_id: str, tenant: str) -> str:
    thread_id = f"try-{uuid4().hex}"
    async with drsai:
        try:
            result = await drsai.run(team, message, thread_id=thread_id, user_id=user_id, tenant=tenant)
            if result.input_request is not None:
                await drsai.stop(user_id, thread_id, tenant=tenant)
                return f"it asks: {result.input_request.get('prompt', '')}"
            return result.text or ""
        finally:
            with contextlib.suppress(NotFound):  # Nothing was stored.
                await drsai.delete_thread(user_id, thread_id, tenant=tenant)


def document_in(file: str, name: str) -> JsonObject:
    """The part of a file that the agent or team of a name needs, as it can be stored."""
    means = Means.of(read_settings(require_model=False))
    # What `${NAME}` stands for must not come into the database.
    found = read_definitions(file, means.python, {})
    if name not in {**found.agents, **found.teams}:
        known = ", ".join([*found.agents, *found.teams])
        raise ConfigurationError(f"{file} has no agent or team {name!r}: it has {known}")
    data = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    data.pop("serve", None)
    needed = needed_by(name, found)
    kept = {section: {each: part for each, part in parts.items() if each in needed} for section, parts in data.items()}
    return {section: parts for section, parts in kept.items() if parts}


def _text(definition: JsonObject) -> str:
    return json.dumps(definition, ensure_ascii=False, indent=2, sort_keys=True)


def _rows(item: AgentInfo) -> list[tuple[str, str]]:
    served = "" if item.is_served else ", not served any more"
    return [
        ("agent", f"[bold]{in_line(item.name)}[/]"),
        ("for", _for(item)),
        ("version", f"{item.version}, {when(item.created_at)} by {in_line(item.created_by)}{served}"),
    ]


def _for(item: AgentInfo) -> str:
    return _FOR[item.visibility]


def _description(item: AgentInfo) -> str:
    given: JsonObject = item.definition
    part: JsonObject = given.get("agents", {}).get(item.name) or given.get("teams", {}).get(item.name) or {}
    return str(part.get("description", ""))
