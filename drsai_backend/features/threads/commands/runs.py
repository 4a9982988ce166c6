"""The commands of `drsai runs` show and steer runs, and follow them step by step, whichever process has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from drsai_backend.cli.database import owner_of, threads_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant, User
from drsai_backend.cli.screen import (
    STATUS_COLOURS,
    in_line,
    make_console,
    one_line,
    print_filled,
    print_json,
    tell,
    when,
)
from drsai_backend.cli.verbs import Verbs
from drsai_backend.errors import Conflict, NotFound

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.runs.steps.views import RunStep
    from drsai_backend.runs.threads.views import RunView
    from drsai_backend.sync import SyncCaller

app = typer.Typer(cls=Verbs, help="Look at runs, and at what they do; end or repeat them.", no_args_is_help=True)

RunOrThread = Annotated[
    str, typer.Argument(metavar="RUN_OR_THREAD", help="Id of a run, or of a thread: then of its newest run.")
]
_UNDER_WAY: Final = "running"
_SHOWN = 300
"""Characters of a text that a table shows."""


@app.command()
def show(
    run: RunOrThread,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a run: how it stands, what it has used, why it ended. `drsai runs steps` shows what it did."""
    with threads_of(owner_of(tenant, user), database_url, "runs") as caller:
        item = _run_of(caller, run)
    if as_json:
        print_json(item)
        return
    question, usage = item.input_request or {}, item.usage or {}
    rows = {
        "run": f"[bold]{in_line(item.run_id)}[/]",
        "thread": in_line(item.thread_id),
        "team": in_line(item.team),
        "status": f"[{STATUS_COLOURS.get(item.status, 'default')}]{item.status.value}[/]",
        "created": when(item.created_at),
        "ended": "" if item.finished_at is None else when(item.finished_at),
        "turns": f"{item.turns}, in {item.seconds:.1f} s",
        "tokens": ", ".join(f"{name.removesuffix('_tokens')} {count}" for name, count in usage.items()),
        "waits for": in_line(item.queued_behind or ""),
        "joined": in_line(item.joined or ""),
        "reason": in_line(item.stop_reason or ""),
        "error": f"[red]{in_line(item.error_message or '')}[/]" if item.error_message else "",
        "asks": f"[yellow]{in_line('{source}: {prompt}'.format(**question))}[/]" if question else "",
    }
    print_filled(make_console(), rows)


@app.command()
def steps(
    run_or_thread: RunOrThread,
    user: User = "anonymous",
    tenant: Tenant = "default",
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    after: Annotated[str | None, typer.Option(metavar="PLACE", help="Those after an earlier list.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")] = 100,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what a run has done, step by step: thoughts, calls of tools with what they returned, answers."""
    with threads_of(owner_of(tenant, user), database_url, "runs") as caller:
        run_id, order = _run_of(caller, run_or_thread).run_id, "desc" if newest else "asc"
        found = caller.steps(run_id, order=order, after=after, limit=limit)
    if as_json:
        print_json(found.items)
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


@app.command()
def cancel(
    run: RunOrThread,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run, live or queued, or what a thread does or waits for. Finished turns stay."""
    with threads_of(owner_of(tenant, user), database_url, "runs") as caller:
        is_thread = _is_thread(caller, run)
        done = caller.stop(run) if is_thread else caller.cancel_run(run)
    text = "will stop in a few seconds" if done.status == _UNDER_WAY else "is stopped"
    tell(f"{in_line(run)} {text}.", done, as_json=as_json)


@app.command()
def pause(
    run: RunOrThread,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Pause a live run at its next turn boundary."""
    with threads_of(owner_of(tenant, user), database_url, "runs") as caller:
        done = caller.pause(_thread_of(caller, run))
    text = "will pause when the turn in flight is over" if done.status == _UNDER_WAY else "is paused"
    tell(f"{in_line(run)} {text}.", done, as_json=as_json)


@app.command()
def resume(
    run: RunOrThread,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Resume a paused run, in a running server or worker."""
    with threads_of(owner_of(tenant, user), database_url, "runs") as caller:
        done = caller.resume(_thread_of(caller, run))
    tell(f"{in_line(run)} is resumed: a server or a worker continues it within seconds.", done, as_json=as_json)


@app.command()
def retry(
    run: RunOrThread,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run a run that has failed again, from the turn that failed, in a running server or worker."""
    with threads_of(owner_of(tenant, user), database_url, "runs") as caller:
        done = caller.retry(_thread_of(caller, run))
    tell(f"{in_line(run)} is run again: a server or a worker continues it within seconds.", done, as_json=as_json)


def _is_thread(caller: SyncCaller, name: str) -> bool:
    try:
        caller.get_thread(name)
    except NotFound:
        return False
    return True


def _run_of(caller: SyncCaller, name: str) -> RunView:
    """The run that is named, or the newest one of the thread that is."""
    if not _is_thread(caller, name):
        try:
            return caller.get_run(name)
        except NotFound:
            raise NotFound(f"no run or thread {name!r}") from None
    if not (runs := caller.list_runs(name, limit=1).items):
        raise NotFound(f"no run of thread {name!r}")
    return runs[0]


def _thread_of(caller: SyncCaller, name: str) -> str:
    """The thread that is named, or that of the run that is, whose newest run it must be: what a thread does is steered.

    Raises:
        NotFound: there is neither.
        Conflict: the thread has run again since.
    """
    run = _run_of(caller, name)
    if name not in (run.thread_id, caller.list_runs(run.thread_id, limit=1).items[0].run_id):
        raise Conflict(f"thread {run.thread_id!r} has run again since {name}: that is over")
    return run.thread_id


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
