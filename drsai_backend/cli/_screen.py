"""What all commands print with: one console for answers, one for errors, and colours for speakers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import typer
from rich.console import Console
from rich.markup import escape

from drsai_backend.errors import InvalidRequest

SPEAKER_COLOURS: Final = ("green", "magenta", "yellow", "blue", "bright_red", "cyan")
USER_COLOUR: Final = "bright_cyan"


def make_console(*, stderr: bool = False) -> Console:
    """A console that colours nothing by guessing, and has colours only where there is a terminal."""
    return Console(stderr=stderr, highlight=False)


def print_error(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    make_console(stderr=True).print(f"[bold red]Error:[/] {escape(' '.join(message.split()))}", soft_wrap=True)


def print_rows(console: Console, rows: Sequence[tuple[str, str]], *, indent: int = 2) -> None:
    """Labels and values (markup) in two columns. Values are never broken, so that they can be copied."""
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        console.print(f"{' ' * indent}[dim]{label:<{width}}[/]  {value}", soft_wrap=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost. Without a terminal there is nobody to ask.

    Raises:
        InvalidRequest: neither `--yes` nor a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(f"{question} Nobody is here to be asked: say --yes.")
    typer.confirm(question, abort=True)


class Colours:
    """A colour for each speaker, in the order in which they appear."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {"user": USER_COLOUR}

    def of(self, speaker: str) -> str:
        if speaker not in self._known:
            self._known[speaker] = SPEAKER_COLOURS[(len(self._known) - 1) % len(SPEAKER_COLOURS)]
        return self._known[speaker]
