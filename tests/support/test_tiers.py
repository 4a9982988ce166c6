"""Every test is in one of two tiers, and a run that names what it wants gets it whatever the tier."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.commands import ROOT, clean_environment

CONFTEST = """
import pytest

@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request): ...

@pytest.fixture
def all_commands(): ...

@pytest.fixture
def commands(all_commands): ...
"""
FILES = {
    "pytest.ini": "[pytest]\ntestpaths = tests\naddopts = -q -p no:cacheprovider -p tests.support.tiers",
    "tests/conftest.py": CONFTEST,
    "tests/chaos/test_a.py": "def test_a(): ...",
    "tests/cli/test_b.py": "def test_b(commands): ...\ndef test_plain(): ...",
    "tests/work/test_c.py": "def test_c(database_url): ...",
    "tests/runs/test_d.py": "def test_d(database_url): ...",
    "tests/runs/test_e.py": "from hypothesis import given, strategies\n@given(strategies.none())\ndef test_e(_): ...",
    "tests/state/test_f.py": "from hypothesis import given, strategies\n@given(strategies.none())\ndef test_f(_): ...",
}
QUICK = {
    "tests/cli/test_b.py::test_plain",
    "tests/work/test_c.py::test_c[sqlite]",
    "tests/work/test_c.py::test_c[postgresql]",
    "tests/runs/test_d.py::test_d[sqlite]",
    "tests/state/test_f.py::test_f",
}
SLOW = {
    "tests/chaos/test_a.py::test_a",
    "tests/cli/test_b.py::test_b",
    "tests/runs/test_e.py::test_e",
    "tests/runs/test_d.py::test_d[postgresql]",
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(suite: Path, *arguments: str, **env: str) -> str:
    """What pytest prints, with no plugins but its own."""
    given = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **env)
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=suite, env=given, capture_output=True, text=True, timeout=60).stdout


def collected(suite: Path, *arguments: str) -> list[str]:
    return sorted(line for line in run(suite, "--collect-only", *arguments).splitlines() if "::" in line)


CLI = {"tests/cli/test_b.py::test_plain", "tests/cli/test_b.py::test_b"}
ONE = {"tests/runs/test_d.py::test_d[postgresql]"}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        pytest.param([], QUICK, id="nothing"),
        pytest.param(["--all"], QUICK | SLOW, id="all"),
        pytest.param(["-m", "slow"], SLOW, id="slow"),
        pytest.param(["-m", "not slow"], QUICK, id="not slow"),
        pytest.param(["tests/cli"], CLI, id="folder"),
        pytest.param(["tests/runs/test_d.py::test_d[postgresql]"], ONE, id="test"),
        pytest.param(["-k", "test_a"], {"tests/chaos/test_a.py::test_a"}, id="word"),
    ],
)
def test_which_tests_run(suite: Path, arguments: list[str], wanted: set[str]) -> None:
    assert collected(suite, *arguments) == sorted(wanted)


def told(printed: str) -> set[str]:
    return {line.rpartition(" ")[2] for line in printed.splitlines() if "long for the quick tier" in line}


def test_what_takes_long_in_the_quick_tier_is_told_of_and_does_not_fail(suite: Path) -> None:
    bound = f"{CONFTEST}\nfrom tests.support import tiers\ntiers.SECONDS = "
    (suite / "tests/conftest.py").write_text(f"{bound}-1", encoding="utf-8")
    printed = run(suite, "--all")
    assert "9 passed" in printed
    assert told(printed) == QUICK
    (suite / "tests/conftest.py").write_text(f"{bound}1000", encoding="utf-8")
    printed = run(suite)
    assert "5 passed, 3 deselected" in printed
    assert told(printed) == set()
    assert "`pytest --all` runs the slow one, too" in printed


def test_the_rules_name_what_there_is() -> None:
    """A folder that is renamed does not change tiers unseen."""
    for place in (*tiers.SLOW, *tiers.RUN, *tiers.STORED):
        assert (ROOT / "tests" / place).exists(), place
    fixtures = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("conftest.py"))
    assert all(f"def {name}(" in fixtures for name in tiers.PROCESSES)


def test_ci_runs_both_tiers() -> None:
    assert ".venv/bin/pytest --all" in (ROOT / ".ci/run").read_text(encoding="utf-8")
