"""Users are listed, and deleted with all that is theirs and nothing that is another's."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlmodel import SQLModel

from drsai_backend import DrSai, RunStatus, Thread
from drsai_backend.access.key_store import ApiKeys
from drsai_backend.database import DatabaseManager, schemas
from drsai_backend.database.audit import audit, list_audit
from drsai_backend.database.owned import owned_by
from drsai_backend.database.users import left_of_deleted
from drsai_backend.datamodel import (
    AgentJson,
    AuditEntry,
    AutoGenMessage,
    BudgetRule,
    BudgetState,
    EncryptionKey,
    FileChunk,
    FileContent,
    KnowledgeStore,
    LimitRule,
    LimitState,
    MemoryPerson,
    RegisteredTool,
    SearchIndex,
    StoredConfig,
    StoredMemory,
    Switch,
    ToolStatistic,
    UsageEntry,
    Worker,
    WorkJob,
    table_of,
    utcnow,
)
from drsai_backend.datamodel.audit import PROGRAM, Action
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, IllegalTransition, InvalidRequest, NotFound, RunFailed, Unauthenticated
from drsai_backend.features.knowledge.base import NewStore
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from drsai_backend.state.portable import export_thread, import_thread
from tests.support.commands import Commands
from tests.support.every_row import add_row, add_thread, of_parents, tables_of_threads
from tests.support.teams.crew import Asker, Crew
from tests.support.threads import LATE, QUICK, Make, settings, until

ANN = Owner("acme", "ann")
OTHERS = (Owner("other", "ann"), Owner("default", "ann"), Owner("acme", "bob"))
KEPT = {table_of(AuditEntry), table_of(RegisteredTool), table_of(ToolStatistic), table_of(Worker), table_of(UsageEntry)}
KEPT |= {
    table_of(each) for each in (LimitRule, LimitState, BudgetRule, BudgetState, EncryptionKey, StoredConfig, Switch)
}
"""Have a tenant, and outlive its users, or are not told by `user_id` (tests/features/limits, budgets)."""


CONTENT = table_of(FileContent)
PARENTS = {"index_id": table_of(SearchIndex), "store_key": table_of(KnowledgeStore)}


def owned() -> list[sa.Table]:
    """All tables of the package whose rows have an owner; one that is new is among them by itself."""
    tables = [SQLModel.metadata.tables[name] for name in sorted(schemas.own_tables())]
    return [table for table in tables if "tenant" in table.c and table not in KEPT]


def fill(session: Session, owner: Owner) -> None:
    """Two threads with a row of each table of threads, and a row of each other table that has an owner."""
    for thread_id in ("t", "u"):
        add_thread(session, owner.user_id, thread_id, tenant=owner.tenant)
    for table in owned():
        if table.name not in tables_of_threads() and table is not table_of(Thread):
            add_row(session, table, *owner)
    content = sa.select(CONTENT.c.id).where(CONTENT.c.tenant == owner.tenant, CONTENT.c.user_id == owner.user_id)
    chunk = {"content_key": session.execute(content).scalar_one(), "start": 0, "data": b"x"}
    session.execute(sa.insert(table_of(FileChunk)).values(**chunk))
    for column, parents in PARENTS.items():
        parent = session.execute(sa.select(parents.c.id).where(*owned_by(parents, owner))).scalar_one()
        for table in of_parents(column):
            add_row(session, table, *owner, parent=parent)
    # Named after a thread that is not there, or not any more.
    for table in owned():
        if "thread_id" in table.c and not table.foreign_keys and table is not table_of(Thread):
            add_row(session, table, *owner, "lost")


def everything(session: Session, owner: Owner) -> dict[str, int]:
    """How many rows of every table are an owner's, by their columns or by their thread's."""
    found: dict[str, int] = {}
    thread = table_of(Thread)
    keys = sa.select(thread.c.id).where(thread.c.tenant == owner.tenant, thread.c.user_id == owner.user_id)
    for table in SQLModel.metadata.sorted_tables:
        if table.name not in schemas.own_tables() or table in KEPT:
            continue
        if "user_id" in table.c:
            mine = sa.and_(table.c.tenant == owner.tenant, table.c.user_id == owner.user_id)
        elif table is table_of(FileChunk):
            theirs = (CONTENT.c.tenant == owner.tenant, CONTENT.c.user_id == owner.user_id)
            mine = table.c.content_key.in_(sa.select(CONTENT.c.id).where(*theirs))
        elif column := next((name for name in PARENTS if name in table.c), None):
            parents = PARENTS[column]
            mine = table.c[column].in_(sa.select(parents.c.id).where(*owned_by(parents, owner)))
        else:
            mine = table.c.thread_key.in_(keys)
        found[table.name] = session.execute(sa.select(sa.func.count()).select_from(table).where(mine)).scalar_one()
    return found


async def count(drsai: DrSai, owner: Owner) -> dict[str, int]:
    return await drsai.database.read(lambda session: everything(session, owner))


async def test_all_tables_of_one_user_and_nothing_of_others(make: Make) -> None:
    drsai = await make({"crew": Crew()}, **LATE)
    for owner in (ANN, *OTHERS):
        await drsai.database.write(lambda session, owner=owner: fill(session, owner))
    drsai.keys.stale_seconds = 0
    before = {owner: await count(drsai, owner) for owner in (ANN, *OTHERS)}
    assert all(before[ANN].values()), before[ANN]
    rows = before[ANN]
    deleted = await drsai.users.delete(ANN)
    assert deleted == {
        "threads": 2,
        "messages": 2,
        "runs": 2,
        "user_inputs": rows["userinput"],
        "single_tasks": rows["singletask"],
        "task_lists": rows["tasks"],
        "plan_checks": rows["plancheck"],
        "agent_configs": 1,
        "api_keys": 1,
        "webhook_secrets": 1,
        "stored_answers": 1,
        "files": 1,
        "file_contents": 1,
        "definitions": 1,
        "jobs": 1,
        "knowledge": 1,  # a store, which goes with its files
    } | {name: rows[name] for name in deleted if name in rows}  # tables that have no other word for their rows
    assert set((await count(drsai, ANN)).values()) == {0}
    # Rows of threads that are gone are nobody's, and found by nobody's owner.
    total = await drsai.database.read(
        lambda session: {
            name: session.execute(sa.select(sa.func.count()).select_from(SQLModel.metadata.tables[name])).scalar_one()
            for name in before[ANN]
        }
    )
    after = {owner: await count(drsai, owner) for owner in OTHERS}
    assert after == {owner: before[owner] for owner in OTHERS}
    assert total == {name: sum(after[owner][name] for owner in OTHERS) for name in total}
    told = Counter[str]()
    async for entry in drsai.audit.entries("acme", "ann"):
        assert (entry.action, entry.subject, entry.owner) == ("user.deleted", "ann", "ann")
        told.update(entry.detail or {})
    assert dict(told) == deleted
    with pytest.raises(NotFound):
        await drsai.users.delete(ANN)


async def test_what_is_shared_with_a_user_goes_with_them(make: Make) -> None:
    drsai = await make({"crew": Crew()}, **QUICK)
    for user_id in ("bob", "eve"):
        await drsai.user(user_id, tenant="acme").run("crew", "x", thread_id="t")
        await drsai.user(user_id, tenant="acme").share_thread("t", with_user="ann", right="read")
    await drsai.user("eve", tenant="acme").share_thread("t", with_user="bob", right="read")
    assert await drsai.users.delete(ANN) == {"shares_received": 2}
    # Somebody else has the name now.
    assert (await drsai.user("ann", tenant="acme").list_shared_threads()).items == []
    assert len((await drsai.user("bob", tenant="acme").list_shared_threads()).items) == 1


@pytest.mark.parametrize("user", ["", " x", "x" * 256])
async def test_no_name_of_a_user(make: Make, user: str) -> None:
    drsai = await make({"crew": Crew()})
    with pytest.raises(InvalidRequest) as refused:
        await drsai.users.delete(Owner("default", user))
    assert refused.value.param == "user_id"


async def test_runs_in_any_process_are_stopped_first(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    held = {**QUICK, "lease_seconds": 30}  # A busy machine is to take no run away.
    here, there = await make({"crew": crew, "asker": Asker()}, **held), await make({"crew": crew}, **held)
    live = [
        await drsai.user("ann", tenant="acme").start("crew", "x", thread_id=name)
        for drsai, name in ((here, "t"), (there, "u"))
    ]
    waiting = [
        await here.user("ann", tenant="acme").start("crew", "later", thread_id="t", background=True) for _ in range(3)
    ]
    await here.user("ann", tenant="acme").run("asker", "x", thread_id="v")
    await crew.ann.asked.wait()
    deleted = await here.users.delete(ANN)
    assert deleted["threads"] == 3
    assert deleted["runs"] == 3 + len(waiting)
    assert set((await count(here, ANN)).values()) == {0}
    for handle in live:
        assert (await asyncio.wait_for(handle.wait(), 30)).status is RunStatus.STOPPED
    crew.ann.release()
    await asyncio.sleep(0.5)
    assert set((await count(there, ANN)).values()) == {0}, "nothing comes back"
    # Whoever comes under that name finds nothing.
    result = await here.user("ann", tenant="acme").run("crew", "hello", thread_id="t")
    assert (await here.user("ann", tenant="acme").get_thread("t")).message_count == 4
    assert result.status is RunStatus.COMPLETED


async def test_runs_on_threads_of_others_are_stopped_too(make: Make) -> None:
    """Those under way, paused, waiting and queued; what others run there goes on."""
    crew, pausing = Crew(), Crew()
    crew.ann.hold()
    pausing.ann.hold()
    teams = {"crew": crew, "pausing": pausing, "asker": Asker()}
    held = {**QUICK, "lease_seconds": 30}  # A busy machine is to take no run away.
    here, there = await make(teams, **held), await make(teams, **held)
    ann, bob = here.user("ann", tenant="acme"), here.user("bob", tenant="acme", owner="ann")
    own = await ann.run("asker", "x", thread_id="own")
    for thread_id, team in {"live": "crew", "paused": "pausing", "waits": "asker"}.items():
        await ann.load_history(thread_id, [{"role": "user", "content": "Hello."}], model=team)
        await ann.share_thread(thread_id, with_user="bob", right="write")
    live = await there.user("bob", tenant="acme", owner="ann").start("crew", "x", thread_id="live")
    queued = [await each.start("crew", "later", thread_id="live", background=True) for each in (bob, ann)]
    await crew.ann.asked.wait()
    paused = await bob.start("pausing", "x", thread_id="paused")
    await pausing.ann.asked.wait()
    await bob.pause("paused")
    pausing.ann.release()
    assert (await paused.wait()).status is RunStatus.PAUSED
    waits = await bob.run("asker", "x", thread_id="waits")
    assert waits.status is RunStatus.AWAITING_INPUT
    await here.users.delete(Owner("acme", "bob"))
    for run_id in (live.run_id, queued[0].run_id, paused.run_id, str(waits.run_id)):
        assert (await ann.get_run(run_id)).status is RunStatus.STOPPED
    assert (await ann.get_run(str(own.run_id))).status is RunStatus.AWAITING_INPUT
    crew.ann.release()
    assert (await asyncio.wait_for(queued[1].wait(), 30)).status is RunStatus.COMPLETED


def fail(*_: object) -> RuntimeError:
    return RuntimeError("The model is down.")


async def test_what_has_failed_on_threads_of_others_is_not_retried_as_them(make: Make) -> None:
    """Also where somebody has their name now, and begins anew."""
    crew = Crew()
    works, crew.ann.rule = crew.ann.rule, fail
    drsai = await make({"crew": crew}, **QUICK)
    ann = drsai.user("ann", tenant="acme")
    bob = drsai.user("bob", tenant="acme", owner="ann")
    for thread_id in ("t", "u", "mine"):
        await ann.load_history(thread_id, [{"role": "user", "content": "Hello."}], model="crew")
        await ann.share_thread(thread_id, with_user="bob", right="write")
        with pytest.raises(RunFailed):
            await (ann if thread_id == "mine" else bob).run("crew", "x", thread_id=thread_id)
    await drsai.users.delete(Owner("acme", "bob"))
    with pytest.raises(IllegalTransition, match="was deleted since"):
        await ann.retry("t")
    assert (await ann.get_thread("t")).status is RunStatus.ERROR
    await ann.share_thread("u", with_user="bob", right="write")
    with pytest.raises(IllegalTransition, match="was deleted since"):
        await bob.retry("u")
    with pytest.raises(RunFailed):
        await bob.run("crew", "again", thread_id="u")
    crew.ann.rule = works
    for caller, thread_id in ((bob, "u"), (ann, "mine")):
        await caller.retry(thread_id)

        async def is_done(thread_id: str = thread_id) -> bool:
            return (await ann.get_thread(thread_id)).status is RunStatus.COMPLETED

        await until(is_done)


async def test_their_keys_stop_working(make: Make) -> None:
    here, there = await make({"crew": Crew()}), await make({"crew": Crew()})
    await here.keys.create(Owner("acme", "root"), ["admin"])
    made = await here.keys.create(ANN, ["user"])
    key = made.key.get_secret_value()
    for drsai in (here, there):
        assert (await drsai.keys.check(key)).owner == ANN
    deleting = asyncio.create_task(here.users.delete(ANN))

    async def gone() -> bool:
        return not (await count(here, ANN))["apikey"]

    await until(gone)
    await asyncio.sleep(0.1)
    with pytest.raises(Unauthenticated):
        await here.keys.check(key)
    assert await deleting == {"api_keys": 1}
    with pytest.raises(Unauthenticated):  # And nowhere, once it is done.
        await there.keys.check(key)


async def test_the_last_keys_stay(make: Make) -> None:
    """Or else the server would ask nobody for a key."""
    drsai = await make({"crew": Crew()})
    await drsai.keys.create(ANN, ["admin"])
    await drsai.user("ann", tenant="acme").run("crew", "x", thread_id="t")
    with pytest.raises(Conflict, match="last API keys"):
        await drsai.users.delete(ANN)
    assert (await count(drsai, ANN))["thread"] == 1
    assert await ApiKeys(drsai.database).any_exist()
    required = await make({"crew": Crew()}, auth="required")
    required.keys.stale_seconds = 0
    assert (await required.users.delete(ANN))["api_keys"] == 1


async def test_lists_of_users(make: Make) -> None:
    drsai = await make({"crew": Crew()}, **LATE)
    users = ["Zoe", "ann", "bob", "čaj", "eve", "李"]
    for n, user in enumerate(users[:4]):
        for thread_id in range(n):
            await drsai.database.write(
                lambda session, user=user, thread_id=thread_id: add_thread(
                    session, user, f"t{thread_id}", tenant="acme"
                )
            )
    await drsai.keys.create(Owner("acme", "eve"), ["user"])
    await drsai.keys.create(Owner("acme", "Zoe"), ["user"])
    await drsai.db.upsert(AgentJson(tenant="acme", user_id="李", component={}))
    await drsai.keys.create(Owner("other", "adam"), ["user"])
    found: list[tuple[str, int]] = []
    after = None
    while True:
        page = await drsai.users.list("acme", after, 2)
        found += [(item.user_id, item.threads) for item in page.items]
        if (after := page.next) is None:
            break
    assert found == sorted(zip(users, [0, 1, 2, 3, 0, 0], strict=True))


async def test_over_http_nobody_deletes_themselves(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    admin = await drsai.keys.create(Owner("acme", "root"), ["admin"])
    for owner in (ANN, OTHERS[0]):
        await drsai.db.upsert(AgentJson(**owner._asdict(), component={}))
    headers = {"Authorization": f"Bearer {admin.key.get_secret_value()}"}
    transport = httpx.ASGITransport(drsai.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:
        assert [user["id"] for user in (await http.get("/v1/users")).json()["data"]] == ["ann", "root"]
        assert (await http.delete("/v1/users/root")).status_code == 409
        answer = await http.delete("/v1/users/ann")
        assert answer.json()["counts"] == {"agent_configs": 1}
        assert (await http.delete("/v1/users/ann")).status_code == 404
    assert (await count(drsai, OTHERS[0]))["agentjson"] == 1
    [entry] = [entry async for entry in drsai.audit.entries("acme", None, "user")]
    assert (entry.by, entry.actor, entry.key_id) == ("user", "root", admin.info.key_id)


# --- by the command line ----------------------------------------------------------------------------------------------


def _many(session: Session, owner: Owner, threads: int) -> None:
    common = {"created_at": utcnow(), "updated_at": utcnow(), "version": "0.0.1", **owner._asdict()}
    rows = [
        {**common, "thread_id": f"t{n}", "status": "completed", "revision": 1, "last_seq": 1, "turn": 0}
        | {"journal_debt": 0, "epoch": 0}
        for n in range(threads)
    ]
    session.execute(sa.insert(table_of(Thread)), rows)
    thread = table_of(Thread)
    keys = session.execute(
        sa.select(thread.c.id, thread.c.thread_id).where(
            thread.c.tenant == owner.tenant, thread.c.user_id == owner.user_id
        )
    ).all()
    messages = [
        {**common, "thread_id": thread_id, "thread_key": key, "seq": 1, "config": {"content": "x"}}
        for key, thread_id in keys
    ]
    session.execute(sa.insert(table_of(AutoGenMessage)), messages)


def test_killed_in_the_middle_and_deleted_again(commands: Commands, database_url: str, tmp_path: Path) -> None:
    threads = 1500
    manager = DatabaseManager(database_url)
    database = manager.database
    for owner in (ANN, OTHERS[0]):
        database.write_sync(lambda session, owner=owner: _many(session, owner, threads))
    before = database.read_sync(lambda session: everything(session, OTHERS[0]))
    environment = {"DRSAI_DATABASE_URL": database_url}
    arguments = ("users", "remove", "ann", "--tenant", "acme", "--yes")
    command = commands.start(*arguments, cwd=tmp_path, env=environment)
    thread = table_of(Thread)
    here = sa.select(sa.func.count()).where(thread.c.tenant == ANN.tenant, thread.c.user_id == ANN.user_id)
    left = threads
    late = time.monotonic() + 60
    while left == threads and time.monotonic() < late:  # by a short query: all of it is deleted within half a second
        left = database.read_sync(lambda session: session.execute(here).scalar_one())
    command.die()
    left = database.read_sync(lambda session: everything(session, ANN))
    assert 0 < left["thread"] < threads
    assert left["autogenmessage"] == left["thread"], "a thread goes with all of it, or not at all"
    again = commands.run(*arguments, cwd=tmp_path, env=environment)
    assert f"{left['thread']} threads, {left['thread']} messages" in again.stdout.replace("\n", " ")
    assert set(database.read_sync(lambda session: everything(session, ANN)).values()) == {0}
    assert database.read_sync(lambda session: everything(session, OTHERS[0])) == before
    log = database.read_sync(lambda session: list_audit(session, tenant="acme", limit=1000)).items
    assert {entry.by for entry in log} == {"cli"}
    assert sum((entry.detail or {}).get("threads", 0) for entry in log) == threads
    database.close_sync()


async def test_what_is_exported_can_be_imported(
    make: Make, commands: Commands, database_url: str, tmp_path: Path
) -> None:
    drsai = await make({"crew": Crew()}, **LATE)
    for thread_id in ("t", "with/slash"):
        await drsai.user("ann", tenant="acme").run("crew", "Hello.", thread_id=thread_id)
    await drsai.db.upsert(AgentJson(tenant="acme", user_id="ann", component={"provider": "x"}))
    note = await drsai.files.create(ANN, "note.txt", b"Buy bread.")
    file, environment = tmp_path / "ann.zip", {"DRSAI_DATABASE_URL": database_url}
    arguments = ("users", "remove", "ann", "--tenant", "acme", "--yes", "--export")

    async def delete(target: Path) -> Any:
        command = commands.start(*arguments, str(target), cwd=tmp_path, env=environment)
        code = await asyncio.to_thread(command.wait)
        return code, command.stdout, command.stderr

    code, _, said = await delete(tmp_path / "no" / "folder.zip")
    assert (code, "no file can be written there" in said) == (1, True)
    assert (await count(drsai, ANN))["thread"] == 2
    code, shown, _ = await delete(file)
    assert code == 0
    assert "exported 2 threads" in shown
    assert "1 agent config" in shown
    assert set((await count(drsai, ANN)).values()) == {0}
    assert file.stat().st_mode & 0o777 == 0o600
    with ZipFile(file) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert (manifest["tenant"], manifest["user_id"]) == ANN
        [config] = map(json.loads, archive.read("rows/agentjson.jsonl").splitlines())
        assert config["component"] == {"provider": "x"}
        [row] = map(json.loads, archive.read("rows/storedfile.jsonl").splitlines())
        assert (row["file_id"], archive.read(f"files/{row['sha256']}")) == (note.file_id, b"Buy bread.")
        for item in manifest["threads"]:
            readable = json.loads(archive.read(item["file"].replace(".thread", ".json")))
            assert readable["thread_id"] == item["thread_id"]
            assert readable["autogenmessage"][0]["config"]["content"] == "Hello."
            assert [run["status"] for run in readable["run"]] == ["completed"]
            data = archive.read(item["file"])
            await drsai.database.write(lambda session, data=data: import_thread(session, data, tenant="acme"))
    page = await drsai.user("ann", tenant="acme").list_threads()
    assert {item.thread_id: item.message_count for item in page.items} == {"t": 4, "with/slash": 4}
    assert (await drsai.user("ann", tenant="acme").run("crew", "Again.", thread_id="t")).status == "completed"
    actions = [entry.action async for entry in drsai.audit.entries("acme", "ann")]
    assert actions.count("user.exported") == 1


def test_lists_and_the_log_in_a_terminal(commands: Commands, database_url: str, tmp_path: Path) -> None:
    def drsai(*arguments: str) -> Any:
        return commands.run(*arguments, cwd=tmp_path, env={"DRSAI_DATABASE_URL": database_url})

    manager = DatabaseManager(database_url)
    manager.database.write_sync(lambda session: _many(session, ANN, 3))
    drsai("keys", "add", "--user", "bob[b]", "--tenant", "acme")
    assert drsai("users", "list", "--tenant", "acme").stdout.splitlines() == ["ann  3 threads", "bob[b]  0 threads"]
    assert json.loads(drsai("users", "list", "--tenant", "acme", "--json", "-n", "1").stdout) == [
        {"user_id": "ann", "threads": 3}
    ]
    assert "--after ann" in drsai("users", "list", "--tenant", "acme", "-n", "1").stdout
    assert "nothing belongs" in drsai("users", "list").stdout
    drsai("users", "remove", "ann", "--tenant", "acme", "--yes")
    lines = drsai("audit").stdout.splitlines()
    assert "user.deleted ann of ann (acme) by the command line" in lines[0]
    assert "threads 3" in lines[1]
    assert "key.created" in lines[2]
    [entry] = json.loads(drsai("audit", "--action", "key", "--tenant", "acme", "--json").stdout)
    assert (entry["by"], entry["actor"], entry["owner"]) == ("cli", None, "bob[b]")
    assert "--after" in drsai("audit", "-n", "1").stdout
    assert "no such entries" in drsai("audit", "--user", "nobody").stdout
    assert "deleted 2 entries" in drsai("audit", "prune", "--older-than", "0m", "--yes").stdout
    assert drsai("users", "remove", "ann", "--yes").stderr.startswith("Error: nothing belongs to a user 'ann' here")
    manager.database.close_sync()


async def test_what_an_earlier_release_has_left_of_users_whom_it_has_deleted_goes(database_url: str) -> None:
    """It does not know all tables. Who has come back keeps what is there."""
    users = [Owner("acme", name) for name in ("ann", "bob", "carl")]
    async with DrSai({}, database_url, settings=settings(**LATE)) as drsai:
        for owner in users:
            await drsai.extension(Memory).add(owner, NewMemory(text="Tea is good."))
            await drsai.extension(Knowledge).create(owner, NewStore(name="s", expires_days=1))

        def told(session: Session) -> None:
            for owner in (users[0], users[2], Owner("other", "bob")):
                audit(session, PROGRAM, Action.USER_DELETED, owner.user_id, owner, {"threads": 1})

        await drsai.database.write(told)
        await drsai.extension(Memory).add(users[2], NewMemory(text="Coffee, too."))
        await drsai.engine.prune()
        for table in map(table_of, (StoredMemory, MemoryPerson, KnowledgeStore, SearchIndex, WorkJob)):
            query = sa.select(table.c.user_id).distinct().order_by(table.c.user_id)
            found = await drsai.database.read(lambda session, query=query: [*session.execute(query).scalars()])
            assert found == ["bob", "carl"], table.name
        assert await drsai.database.read(left_of_deleted) == []


async def test_whose_export_fails_keeps_all_but_the_keys(make: Make) -> None:
    """Only the keys are deleted before it, and what is left is no leftover of an earlier release."""
    drsai = await make({"crew": Crew()}, **LATE)
    await drsai.keys.create(Owner("acme", "root"), ["admin"])
    drsai.keys.stale_seconds = 0
    ann, bob = (Owner("acme", name) for name in ("ann", "bob"))
    await drsai.user("ann", tenant="acme").run("crew", "Hello.", thread_id="t")
    for owner in (ann, bob):
        await drsai.keys.create(owner, ["user"])
        await drsai.extension(Memory).add(owner, NewMemory(text="Tea is good."))

    async def fail() -> None:
        # Another process keeps house while all is exported.
        await drsai.engine.prune()
        raise InvalidRequest("the disk is full", param="export")

    before = {owner: await count(drsai, owner) | {"apikey": 0} for owner in (ann, bob)}
    for owner in (ann, bob):
        with pytest.raises(InvalidRequest, match="disk is full"):
            await drsai.users.delete(owner, export=fail)
    await drsai.engine.prune()
    assert {owner: await count(drsai, owner) for owner in (ann, bob)} == before
    # What is repeated goes on.
    assert (await drsai.users.delete(ann))["threads"] == 1
    assert set((await count(drsai, ann)).values()) == {0}


async def test_whose_thread_is_imported_again_is_back(make: Make) -> None:
    """A thread is as old as it was, wherever it is imported."""
    drsai = await make({"crew": Crew()}, **LATE)
    drsai.keys.stale_seconds = 0
    caller, name = drsai.user("ann", tenant="acme"), ANN.thread("t")
    await caller.run("crew", "Hello.", thread_id="t")
    data = await drsai.database.read(lambda session: export_thread(session, name))
    await drsai.users.delete(ANN)
    await drsai.database.write(lambda session: import_thread(session, data, tenant="acme"))
    before = await count(drsai, ANN)
    await drsai.engine.prune()
    assert await count(drsai, ANN) == before
    assert before["thread"] == 1
    # Neither does a memory go that an earlier release has left, once the thread is deleted.
    await drsai.extension(Memory).add(ANN, NewMemory(text="Tea is good."))
    told = partial(audit, actor=PROGRAM, action=Action.USER_DELETED, subject="ann", owner=ANN, detail={"threads": 1})
    await caller.delete_thread("t")
    await drsai.database.write(told)
    await drsai.database.write(lambda session: import_thread(session, data, tenant="acme"))
    await caller.delete_thread("t")
    before = await count(drsai, ANN)
    await drsai.engine.prune()
    assert await count(drsai, ANN) == before
    assert sum(before.values()) > 0
