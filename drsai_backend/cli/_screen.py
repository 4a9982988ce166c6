"""What all commands print with: one console for answers, one for errors, and colours for speakers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from drsai_backend.errors import InvalidRequest

SPEAKER_COLOURS: Final = ("green", "magenta", "yellow", "blue", "bright_red", "cyan")
USER_COLOUR: Final = "bright_cyan"

# What moves the cursor, changes the terminal, or makes text read otherwise than it stands: control characters but tab
# and line feed, line separators, overrides of the writing direction, lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def make_console(*, stderr: bool = False) -> Console:
    """A console that colours nothing by guessing, and has colours only where there is a terminal."""
    return _SafeConsole(stderr=stderr, highlight=False, emoji=False)


class _SafeConsole(Console):
    """Shows what a terminal would obey as JSON writes it (`\\u001b`): ids, titles, messages and errors are others'."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None and _UNSAFE.search(segment.text):
                yield Segment(visible(segment.text), segment.style)
            else:
                yield segment


def visible(text: str) -> str:
    """The same text with the characters that a terminal would obey as `\\u001b` and the like."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """A name or a title as it can stand in a line: line ends and tabs are visible, too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def in_line(text: str) -> str:
    """A name or a title in one line, as markup."""
    return escape(one_line(text))


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
    question = one_line(question)
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
