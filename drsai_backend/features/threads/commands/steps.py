"""`drsai threads steps`: what a run has done, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from drsai_backend.cli.database import owner_of, threads_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant, User
from drsai_backend.cli.screen import make_console, one_line, print_json
from drsai_backend.errors import NotFound

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.runs.steps.views import RunStep
    from drsai_backend.sync import SyncCaller

app = typer.Typer()

_SHOWN = 300
"""Characters of a text that a table shows."""


@app.command()
def steps(
    run_or_thread: Annotated[
        str, typer.Argument(metavar="RUN_OR_THREAD", help="Id of a run, or of a thread: then of its newest run.")
    ],
    user: User = "anonymous",
    tenant: Tenant = "default",
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    after: Annotated[str | None, typer.Option(metavar="PLACE", help="Those after an earlier list.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")] = 100,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what a run has done, step by step: thoughts, calls of tools with what they returned, answers."""
    with threads_of(owner_of(tenant, user), database_url) as caller:
        run_id, order = _run_of(caller, run_or_thread), "desc" if newest else "asc"
        found = caller.steps(run_id, order=order, after=after, limit=limit)
    if as_json:
        print_json([each.model_dump(mode="json") for each in found.items])
        return
    console = make_console()
    if not found.items:
        console.print(f"{one_line(run_id)} has no steps {'yet' if after is None else 'after that'}.", markup=False)
    elif console.is_terminal:
        console.print(_table(found.items))
    else:
        _print_lines(console, found.items)
    if found.next is not None:
        console.print(f"[dim]There are more: --after {found.next}[/]")


def _run_of(caller: SyncCaller, name: str) -> str:
    """The run that is named, or the newest one of the thread that is."""
    try:
        runs = caller.list_runs(name, limit=1).items
    except NotFound:
        try:
            return caller.get_run(name).run_id
        except NotFound:
            raise NotFound(f"no run or thread {name!r}") from None
    if not runs:
        raise NotFound(f"no run of thread {name!r}")
    return runs[0].run_id


def _table(steps: list[RunStep]) -> Table:
    table = Table("step", "who", "what", "came of it", "tokens", "s", header_style="bold", border_style="dim")
    for step in steps:
        what = Text()
        if step.thought:
            what.append(f"{_short(step.thought)}\n", "dim italic")
        what.append("" if step.tool is None else f"{one_line(step.tool)}({_short(step.input)})", "cyan")
        came = Text(_short(step.observation if step.text is None else step.text), "red" if step.is_error else "")
        if step.error is not None:
            came.append(f"\n{_short(step.error)}", "red")
        if not step.is_over:
            came.append("…", "yellow")
        cells = (str(step.position), one_line(step.source or ""), what, came, _tokens(step), _seconds(step))
        table.add_row(*cells)
    return table


def _print_lines(console: Console, steps: list[RunStep]) -> None:
    """A step in a few lines, for pipes: nothing is cut by the width of a screen."""
    for step in steps:
        parts = {
            "thought": step.thought,
            "call": None if step.tool is None else f"{step.tool}({step.input})",
            "error" if step.is_error and step.error is None else "result": step.observation,
            "answer": step.text,
            "ended": step.error,
        }
        console.print(f"{step.position} {one_line(step.source or '-')}", markup=False, soft_wrap=True)
        for label, text in parts.items():
            if text is not None:
                console.print(f"  {label}: {_short(text)}", markup=False, soft_wrap=True)


def _short(text: str | None) -> str:
    from drsai_backend.runs.steps.views import cut

    return one_line(" ".join(cut(text or "", _SHOWN).split()))


def _tokens(step: RunStep) -> str:
    if step.prompt_tokens is None and step.completion_tokens is None:
        return ""
    return f"{step.prompt_tokens or 0}+{step.completion_tokens or 0}"


def _seconds(step: RunStep) -> str:
    if step.started_at is None or step.finished_at is None:
        return ""
    return f"{max((step.finished_at - step.started_at).total_seconds(), 0):.1f}"
