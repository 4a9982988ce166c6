"""The commands of `drsai agents` find what is wrong with definitions of agents and teams in files, and change, compare
and try stored ones."""

from __future__ import annotations

import contextlib
import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from uuid import uuid4

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import called, elsewhere, missing, opened, owner_of, read_settings
from drsai_backend.cli.options import AsJson, DatabaseUrl, Yes
from drsai_backend.cli.screen import (
    age,
    confirm,
    in_line,
    make_console,
    print_below,
    print_json,
    print_rows,
    tell,
    warn,
    when,
)
from drsai_backend.cli.verbs import Verbs
from drsai_backend.errors import ConfigurationError, DrSaiError, NotFound, UnknownModel
from drsai_backend.explain import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console

    from drsai_backend.caller import Caller
    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.definitions import Definitions, Problem
    from drsai_backend.definitions.source import FieldPath
    from drsai_backend.drsai import DrSai
    from drsai_backend.features.stored_definitions.calls import AgentInfo
    from drsai_backend.json_types import JsonObject
    from drsai_backend.sync import SyncCaller
    from drsai_backend.teams.context import TeamFactory

app = typer.Typer(
    cls=Verbs,
    help="Agents and teams by definition: check files of them; store, change and try them.",
    no_args_is_help=True,
)

Visibility = Literal["user", "tenant", "all"]
AgentName = Annotated[str, typer.Argument(metavar="NAME", help="What it is asked by.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A file of definitions.")]
OfTenant = Annotated[str, typer.Option(metavar="TENANT", help="Whose tenant.")]
OfUser = Annotated[str, typer.Option(metavar="NAME", help="Which user.")]
For = Annotated[Visibility, typer.Option("--for", help="For whom it is: the user, the tenant, or all.")]
ForWhom = Annotated[
    Visibility | None,
    typer.Option("--for", help="That of the user, of the tenant, or for all. Default: what the user is served."),
]
_FOR: Final = {"user": "for its user", "tenant": "for the tenant", "all": "for all"}


# --- files ------------------------------------------------------------------------------------------------------------


@app.command()
def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="YAML or JSON files of definitions.")],
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say all that is wrong with files of definitions, by file, line and field; or what each serves.

    Where there is a database, stores are looked for that agents name and that the user does not have yet.
    """
    from drsai_backend.definitions import DefinitionError, Problem, read_definitions
    from drsai_backend.definitions.files import is_of_components
    from drsai_backend.features.extensions import means_of
    from drsai_backend.teams.registry import load_teams

    wrong: list[Problem] = []
    served: dict[str, list[str]] = {}
    console = make_console(stderr=as_json)
    for file in files:
        try:
            if is_of_components(file):
                served[file] = [*load_teams(file)]
                console.print(f"{in_line(file)}: {', '.join(served[file])} (component configs)", soft_wrap=True)
                continue
            means = means_of(read_settings(require_model=False))
            found = read_definitions(file, means.python, builtin=means.builtin, mcp=means.mcp)
        except ConfigurationError as error:
            wrong += error.problems if isinstance(error, DefinitionError) else [Problem(error.message)]
        else:
            served[file] = [*found.served]
            for path, text in _missing_stores(found, owner_of(tenant, user), database_url):
                warn(in_line(str(Problem(text, path, file))))
            console.print(f"{in_line(file)}: {', '.join(found.served)}", soft_wrap=True)
    if wrong:
        raise DefinitionError(wrong)
    if as_json:
        print_json(served)


def _missing_stores(found: Definitions, owner: Owner, database_url: str | None) -> Sequence[tuple[FieldPath, str]]:
    """Return the stores that definitions name and a user does not have; none where no database can be looked at."""
    if any(each.knowledge is not None and each.knowledge.stores for each in found.agents.values()):
        with contextlib.suppress(DrSaiError), opened(database_url) as drsai:
            return drsai.wait_for(lambda: drsai.drsai.engine.agents.missing_stores(owner, found))
    return ()


@app.command()
def show(
    file: Annotated[str, typer.Argument(metavar="FILE|NAME", help="A file of definitions, or a stored one.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One agent or team of the file.")] = None,
    version: Annotated[int | None, typer.Option(min=1, help="An older version of a stored one.")] = None,
    for_whom: ForWhom = None,
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print what a file of definitions comes to, with what it includes, as JSON; or a stored definition."""
    if name is not None or not file.isidentifier():
        print_json(_written(file, name))
        return
    with called(tenant, user, database_url) as caller, _missing(owner_of(tenant, user)):
        item = caller.agents.get(file, visibility=for_whom, version=version)
    if as_json:
        print_json(item)
        return
    served = "" if item.is_served else ", not served any more"
    rows = [
        ("agent", f"[bold]{in_line(item.name)}[/]"),
        ("for", _FOR[item.visibility]),
        ("version", f"{item.version}, {when(item.created_at)} by {in_line(item.created_by)}{served}"),
    ]
    console = make_console()
    print_rows(console, rows, indent=0)
    console.out(_text(item.definition), highlight=False)


def _written(file: str, name: str | None) -> JsonObject:
    """Return what a file comes to, with all that it includes, or the part of it that has a name."""
    from drsai_backend.definitions.files import as_written
    from drsai_backend.features.extensions import means_of

    data = as_written(file, means_of(read_settings(require_model=False)))
    if name is None:
        return data
    for section in ("agents", "teams"):
        if name in data.get(section, {}):
            return data[section][name]
    raise ConfigurationError(
        f"{file} has no agent or team {name!r}: it has {', '.join([*data.get('agents', ()), *data.get('teams', ())])}"
    )


@app.command()
def schema(as_json: AsJson = False) -> None:
    """Print the JSON Schema of such files, for editors; with or without --json."""
    from drsai_backend.definitions import json_schema

    print_json(json_schema())


@app.command()
def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A YAML or JSON file of another framework's agent.")],
    format: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help="agent-entity, function-list, action-books; default: found out."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", metavar="OUT", help="A .yaml or .json file; default: stdout.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, which has no comments.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write another framework's agent as a definition. What has no place in one is named on stderr, and so are secrets,
    which are never written."""
    from drsai_backend.definitions.convert import convert_file

    if out is not None and not force and Path(out).exists():
        raise ConfigurationError(f"{out} is there already: --force replaces it")
    made = convert_file(file, format)
    is_json = as_json or (out is not None and out.endswith(".json"))
    text = made.json() if is_json else made.yaml()
    if out is None:
        make_console().out(text, end="", highlight=False)
    else:
        try:
            Path(out).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{out} cannot be written: {error.strerror}") from None
    told = make_console(stderr=True)
    for note in made.notes:
        told.print(f"[bold yellow]Note:[/] {in_line(str(note))}", soft_wrap=True)
    for name, field in made.secrets.items():
        text = f"{field} is not written: set the environment variable {name}"
        told.print(f"[bold yellow]Secret:[/] {in_line(text)}", soft_wrap=True)
    if is_json and made.profiles:  # YAML has them as comments.
        text = f"for DRSAI_MODELS: {json.dumps(made.profiles, ensure_ascii=False)}"
        told.print(f"[bold yellow]Note:[/] {in_line(text)}", soft_wrap=True)


# --- what is stored ---------------------------------------------------------------------------------------------------


@app.command("list")
def list_agents(
    for_whom: ForWhom = None,
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the stored definitions that a user may ask, by name."""
    with called(tenant, user, database_url) as caller:
        found = lists.read(
            lambda after, many: caller.agents.list(visibility=for_whom, after=after, limit=many),
            None,
            limit,
            many=100,
        )
    empty, more = "no definitions are stored here", "There are more: --limit shows them"
    lists.show(found, _print, as_json=as_json, empty=empty, more=more)


@app.command()
def apply(
    file: File,
    name: AgentName,
    for_whom: For = "user",
    check: Annotated[bool, typer.Option("--check", help="Say what is wrong, and store nothing.")] = False,
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Store an agent or team of a file, with those of the file that it needs, or another version of it."""
    definition = _document_in(file, name)
    with called(tenant, user, database_url, must_exist=False) as caller:
        stored = None if check else _stored(caller, name, for_whom)
        if stored is not None and stored.definition == definition:
            text = f"{in_line(name)} is stored as it is in {in_line(file)}, as version {stored.version}"
            tell(text, stored, as_json=as_json)
            return
        made = caller.agents.put(name, definition, visibility=for_whom, validate_only=check)
    if made is None:
        tell(f"{in_line(name)} can be stored", None, as_json=as_json)
        return
    text = f"{in_line(name)}, {_FOR[made.visibility]}, is version {made.version}; servers have it within two seconds"
    tell(text, made, as_json=as_json)


@app.command()
def diff(
    file: File,
    name: AgentName,
    for_whom: For = "user",
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what `apply` would change."""
    new = _text(_document_in(file, name)).splitlines()
    with called(tenant, user, database_url) as caller:
        item = _stored(caller, name, for_whom)
    old = [] if item is None else _text(item.definition).splitlines()
    stored = f"{name}, not stored" if item is None else f"{name}, version {item.version}"
    lines = [*difflib.unified_diff(old, new, stored, file, lineterm="")]
    if as_json:
        print_json(lines)
        return
    console = make_console()
    for line in lines:
        console.out(line, highlight=False)
    if old == new:
        console.print(f"{in_line(name)} is stored as it is in {in_line(file)}", soft_wrap=True)


@app.command()
def history(
    name: AgentName,
    for_whom: ForWhom = None,
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a stored definition, newest first."""
    with called(tenant, user, database_url) as caller, _missing(owner_of(tenant, user)):
        found = lists.read(
            lambda after, _many: caller.agents.versions(name, visibility=for_whom, after=after),
            None,
        )
    lists.show(found, _print_version, as_json=as_json)


@app.command()
def rollback(
    name: AgentName,
    to: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="As `history` shows it.")],
    for_whom: For = "user",
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Serve an older version again, which becomes a new one."""
    with called(tenant, user, database_url) as caller:
        _check_stored(caller, owner_of(tenant, user), name, for_whom)
        made = caller.agents.roll_back(name, to, visibility=for_whom)
    text = f"{in_line(name)} is version {made.version}, equal to {to}; servers have it within two seconds"
    tell(text, made, as_json=as_json)


@app.command()
def remove(
    name: AgentName,
    for_whom: For = "user",
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a stored definition. Runs that began with it end with it."""
    with called(tenant, user, database_url) as caller:
        _check_stored(caller, owner_of(tenant, user), name, for_whom)
        confirm(f"Delete the definition {name} for {for_whom}?", yes=yes)
        caller.agents.delete(name, visibility=for_whom)
    tell(f"deleted {in_line(name)}", {"deleted": [name]}, as_json=as_json)


@app.command("try")
def try_agent(
    source: Annotated[str, typer.Argument(metavar="FILE|NAME", help="A file of definitions, or a stored one.")],
    words: Annotated[list[str], typer.Argument(metavar="[NAME] MESSAGE", help="Which of a file; what to say.")],
    tenant: OfTenant = "default",
    user: OfUser = "anonymous",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Ask a definition once and print its answer. Its thread is deleted."""
    import asyncio

    from drsai_backend.datamodel.audit import By
    from drsai_backend.definitions import factories, read_definitions
    from drsai_backend.drsai import DrSai
    from drsai_backend.features.extensions import means_of

    if len(words) > 2:
        raise typer.BadParameter("put the message in quotes", param_hint="MESSAGE")
    name = words[0] if len(words) == 2 else None
    settings = read_settings(database_url=database_url)
    made: dict[str, TeamFactory] = {}
    chosen = source
    if Path(source).is_file():
        means = means_of(settings)
        made |= factories(read_definitions(source, means.python, builtin=means.builtin, mcp=means.mcp), means)
        chosen = name or next(iter(made))
        if chosen not in made:
            raise ConfigurationError(f"{source} serves no {chosen!r}: it serves {', '.join(made)}")
    elif not source.isidentifier():
        raise ConfigurationError(f"{source}: there is no such file")
    elif name is not None:
        raise ConfigurationError(f"there is no file {source}; of a stored definition, give its name alone")
    drsai = DrSai(made, settings=settings, by=By.CLI)
    text = asyncio.run(_answer(drsai, drsai.user(user, tenant=tenant), chosen, words[-1]))
    if as_json:
        print_json({"agent": chosen, "text": text})
    else:
        make_console().out(text, highlight=False)


async def _answer(drsai: DrSai, caller: Caller, team: str, message: str) -> str:
    thread_id = f"try-{uuid4().hex}"
    async with drsai:
        try:
            result = await caller.run(team, message, thread_id=thread_id)
            if result.input_request is not None:
                await caller.stop(thread_id)
                return f"it asks: {result.input_request.get('prompt', '')}"
            return result.text or ""
        except UnknownModel:
            known = await caller.agents.list(limit=100)
            near = did_you_mean(team, [each.name for each in known.items])
            raise NotFound(f"there is no agent {team!r}{near or elsewhere('agents', caller.who.owner)}") from None
        finally:
            with contextlib.suppress(NotFound):  # Nothing was stored.
                await caller.delete_thread(thread_id)


def _stored(caller: SyncCaller, name: str, visibility: Visibility) -> AgentInfo | None:
    try:
        return caller.agents.get(name, visibility=visibility)
    except NotFound:
        return None


def _check_stored(caller: SyncCaller, owner: Owner, name: str, visibility: Visibility) -> None:
    """Raise NotFound: there is none for whom the command is; the text says where the one is that `show` shows."""
    try:
        caller.agents.get(name, visibility=visibility)
    except NotFound:
        with _missing(owner):
            served = caller.agents.get(name)
        where = f"the one that is served is {_FOR[served.visibility]}: --for {served.visibility}"
        raise NotFound(f"there is no agent {name!r} {_FOR[visibility]}; {where}") from None


def _missing(owner: Owner) -> AbstractContextManager[None]:
    return missing(after=elsewhere("agents", owner))


def _document_in(file: str, name: str) -> JsonObject:
    """The part of a file that the agent or team of a name needs, as it can be stored."""
    from drsai_backend.definitions import read_definitions
    from drsai_backend.definitions.check import needed_by
    from drsai_backend.features.extensions import means_of

    means = means_of(read_settings(require_model=False))
    # What `${NAME}` stands for must not come into the database.
    found = read_definitions(file, means.python, {}, builtin=means.builtin, mcp=means.mcp)
    if name not in {**found.agents, **found.teams}:
        known = ", ".join([*found.agents, *found.teams])
        raise ConfigurationError(f"{file} has no agent or team {name!r}: it has {known}")
    data = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    data.pop("serve", None)
    needed = needed_by([name], found)
    kept = {section: {each: part for each, part in parts.items() if each in needed} for section, parts in data.items()}
    return {section: parts for section, parts in kept.items() if parts}


def _text(definition: JsonObject) -> str:
    return json.dumps(definition, ensure_ascii=False, indent=2, sort_keys=True)


def _print(console: Console, item: AgentInfo) -> None:
    of = f"{_FOR[item.visibility]}  version {item.version}, {age(item.created_at)} by {in_line(item.created_by)}"
    console.print(f"[bold]{in_line(item.name)}[/]  {of}", soft_wrap=True)
    given: JsonObject = item.definition
    part: JsonObject = given.get("agents", {}).get(item.name) or given.get("teams", {}).get(item.name) or {}
    print_below(console, f"[dim]{in_line(str(part.get('description', '')))}[/]")


def _print_version(console: Console, item: AgentInfo) -> None:
    told = "" if item.restores is None else f", as version {item.restores}"
    served = "  [green]served[/]" if item.is_served else ""
    line = f"version {item.version}  {when(item.created_at)} by {in_line(item.created_by)}{told}{served}"
    console.print(line, soft_wrap=True)
