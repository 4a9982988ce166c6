"""Sums of processes that share a folder: the same whoever adds them up, and never less, whichever of them dies."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.features.metrics import numbers as module
from drsai_backend.features.metrics import port
from drsai_backend.features.metrics.base import FAMILIES, LONGEST, MOST, OTHER, Bounds, Key, bounded
from drsai_backend.features.metrics.numbers import Numbers
from tests.examples.processes import clean_environment
from tests.support.commands import Command, Commands
from tests.support.threads import settings

TURNS = "drsai_turns_total"
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.sampled_from("abc"), st.integers(0, 100)),
        st.tuples(st.just("die"), st.integers(0, 2)),
        st.tuples(st.just("look"), st.integers(0, 2)),
    ),
    max_size=30,
)
COUNTING = """
import sys
import time
from pathlib import Path

from drsai_backend.features.metrics.numbers import Numbers

numbers = Numbers(Path(sys.argv[1]))
for _ in range(1000):
    numbers.add(("drsai_turns_total", sys.argv[2]), 2.0)
print("counted", flush=True)
time.sleep(60)
"""


def key(team: str) -> Key:
    return TURNS, team


@given(acts=ACTS)
def test_the_sums_are_what_was_added(acts: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.object(module, "ROOM", 1 << 16):
        processes = [Numbers(Path(folder)) for _ in range(3)]
        added: Counter[Key] = Counter()
        for act, which, *rest in acts:
            if act == "add":
                processes[which].add(key(rest[0]), rest[1])
                added[key(rest[0])] += rest[1]
            elif act == "die":
                processes[which].close()
                processes[which] = Numbers(Path(folder))
            else:
                assert Counter(processes[which].sums()) == added
        for process in processes:
            process.close()
        assert Counter(Numbers(Path(folder)).sums()) == added
        assert [*Path(folder).glob("*.db")] == []


def test_alone_it_needs_no_folder() -> None:
    numbers = Numbers()
    numbers.add(key("a"))
    numbers.add(key("a"), 2)
    assert numbers.sums() == {key("a"): 3}


@pytest.fixture
def counting(commands: Commands, tmp_path: Path) -> Callable[[str], Command]:
    """Starts a process that counts 2,000 turns of a team, and then does nothing."""

    def start(team: str) -> Command:
        (tmp_path / "shared").mkdir(exist_ok=True)
        arguments = ("-c", COUNTING, str(tmp_path / "shared"), team)
        started = commands.program(*arguments, cwd=tmp_path, env=clean_environment())
        while "counted" not in started.stdout:
            assert started.running, started.stderr
        return started

    return start


def test_what_a_killed_process_has_counted_stays(counting: Callable[[str], Command], tmp_path: Path) -> None:
    first, second = counting("a"), counting("b")
    folder, wanted = tmp_path / "shared", {key("a"): 2000.0, key("b"): 2000.0}
    assert Numbers(folder).sums() == wanted
    first.die()
    assert Numbers(folder).sums() == wanted
    assert len([*folder.glob("*.db")]) == 1, "that of the dead is folded"
    second.die()
    for _ in range(2):
        assert Numbers(folder).sums() == wanted
    assert [*folder.glob("*.db")] == []
    counting("a").die()
    assert Numbers(folder).sums() == {**wanted, key("a"): 4000.0}


def test_a_process_that_dies_while_it_folds_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Numbers(tmp_path)
    dead.add(key("a"), 5)
    [file] = tmp_path.glob("*.db")
    content = file.read_bytes()
    dead.close()
    for _ in range(2):  # Its file is there still: what folded it was killed before it was gone.
        assert Numbers(tmp_path).sums() == {key("a"): 5}
        file.write_bytes(content)
    assert Numbers(tmp_path).sums() == {key("a"): 5}
    # And before it was folded: nothing has happened.
    other = Numbers(tmp_path)
    other.add(key("a"), 1)
    other.close()
    monkeypatch.setattr(module.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    assert Numbers(tmp_path).sums() == {key("a"): 6}
    monkeypatch.undo()
    assert Numbers(tmp_path).sums() == {key("a"): 6}


def test_a_full_disk_costs_numbers_and_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    numbers = Numbers(tmp_path)
    numbers.add(key("a"))
    numbers.add(key("a"))
    assert caplog.text.count("No space left on device") == 1
    assert numbers.sums() == {}


def test_one_that_was_stopped_while_it_adds_up_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.05)
    with FileLock(tmp_path / "folded.lock"), pytest.raises(TimeoutError):
        Numbers(tmp_path).sums()


def test_labels_have_a_bound() -> None:
    bounds = Bounds()
    keys = [bounds.key_of(TURNS, f"team {number}") for number in range(150)]
    assert keys[99:101] == [key("team 99"), key(OTHER)]
    assert bounds.key_of(TURNS, "team 7") == key("team 7")
    assert bounds.key_of("drsai_first_token_seconds", "team 200", "sum") == ("drsai_first_token_seconds", OTHER, "sum")
    assert len(Bounds().key_of(TURNS, "x" * 300)[1]) == LONGEST
    assert Bounds().key_of(TURNS, "a\ud800") == key("a?"), "what is no text would break the whole answer"
    # Also of several processes together, where what was there first stays.
    sums = bounded([(key(f"team {number}"), 1.0) for number in range(150)] + [(key("team 3"), 1.0)])
    assert len(sums) == MOST["team"] + 1
    assert (sums[key("team 3")], sums[key(OTHER)]) == (2, 50)
    assert bounded([(("of_another_release", "x"), 1.0)]) == {}


def test_all_that_the_bounds_allow_fits_into_a_file() -> None:
    """Where it did not, a file would grow by a hole, and a write to one kills the process where the disk is full."""
    others = {"route": 200, "kind": 20, "mode": 5, "method": 2}  # Most routes have one or two methods.
    size = 0
    for family in FAMILIES:
        words = [
            ("\u56e2" if label in MOST else "x") * (LONGEST if label in (*MOST, "route") else 16)
            for label in family.labels
        ]
        many = prod(MOST.get(label, others.get(label, 6)) for label in family.labels)
        key = len(orjson.dumps((family.name, *words, "10")))
        size += many * (len(family.buckets) + 2 if family.buckets else 1) * (key + 32)
    assert size < module.ROOM


def test_a_folder_of_a_killed_server_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, young, other = (tmp_path / name for name in ("drsai-metrics-killed", "drsai-metrics-young", "other"))
    for folder in (killed, young, other):
        folder.mkdir()
        (folder / "1-a.db").write_bytes(b"")
    with port.shared(settings()) as first:
        living = first.metrics_folder
        assert living is not None
        for folder in (killed, other, living):
            os.utime(folder, (0, 0))
        with port.shared(settings()) as second:
            there = {each.name for each in tmp_path.iterdir()}
            assert second.metrics_folder is not None
    assert there == {"drsai-metrics-young", "other", living.name, second.metrics_folder.name}
