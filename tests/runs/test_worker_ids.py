"""Which workers are proven dead, whatever the clock says."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from drsai_backend.runs.recovery.leases import is_proven_dead, new_worker_id


def _replaced(worker_id: str, **parts: str) -> str:
    names = ("host", "pid", "start", "random")
    return ":".join((dict(zip(names, worker_id.rsplit(":", 3), strict=True)) | parts).values())


def _ended() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_a_worker_that_lives_is_not_dead_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems keep the time since the boot at which a process began; its time of day moves when the clock is set."""
    own = new_worker_id()
    assert not is_proven_dead(own)
    create_time = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: create_time(self) + 3600)
    assert not is_proven_dead(own)
    assert new_worker_id().rsplit(":", 1)[0] == own.rsplit(":", 1)[0]
    # Releases before compare it as a number, which it is not: then leases decide.
    assert not own.rsplit(":", 2)[1].isdigit()


def test_who_is_proven_dead() -> None:
    own = new_worker_id()
    assert is_proven_dead(_replaced(own, pid=str(_ended())))
    assert is_proven_dead(_replaced(own, start="t1"))  # Its pid is another process's by now.
    assert not is_proven_dead(_replaced(own, host="elsewhere", pid="1", start="t1"))
    assert not is_proven_dead("what is this")


def test_a_number_of_an_earlier_release_is_no_proof_by_its_start() -> None:
    own = new_worker_id()
    assert not is_proven_dead(_replaced(own, start=str(round((time.time() - 3600) * 100))))
    assert is_proven_dead(_replaced(own, pid=str(_ended()), start="1"))


def test_a_process_that_nobody_has_asked_for_its_exit_code_is_dead() -> None:
    process = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {})
    try:
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        assert is_proven_dead(_replaced(new_worker_id(), pid=str(process)))
    finally:
        os.waitpid(process, 0)
