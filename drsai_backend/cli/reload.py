"""A reload (`drsai serve --reload`) begins the server again when a file of its project changes, on the same socket.

It is stopped as by SIGTERM: live runs are handed over at their next turn boundary, and the next one resumes them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from socket import socket
from typing import Final

from uvicorn import Config
from uvicorn.supervisors.statreload import StatReload

from drsai_backend.cli import serve
from drsai_backend.cli.address import find_address, listen
from drsai_backend.cli.database import named, read_settings
from drsai_backend.cli.screen import make_console
from drsai_backend.cli.verbs import print_problems
from drsai_backend.errors import DrSaiError

_WATCHED: Final = {".py", ".yaml", ".yml", ".json", ".env"}
_PASSED: Final = ("__pycache__", "node_modules")


class _Reload(StatReload):
    """Looks at what a project is made of; uvicorn's own looks at Python alone, and into `.venv`."""

    def iter_py_files(self) -> Iterator[Path]:
        for root in self.config.reload_dirs:
            for folder, inner, files in os.walk(root):
                inner[:] = [name for name in inner if not name.startswith(".") and name not in _PASSED]
                yield from (Path(folder, name) for name in files if {Path(name).suffix, name} & _WATCHED)


def reload(options: Mapping[str, object], teams: list[str], **how: bool) -> None:
    """Serve, and serve again after each change in this folder, or in that of a file of teams, until told to stop.

    Args:
        options: of the command line, for the settings, which each server reads anew.
        teams: files and modules.
        how: the other arguments of `serve.serve`.
    """
    settings = read_settings(**options)
    folders = {str(Path(each).resolve().parent) for each in teams if Path(each).is_file()}
    # The application is the target's; uvicorn wants a name for one.
    config = Config("drsai", reload=True, reload_dirs=[os.getcwd(), *folders], log_config=None)
    sockets = [listen(settings, find_address(settings))]
    _Reload(config, partial(_serve, dict(options), teams, how), sockets).run()


def _serve(options: dict[str, object], teams: list[str], how: dict[str, bool], sockets: list[socket] | None) -> None:
    """Be one of these servers. What is wrong with the teams is told, and the next change is waited for."""
    assert sockets is not None
    if hasattr(os, "setsid"):
        os.setsid()  # A Ctrl-C in the terminal is for the one that watches.
    try:
        serve.serve(read_settings(**options), teams, listening=sockets[0], **how)
    except DrSaiError as error:
        url = options.get("database_url")
        print_problems(named(error, url if isinstance(url, str) else None))
        make_console(stderr=True).print("Waiting for a change.")
        sys.exit(1)
