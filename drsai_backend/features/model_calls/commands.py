"""The commands `drsai runs calls | replay | forget` are about what models were sent: looked at, sent again, deleted."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import missing, opened, owner_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Yes
from drsai_backend.cli.screen import confirm, in_line, make_console, print_json, read_duration, tell, when
from drsai_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.features.model_calls.base import ModelCall
    from drsai_backend.features.model_calls.extension import ModelCalls
    from drsai_backend.sync import SyncDrSai

app = typer.Typer()

RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, whoever's it is.")]


@app.command("calls")
def show_calls(
    run: RunId,
    call: Annotated[str | None, typer.Argument(metavar="[CALL]", help="Show this one, as JSON.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="CALL", help="Those behind this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the model calls of a run, or show what a model was sent in one and has answered, where that is kept."""
    with _calls_of(run, database_url) as (drsai, calls, owner):
        if call is not None:
            print_json(drsai.wait_for(lambda: calls.get(owner, run, call)))
            return
        found = lists.read(
            lambda place, many: drsai.wait_for(lambda: calls.list(owner, run, place, many)), after, limit
        )
    lists.show(found, _print, as_json=as_json, empty=f"{in_line(run)} has no model calls that were answered")


@app.command()
def replay(
    run: RunId,
    call: Annotated[str, typer.Argument(metavar="CALL", help="Whose request is sent again: `1-2`.")],
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A profile or a model. [default: that which has answered]")
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="Another system message.")] = None,
    prompt: Annotated[Path | None, typer.Option(metavar="FILE", help="A file that has it.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Send the kept request of a model call again, and print the new answer beside the old one.

    No tool is executed, and nothing is stored but what the call has used.
    """
    from rich.table import Table
    from rich.text import Text

    if prompt is not None:
        try:
            system = prompt.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"--prompt {prompt} cannot be read: {error}") from None
    with _calls_of(run, database_url) as (drsai, calls, owner):
        kept = drsai.wait_for(lambda: calls.get(owner, run, call))
        done = drsai.wait_for(lambda: calls.replay(kept, owner, model, system))
    if as_json:
        print_json({**done, "call": kept})
        return
    both = {"then": (kept.model, kept.answer), "now": (done["model"], done["answer"])}
    table = Table(*(f"{moment}: {in_line(name or '-')}" for moment, (name, _) in both.items()), border_style="dim")
    table.add_row(*(Text(_said(answer["content"])) for _, answer in both.values()))
    make_console().print(table)


@app.command()
def forget(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Of calls that are older: `90d`, `0d` is all.")],
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete what models were sent and have answered, of all users. The calls stay listed, and so does their usage."""
    age = read_duration(older_than, "older_than")
    with opened(database_url) as drsai:
        confirm(f"Delete what is kept of the model calls that are older than {older_than}?", yes=yes)
        deleted = drsai.wait_for(lambda: _of(drsai).prune(age))
    tell(f"deleted what was kept of {deleted} calls", {"deleted": deleted}, as_json=as_json)


@contextmanager
def _calls_of(run: str, database_url: str | None) -> Generator[tuple[SyncDrSai, ModelCalls, Owner]]:
    """Give the calls of a run, and whose it is."""
    with opened(database_url) as drsai, missing(after=" here; `drsai runs list --all-users` shows the runs there are"):
        found = drsai.all_runs.get(run)
        yield drsai, _of(drsai), owner_of(found.tenant, found.user)


def _of(drsai: SyncDrSai) -> ModelCalls:
    from drsai_backend.features.model_calls.extension import ModelCalls

    return drsai.drsai.extension(ModelCalls)


def _print(console: Console, item: ModelCall) -> None:
    who = f"{item.agent or '-'}{f' ({item.tool})' if item.tool else ''}  {item.model or '-'}"
    used = f"{item.prompt_tokens}+{item.completion_tokens} tokens in {item.seconds:.1f} s"
    line = f"[bold]{item.call_id}[/]  {in_line(who)}  {used}  {when(item.created_at)}"
    console.print(f"{line}  {'[green]kept[/]' if item.is_kept else '[dim]not kept[/]'}", soft_wrap=True)


def _said(content: Any) -> str:
    """The words of an answer, or the calls of tools that it is."""
    calls = [content] if isinstance(content, str) else [f"{each['name']}({each['arguments']})" for each in content]
    return "\n".join(calls)
