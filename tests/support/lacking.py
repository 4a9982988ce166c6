"""A process that a test starts lacks names of the standard library, as on Windows or macOS.

What is not the package's goes on working: it was imported with them, and has its own way on such a system.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
from collections.abc import Collection
from types import ModuleType
from typing import Any, NoReturn

_NOT_MACOS = ("O_PATH", "pipe2", "pidfd_open", "memfd_create", "sched_getaffinity")
_NOT_WINDOWS = (
    *_NOT_MACOS,
    *("fork", "forkpty", "killpg", "setsid", "getsid", "getpgid", "setpgid", "getuid", "geteuid", "getgid", "getegid"),
    *("fchmod", "chown", "lchown", "uname", "statvfs", "nice", "sysconf", "getloadavg", "mkfifo", "waitid", "sendfile"),
    *("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC"),
)
_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "readline", "syslog", "uvloop")
_IMPORTED_BEFORE = (
    "filelock",
    "numpy",
    "psutil",
    "tempfile",
    "rich.console",
    "multiprocessing.connection",
    "mcp.client.stdio",
)


def as_macos() -> None:
    """Take what macOS lacks of `os`, and say that this is macOS."""
    _import_others()
    _lack("os", _NOT_MACOS)
    sys.platform = "darwin"


def as_windows() -> None:
    """Take what Windows lacks. `sys.platform` stays: other packages would look for DLLs."""
    _import_others()
    _lack("os", _NOT_WINDOWS)
    _lack("signal", ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "pthread_sigmask"))
    _lack("multiprocessing.context", ("ForkProcess", "ForkContext", "ForkServerProcess"))
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(_MODULES))
    for name in ("add_signal_handler", "remove_signal_handler", "add_reader", "add_writer"):
        setattr(asyncio.SelectorEventLoop, name, _refuse)


def _import_others() -> None:
    for name in _IMPORTED_BEFORE:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)


def _lack(module: str, names: Collection[str]) -> None:
    """Whatever is imported from now on finds a copy of the module without the names."""
    has = vars(importlib.import_module(module))
    copy = sys.modules[module] = ModuleType(module)
    vars(copy).update({name: value for name, value in has.items() if name not in names})


def _refuse(*_: object) -> NoReturn:
    raise NotImplementedError
