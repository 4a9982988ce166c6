"""Real Python in bubblewrap: what it does for its model, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from drsai_backend.tools.code import CodeLimits, CodeResult
from drsai_backend.tools.code.bubblewrap import BubblewrapSandbox
from tests.tools.code.conftest import MARK

LIMITS = CodeLimits(seconds=40, memory=512 << 20, disk=8 << 20, files=200, output=2000, processes=16)


async def run(sandbox: BubblewrapSandbox, code: str, limits: CodeLimits = LIMITS, key: str = "a") -> CodeResult:
    async with sandbox.folders.held(key, 1) as folder:
        return await sandbox.run(code, folder, limits)


async def test_what_is_printed_and_the_last_value_come_back(bubblewrap: BubblewrapSandbox) -> None:
    result = await run(bubblewrap, "import fractions, sys\nprint('é', file=sys.stderr)\nfractions.Fraction(3, 6)")
    assert (result.stdout, result.stderr, result.exit_code) == ("Fraction(1, 2)\n", "é\n", 0)


async def test_an_error_is_shown_with_its_line(bubblewrap: BubblewrapSandbox) -> None:
    result = await run(bubblewrap, "def f(n):\n    return 1 / n\nf(0)")
    assert result.exit_code == 1
    assert "return 1 / n" in result.stderr
    assert "inside" not in result.stderr
    assert (await run(bubblewrap, "import sys\nsys.exit(3)")).exit_code == 3
    assert "SyntaxError" in (await run(bubblewrap, "def")).stderr


async def test_files_stay_for_the_next_call_and_new_ones_are_handed_out(bubblewrap: BubblewrapSandbox) -> None:
    first = await run(bubblewrap, "import os\nos.mkdir('d')\nopen('d/a.txt', 'w').write('one')\nopen('b', 'w').close()")
    assert {file.name: file.data for file in first.files} == {"d/a.txt": b"one", "b": b""}
    second = await run(bubblewrap, "print(open('d/a.txt').read())\nopen('b', 'w').write('two')")
    assert second.stdout == "one\n3\n"
    assert {file.name: file.data for file in second.files} == {"b": b"two"}
    assert (await run(bubblewrap, "import os\nos.listdir()", key="b")).stdout == "[]\n"
    helper = "open('helper.py', 'w').write('def f(): return 5')\nimport helper\nhelper.f()"
    assert (await run(bubblewrap, helper)).stdout == "5\n"


async def test_open_figures_become_files(bubblewrap: BubblewrapSandbox) -> None:
    plots = "\n".join(
        (
            "import os, sys, types",
            "pyplot = types.ModuleType('matplotlib.pyplot')",
            "pyplot.get_fignums = lambda: [1, 2]",
            "save = lambda name: open(name, 'wb').write(os.environ['MPLBACKEND'].encode())",
            "pyplot.figure = lambda number: types.SimpleNamespace(savefig=save)",
            "sys.modules['matplotlib.pyplot'] = pyplot",
        )
    )
    result = await run(bubblewrap, plots)
    assert [(file.name, file.data) for file in result.files] == [("figure-1.png", b"Agg"), ("figure-2.png", b"Agg")]


async def test_files_that_are_too_many_or_too_large_are_named(bubblewrap: BubblewrapSandbox) -> None:
    limits = CodeLimits(kept_files=2, kept_bytes=100)
    write = "for name, size in (('a', 60), ('b', 60), ('c', 30), ('d', 1)):\n    open(name, 'w').write('x' * size)"
    result = await run(bubblewrap, write, limits)
    assert [file.name for file in result.files] == ["a", "c"]
    assert "b, d" in result.notes[0]


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    pass",
        "import time\ntime.sleep(100)",
        "import signal, time\nfor each in (1, 2, 3, 15):\n    signal.signal(each, signal.SIG_IGN)\ntime.sleep(100)",
        # A daemon, out of its session and with a pipe of ours in its hands; its parent waits.
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(100)\nelse:\n"
        "    time.sleep(100)",
    ],
)
async def test_what_does_not_end_is_killed_with_all_it_has_started(bubblewrap: BubblewrapSandbox, code: str) -> None:
    began = time.monotonic()
    result = await run(bubblewrap, code, CodeLimits(seconds=0.4))
    assert time.monotonic() - began < 15
    assert "stopped after 0.4 seconds" in result.stopped
    assert result.exit_code is None
    assert not in_sandboxes(bubblewrap.folders.root)


async def test_a_daemon_ends_with_the_code_that_has_started_it(bubblewrap: BubblewrapSandbox) -> None:
    daemon = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(100)\n"
        "    os._exit(0)"
    )
    result = await run(bubblewrap, daemon + "\nprint('done')")
    assert (result.stdout, result.exit_code) == ("done\n", 0)
    assert not in_sandboxes(bubblewrap.folders.root)


async def test_a_call_that_is_cancelled_leaves_nothing(bubblewrap: BubblewrapSandbox) -> None:
    await run(bubblewrap, "1")
    open_before = len(os.listdir("/proc/self/fd"))
    task = asyncio.create_task(run(bubblewrap, "import os\nos.fork()\nopen('up', 'w')\nwhile True:\n    pass"))
    await until(lambda: is_up(bubblewrap.folders.root))
    assert in_sandboxes(bubblewrap.folders.root)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not in_sandboxes(bubblewrap.folders.root)
    assert (await run(bubblewrap, "1 + 1")).stdout == "2\n"
    await until(lambda: len(os.listdir("/proc/self/fd")) <= open_before)


async def test_a_server_that_is_killed_leaves_nothing(bubblewrap: BubblewrapSandbox, root: Path) -> None:
    code = (
        "import asyncio, sys, pathlib\n"
        "from drsai_backend.tools.code.base import CodeLimits\n"
        "from drsai_backend.tools.code.bubblewrap import _ENVIRONMENT, BubblewrapSandbox\n"
        "from drsai_backend.tools.code.folders import WorkFolders\n"
        f"_ENVIRONMENT[{MARK!r}] = sys.argv[1]\n"
        "async def main():\n"
        "    sandbox = BubblewrapSandbox(WorkFolders(pathlib.Path(sys.argv[1])))\n"
        "    assert await sandbox.probe() is None\n"
        "    code = \"import os, time\\nos.setsid() if os.fork() == 0 else 0\\nopen('up', 'w')\\ntime.sleep(100)\"\n"
        "    async with sandbox.folders.held('k', 1) as folder:\n"
        "        await sandbox.run(code, folder, CodeLimits(seconds=60))\n"
        "asyncio.run(main())\n"
    )
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(root))
    await until(lambda: is_up(root))
    assert in_sandboxes(bubblewrap.folders.root)
    os.kill(server.pid, signal.SIGKILL)
    await server.wait()
    await until(lambda: not in_sandboxes(root))
    # Its lock has ended with it.
    assert (await run(bubblewrap, "1 + 1", key="k")).stdout == "2\n"


async def until(true: Callable[[], object]) -> None:
    """Wait for what no event tells of."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def in_sandboxes(root: Path) -> list[int]:
    """Living processes in the sandboxes of a test."""
    found = list[int]()
    for process in psutil.process_iter():
        try:
            is_marked = f"{MARK}={root}\0".encode() in Path(f"/proc/{process.pid}/environ").read_bytes()
            if is_marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (OSError, psutil.Error):
            continue
    return found


def is_up(root: Path) -> bool:
    """Whether code in a sandbox has made its file `up`."""
    return any(Path(f"/proc/{pid}/root/mnt/data/up").exists() for pid in in_sandboxes(root))


async def test_what_is_put_into_a_folder_is_read_only_in_every_call(bubblewrap: BubblewrapSandbox) -> None:
    """Code may make another file of the name, and finds the user's again in the next call."""
    change = "open('a.csv').read(), open('b.txt', 'w').write('b') and os.rename('b.txt', 'a.csv')"
    refused = "open('a.csv', 'w')"
    async with bubblewrap.folders.held("k", 5) as folder:
        for expected in (["a.csv"], []):
            new = await bubblewrap.folders.put({"a.csv": b"1,2", "x" * 300: b"too long"}, folder)
            assert new == expected
            result = await bubblewrap.run(refused, folder, CodeLimits())
            assert "PermissionError" in result.stderr
            assert not result.files, "what the user has sent is no result"
            result = await bubblewrap.run(f"import os\n{change}", folder, CodeLimits())
            assert (result.stdout.strip(), [file.data for file in result.files]) == ("('1,2', None)", [b"b"])
        await bubblewrap.run("import os\nos.remove('a.csv'); os.mkdir('a.csv')", folder, CodeLimits())
        assert await bubblewrap.folders.put({"a.csv": b"1,2"}, folder) == []
        assert (folder / "a.csv").is_dir()
