"""Make docs/demo.svg: what a terminal shows of `drsai demo`. Run it by `make demo-svg`.

The demo runs in a terminal of its own and really kills a process. What it prints is drawn as it stands; ⋮ marks lines
that are left out.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

PICTURE = Path(__file__).with_name("demo.svg")
COLUMNS, LINES = 92, 200
_COLOURS = {"brown": "yellow"}
# The last ones rich believes more than the terminal.
_NOT_PASSED_ON = ("DRSAI_", "OPENAI_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_")


def record() -> list[Text]:
    """Run the demo to its end. Returns the lines that are then on its screen."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "", "DRSAI_DEMO_DELAY": "0.01"}
    command = [sys.executable, "-m", "drsai_backend", "demo"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as demo:
        os.close(theirs)
        while data := _read(ours):
            stream.feed(data)
    os.close(ours)
    if demo.returncode != 0:
        raise SystemExit("\n".join(line.rstrip() for line in screen.display))
    return [_line(screen.buffer[number]) for number in range(LINES)]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # On Linux: nobody has the terminal open any more.
        return b""


def _line(cells: Any) -> Text:
    line = Text()
    for (colour, bold), alike in groupby((cells[n] for n in range(COLUMNS)), lambda cell: (cell.fg, cell.bold)):
        colour = None if colour == "default" else _COLOURS.get(colour, re.sub("^bright", "bright_", colour))
        line.append("".join(cell.data for cell in alike), Style(color=colour, bold=bold))
    line.rstrip()
    return line


def chosen(lines: list[Text]) -> list[Text]:
    """What the picture shows: the first process and its kill, the first words of the second one, and the end."""
    plain = [line.plain for line in lines]
    blank = [number for number, text in enumerate(plain) if not text]
    titles = [number for number, text in enumerate(plain) if re.match(r"\d  .* ─+$", text)]
    spoken = next(number for number in range(titles[2], LINES) if plain[number].startswith("reviewer"))
    last = max(number for number, text in enumerate(plain) if text)
    end = max(number for number in blank if number < last)
    parts = (
        range(titles[0], titles[1]),
        range(titles[2], next(number for number in blank if number > spoken) + 1),
        range(end, last + 1),
    )
    picture: list[Text] = []
    for part in parts:
        if picture:
            picture += [Text("⋮"), Text()]
        picture += [lines[number] for number in part if plain[number] or plain[number - 1]]
    return picture


def main() -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for line in chosen(record()):
        console.print(line, no_wrap=True, overflow="crop", crop=False)
    picture = console.export_svg(title="drsai demo")
    # Its font would be loaded from elsewhere, which those who show the picture do not allow.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    PICTURE.write_text(picture.replace("Fira Code", "ui-monospace, Menlo, Consolas"), encoding="utf-8")


if __name__ == "__main__":
    main()
