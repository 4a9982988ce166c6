from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from drsai_backend.runs.recovery.leases import is_proven_dead, new_worker_id

CHILD = "from drsai_backend.runs.recovery.leases import new_worker_id; print(new_worker_id(), flush=True); input()"


@pytest.fixture(scope="module")
def others() -> tuple[str, list[bool]]:
    """The id of another worker of this host; whether it was dead while it ran, as a zombie, and when it was gone."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        worker = process.stdout.readline().strip()
        said = [is_proven_dead(worker)]
        process.kill()
        zombie = psutil.Process(process.pid)
        while zombie.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        said.append(is_proven_dead(worker))
        process.wait()
        said.append(is_proven_dead(worker))
    return worker, said


def test_this_worker_lives() -> None:
    assert not is_proven_dead(new_worker_id())


def test_a_killed_process_is_dead_before_its_parent_has_noticed(others: tuple[str, list[bool]]) -> None:
    assert others[1] == [False, True, True]


def test_a_process_with_the_same_pid_is_another_one() -> None:
    host, pid, started, random = new_worker_id().rsplit(":", 3)
    assert is_proven_dead(f"{host}:{pid}:t{int(started.removeprefix('t')) - 1000}:{random}")


@pytest.mark.parametrize("worker", ["", "x", "elsewhere:1:2:abcd", "a:b:c:d"])
def test_nothing_is_known_of_other_hosts(worker: str) -> None:
    assert not is_proven_dead(worker)
