"""The commands of `drsai memory` show, find, forget and export what is remembered of a user."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import elsewhere, missing, opened, owner_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant, Yes
from drsai_backend.cli.screen import confirm, in_line, make_console, print_below, print_json, tell, when, whose_name
from drsai_backend.cli.verbs import Verbs
from drsai_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.features.memory.base import MemoryInfo, Remembered
    from drsai_backend.features.memory.extension import Memory
    from drsai_backend.sync import SyncDrSai

app = typer.Typer(cls=Verbs, help="Look at what is remembered of a user, and forget it.", no_args_is_help=True)

OfUser = Annotated[str, typer.Option(metavar="NAME", help="Of whom.")]
Shared = Annotated[bool, typer.Option("--shared", help="What all users of the tenant share.")]
MemoryId = Annotated[str, typer.Argument(metavar="MEMORY", help="`mem_…`, as `list` shows it.")]


@app.command("list")
def list_memories(
    user: OfUser = "",
    shared: Shared = False,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="N", help="Those before this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what is remembered of a user, newest first."""
    owner = _owner(tenant, user, shared=shared)
    with opened(database_url) as drsai:
        memory = _of(drsai)
        found = lists.read(
            lambda after, many: drsai.wait_for(lambda: memory.list(owner, None, after, many)), after, limit
        )
    lists.show(found, _print, as_json=as_json, empty=f"nothing is remembered of {in_line(whose_name(owner))} here")


@app.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What the memories are to be about.")],
    user: OfUser = "",
    shared: Shared = False,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="How many at most.")] = 5,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Find memories that fit a question, the best first."""
    from drsai_backend.features.memory.recall import RecallOptions
    from drsai_backend.page import Page

    owner = _owner(tenant, user, shared=shared)
    with opened(database_url) as drsai:
        memory = _of(drsai)
        found = drsai.wait_for(lambda: memory.search(owner, query, RecallOptions(top_k=limit), all_scopes=True))
    for note in found.notes:
        make_console(stderr=True).print(f"[dim]{in_line(note)}[/]", soft_wrap=True)
    lists.show(Page(items=found.items), _print_found, as_json=as_json, empty="nothing like that is remembered")


@app.command()
def show(
    memory_id: MemoryId,
    user: OfUser = "",
    shared: Shared = False,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show all versions of a memory, newest first, with the words that it was learnt from."""
    owner = _owner(tenant, user, shared=shared)
    with opened(database_url) as drsai, _missing(owner):
        found = drsai.wait_for(lambda: _of(drsai).history(owner, memory_id))
    if as_json:
        print_json([*found])
        return
    console = make_console()
    for each in found:
        _print(console, each)
        for source in each.sources:
            print_below(
                console, f'[dim]"{in_line(source.quote)}", message {source.seq} of {in_line(source.thread_id)}[/]'
            )


@app.command()
def remove(
    memory_id: Annotated[str | None, typer.Argument(metavar="[MEMORY]", help="`mem_…`, as `list` shows it.")] = None,
    user: OfUser = "",
    shared: Shared = False,
    everything: Annotated[bool, typer.Option("--all", help="All that is remembered of the user.")] = False,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget a memory with all of its versions, or all of them."""
    owner = _owner(tenant, user, shared=shared)
    if everything is (memory_id is not None):
        raise InvalidRequest("name one memory, or say --all", param="memory_id")
    with opened(database_url) as drsai, _missing(owner):
        memory = _of(drsai)
        if memory_id is None:
            confirm(f"Forget all that is remembered of {whose_name(owner)}?", yes=yes)
            gone = drsai.wait_for(lambda: memory.delete_all(owner))
            tell(f"forgot {gone} versions of memories", {"versions": gone}, as_json=as_json)
            return
        [newest, *_] = drsai.wait_for(lambda: memory.history(owner, memory_id))
        confirm(f"Forget: {newest.text}", yes=yes)
        drsai.wait_for(lambda: memory.delete(owner, memory_id))
    tell(f"forgot {in_line(memory_id)}", {"deleted": [memory_id]}, as_json=as_json)


@app.command()
def export(
    user: OfUser = "", shared: Shared = False, tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Print all that is remembered of a user as lines of JSON. `drsai users remove --export` has past versions, too."""
    owner = _owner(tenant, user, shared=shared)
    with opened(database_url) as drsai:
        memory = _of(drsai)
        for each in drsai.iterate(lambda: memory.every(owner)):
            sys.stdout.write(each.model_dump_json() + "\n")


def _of(drsai: SyncDrSai) -> Memory:
    from drsai_backend.features.memory.extension import Memory

    return drsai.drsai.extension(Memory)


def _owner(tenant: str, user: str, *, shared: bool) -> Owner:
    """Return whose memories are meant. Raises InvalidRequest: not one of the two is named."""
    if shared is bool(user):
        raise InvalidRequest("name a user, or say --shared", param="user")
    return owner_of(tenant, user)


def _print(console: Console, item: MemoryInfo) -> None:
    until = "" if item.valid_to is None else f" until {when(item.valid_to)}"
    console.print(f"[bold]{item.memory_id}[/]  {in_line(item.text)}", soft_wrap=True)
    scope = f", scope {in_line(item.scope)}" if item.scope else ""
    of = f"{item.kind} from {when(item.valid_from)}{until}, importance {item.importance:.2g}, used {item.uses} times"
    print_below(console, f"[dim]{of}{scope}[/]")


def _print_found(console: Console, item: Remembered) -> None:
    console.print(f"{item.score:.3f}  ", end="")
    _print(console, item.memory)


def _missing(owner: Owner) -> AbstractContextManager[None]:
    return missing(after=f" of {whose_name(owner)}{elsewhere('memory', owner)}")
