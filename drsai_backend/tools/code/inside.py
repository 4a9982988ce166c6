"""The part inside a sandbox with real Python is at work before and after the code: it imports nothing but the standard
library.

It gets the code by its standard input, in bubblewrap a socket, runs it as `__main__`, shows the value of the last line,
and saves open figures.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import traceback
import types
import warnings

FIGURES = 10


def limit_processes(most: int) -> None:
    """Limit processes in here, so that they are counted in this sandbox's own user namespace."""
    import resource

    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def run(source: str) -> int:
    """Run code as a program. Returns its exit code."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    names = vars(module)
    linecache.cache["main.py"] = (len(source), None, source.splitlines(keepends=True), "main.py")
    try:
        tree = ast.parse(source, "main.py")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "main.py", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "main.py", "eval"), names)
            if value is not None:
                sys.stdout.write(f"{value!r}\n")
        save_figures()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the code's.
        its_own = error.__traceback__.tb_next if error.__traceback__ is not None else None
        traceback.print_exception(type(error), error, its_own)
        return 1
    return 0


def save_figures() -> None:
    """The figures that are open at the end, as files."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        for number in list(pyplot.get_fignums())[:FIGURES]:
            pyplot.figure(number).savefig(f"figure-{number}.png")


def main() -> int:
    if int(sys.argv[1]):  # Whoever sends the code fills the work folder first.
        os.write(0, b".")
    source = sys.stdin.buffer.read().decode("utf-8", "replace")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if int(sys.argv[1]):
        limit_processes(int(sys.argv[1]))
    sys.argv[:] = ["main.py"]
    sys.path.insert(0, os.getcwd())
    warnings.filterwarnings("ignore", message=".*non-interactive.*")  # of `show`, for every plot
    return run(source)


if __name__ == "__main__":
    sys.exit(main())
