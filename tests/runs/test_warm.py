"""What the process believes to hold of warm threads is what it holds."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.runs.warm import WarmThread, WarmThreads
from tests.examples.processes import ROOT
from tests.support.commands import Commands, clean_environment


@pytest.mark.parametrize("text", ["short", "long", "wide"])
def test_the_estimate_is_true(commands: Commands, text: str) -> None:
    """Within 0.8 to 1.3 times what tracemalloc counts, for threads of one run and of six, per kind of team.

    What there is without any text is in the threads of one run; it is the same whatever the texts are.
    """
    program = ("-m", "tests.support.warm_estimates", text)
    done = commands.program(*program, cwd=ROOT, env=clean_environment(DRSAI_SECRET_KEY="test"))
    assert done.wait(60) == 0, done.stderr
    ratios: dict[str, list[float]] = json.loads(done.stdout)
    assert len(ratios) == (10 if text == "short" else 5)
    assert {kind: each for kind, each in ratios.items() if not 0.8 < each[-1] < 1.3} == {}


def _thread(name: str, size: int) -> WarmThread:
    return WarmThread(cast("Any", name), cast("Any", SimpleNamespace(size=size)), [], None)


def test_a_thread_that_is_too_large_is_kept_beside_the_others_until_the_next_such_one() -> None:
    warm = WarmThreads(10, 10_000)
    for name, size in (("small", 1_000), ("large", 50_000), ("larger", 60_000)):
        warm.put(ThreadName("default", "ann", name), _thread(name, size))
    small, larger = warm.take(ThreadName("default", "ann", "small")), warm.take(ThreadName("default", "ann", "larger"))
    assert small is not None
    assert larger is not None
    assert (small.head, larger.head) == ("small", "larger")
    assert warm.take(ThreadName("default", "ann", "large")) is None
    assert warm.take(ThreadName("default", "ann", "larger")) is None
    warm.put(ThreadName("default", "ann", "larger"), larger)
    warm.put(ThreadName("default", "ann", "larger"), _thread("less", 1_000))
    assert warm.currsize < 10_000
    found = warm.take(ThreadName("default", "ann", "larger"))
    assert found is not None
    assert found.head == "less"
    warm.put(ThreadName("default", "ann", "large"), larger)
    warm.clear()
    assert warm.take(ThreadName("default", "ann", "large")) is None


@pytest.mark.parametrize(("threads", "size"), [(0, 10_000), (10, 0)])
def test_none_is_kept_where_none_may_be(threads: int, size: int) -> None:
    warm = WarmThreads(threads, size)
    for kind in (1_000, 50_000):
        warm.put(ThreadName("default", "ann", "t"), _thread("t", kind))
        assert warm.take(ThreadName("default", "ann", "t")) is None
