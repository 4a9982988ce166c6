"""Whose rows a query reads: every SQL statement of every route says it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from drsai_backend.access.principal import Scope
from tests.api.access.conftest import GUARDED, World, prepare

OWNED = (
    *("thread", "autogenmessage", "run", "userinput", "queuedinput", "journalentry", "threadsnapshot", "threadfield"),
    *("runwebhook", "webhookdelivery", "webhooksecret", "work_job"),
    *("knowledgestore", "knowledgefile", "knowledgebatch", "searchindex"),
)
# By the key of a thread, or of a run, that was found by its owner: `thread_key` is in all tables but `thread`.
_BY_KEY = re.compile(
    r"store_key (=|IN)|batch_key =|thread_key (=|IN)|\bthread\.id (=|IN)|\brun\.run_id =|\bid (=|IN)|\brun_id ="
)
_BY_OWNER = re.compile(
    r"(?s)(?=.*\.user_id( \|\| ''\))? =)(?=.*\.tenant( \|\| ''\))? =)|\.tenant, \w+\.user_id, \w+\.thread_id\) IN"
)
# What a whole database is swept for, whoever's it is: it is shown to nobody.
_SWEEPS = (
    re.compile(r"run\.status = 'running'"),  # runs that nobody runs
    re.compile(r"run\.deadline <"),  # questions whose time is over
    re.compile(r"run\.stop_code = 'insufficient_quota'"),  # runs that wait for more of their budget
    re.compile(r"thread\.queued >"),  # inputs that wait
    re.compile(r"webhookdelivery\.next_at"),  # events that are due, for the sender
    re.compile(r"work_job\.next_at"),  # jobs that are due, for workers
    re.compile(r"(?s)\.tenant = .*(ORDER|GROUP) BY \w+\.user_id"),  # the users of a tenant, shown to its admins
)
_OF_TENANT = re.compile(r"thread\.tenant( \|\| ''\))? = 'acme'")
"""All runs of a tenant, which its operators are shown by routes of their own."""

_NUMBERS = re.compile(r"(?s)^SELECT .*count\(\*\).*\sFROM \(SELECT (queuedinput|work_job)\.", re.IGNORECASE)
"""What is counted of all tenants, for who may read metrics."""


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """All SQL that SQLite is given, with its values."""
    told: list[str] = []

    def trace(connection: sqlite3.Connection, _: object) -> None:
        connection.set_trace_callback(told.append)

    sa.event.listen(sa.Engine, "connect", trace)
    yield told
    sa.event.remove(sa.Engine, "connect", trace)


def _unowned(statements: Iterable[str], *more: re.Pattern[str]) -> list[str]:
    """The statements that read or change rows without a word of whose they are; `more`: such words."""
    found: list[str] = []
    for statement in statements:
        tables = set(re.findall(r"(?:FROM|JOIN|UPDATE)\s+\"?(\w+)", statement)) & set(OWNED)
        _, _, where = statement.partition("WHERE")
        if (
            tables
            and not _NUMBERS.search(statement)
            and not any(words.search(where) for words in (_BY_KEY, _BY_OWNER, *_SWEEPS, *more))
        ):
            found.append(statement)
    return found


@pytest.mark.parametrize(("method", "path", "needed"), GUARDED)
async def test_no_query_forgets_the_owner(
    statements: list[str], world: World, method: str, path: str, needed: Scope
) -> None:
    await world.ask("ann", method, path)
    await world.ask("bob", method, path)
    for status in ("running", "awaiting_input", "completed"):
        if path in ("/v1/threads", "/v1/runs") and method == "get":
            await world.ask("ann", method, path, params={"status": status})
    await world.drsai.engine.sweep()
    assert any("tenant" in statement for statement in statements)
    assert _unowned(statements, *([_OF_TENANT] if path.startswith("/v1/admin/") else [])) == []


async def test_no_query_of_runs_and_keys_forgets_the_owner(
    statements: list[str], sqlite_template: bytes, tmp_path: Path
) -> None:
    (tmp_path / "a.db").write_bytes(sqlite_template)
    await prepare(f"sqlite:///{tmp_path}/a.db")
    assert any("INSERT INTO autogenmessage" in statement for statement in statements)
    assert _unowned(statements) == []


def test_a_query_that_forgets_the_owner_is_found() -> None:
    assert _unowned(["SELECT thread.id FROM thread WHERE thread.user_id = 'ann'"])
    assert _unowned(["SELECT * FROM run ORDER BY id"])
    assert not _unowned(["SELECT thread.id FROM thread WHERE thread.tenant = 'a' AND thread.user_id = 'ann'"])
