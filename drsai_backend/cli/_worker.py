"""`drsai worker`: runs without HTTP, in this process: background runs, those of dead processes, inputs that waited."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Final

from rich.markup import escape

from drsai_backend import jobs
from drsai_backend.cli._logging import configure_logging
from drsai_backend.cli._screen import make_console, print_rows
from drsai_backend.cli._settings import show_url
from drsai_backend.config import Settings
from drsai_backend.drsai import DrSai
from drsai_backend.teams.context import TeamFactory
from drsai_backend.teams.registry import load_teams

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def work(settings: Settings, teams: str | None) -> None:
    """Work until SIGINT or SIGTERM; then hand over what is under way. A second signal ends the process on the spot,
    and others find out by themselves.

    Raises:
        ConfigurationError: teams that cannot be read.
        DatabaseError: the database cannot be used.
    """
    configure_logging(settings)
    asyncio.run(_work(settings, None if teams is None else load_teams(teams)))


async def _work(settings: Settings, teams: dict[str, TeamFactory] | None) -> None:
    stopping = asyncio.Event()

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        make_console(stderr=True).print("Stopping; once more to stop at once.")
        stopping.set()

    drsai = DrSai(teams, settings=settings)
    async with drsai:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, stop, number)
        print_start(drsai)
        await stopping.wait()


def print_start(drsai: DrSai) -> None:
    """Say what this runs, where, and how it learns of work."""
    console = make_console()
    console.print(f"[bold]drsai_backend[/] works on [bold]{escape(show_url(drsai.database))}[/]\n", soft_wrap=True)
    rows = [("models", f"[bold green]{escape(', '.join(drsai.engine.teams.names()))}[/]")]
    if drsai.models.is_demo:
        rows.append(("answers", "[bold yellow]OFFLINE DEMO MODEL[/]: fixed rules, no language model."))
    else:
        rows.append(("answers", f"[bold]{escape(drsai.models.describe())}[/]"))
    rows.append(("does", "background runs, runs of processes that died, inputs that wait, retention"))
    if drsai.database.dialect == "sqlite":
        rows.append(("hears of it", "by looking; on PostgreSQL, other machines could take part"))
    elif jobs.available():
        rows.append(("hears of it", "by jobs in the database, shared with all other processes"))
    else:
        rows.append(("hears of it", "by looking; with the extra `postgres`, at once"))
    print_rows(console, rows)
    console.print("\n[dim]Ctrl-C stops.[/]")
