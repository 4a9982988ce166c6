"""A tenant moves to a database that has tenants of its own: nothing is lost, nothing of another goes along, and
whatever ends it, it is done again and goes on."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.database import migrations
from drsai_backend.database.migrations import connecting
from drsai_backend.database.moving import STAYS, move_tenant, refuse_runs, rows_of
from drsai_backend.datamodel import AgentJson, FileContent, RunStatus, Switch, Thread, table_of, utcnow
from drsai_backend.datamodel.switches import CLOSED, is_moved
from drsai_backend.errors import Conflict, DatabaseError, DrSaiError, InvalidRequest, NotFound
from tests.support.every_row import TABLES, fill

Rows = dict[str, list[dict[str, Any]]]
MOVED = [table for table in TABLES if table.name not in STAYS]
ME = sa.and_(table_of(Switch).c.kind == "tenant", table_of(Switch).c.name == "acme")
BUDGETS = ["user/acme/bob", "key/acme/k", "tenant/acme/", "user/default/acme", "tenant/Acme/", "user/acm%5F/x"]


def _rows(url: str, tenant: str) -> Rows:
    with connecting(url, write=False) as connection:
        queries = {
            table.name: sa.select(table).where(rows_of(table, tenant)).order_by(*table.primary_key.columns)
            for table in MOVED
        }
        return {name: [dict(row) for row in connection.execute(query).mappings()] for name, query in queries.items()}


def _all(url: str) -> dict[str, int]:
    with connecting(url, write=False) as connection:
        return {table.name: connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0 for table in TABLES}


def _fill(url: str) -> None:
    fill(url)
    with connecting(url) as connection:
        connection.execute(sa.update(table_of(FileContent)).values(in_folder=False))
        for subject in BUDGETS:
            row = {"subject": subject, "period": "2026-11", "holder": "", "tokens": 1, "cost": 1}
            connection.execute(sa.insert(_table("budgetstate")).values(**row))


def _table(name: str) -> sa.Table:
    [found] = [table for table in TABLES if table.name == name]
    return found


def _nothing(rows: Rows) -> bool:
    return not any(rows.values())


def test_every_table_is_moved_or_said_not_to_be() -> None:
    """A new one is a tenant's by its column `tenant`, or by a row that it refers to; else `rows_of` or `STAYS` says
    what becomes of it."""
    for table in MOVED:
        assert rows_of(table, "acme") is not None
    assert {table.name for table in TABLES} - {table.name for table in MOVED} == STAYS.keys()
    assert all(len(table.foreign_keys) <= 1 for table in TABLES), "by which one is a row the tenant's?"


def test_all_of_one_tenant_goes_and_nothing_of_another(urls: list[str]) -> None:
    source, target = urls
    _fill(source)
    mine, others = _rows(source, "acme"), _rows(source, "default")
    assert {name for name, rows in mine.items() if not rows} == set()
    assert [row["subject"] for row in mine["budgetstate"]] == sorted(BUDGETS[:3])
    before = _all(source)
    steps = list[str]()
    moved = move_tenant(source, target, "acme", close=lambda: steps.append("closed"), tell=steps.append)
    assert {each.table: each.rows for each in moved} == {name: len(rows) for name, rows in mine.items()}
    assert steps[0] == "closed"
    assert "compared" in steps[1]
    assert "deleted" in steps[2]
    assert _rows(target, "acme") == mine
    assert _nothing(_rows(source, "acme"))
    assert _rows(source, "default") == others
    assert _nothing(_rows(target, "default"))
    gone = {name: count - len(mine.get(name, [])) for name, count in before.items()}
    assert _all(source) == gone
    assert _all(target) == {name: len(mine.get(name, [])) for name in before}


@pytest.mark.parametrize("hours", [None, 2], ids=["for good", "until"])
def test_whom_an_operator_has_refused_is_refused_in_the_target(urls: list[str], hours: int | None) -> None:
    """The move refuses them beside that: what an operator has switched off may end before the move, or be lifted."""
    source, target = urls
    _fill(source)
    switch, until = table_of(Switch), None if hours is None else utcnow() + timedelta(hours=hours)
    off = {"tenant": "acme", "kind": "tenant", "name": "acme", "message": "Not paid.", "at": utcnow(), "until": until}
    with connecting(source) as connection:
        connection.execute(sa.delete(switch).where(ME))
        connection.execute(sa.insert(switch).values(**off))
    moving, closed = list[bool](), list[str]()

    def close() -> None:
        closed.append(source)
        refuse_runs(source, "acme")

    def tell(_: str) -> None:
        for url in urls:
            with connecting(url, write=False) as connection:
                moving.append(connection.scalar(sa.select(is_moved("acme"))) or False)

    move_tenant(source, target, "acme", close=close, tell=tell)
    assert (closed, moving) == ([source], [True] * 4)
    for url, messages in ((source, {("Not paid.", until), (CLOSED, None)}), (target, {("Not paid.", until)})):
        with connecting(url, write=False) as connection:
            found = connection.execute(sa.select(switch.c.message, switch.c.until).where(ME)).all()
        assert {(*row,) for row in found} == messages
    move_tenant(target, source, "acme", close=lambda: refuse_runs(target, "acme"))
    with connecting(source, write=False) as connection:
        assert connection.execute(sa.select(switch.c.message).where(ME)).scalars().all() == ["Not paid."]


def test_new_rows_of_both_databases_never_have_one_key(urls: list[str]) -> None:
    """Or the second tenant could not follow the first."""
    source, target = urls
    _fill(source)
    move_tenant(source, target, "acme")
    thread, keys = table_of(Thread), list[int]()
    for url in (target, source):
        with connecting(url) as connection:
            values = {"tenant": "default", "user_id": "eve", "thread_id": url, "status": RunStatus.COMPLETED}
            keys.append(connection.execute(sa.insert(thread).values(**values).returning(thread.c.id)).scalar_one())
    assert keys[0] >> 40 > keys[1] >> 40
    with connecting(target) as connection:
        connection.execute(sa.update(thread).where(thread.c.tenant == "default").values(tenant="third"))
    theirs = _rows(source, "default")
    move_tenant(source, target, "default")
    assert _rows(target, "default") == theirs


def _of_demo() -> Settings:
    return Settings(_env_file=None, demo=True, secret_key="test")  # pyright: ignore[reportCallIssue, reportArgumentType]


async def test_a_thread_goes_on_in_the_target(urls: list[str]) -> None:
    source, target = urls
    for url, tenant in ((source, "acme"), (source, "other"), (target, "third")):
        async with DrSai(database_url=url, settings=_of_demo()) as drsai:
            await drsai.user("ada", tenant=tenant).run("assistant", f"My name is {tenant}.", thread_id="t")
    with pytest.raises(Conflict, match="with the key of one of "):  # Both have counted from 1.
        await asyncio.to_thread(move_tenant, source, target, "acme")
    with connecting(target) as connection:
        for table in reversed(TABLES):
            connection.execute(sa.delete(table))
    async with DrSai(database_url=source, settings=_of_demo()) as drsai:  # Servers need not be stopped.
        await asyncio.to_thread(move_tenant, source, target, "acme")
        with pytest.raises(NotFound):
            await drsai.user("ada", tenant="acme").list_messages("t")
        assert len(await drsai.user("ada", tenant="other").list_messages("t")) == 2
    async with DrSai(database_url=target, settings=_of_demo()) as drsai:
        ada = drsai.user("ada", tenant="acme")
        assert (await ada.run("assistant", "Again.", thread_id="t")).status is RunStatus.COMPLETED
        assert next(message.content for message in await ada.list_messages("t")) == "My name is acme."
        assert len(await ada.list_messages("t")) == 4
        with pytest.raises(NotFound):
            await drsai.user("ada", tenant="other").list_messages("t")


# --- what is refused -------------------------------------------------------------------------------------------------


def _refused(source: str, target: str, kind: type[DrSaiError], words: str) -> None:
    before = (_rows(source, "acme"), _all(source), _rows(target, "acme"))
    with pytest.raises(kind, match=words):
        move_tenant(source, target, "acme")
    assert (_rows(source, "acme"), _all(source), _rows(target, "acme")) == before


def test_a_run_that_is_not_over(urls: list[str]) -> None:
    source, target = urls
    _fill(source)
    thread = table_of(Thread)
    for status in (RunStatus.RUNNING, RunStatus.AWAITING_INPUT):
        with connecting(source) as connection:
            connection.execute(sa.update(thread).where(thread.c.tenant == "acme").values(status=status))
        if status is RunStatus.RUNNING:
            _refused(source, target, Conflict, "of bob's thread t is not over: wait .* `drsai runs cancel run_of_every")
    move_tenant(source, target, "acme")  # A question waits there for its answer.


def test_what_cannot_be_moved(urls: list[str]) -> None:
    source, target = urls
    _refused(source, target, NotFound, "the source has nothing of the tenant acme")
    _fill(source)
    with connecting(source) as connection:
        connection.execute(sa.update(table_of(FileContent)).values(in_folder=True))
    _refused(source, target, InvalidRequest, "the bytes of 1 files of acme are in the folder of DRSAI_FILES_FOLDER")
    with connecting(source) as connection:
        connection.execute(sa.update(table_of(FileContent)).values(in_folder=False))
    with connecting(target) as connection:
        connection.execute(sa.insert(AgentJson).values(tenant="acme", user_id="u", component={}))
    _refused(source, target, Conflict, "the target has rows of acme of its own, in agentjson")
    _refused(source, source, Conflict, "the target has rows of acme of its own")


def test_a_table_that_nothing_is_known_of() -> None:
    with pytest.raises(InvalidRequest, match="whose the rows of the table notes are"):
        rows_of(sa.Table("notes", sa.MetaData(), sa.Column("text", sa.String)), "acme")


def test_a_row_that_comes_out_otherwise(migrated_sqlite: str, migrated_postgres: str) -> None:
    _fill(migrated_postgres)
    with connecting(migrated_sqlite) as connection:
        statement = "UPDATE agentjson SET version = 'no'"
        connection.execute(sa.text(f"CREATE TRIGGER lies AFTER INSERT ON agentjson BEGIN {statement}; END"))
    _refused(migrated_postgres, migrated_sqlite, DatabaseError, "agentjson is not the same in the target")


def test_a_source_that_changes_meanwhile(urls: list[str]) -> None:
    source, target = urls
    _fill(source)

    def change(sentence: str) -> None:
        if "deleted" in sentence:
            with connecting(source) as connection:
                connection.execute(sa.insert(AgentJson).values(tenant="acme", user_id="late", component={}))

    with pytest.raises(Conflict, match="changed in the source while it was copied: nothing is lost, repeat this"):
        move_tenant(source, target, "acme", tell=change)
    mine = _rows(source, "acme")
    assert [row["user_id"] for row in mine["agentjson"]] == ["bob", "late"]
    assert _is_refused_in(target)
    move_tenant(source, target, "acme")
    assert _rows(target, "acme") == mine
    assert not _is_refused_in(target)


def test_a_target_that_has_gone_on_meanwhile(urls: list[str]) -> None:
    """What was copied before is not copied anew, where a run of it is under way there."""
    source, target = urls
    _fill(source)

    def change(sentence: str) -> None:
        if "deleted" in sentence:
            for url, statement in (
                (source, sa.insert(AgentJson).values(tenant="acme", user_id="late", component={})),
                (target, sa.update(table_of(Thread)).values(status=RunStatus.RUNNING)),
            ):
                with connecting(url) as connection:
                    connection.execute(statement)

    with pytest.raises(Conflict, match="changed in the source"):
        move_tenant(source, target, "acme", tell=change)
    there = _rows(target, "acme")
    _refused(source, target, Conflict, "is not over: wait until it is")
    assert _rows(target, "acme") == there


def _is_refused_in(url: str) -> bool:
    with connecting(url, write=False) as connection:
        return connection.execute(sa.select(table_of(Switch)).where(ME)).first() is not None


# --- killed in its middle --------------------------------------------------------------------------------------------

_KILLED = """
import os, sys
from drsai_backend.database import moving

def die(*args, **more):
    os.kill(os.getpid(), 9)

def die_late(*args, **more):
    done(*args, **more)
    die()

done = getattr(moving, sys.argv[1])
setattr(moving, sys.argv[1], die if sys.argv[2] == "before" else die_late)
moving.move_tenant(*sys.argv[3:], "acme")
"""


@pytest.mark.parametrize("where", ["_copy before", "count_rows after", "_delete before", "_delete after"])
async def test_a_move_that_was_killed(urls: list[str], where: str) -> None:
    source, target = urls
    _fill(source)
    mine, others = _rows(source, "acme"), _rows(source, "default")
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, *where.split(), source, target)
    assert await killed.wait() == -9
    there, here = _rows(target, "acme"), _rows(source, "acme")
    assert here == mine or (_nothing(here) and there == mine)
    assert _nothing(there) or there == mine, "never half of it"
    assert _is_refused_in(target)
    moved = move_tenant(source, target, "acme")
    assert bool(moved) is (where != "_delete after")
    assert (_rows(target, "acme"), _rows(source, "default")) == (mine, others)
    assert _nothing(_rows(source, "acme"))
    assert not _is_refused_in(target)


def test_a_move_that_another_source_would_go_on_with(urls: list[str], tmp_path: Path) -> None:
    """Its rows must not take the place of those that are nowhere else by now."""
    source, target = urls
    _fill(source)

    def stop(sentence: str) -> None:
        if "deleted" in sentence:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        move_tenant(source, target, "acme", tell=stop)
    another = f"sqlite:///{tmp_path}/another.db"
    migrations.upgrade(another)
    _fill(another)
    with pytest.raises(Conflict, match="is being moved there from another database"):
        move_tenant(another, target, "acme")
    move_tenant(source, target, "acme")
