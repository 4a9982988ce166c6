"""`drsai top` is a screen of what is live and what waits, read from the database alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from drsai_backend.cli.database import opened
from drsai_backend.cli.screen import make_console, one_line, print_json, whose_name
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from drsai_backend.features.all_runs.base import Board

_LATE: Final = 15.0
"""Seconds after which a heartbeat is late."""
_ROWS: Final = 200
"""Live runs that are read."""


def top(database_url: str | None, *, once: bool, as_json: bool, seconds: float) -> None:
    """Print it once, or, at a terminal, anew every few seconds until Ctrl-C."""
    console = make_console()
    with opened(database_url) as drsai:
        runs = drsai.all_runs
        if as_json:
            print_json(runs.board(_ROWS))
        elif once or not console.is_terminal:
            console.print(_screen(runs.board(_ROWS), _ROWS))
        else:
            with Live(console=console, screen=True, auto_refresh=False) as live, contextlib.suppress(KeyboardInterrupt):
                while True:
                    try:
                        shown: RenderableType = _screen(runs.board(console.height), console.height)
                    except DatabaseUnavailable as error:
                        shown = Text(f"{error.message}; it is asked again every {seconds:g} s, Ctrl-C ends", "red")
                    live.update(shown, refresh=True)
                    time.sleep(seconds)


def _screen(board: Board, height: int) -> Group:
    """The whole of it, in so many lines at most: half of them for the runs, or more."""
    waiting = ", ".join(f"{count} {status.value}" for status, count in board.waiting.items())
    head = Text.assemble((f"{board.at.astimezone():%H:%M:%S}  ", "dim"), (f"{board.live} live", "bold cyan"))
    lines = [head.append(f"  {waiting or 'nothing waits'}"), *_workers(board), *_queues(board)]
    if len(lines) > height // 2:
        lines = [*lines[: height // 2 - 1], Text("…", "dim")]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines, _runs(board, max(1, height - len(lines) - 3)))


def _workers(board: Board) -> Iterator[Text]:
    for each in board.workers:
        late = "yellow" if (board.at - each.seen_at).total_seconds() > _LATE else "dim"
        seen = f"seen {_since(board, each.seen_at)} ago"
        up = f", up {_since(board, each.since)}"
        yield Text.assemble(f"worker  {_short(each.worker)}  {each.runs} runs  ", (seen, late), (up, "dim"))
    if not board.workers:
        yield Text("no worker lives: nothing runs", "bold red")


def _queues(board: Board) -> Iterator[Text]:
    for each in board.jobs:
        oldest = f", the oldest for {_since(board, each.oldest_at)}" if each.due else ""
        yield Text(f"jobs  {one_line(each.kind)}  {each.due} to do{oldest}, {each.failed} failed", "dim")
    if board.webhooks:
        oldest = _since(board, board.webhooks_oldest_at)
        yield Text(f"webhooks  {board.webhooks} to send, the oldest for {oldest}", "yellow")


def _runs(board: Board, room: int) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("run", no_wrap=True)
    for name in ("for", "turn"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("team", "user", "worker"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1)
    for run in board.runs[:room]:
        turn = f"{run.turns + 1} {run.control or ''}".strip()
        whose = whose_name(Owner(run.tenant, run.user))
        worker = Text("nobody", "red") if run.worker is None else Text(_short(run.worker))
        cells = (one_line(run.run_id), _lasting(run.seconds), turn, one_line(run.team), one_line(whose))
        table.add_row(*map(Text, cells), worker)
    if (more := board.live - min(room, len(board.runs))) > 0:
        table.add_row(Text(f"and {more} more", "dim"))
    return table


def _short(worker: str) -> str:
    from drsai_backend.runs.recovery.leases import shown_worker

    return one_line(shown_worker(worker))


def _since(board: Board, moment: datetime | None) -> str:
    return _lasting(0 if moment is None else (board.at - moment).total_seconds())


def _lasting(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} m" if hours else f"{minutes} m {rest:02} s" if minutes else f"{rest} s"
