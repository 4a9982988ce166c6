"""The command `drsai`: `commands` says what can be typed; `audit`, `chat`, `database`, `demo`, `keys`, `serve`,
`threads` and `users` do it.

Those are imported when one of their commands runs: AutoGen, the openai client and SQLAlchemy take seconds together,
and neither the help nor the version needs them.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drsai_backend.cli import audit, chat, database, demo, keys, serve, threads, users

__all__ = ["audit", "chat", "database", "demo", "keys", "main", "serve", "threads", "users"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Run the command line. An error that this package raises on purpose is one line on stderr and exit code 1."""
    from drsai_backend.cli.commands.app import app
    from drsai_backend.cli.screen import print_error
    from drsai_backend.errors import DrSaiError

    try:
        app()
    except DrSaiError as error:
        print_error(error.message)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
