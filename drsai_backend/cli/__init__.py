"""The command `drsai`: `app` says what can be typed, one module per command (`_serve`, `_chat`, …) what it does.

Only `app` and `_screen` are imported to show the help or an error; each command imports what it needs when it runs.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. An error that this package raises on purpose is one line on stderr and exit code 1."""
    from drsai_backend.cli import app
    from drsai_backend.cli._screen import print_error
    from drsai_backend.errors import DrSaiError

    try:
        app.app()
    except DrSaiError as error:
        print_error(error.message)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


__all__ = ["main"]
