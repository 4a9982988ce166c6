"""Attempts to get out of bubblewrap, to see what is outside, and to use more than is given."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from drsai_backend.tools.code import CodeLimits, tree
from drsai_backend.tools.code.bubblewrap import BubblewrapSandbox
from tests.tools.code.test_bubblewrap import LIMITS, in_sandboxes, run

# One Python starts for all of these. What is refused, or not there, is not shown.
TRIED = """
import ctypes, errno, os, resource, signal, socket, stat, subprocess

def attempt(function, *given):
    try:
        return function(*given)
    except (OSError, ValueError) as error:
        return "refused"

libc = ctypes.CDLL(None, use_errno=True)

def call(*given):
    return "done" if libc.syscall(*given) >= 0 else errno.errorcode[ctypes.get_errno()]

found = {}
for path in ("/etc/shadow", "/etc/passwd", "/root", "/home", "/proc/1/root/etc/shadow", "/sys", "/var", "/run", "/opt"):
    found[path] = os.path.exists(path)
for path in ("/a", "/usr/a", "/etc/a", "/dev/a", "/bin/a", "../a", "/proc/sys/kernel/core_pattern"):
    found[path] = attempt(open, path, "w")
found["environment"] = [
    name for pid in ("1", "self") for name in open(f"/proc/{pid}/environ").read().split("\\0") if "SECRET" in name
]
found["arguments"] = "/root/" in open("/proc/1/cmdline").read()
found["files"] = sorted(
    os.readlink(f"/proc/self/fd/{each}").split(":")[0] for each in ("0", "1", "2")
) + [each for each in os.listdir("/proc/self/fd") if int(each) > 3]
found["devices"] = sorted(set(os.listdir("/dev")) - {"core", "fd", "full", "null", "ptmx", "pts", "random", "shm",
                                                    "stderr", "stdin", "stdout", "tty", "urandom", "zero"})
found["sockets"] = [f for f in range(1, 46) if attempt(socket.socket, f, socket.SOCK_STREAM) != "refused"]
found["terminal"] = attempt(open, "/dev/tty")
found["parent"] = [attempt(os.kill, pid, signal.SIGKILL) for pid in (os.getppid(), 1)] and os.path.exists("/proc/1")
found["root"] = [attempt(os.setuid, 0), attempt(os.setgid, 0), attempt(os.chroot, "/tmp"), attempt(os.chown, ".", 0, 0)]
found["oom"] = attempt(lambda: open("/proc/self/oom_score_adj", "w").write("0"))
found["link"] = attempt(os.link, "/usr/bin/env", "env")
found["device"] = attempt(os.mknod, "disk", stat.S_IFBLK | 0o600, os.makedev(254, 0))
for name in ("AS", "FSIZE", "NPROC", "NOFILE", "CPU"):
    found[name] = attempt(resource.setrlimit, getattr(resource, "RLIMIT_" + name), (resource.RLIM_INFINITY,) * 2)
for pid in ("1", "self"):  # The first process has no more than the others: who writes into its memory gains nothing.
    for line in open(f"/proc/{pid}/status"):
        if line.split(":")[0] in ("CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"):
            found[pid, line.split(":")[0]] = int(line.split()[1], 16)
if os.uname().machine == "x86_64":
    found["calls"] = {
        name: call(*given) for name, given in {
            "ptrace": (101, 0, 1, 0, 0), "keyctl": (250, 0, -3, 0), "add_key": (248, b"user", b"x", b"y", 1, -3),
            "unshare": (272, 0x10000000), "clone": (56, 0x10000000 | 17, 0, 0, 0, 0), "memfd": (319, b"x", 0),
            "bpf": (321, 0, 0, 0), "mount": (165, 0, b"/tmp", b"tmpfs", 0, 0), "io_uring": (425, 1, 0),
            "perf": (298, 0, 0, -1, -1, 0), "shmget": (29, 0, 1 << 30, 0o1600), "userfaultfd": (323, 0),
            "setns": (308, 0, 0), "io_setup": (206, 1, 0), "inotify": (294, 0), "x32": (0x40000000 | 39,),
        }.items() if call(*given) != "EPERM"
    }
    found["clone3"] = call(435, 0, 0)
print({name: value for name, value in found.items() if value not in (False, None, "refused", [], {}, 0)})
"""


async def test_nothing_outside_is_seen_written_or_called(
    bubblewrap: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    inherited = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        result = await run(bubblewrap, TRIED)
    finally:
        os.close(inherited)
    assert result.stderr == ""
    expected = {
        "files": ["/dev/null", "pipe", "pipe"],
        "sockets": [1],  # Local ones: nothing that listens can be seen.
        "parent": True,
        "root": ["refused"] * 4,
        **{(pid, name): value for pid in ("1", "self") for name, value in (("NoNewPrivs", 1), ("Seccomp", 2))},
    }
    if os.uname().machine == "x86_64":
        expected["clone3"] = "ENOSYS"
    assert eval(result.stdout) == expected


async def test_what_listens_outside_is_not_reached(bubblewrap: BubblewrapSandbox, root: Path) -> None:
    """Local sockets need no address of a network: those with a path, and those without a file."""
    name = f"drsai-test-{root.parent.name}"
    with socket.socket(socket.AF_UNIX) as nameless, socket.socket(socket.AF_UNIX) as named:
        nameless.bind(f"\0{name}")
        nameless.listen()
        named.bind(str(root.parent / "socket"))
        named.listen()
        tries = [f"\0{name}", str(root.parent / "socket")]
        code = f"import socket\nfor name in {tries!r}:\n    print(socket.socket(socket.AF_UNIX).connect_ex(name))"
        result = await run(bubblewrap, code)
    assert result.stdout.split() == [str(errno.ECONNREFUSED), str(errno.ENOENT)]


async def test_links_pipes_and_sockets_are_no_files_of_the_result(bubblewrap: BubblewrapSandbox) -> None:
    code = (
        "import os, socket\n"
        "for to in ('/etc/passwd', '/proc/self/environ', '/', '../../../../etc/passwd', 'real'):\n"
        "    os.symlink(to, 'to' + to.replace('/', '_'))\n"
        "os.mkfifo('pipe')\nsocket.socket(socket.AF_UNIX).bind('socket')\nopen('real', 'w').write('1')"
    )
    result = await run(bubblewrap, code)
    assert [(file.name, file.data) for file in result.files] == [("real", b"1")]


async def test_names_that_no_database_takes_are_made_plain(bubblewrap: BubblewrapSandbox) -> None:
    result = await run(
        bubblewrap, "for name in (b'\\xff', b'a\\nb', '\u202etxt'.encode()):\n    open(name, 'w').close()"
    )
    assert sorted(file.name for file in result.files) == ["a\ufffdb", "\ufffd", "\ufffdtxt"]


async def test_what_is_closed_to_everybody_is_counted_handed_out_and_removed(bubblewrap: BubblewrapSandbox) -> None:
    closed = "import os\nos.mkdir('d')\nopen('d/a', 'w').write('x' * 100)\nos.chmod('d/a', 0)\nos.chmod('d', 0)"
    result = await run(bubblewrap, closed)
    assert [(file.name, len(file.data)) for file in result.files] == [("d/a", 100)]
    filled = (
        closed + "\nos.chmod('d', 0o700)\nfor n in range(400):\n    open(f'd/{n}', 'w')\nos.chmod('d', 0)\nprint('ok')"
    )
    result = await run(bubblewrap, filled, key="b")
    assert "may have 200 files" in result.stopped or any("above its limits" in note for note in result.notes)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("a = []\nwhile True:\n    a.append(bytearray(1 << 20))", "MemoryError"),
        # Together, as each alone may have as much.
        (
            "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        break\na = []\nwhile True:\n"
            "    a.append(b'x' * (4 << 20) + b'y')\n    time.sleep(0.02)",
            "more than 128 MiB of memory",
        ),
        ("for n in range(999):\n    open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))", "No space"),
        ("for n in range(999):\n    open(f'/dev/shm/{n}', 'wb').write(bytes(1 << 20))", "No space"),
        ("with open('x', 'wb') as file:\n    while True:\n        file.write(bytes(1 << 20))", "File too large"),
        ("open('x', 'wb').truncate(1 << 40)", "File too large"),
        (
            "import itertools\nfor n in itertools.count():\n    open(f'{n}', 'wb').write(bytes(1 << 20))",
            "No space",
        ),
        # Without a name, but on the disk.
        (
            "import os, time\nopened = []\nfor _ in range(8):\n    file = open('x', 'wb', 0)\n"
            "    file.write(os.urandom(2 << 20))\n    opened.append(file)\n    os.unlink('x')\ntime.sleep(60)",
            "No space",
        ),
        # Without a name or a descriptor: mapped, on its way to another process, running.
        (
            "import mmap, os\nkept = []\nfor _ in range(9):\n    file = open('x', 'w+b', 0)\n"
            "    file.write(bytes(2 << 20))\n    kept.append(mmap.mmap(file.fileno(), 0))\n    file.close()\n"
            "    os.unlink('x')",
            "No space",
        ),
        (
            "import os, socket\nours, theirs = socket.socketpair()\nfor _ in range(9):\n"
            "    file = open('x', 'w+b', 0)\n    file.write(bytes(2 << 20))\n"
            "    socket.send_fds(ours, [b'x'], [file.fileno()])\n    file.close()\n    os.unlink('x')",
            "No space",
        ),
        (
            "import os, shutil, subprocess\nfor _ in range(999):\n    shutil.copy(shutil.which('sleep'), 'x')\n"
            "    open('x', 'ab').write(bytes(2 << 20))\n    subprocess.Popen(['./x', '60'])\n    os.unlink('x')",
            "No space",
        ),
        ("import itertools\nfor n in itertools.count():\n    open(f'{n}', 'w')", "may have 200 files"),
        ("import itertools\nfor n in itertools.count():\n    open(f'/tmp/{n}', 'w')", "/tmp and /dev/shm may have 200"),
        # Their buffers are memory of the kernel, which is nobody's. Eight processes, as more may not be.
        (
            "import os, socket, time\nfor _ in range(3):\n    os.fork()\npairs = []\nfor _ in range(50):\n"
            "    pairs.append(socket.socketpair())\ntime.sleep(60)",
            "more than 128 MiB of memory",
        ),
        ("import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')", "nested 16 deep"),
        ("import sys\nwhile True:\n    sys.stdout.write('x' * 10_000)", "printed more than"),
        ("import sys\nwhile True:\n    sys.stderr.write('x' * 10_000)", "printed more than"),
        ("import os, time\nwhile True:\n    if os.fork() == 0:\n        time.sleep(9)", "Resource temporarily"),
        ("import time, threading\nwhile True:\n    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
         "can't start new thread"),
        ("import ctypes\nctypes.string_at(0)", "signal 11"),
        ("import os\nos.abort()", "signal 6"),
        ("def f():\n    f()\nf()", "RecursionError"),
    ],
)  # fmt: skip
async def test_what_uses_too_much_is_refused_or_stopped(bubblewrap: BubblewrapSandbox, code: str, told: str) -> None:
    limits = CodeLimits(seconds=40, memory=128 << 20, disk=8 << 20, files=200, output=1000, processes=16)
    result = await run(bubblewrap, code, limits)
    assert told in result.stderr + result.stopped
    assert result.exit_code != 0
    assert len(result.stdout) + len(result.stderr) <= 2000
    assert not in_sandboxes(bubblewrap.folders.root)
    # The next call finds a folder that is within its limits.
    used = tree.measure(bubblewrap.folders.root, 1000)
    assert used.bytes < 9 << 20
    assert used.entries < 210
    assert (await run(bubblewrap, "1 + 1", limits)).stdout == "2\n"


async def test_a_fork_bomb_ends_in_time_and_the_machine_can_still_fork(bubblewrap: BubblewrapSandbox) -> None:
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    result = await run(bubblewrap, bomb, CodeLimits(seconds=0.7, processes=16))
    assert "stopped after 0.7 seconds" in result.stopped
    assert not in_sandboxes(bubblewrap.folders.root)
    assert await (await asyncio.create_subprocess_exec("true")).wait() == 0


async def test_what_is_no_text_is_replaced(bubblewrap: BubblewrapSandbox) -> None:
    result = await run(bubblewrap, "import sys\nsys.stdout.buffer.write(b'\\xff\\x00abc')\nsys.stdout.flush()", LIMITS)
    assert result.stdout == "\ufffd\0abc"
