"""The commands of `drsai knowledge` are here: stores of knowledge are filled, searched and emptied."""

from __future__ import annotations

import time
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import elsewhere, missing, opened, owner_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant, Yes
from drsai_backend.cli.screen import (
    confirm,
    in_line,
    make_console,
    print_below,
    print_filled,
    print_json,
    size_of,
    tell,
    warn,
    when,
    whose_name,
)
from drsai_backend.cli.verbs import Verbs
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.lazily import later

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress

    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.features.knowledge import base, keeping
    from drsai_backend.features.knowledge.base import Passage, StoreFile, StoreInfo
    from drsai_backend.features.knowledge.extension import Knowledge
    from drsai_backend.features.knowledge.keeping import Keeper
    from drsai_backend.sync import SyncDrSai
else:
    base, keeping = (later(f"drsai_backend.features.knowledge.{each}") for each in ("base", "keeping"))

app = typer.Typer(cls=Verbs, help="Keep documents that agents search.", no_args_is_help=True)

StoreName = Annotated[str, typer.Argument(metavar="STORE", help="Its name, or its id (`vs_…`).")]
OfUser = Annotated[str, typer.Option(metavar="NAME", help="Whose store.")]
Shared = Annotated[bool, typer.Option("--shared", help="The store of all users of the tenant, and of none of them.")]
_LOOK: Final = 0.2


@app.command()
def add(
    store: StoreName,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH…", help="Files, folders, patterns such as 'docs/**/*.md'.")
    ],
    user: OfUser = "anonymous",
    shared: Shared = False,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Store files, and have them read: a store that is not there is made.

    Files that are there already and have not changed are left alone; of one that has, what changed is stored anew.
    """
    owner, files = owner_of(tenant, "" if shared else user), _files_in(paths)
    with opened(database_url, must_exist=False) as drsai:
        knowledge = _working(drsai)
        there = drsai.wait_for(lambda: knowledge.ensure(owner, base.NewStore(name=store)))
        keeper = _keeper(drsai, owner, there)
        with _progress() as bar:
            task = bar.add_task("storing", total=len(files))
            stored: dict[str, str] = {}
            for name, path in files.items():
                bar.update(task, description=in_line(name)[-40:])
                if (file_id := drsai.wait_for(partial(keeper.put_file, name, path))) is not None:
                    stored[name] = file_id
                bar.advance(task)
            _wait(drsai, owner, there, bar)
        known = {each.file_id: each for each in _files(drsai, owner, there)}
    failed = {name: known[file_id] for name, file_id in stored.items() if known[file_id].status == "failed"}
    for name, file in failed.items():
        warn(f"{in_line(name)} is not read: {in_line(file.error or '')}")
    read = len(stored) - len(failed)
    text = f"{in_line(store)}: {read} of {len(files)} files read, {len(files) - len(stored)} unchanged"
    tell(text, {"store": there.store_id, "read": read, "failed": [*failed], "files": len(files)}, as_json=as_json)
    if failed:
        raise typer.Exit(1)


@app.command("list")
def list_stores(
    user: OfUser = "anonymous",
    shared: Shared = False,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those before this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List stores, newest first."""
    from drsai_backend.database.pages import Listing

    owner = owner_of(tenant, "" if shared else user)
    with opened(database_url) as drsai:
        knowledge = _knowledge(drsai)
        found = lists.read(
            lambda after, many: drsai.wait_for(lambda: knowledge.list(owner, Listing(after=after, limit=many))),
            after,
            limit,
        )
    lists.show(found, _print, as_json=as_json, empty=f"{_whose(owner)} has no stores here")


@app.command()
def search(
    store: StoreName,
    query: Annotated[str, typer.Argument(metavar="TEXT", help="What to look for.")],
    user: OfUser = "anonymous",
    shared: Shared = False,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=50, help="How many passages.")] = 5,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Search a store."""
    owner = owner_of(tenant, "" if shared else user)
    with opened(database_url) as drsai, _missing(owner):
        knowledge, question = _knowledge(drsai), base.Question(queries=[query], top_k=limit)
        found = drsai.wait_for(lambda: knowledge.search(owner, [store], question))
    if as_json:
        print_json(found)
        return
    for note in found.notes:
        warn(note)
    console = make_console()
    for passage in found.passages:
        _print_passage(console, passage)
    if not found.passages:
        console.print("nothing was found")


@app.command()
def show(
    store: StoreName,
    user: OfUser = "anonymous",
    shared: Shared = False,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a store and its files: how far they are read, or why they could not be."""
    owner = owner_of(tenant, "" if shared else user)
    with opened(database_url) as drsai, _missing(owner):
        there = _store(drsai, owner, store)
        files = _files(drsai, owner, there)
    if as_json:
        print_json({**there.model_dump(mode="json"), "files": [each.model_dump(mode="json") for each in files]})
        return
    console = make_console()
    rows = {
        "store": f"[bold]{in_line(there.name)}[/] {there.store_id}",
        "status": there.status,
        "chunks": f"{there.chunks}, {size_of(there.usage_bytes)} of text",
        "model": in_line(there.model or "none: it is searched by keywords"),
        "embedded anew by": in_line(there.embedding_anew or ""),
        "created": when(there.created_at),
        "expires": "" if there.expires_at is None else when(there.expires_at),
    }
    print_filled(console, rows)
    for file in files:
        _print_file(console, file)


@app.command()
def remove(
    store: StoreName,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE…]", help="Ids, names or paths. [default: all]")
    ] = None,
    user: OfUser = "anonymous",
    shared: Shared = False,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a store, or take files out of it. What `add` has stored of them is deleted, too."""
    from drsai_backend.datamodel.audit import CLI

    owner = owner_of(tenant, "" if shared else user)
    with opened(database_url) as drsai, _missing(owner):
        knowledge, there = _knowledge(drsai), _store(drsai, owner, store)
        keeper = _keeper(drsai, owner, there)
        all_files = _files(drsai, owner, there)
        chosen = [_named(all_files, each) for each in files or ()]
        what = (
            f"{len(chosen)} files of {there.name or there.store_id}"
            if files
            else f"the store {there.name or there.store_id}"
        )
        confirm(f"Delete {what}, of {_whose(owner)}?", yes=yes)
        for file in chosen or all_files:
            if files or base.PATH in file.attributes:
                drsai.wait_for(partial(keeper.remove, file))
        if not files:
            drsai.wait_for(lambda: knowledge.delete(owner, there.store_id, actor=CLI))
    gone = [each.file_id for each in chosen] or [there.store_id]
    tell(f"deleted {in_line(what)}", {"deleted": gone}, as_json=as_json)


@app.command()
def reindex(
    store: StoreName,
    user: OfUser = "anonymous",
    shared: Shared = False,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Embed a store anew, by the model of the settings (DRSAI_EMBEDDINGS_MODEL). It is searched as it was meanwhile."""
    owner = owner_of(tenant, "" if shared else user)
    with opened(database_url) as drsai, _missing(owner):
        there, knowledge = _store(drsai, owner, store), _working(drsai)
        drsai.wait_for(lambda: knowledge.reindex(owner, there.store_id))
        with _progress() as bar:
            task = bar.add_task("embedding", total=there.chunks)
            while (state := drsai.wait_for(lambda: knowledge.reindexing(owner, there.store_id))) is not None:
                bar.update(task, completed=state.done)
                if state.error is not None:
                    raise InvalidRequest(f"{store} is as it was: {state.error}")
                time.sleep(_LOOK)
        there = _store(drsai, owner, store)
    model = there.model or "no model: it is searched by keywords"
    tell(f"{in_line(store)} is embedded by {in_line(model)}", there, as_json=as_json)


def _knowledge(drsai: SyncDrSai) -> Knowledge:
    from drsai_backend.features.knowledge.extension import Knowledge

    return drsai.drsai.extension(Knowledge)


def _working(drsai: SyncDrSai) -> Knowledge:
    """The feature, which does its jobs in this process, too: there may be no server."""
    knowledge = _knowledge(drsai)
    drsai.wait_for(knowledge.work_here)
    return knowledge


def _store(drsai: SyncDrSai, owner: Owner, name: str) -> StoreInfo:
    knowledge = _knowledge(drsai)
    found = drsai.wait_for(lambda: knowledge.resolve(owner, [name]))[0]
    if found.shared and owner.user_id:
        raise NotFound(f"there is no vector store {name!r}; one of the tenant's is named with --shared")
    return found


def _files(drsai: SyncDrSai, owner: Owner, store: StoreInfo) -> Sequence[StoreFile]:
    knowledge = _knowledge(drsai)
    return drsai.wait_for(lambda: knowledge.every_file(owner, store.store_id))


def _keeper(drsai: SyncDrSai, owner: Owner, store: StoreInfo) -> Keeper:
    from drsai_backend.datamodel.audit import CLI

    knowledge, files = _knowledge(drsai), drsai.drsai.files
    return keeping.Keeper(knowledge=knowledge, files=files, owner=owner, store_id=store.store_id, actor=CLI)


def _files_in(paths: Sequence[str]) -> dict[str, Path]:
    """The files that paths mean, by their names below these. Raises InvalidRequest: two have the same one there."""
    found: dict[str, Path] = {}
    for name, path in chain.from_iterable(keeping.files_of(each).items() for each in paths):
        if found.setdefault(name, path).resolve() != path.resolve():
            raise InvalidRequest(f"{found[name]} and {path} have the same name: add them one by one", param="paths")
    return found


def _progress() -> Progress:
    """A progress bar on stderr, where it is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = make_console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _wait(drsai: SyncDrSai, owner: Owner, store: StoreInfo, bar: Progress) -> None:
    """Wait until all files of a store are read, by whichever process."""
    knowledge = _knowledge(drsai)
    task = bar.add_task("reading", total=None)
    while (now := drsai.wait_for(lambda: knowledge.get(owner, store.store_id))).file_counts.in_progress:
        counts = now.file_counts
        bar.update(task, total=counts.total, completed=counts.total - counts.in_progress)
        time.sleep(_LOOK)


def _named(files: Sequence[StoreFile], name: str) -> StoreFile:
    found = [each for each in files if name in (each.file_id, each.attributes.get(base.PATH))]
    found = found or [each for each in files if each.filename == name]
    if len(found) != 1:
        text = (
            f"there is no file {name!r}" if not found else f"there are {len(found)} files {name!r}: name one by its id,"
        )
        raise NotFound(f"{text} in the store")
    return found[0]


def _print(console: Console, store: StoreInfo) -> None:
    of = f"{store.file_counts.total} files, {store.chunks} chunks, {store.status}"
    console.print(f"[bold]{store.store_id}[/]  {in_line(store.name)}  {of}", soft_wrap=True)


def _print_file(console: Console, file: StoreFile) -> None:
    of = f"{file.done} of {file.chunks} chunks" if file.status == "in_progress" else f"{file.chunks} chunks"
    name = in_line(str(file.attributes.get(base.PATH, file.filename)))
    console.print(f"[bold]{file.file_id}[/]  {file.status:<11}  {of:>14}  {name}", soft_wrap=True)
    for text in filter(None, (file.error, *file.notes)):
        print_below(console, f"[dim]{in_line(text)}[/]")


def _print_passage(console: Console, passage: Passage) -> None:
    place = [in_line(str(passage.attributes.get(base.PATH, passage.filename)))]
    place += [] if passage.page is None else [f"page {passage.page}"]
    place += [in_line(" / ".join(passage.headings))] if passage.headings else []
    console.print(f"[bold]{', '.join(place)}[/]  [dim]{passage.score:.3f}[/]", soft_wrap=True)
    console.out(passage.text, highlight=False)
    console.print()


def _whose(owner: Owner) -> str:
    return in_line(whose_name(owner) if owner.user_id else f"the tenant {owner.tenant or '(all)'}")


def _missing(owner: Owner) -> AbstractContextManager[None]:
    return missing(after=f" of {_whose(owner)}{elsewhere('knowledge', owner)}")
