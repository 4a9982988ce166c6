"""Importing the package costs what is used of it: how many modules of ours come along, and which libraries do not."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

import drsai_backend
import drsai_backend.definitions
import drsai_backend.strategies
import drsai_backend.tools.http
from drsai_backend.lazily import imported, later, lazily

MODULES_OF_A_CLASS = 91
MODULES_OF_A_RUN = 404
NEVER = (
    "anthropic", "cryptography", "fastapi", "httpx", "jsonpath", "jsonschema", "jwt", "mcp", "procrastinate",
    "opentelemetry.exporter", "opentelemetry.sdk",
    "prometheus_client", "psycopg", "regex", "rich", "starlette", "structlog", "trafilatura", "typer", "uvicorn",
    "yaml",
)  # fmt: skip
"""What a run on SQLite needs nothing of."""
A_RUN = """
import asyncio, sys
from drsai_backend import AssistantAgent, DrSai, RunContext

def team(context: RunContext) -> AssistantAgent:
    return AssistantAgent("a", context.model_client())

async def main():
    async with DrSai({"team": team}, "sqlite://") as drsai:
        assert (await drsai.run("team", "Hello")).text

asyncio.run(main())
"""


AGAIN = """
import asyncio, sys
from drsai_backend import AssistantAgent, DrSai, RunContext

def team(context: RunContext) -> AssistantAgent:
    return AssistantAgent("a", context.model_client())

async def main():
    drsai = DrSai({"team": team}, "sqlite:///there.db")
    made = set(sys.modules)
    async with drsai:
        assert (await drsai.run("team", "Hello", thread_id="t")).text
    return made

made = asyncio.run(main())
"""
SERVED = """
import asyncio, json
import drsai_backend.cli.serve
from drsai_backend import AssistantAgent, DrSai, RunContext

def team(context: RunContext) -> AssistantAgent:
    return AssistantAgent("a", context.model_client())

async def main():
    body = json.dumps({"model": "team", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}).encode()
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers, "query_string": b"",
             "http_version": "1.1", "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
    async with DrSai({"team": team}, "sqlite://") as drsai:
        await drsai.app()(scope, receive, send)
    assert sent[0]["status"] == 200, sent

asyncio.run(main())
"""
NEVER_SERVED = (
    "anthropic", "cryptography", "jsonpath", "jsonschema", "jwt", "markdown_it", "mcp", "numpy", "procrastinate",
    "opentelemetry.exporter", "opentelemetry.sdk", "prometheus_client", "psycopg", "regex", "trafilatura",
)  # fmt: skip
"""What a server that answers chats needs nothing of: its memory is that much smaller."""
LATE = {"drsai_backend.runs.feed.outcome"}
"""What is imported while a database is opened and a run answered. It is short."""


def modules_after(code: str, folder: Path) -> set[str]:
    code += "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def ours(modules: set[str]) -> int:
    return sum(name.split(".")[0] == "drsai_backend" for name in modules)


def test_the_class_is_imported_without_what_it_is_made_of(tmp_path: Path) -> None:
    modules = modules_after("from drsai_backend import DrSai", tmp_path)
    assert modules & {*NEVER, "alembic", "filelock", "psutil", "openai.resources.chat.chat"} == set()
    assert ours(modules) <= MODULES_OF_A_CLASS


def test_a_run_imports_what_it_needs(tmp_path: Path) -> None:
    modules = modules_after(A_RUN, tmp_path)
    assert modules & {*NEVER} == set()
    assert ours(modules) <= MODULES_OF_A_RUN
    for feature in ("drsai_backend.features.metrics", "drsai_backend.features.traces"):
        assert {name for name in modules if name.startswith(feature)} == {feature, f"{feature}.extension"}


def test_a_server_imports_what_it_needs(tmp_path: Path) -> None:
    assert modules_after(SERVED, tmp_path) & {*NEVER_SERVED} == set()


def test_what_validates_definitions_is_built_when_some_are_read(tmp_path: Path) -> None:
    """It takes 9 MB and 60 ms, which a server whose teams are in code needs not."""
    code = """
from drsai_backend.definitions.check import explained
from drsai_backend.definitions.schema import Definitions
assert not Definitions.__pydantic_complete__
Definitions.model_validate({})
assert Definitions.__pydantic_complete__
"""
    modules_after(code, tmp_path)


def test_a_database_that_is_up_to_date_is_opened_with_what_is_there(tmp_path: Path) -> None:
    """Alembic, and what comes with it, took longer than the rest of an opening and the first answer together."""
    modules_after(AGAIN, tmp_path)
    told = "{*sys.modules} - made | {*sys.modules} & {'json', 'alembic', 'filelock', 'mako', 'pygments'}"
    code = f"{AGAIN}\nsys.modules = {{name: sys.modules[name] for name in {told}}}"
    assert modules_after(code, tmp_path) == LATE | {"json"}


def test_what_was_imported_is_old_to_the_garbage_collector(tmp_path: Path) -> None:
    code = """
import gc
from drsai_backend import DrSai
DrSai({}, "sqlite://")
assert gc.isenabled() and gc.get_count()[2] <= 1, "what it is made of itself, and not what was imported: that is 6"
assert gc.get_freeze_count() == 0, "an object that dies later is collected"
gc.freeze()
frozen = gc.get_freeze_count()
DrSai({}, "sqlite://")
assert gc.get_freeze_count() > frozen - 10_000, "what a program has frozen stays so"
"""
    modules_after(code, tmp_path)


@pytest.mark.parametrize(
    "package",
    [drsai_backend, drsai_backend.definitions, drsai_backend.strategies, drsai_backend.tools.http],
    ids=lambda package: package.__name__,
)
def test_every_name_of_a_package_is_there(package: ModuleType) -> None:
    names: Sequence[str] = package.__all__
    assert [name for name in names if getattr(package, name, None) is None] == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def test_a_module_is_imported_when_its_name_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy/__init__.py").write_text(
        "from drsai_backend.lazily import lazily\n"
        "__getattr__ = lazily(__name__, {'one': 'first second', 'two.deep': 'third'})\n"
    )
    (tmp_path / "lazy/one.py").write_text("first, second = 1, 2\n")
    (tmp_path / "lazy/two").mkdir()
    (tmp_path / "lazy/two/__init__.py").touch()
    (tmp_path / "lazy/two/deep.py").write_text("third = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    lazy = importlib.import_module("lazy")
    assert "lazy.one" not in sys.modules
    assert lazy.second == 2
    assert "second" in vars(lazy)
    assert "lazy.two.deep" not in sys.modules
    assert imported("lazy:third") == 3
    with pytest.raises(ImportError):
        exec("from lazy import fourth", {})


def test_a_module_is_imported_when_something_of_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deferred.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    deferred = later("deferred")
    assert "deferred" not in sys.modules
    assert deferred.value == 1
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        _ = deferred.other


def test_a_name_is_asked_for_of_its_own_package() -> None:
    assert lazily("json", {"decoder": "JSONDecoder"})("JSONDecoder") is json.JSONDecoder
