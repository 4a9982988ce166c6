"""The screen is what all commands print on and read from: consoles, questions, times, colours for speakers, and an
answer while it is spoken."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from drsai_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from drsai_backend.api.openai.speech import Piece
    from drsai_backend.datamodel.owner import Owner

SPEAKER_COLOURS: Final = ("green", "magenta", "yellow", "blue", "bright_red", "cyan")
STATUS_COLOURS: Final = {"running": "cyan", "awaiting_input": "yellow", "completed": "green", "error": "red"}
"""Of threads and runs; others have none."""
USER_COLOUR: Final = "bright_cyan"
_UNITS_OF_TIME: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

# What moves the cursor, changes the terminal, or makes text read otherwise than it stands: control characters but tab
# and line feed, line separators, overrides of the writing direction, lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)


def make_console(*, stderr: bool = False) -> Console:
    """A console that colours nothing by guessing, and has colours only where there is a terminal."""
    return _SafeConsole(stderr=stderr, highlight=False, emoji=False)


class _SafeConsole(Console):
    """Shows what a terminal would obey as JSON writes it (`\\u001b`): others wrote the ids, titles and messages."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_visible(segment.text), segment.style)


def _visible(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """A name or a title as it can stand in a line: control characters, line ends and tabs are visible."""
    return _visible(text).replace("\n", "\\n").replace("\t", "\\t")


def in_line(text: str) -> str:
    """A name or a title in one line, as markup."""
    return escape(one_line(text))


def print_below(console: Console, text: str) -> None:
    """Print an indented line below another one. At a terminal it is wrapped between words."""
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, 2), expand=False))
    else:
        console.print(f"  {text}", soft_wrap=True)


def whose_name(owner: Owner) -> str:
    """A user, with the tenant where it is not everybody's: `ann (acme)`."""
    name = owner.user_id or "all users"
    return name if owner.tenant == "default" else f"{name} ({owner.tenant})"


def tell(text: str, value: object, *, as_json: bool) -> None:
    """Print what was done: for people a text (markup), for programs a value."""
    if as_json:
        print_json(value)
    else:
        make_console().print(text, soft_wrap=True)


def check_output(output: str | None, what: str, *, as_json: bool) -> None:
    """Raise InvalidRequest: bytes would go to a terminal, or among what `--json` prints."""
    if output == "-" and sys.stdout.isatty():
        raise InvalidRequest(f"{what} for a terminal: say `> FILE` or --output FILE", param="output")
    if output == "-" and as_json:
        text = "--json says what was written, and the standard output gets it: name a file with --output"
        raise InvalidRequest(text, param="output")


def warn(message: str) -> None:
    """Print a line on stderr about what is done nevertheless."""
    make_console(stderr=True).print(f"[bold yellow]Warning:[/] {in_line(message)}", soft_wrap=True)


def print_error(message: str) -> None:
    """Print one line on stderr, whatever the message holds."""
    make_console(stderr=True).print(f"[bold red]Error:[/] {escape(' '.join(message.split()))}", soft_wrap=True)


def print_rows(console: Console, rows: Sequence[tuple[str, str]], *, indent: int = 2) -> None:
    """Print labels and values (markup) in two columns. Values are never broken, so that they can be copied."""
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        console.print(f"{' ' * indent}[dim]{label:<{width}}[/]  {value}", soft_wrap=True)


def print_filled(console: Console, rows: Mapping[str, str]) -> None:
    """Print labels and those values that are not empty, in two columns that begin the line."""
    print_rows(console, [(label, value) for label, value in rows.items() if value], indent=0)


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


def print_json(value: object) -> None:
    """Print what a program reads: JSON's values, and models among them."""
    make_console().out(json.dumps(value, default=_plain, ensure_ascii=False, indent=2), highlight=False)


def _plain(value: Any) -> object:
    return value.model_dump(mode="json")


def age(moment: datetime) -> str:
    """Return how long ago something was, or the day."""
    minutes = int((datetime.now(UTC) - moment).total_seconds() // 60)
    if minutes < 1:
        return "now"
    if minutes < 60:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 24 * 60 else when(moment)[:10]


def size_of(many: int) -> str:
    """A number of bytes as a person reads it: `1.5 KiB`."""
    from pydantic import ByteSize

    return ByteSize(many).human_readable(separator=" ")


def when(moment: datetime) -> str:
    """Day and minute, of this machine's time zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def in_utc(moment: datetime | None) -> datetime | None:
    """Return a moment that was typed, which is UTC unless it says an offset."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def read_duration(text: str, param: str) -> timedelta:
    """`30d`, `12h`, `2w`, `90m`. Raises InvalidRequest; `param` is the option that it was given with."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", text.strip())
    try:
        if found is not None:
            return timedelta(**{_UNITS_OF_TIME[found[2]]: float(found[1])})
    except OverflowError:
        pass
    option = param.replace("_", "-")
    raise InvalidRequest(f"--{option} {text}: a time is a number with m, h, d or w, such as 30d", param=param)


class Colours:
    """A colour for each speaker, in the order in which they appear."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {"user": USER_COLOUR}

    def of(self, speaker: str) -> str:
        return self._known.setdefault(speaker, SPEAKER_COLOURS[(len(self._known) - 1) % len(SPEAKER_COLOURS)])


class Transcript:
    """Shows answers in files, pipes and terminals that cannot be redrawn: everything is printed once, as it comes."""

    _you = "you:"

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours = Colours()
        self._speaker: str | None = None
        self._in_line = False

    @contextmanager
    def answering(self) -> Generator[None]:
        """Wraps one answer."""
        self._speaker = None
        try:
            yield
        finally:
            self._finish()

    def user(self, text: str) -> None:
        """Show what a person said, where the terminal has not shown it."""
        self._console.print(f"[bold {USER_COLOUR}]{self._you}[/] {escape(text)}", soft_wrap=True)

    def piece(self, piece: Piece) -> None:
        """Show a piece of an answer. The first of a message may begin with its speaker's heading."""
        heading = f"**{piece.source}**\n\n"
        text = piece.text.lstrip("\n")
        if text.startswith(heading) or piece.source != self._speaker:
            self._speaker = piece.source
            self._finish()
            self._begin(f"[bold {self._colours.of(piece.source)}]{in_line(piece.source)}")
            self._add(text.removeprefix(heading))
        else:
            self._add(piece.text)

    def _begin(self, speaker: str) -> None:
        self._console.print(f"\n{speaker}:[/] ", end="", soft_wrap=True)

    def _add(self, text: str) -> None:
        self._in_line = True
        self._console.print(Text(text), end="", soft_wrap=True)
        self._console.file.flush()

    def _finish(self) -> None:
        if self._in_line:
            self._console.print()
            self._in_line = False


class _LiveTranscript(Transcript):
    """Shows answers as Markdown, block by block. The block being spoken is redrawn; when it is complete, it is printed
    for good, so that long answers scroll as they should."""

    _you = "you >"

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._block = _Block()
        self._live = Live(console=console)
        self._printed = False

    @contextmanager
    def answering(self) -> Generator[None]:
        spinner = Spinner("dots", style="dim")
        # Transient: at the end the block is printed for good.
        live = Live(spinner, console=self._console, transient=True, refresh_per_second=12)
        with live as self._live, super().answering():
            yield

    def _begin(self, speaker: str) -> None:
        self._console.print(f"\n{speaker}[/]")
        self._printed = False

    def _add(self, text: str) -> None:
        done, self._block.text = _split_blocks(self._block.text + text)
        for block in done:
            self._print(block)
        self._live.update(self._block)

    def _finish(self) -> None:
        text, self._block.text = self._block.text, ""
        if text.strip():
            self._print(text)

    def _print(self, block: str) -> None:
        if self._printed:
            self._console.print()
        self._console.print(_markdown(block))
        self._printed = True


class _Block:
    """The last lines of some Markdown, as many as the terminal is high."""

    text = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.text.strip():
            return
        lines = console.render_lines(_markdown(self.text), options.update(height=None), pad=False)
        for line in lines[-max(1, console.height - 2) :]:
            yield from line
            yield Segment.line()


def _markdown(text: str) -> RenderableType:
    from rich.markdown import Markdown  # Parsers come with it, which a server has no use for.

    return Markdown(text.strip("\n"))


def _split_blocks(text: str) -> tuple[list[str], str]:
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


def make_transcript(console: Console) -> Transcript:
    """The one that fits the console."""
    return _LiveTranscript(console) if console.is_terminal and not console.is_dumb_terminal else Transcript(console)


def rights_of(scopes: Collection[str]) -> str:
    """The scopes, or the role that has just these."""
    from drsai_backend.access.principal import ROLES

    roles = [role for role, those in ROLES.items() if set(map(str, those)) == set(scopes)]
    return one_line(", ".join(roles or scopes))
