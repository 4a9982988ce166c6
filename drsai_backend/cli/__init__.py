"""The command `drsai`: `commands` says what can be typed; `stored` has a module for each group of commands on what a
database holds, and `agents`, `chat`, `database`, `demo`, `mcp` and `serve` do the rest.

Those are imported when one of their commands runs: AutoGen, the openai client and SQLAlchemy take seconds together,
and neither the help nor the version needs them.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from drsai_backend.cli import agents, chat, database, demo, mcp, serve
    from drsai_backend.cli.stored import audit, files, keys, steps, threads, tools, travel, users, webhooks

__all__ = [
    "agents",
    "audit",
    "chat",
    "database",
    "demo",
    "files",
    "keys",
    "main",
    "mcp",
    "serve",
    "steps",
    "threads",
    "tools",
    "travel",
    "users",
    "webhooks",
]

_STORED: Final = frozenset(("audit", "files", "keys", "steps", "threads", "tools", "travel", "users", "webhooks"))


def __getattr__(name: str) -> object:
    if name in __all__:
        # What is imported stays. The garbage collector would look at it again and again: a quarter of the time.
        gc.disable()
        try:
            return importlib.import_module(f"{__name__}.stored.{name}" if name in _STORED else f"{__name__}.{name}")
        finally:
            gc.freeze()
            gc.enable()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Run the command line. An error that this package raises on purpose is a line on stderr and exit code 1; of a
    definition, a line for each thing that is wrong."""
    from drsai_backend.cli.commands.app import app
    from drsai_backend.cli.screen import print_error
    from drsai_backend.errors import DrSaiError

    try:
        app()
    except DrSaiError as error:
        for each in getattr(error, "problems", (error.message,)):  # Of a definition, all that is wrong.
            print_error(str(each))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
