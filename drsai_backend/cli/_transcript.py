"""An answer on the screen while it is spoken: who speaks, and what."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.markup import escape
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from drsai_backend.api.openai.speech import Piece
from drsai_backend.cli._screen import USER_COLOUR, Colours, in_line

_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)


class Transcript(Protocol):
    """Shows pieces of text as they come."""

    def answering(self) -> AbstractContextManager[None]:
        """Wraps one answer."""
        ...

    def user(self, text: str) -> None:
        """What a person said, where the terminal has not shown it."""
        ...

    def piece(self, piece: Piece) -> None: ...


def make_transcript(console: Console) -> Transcript:
    """The one that fits the console."""
    redrawable = console.is_terminal and not console.is_dumb_terminal
    return LiveTranscript(console) if redrawable else PlainTranscript(console)


class _Speaker:
    """Tells headings from text."""

    def __init__(self) -> None:
        self._name: str | None = None

    def split(self, piece: Piece) -> tuple[bool, str]:
        """Whether a message begins with this piece, and its text without the heading."""
        heading = f"**{piece.source}**\n\n"
        text = piece.text.lstrip("\n")
        if text.startswith(heading):
            self._name = piece.source
            return True, text.removeprefix(heading)
        if piece.source != self._name:
            self._name = piece.source
            return True, text
        return False, piece.text

    def forget(self) -> None:
        self._name = None


class PlainTranscript:
    """For files, pipes and terminals that cannot be redrawn: everything is printed once, as it is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._speaker = _Speaker()
        self._colours = Colours()
        self._open = False

    @contextmanager
    def answering(self) -> Generator[None]:
        self._speaker.forget()
        try:
            yield
        finally:
            self._end_line()

    def user(self, text: str) -> None:
        self._console.print(f"[bold {USER_COLOUR}]you:[/] {escape(text)}", soft_wrap=True)

    def piece(self, piece: Piece) -> None:
        begins, text = self._speaker.split(piece)
        if begins:
            self._end_line()
            self._console.print()
            colour = self._colours.of(piece.source)
            self._console.print(f"[bold {colour}]{in_line(piece.source)}:[/] ", end="", soft_wrap=True)
        self._open = True
        self._console.print(Text(text), end="", soft_wrap=True)
        self._console.file.flush()

    def _end_line(self) -> None:
        if self._open:
            self._console.print()
            self._open = False


class LiveTranscript:
    """For terminals: Markdown, block by block. The block being spoken is redrawn; when it is complete, it is printed
    for good, so that long answers scroll as they should."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._speaker = _Speaker()
        self._colours = Colours()
        self._block = _Block()
        self._live: Live | None = None
        self._printed = False

    @contextmanager
    def answering(self) -> Generator[None]:
        self._speaker.forget()
        self._block.text = ""
        self._printed = False
        # Transient: at the end the block is printed for good.
        with Live(Spinner("dots", style="dim"), console=self._console, transient=True, refresh_per_second=12) as live:
            self._live = live
            try:
                yield
            finally:
                self._flush()
                self._live = None

    def user(self, text: str) -> None:
        self._console.print(f"[bold {USER_COLOUR}]you >[/] {escape(text)}")

    def piece(self, piece: Piece) -> None:
        assert self._live is not None
        begins, text = self._speaker.split(piece)
        if begins:
            self._flush()
            colour = self._colours.of(piece.source)
            self._live.console.print(f"\n[bold {colour}]{in_line(piece.source)}[/]")
            self._printed = False
        self._block.text += text
        done, self._block.text = split_blocks(self._block.text)
        for block in done:
            self._print(block)
        self._live.update(self._block)

    def _flush(self) -> None:
        text, self._block.text = self._block.text, ""
        if text.strip():
            self._print(text)

    def _print(self, block: str) -> None:
        assert self._live is not None
        if self._printed:
            self._live.console.print()
        self._live.console.print(Markdown(block.strip("\n")))
        self._printed = True


class _Block:
    """The last lines of some Markdown, as many as the terminal is high."""

    def __init__(self) -> None:
        self.text = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.text.strip():
            return
        lines = console.render_lines(Markdown(self.text.strip("\n")), options.update(height=None), pad=False)
        for line in lines[-max(1, console.height - 2) :]:
            yield from line
            yield Segment.line()


def split_blocks(text: str) -> tuple[list[str], str]:
    """Complete Markdown blocks, and the rest: blocks end at a blank line, code at its fence."""
    done: list[str] = []
    start = position = 0
    while (end := text.find("\n\n", position)) >= 0:
        position = end + 2
        if len(_FENCE.findall(text, start, end)) % 2 == 0:
            if text[start:end].strip():
                done.append(text[start:end])
            start = position
    return done, text[start:]
