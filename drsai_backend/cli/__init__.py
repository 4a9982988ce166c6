"""The command line is `drsai`: `app` has its commands; each module of a noun (`threads`, `keys`, …) declares and does
those on it, and `chat`, `demo`, `mcp` and `serve` do the rest."""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import Final

__all__ = ["main"]

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""No room is left for what is written, by whomever."""


def main() -> None:
    """Run the command line. An error that this package raises on purpose is a line on stderr and exit code 1, or 2
    where the words are wrong; of a definition, a line for each thing that is wrong. So is a disk without room for what
    is printed."""
    # Until `read_settings`. What is imported stays, and the garbage collector would look at it again and again: a
    # quarter of the time.
    gc.disable()
    # A pipe on Windows has a code page, in which not all can be written.
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="backslashreplace")
    from drsai_backend.cli.app import app
    from drsai_backend.cli.screen import print_error
    from drsai_backend.cli.verbs import WrongWords, print_problems
    from drsai_backend.errors import DrSaiError

    try:
        app()
    except DrSaiError as error:
        print_problems(error)
        sys.exit(2 if isinstance(error, WrongWords) else 1)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        print_error(f"the output cannot be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # What is left of it is written as the interpreter ends.
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
