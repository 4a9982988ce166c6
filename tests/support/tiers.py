"""Two tiers of tests: the quick one, which `pytest` runs, and the slow one, which `pytest --all` runs, too.

Which of them a test is in is said here, by rules, and nowhere else: a test of the slow tier gets the marker `slow`. A
run that names what it wants, by files, folders, words or markers, gets it from both.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

SLOW = (
    "api/access",
    "api/test_document.py",
    "api/test_openapi.py",
    "chaos",
    "cli/test_demo.py",
    "cli/test_init.py",
    "cli/test_serve.py",
    "cli/test_threads_portable.py",
    "console",
    "crash",
    "database/test_copying.py",
    "database/test_encryption.py",
    "database/test_ids.py",
    "database/test_migrations.py",
    "database/test_moving.py",
    "database/test_portable_hostile.py",
    "database/test_servers.py",
    "e2e",
    "examples/test_blocks.py",
    "examples/test_changes.py",
    "examples/test_docs.py",
    "features",
    "golden/test_golden.py",
    "jobs",
    "packaging",
    "runs/test_kept_calls.py",
    "runs/test_outages.py",
    "runs/test_path.py",
    "runs/test_servers.py",
    "runs/test_vanished.py",
    "strategies/router/test_restarts.py",
    "strategies/test_cut_plan.py",
    "teams/test_cut_client_tools.py",
    "teams/test_cut_steps.py",
    "teams/test_cut_tools.py",
    "teams/test_invariants.py",
    "test_imports.py",
    "test_platforms.py",
    "tools/mcp",
    "webhooks/test_sender.py",
    "work/test_kills.py",
)
"""Below tests/: whose subject is processes, browsers, servers that stop, cuts at every place, thousands of requests or
counted runs, whole databases that are upgraded or moved; what the documents show; everything end to end; the features,
each of which is left out of a server at will."""
PROCESSES = {"all_commands", "bubblewrap", "own"}
"""Fixtures that start processes, by the name that a conftest gives them: what uses them is slow."""
RUN = ("api", "database", "runs", "work")
"""Below tests/: where each of hypothesis's examples, up to a hundred, is a request, a run or a transaction."""
STORED = (
    "access",
    "database/test_concurrency.py",
    "database/test_leases.py",
    "database/test_manager.py",
    "datamodel",
    "definitions/stored",
    "state",
    "work",
)
"""Below tests/: where storage is the subject. Elsewhere, what runs on both databases is quick on SQLite."""
SECONDS = 5.0
"""What takes longer than that in the quick tier is told of."""


def is_slow(item: pytest.Item) -> bool:
    """Whether a test is in the slow tier; otherwise it is in the quick one."""
    path = _place(item.path, item.config)
    if _below(path, SLOW) or PROCESSES.intersection(getattr(item, "fixturenames", ())):
        return True
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False) and _below(path, RUN):
        return True
    variant = getattr(item, "callspec", None)
    return variant is not None and variant.params.get("database_url") == "postgresql" and not _below(path, STORED)


def _place(path: Path, config: pytest.Config) -> Path:
    """Below tests/; any other path as it is."""
    tests = config.rootpath / "tests"
    return path.relative_to(tests) if path.is_relative_to(tests) else path


def _below(path: Path, places: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(place) for place in places)


# --- hooks ------------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tiers").addoption("--all", action="store_true", help="run the slow tier, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: in the slow tier; tests/support/tiers.py gives it")
    if config.args_source is pytest.Config.ArgsSource.ARGS or config.option.keyword or config.option.markexpr:
        config.option.all = True


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What is slow as a whole is not even imported."""
    return (not config.option.all and _below(_place(collection_path, config), SLOW)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before `-m` is looked at, which may name the marker."""
    slow = [item for item in items if is_slow(item)]
    for item in slow:
        item.add_marker("slow")
    if slow and not config.option.all:
        items[:] = [item for item in items if "slow" not in item.keywords]
        config.hook.pytest_deselected(items=slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Which tests took long for the quick tier. None fails by it: the machine may be busy."""
    took: Counter[str] = Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport) and "slow" not in report.keywords:
            took[report.nodeid] += report.duration
    for test, seconds in took.most_common():
        if seconds > SECONDS:
            terminalreporter.write_line(f"{seconds:.1f} s is long for the quick tier (tests/README.md): {test}")
    if not config.option.all:
        terminalreporter.write_line("the quick tier alone: `pytest --all` runs the slow one, too")
