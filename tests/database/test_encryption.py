"""Whoever has a dump of a database reads nothing of what was said in it, and its servers read all of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.orm import Session
from sqlmodel import SQLModel

from drsai_backend import AssistantAgent, DrSai, RunContext, RunStatus, Thread
from drsai_backend.database import Database, DatabaseManager, encryption, migrations, schemas
from drsai_backend.database.migrations import connecting
from drsai_backend.database.moving import move_tenant
from drsai_backend.database.text_keys import TextKeys
from drsai_backend.datamodel import AutoGenMessage, Run, SingleTask, Tasks, table_of
from drsai_backend.datamodel.encrypted import EncryptedJson, texts_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, Conflict, DatabaseError, DrSaiError, InvalidRequest
from drsai_backend.features.all_runs.base import Order, Wanted
from drsai_backend.features.knowledge.base import NewFile, NewStore
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from drsai_backend.state.portable import export_thread, import_thread
from tests.support.commands import Commands
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import LATE, settings, until

MARKER = "Rosebud"
OLD, NEW = ("o" * 40, "n" * 40)
ANN, BOB = Owner("acme", "ann"), Owner("other", "bob")
Make = Callable[..., Awaitable[DrSai]]


def keys(*texts: str) -> list[SecretStr]:
    return [SecretStr(text) for text in texts]


def ring(*texts: str) -> TextKeys:
    return TextKeys(keys(*texts))


async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{MARKER} was found at {word}"


def lamp(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client(), tools=[look_up], max_tool_iterations=3)


def says(request: ModelRequest) -> Reply | Failure | str:
    last = request.messages[-1]
    if last["role"] == "tool":
        return f"So it was {MARKER}."
    if "break" in str(last["content"]):
        return Failure(400, f"no {MARKER} for you")
    if "look up" in str(last["content"]):
        return Reply(tool_calls=[ToolCall("look_up", {"word": MARKER})])
    return f"I know {MARKER}."


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(says, strict=False) as server:
        yield server


@pytest.fixture
async def make(database_url: str, model: ModelServer) -> AsyncIterator[Make]:
    """`await make(*keys, **settings)` opens a process, to all the others."""
    async with AsyncExitStack() as stack:

        async def made(*texts: str, url: str = database_url, **values: Any) -> DrSai:
            endpoint = {"openai_base_url": model.base_url, "openai_api_key": "k", "model": "gpt-4o-mini"}
            given = {**LATE, **endpoint, "model_max_retries": 0, "calls_keep": ["*"], "work_seconds": 0.1, **values}
            opened = DrSai({"lamp": lamp}, url, settings=settings(**given, encryption_keys=keys(*texts)))
            return await stack.enter_async_context(opened)

        yield made


async def live(drsai: DrSai, owner: Owner = ANN) -> None:
    """All that a user does in whose course texts are stored."""
    user = drsai.user(owner.user_id, tenant=owner.tenant)
    assert MARKER in (await user.run("lamp", f"What is {MARKER}?", thread_id="t")).text
    assert MARKER in (await user.run("lamp", f"look up {MARKER}", thread_id="t")).text
    with pytest.raises(DrSaiError):
        await user.run("lamp", f"break {MARKER}", thread_id="broken")
    await user.set_meta("t", {"note": MARKER})
    await user.fork("t", new_thread_id="fork")
    file = await drsai.files.create(owner, f"{MARKER}.txt", f"{MARKER} is a sledge. ".encode() * 9)
    await drsai.extension(Memory).add(owner, NewMemory(text=f"Owns {MARKER}"))
    knowledge = drsai.extension(Knowledge)
    store = await knowledge.create(owner, NewStore(name="films"), [NewFile(file_id=file.file_id)])

    async def read() -> bool:
        return (await knowledge.get_file(owner, store.store_id, file.file_id)).status == "completed"

    await until(read)
    db = drsai.db.of_tenant(owner.tenant)
    where = {"user_id": owner.user_id, "thread_id": "t", "tenant": owner.tenant}
    await db.upsert(SingleTask(**where, task_id="1", content=MARKER, meta={"a": MARKER}))
    await db.upsert(Tasks(**where, tasks_id="1", content=MARKER, tasks=[{"a": MARKER}]))
    await db.upsert(AutoGenMessage(**where, config={"type": "TextMessage", "source": "x", "content": MARKER}))


def stored(url: str) -> dict[str, list[dict[str, Any]]]:
    """All rows of the package's tables, as the database has them, each with its tenant as `tenant_of` finds it."""
    found: dict[str, list[dict[str, Any]]] = {}
    encrypted = encryption.encrypted_tables()
    with connecting(url, write=False) as connection:
        for table in SQLModel.metadata.sorted_tables:
            if table.name in schemas.own_tables():
                whose = encryption.tenant_of(table) if table in encrypted else sa.literal("")
                rows = connection.execute(sa.select(table, whose.label("whose"))).mappings()
                found[table.name] = [dict(row) for row in rows]
    return found


def leaks(url: str, marker: str = MARKER) -> set[str]:
    """The columns in whose values a marker stands that are not encrypted."""
    return {
        f"{table}.{name}"
        for table, rows in stored(url).items()
        for row in rows
        for name, value in row.items()
        if marker in (value.decode("latin1") if isinstance(value, bytes) else str(value))
    }


def unsealed(url: str, ring: TextKeys) -> set[str]:
    """The columns with a value that is not encrypted with the newest key of a ring for the tenant of its row."""
    found, rows = set[str](), stored(url)
    for table in encryption.encrypted_tables():
        for column in encryption.encrypted_columns(table):
            for row in rows[table.name]:
                value = row[column.name]
                if isinstance(column.type, EncryptedJson) and value is not None:
                    value = value.get("$encrypted", "") if isinstance(value, dict) else ""
                text = value.decode("latin1") if isinstance(value, bytes) else value
                if text is not None and not text.startswith(f"drsai1:{ring.newest}:{ring.tag(row['whose'])}:"):
                    found.add(f"{column.type.place} of {row['whose']}: {str(text)[:60]}")
    return found


def renewed(url: str, *texts: str) -> dict[str, int]:
    """What `drsai db encrypt` has written anew, by table. Nothing is left."""
    database = Database(url, text_keys=ring(*texts))
    try:
        found = [*encryption.encrypt(database)]
        assert [each for each in found if each.left or each.unreadable] == []
        return {each.table: each.done for each in found if each.done}
    finally:
        database.close_sync()


async def said(drsai: DrSai, thread_id: str = "t", owner: Owner = ANN) -> list[str]:
    user = drsai.user(owner.user_id, tenant=owner.tenant)
    return [each.content for each in await user.list_messages(thread_id)]


async def all_is_read(drsai: DrSai, owner: Owner = ANN) -> None:
    """Also by a process that has stored none of it."""
    user = drsai.user(owner.user_id, tenant=owner.tenant)
    assert f"I know {MARKER}." in await said(drsai, owner=owner)
    assert f"What is {MARKER}?" in await said(drsai, "fork", owner)
    thread = await user.get_thread("t")
    assert (thread.title, thread.meta) == (f"What is {MARKER}?", {"note": MARKER})
    assert MARKER in ((await user.get_thread("broken")).error_message or "")
    [file] = (await drsai.files.list(owner)).items
    assert file.filename == f"{MARKER}.txt"
    assert MARKER.encode() in await drsai.files.read(owner, file.file_id)
    [memory] = (await drsai.extension(Memory).list(owner)).items
    assert MARKER in memory.text
    [row] = await drsai.db.of_tenant(owner.tenant).get(SingleTask, {"user_id": owner.user_id})
    assert (row.content, row.meta) == (MARKER, {"a": MARKER})


NEVER_FILLED = {
    *("agentjson.component", "autogenmessage.message_meta", "knowledgefile.error", "plancheck.steps"),
    *("plancheck.task", "queuedinput.request", "run.answers", "run.told", "singletask.files"),
    *("singletask.task_messages", "storedanswer.answer", "tasks.files", "tasks.meta", "thread.input_request"),
    *("turnstep.value", "work_job.error"),
}
"""Columns that the life above leaves empty; `test_each_column_is_encrypted_and_read` fills them."""


async def test_nobody_reads_a_dump(make: Make, database_url: str) -> None:
    drsai = await make(OLD)
    await live(drsai, ANN)
    await live(drsai, BOB)
    assert leaks(database_url) == set()
    assert unsealed(database_url, ring(OLD)) == set()
    rows = stored(database_url)
    empty = {
        column.type.place
        for table in encryption.encrypted_tables()
        for column in encryption.encrypted_columns(table)
        if not any(row[column.name] is not None for row in rows[table.name])
    }
    assert empty <= NEVER_FILLED
    if drsai.database.sqlite_path is not None:
        file = Path(drsai.database.sqlite_path)
        whole = b"".join(each.read_bytes() for each in file.parent.glob(f"{file.name}*"))
        assert MARKER.encode() not in whole
    again = await make(OLD)
    for owner in (ANN, BOB):
        await all_is_read(again, owner)
    assert "So it was" in (await again.user("ann", tenant="acme").run("lamp", "look up", thread_id="t")).text


async def test_without_keys_a_dump_is_read(make: Make, database_url: str) -> None:
    """So the test above would find what is not encrypted."""
    await live(await make())
    assert leaks(database_url) >= {
        *("autogenmessage.config", "filechunk.data", "memory.text", "run.error_message", "searchentry.text"),
        *("storedfile.filename", "thread.title", "threadfield.value"),
    }


def test_each_column_is_encrypted_and_read(database_url: str) -> None:
    values: dict[str, Any] = {"Text": MARKER, "String": MARKER, "JSON": {"a": [MARKER, None]}, "LargeBinary": b"\0\xff"}
    database, columns = Database(database_url, text_keys=ring(OLD)), sa.MetaData()
    kinds = {
        column.type.place: column.type
        for table in encryption.encrypted_tables()
        for column in encryption.encrypted_columns(table)
    }
    assert kinds.keys() <= {str(column) for each in encryption.encrypted_tables() for column in each.c}
    table = sa.Table("everything", columns, *(sa.Column(place, kind) for place, kind in kinds.items()))
    row = {place: values[type(kind.impl_instance).__name__] for place, kind in kinds.items()}
    raw = sa.Table("everything", sa.MetaData(), *(sa.Column(c.name, encryption.as_stored(c).type) for c in table.c))
    with connecting(database_url) as connection:
        columns.create_all(connection)

    def work(session: Session) -> tuple[Any, Any]:
        with texts_of("acme"):
            session.execute(sa.insert(table), [row, dict.fromkeys(row)])
            found = session.execute(sa.select(table)).mappings().all()
        return found, session.execute(sa.select(raw)).mappings().first()

    found, kept = database.write_sync(work)
    database.close_sync()
    assert [dict(each) for each in found] == [row, dict.fromkeys(row)]
    assert {place for place, value in kept.items() if MARKER in str(value) or "drsai1:" not in str(value)} == set()


async def test_rows_from_before_are_read_and_written_anew(make: Make, database_url: str) -> None:
    drsai = await make()
    await live(drsai)
    encrypting = await make(OLD)  # as if all others were gone
    await all_is_read(encrypting)
    await encrypting.user("ann", tenant="acme").run("lamp", f"More of {MARKER}", thread_id="t")
    assert "autogenmessage.config" in leaks(database_url)
    done = renewed(database_url, OLD)
    assert done["autogenmessage"] > 5
    assert done["filechunk"] == 1
    assert leaks(database_url) == set()
    assert unsealed(database_url, ring(OLD)) == set()
    assert renewed(database_url, OLD) == {}
    # Another key, and back to none.
    rotating = await make(NEW, OLD)
    assert sum(renewed(database_url, NEW, OLD).values()) >= sum(done.values())
    assert unsealed(database_url, ring(NEW)) == set()
    await all_is_read(rotating)
    await all_is_read(await make(NEW))
    with pytest.raises(ConfigurationError, match=ring(NEW).ids[0]):
        await make(OLD)
    with pytest.raises(ConfigurationError, match=ring(NEW).ids[0]):
        await make()
    await all_is_read(await make("plain", NEW))
    renewed(database_url, "plain", NEW)
    assert not any("drsai1:" in str(row) for rows in stored(database_url).values() for row in rows)
    await all_is_read(await make())


async def test_a_text_that_looks_like_ciphertext_is_one_once_all_is_encrypted(make: Make, database_url: str) -> None:
    planted = f"drsai1:{'0' * 8}:{'A' * 16}:{'A' * 16}"
    user = (await make()).user("ann", tenant="acme")
    await user.run("lamp", planted, thread_id="t")
    await user.set_meta("t", {"$encrypted": planted})
    encrypting = (await make(OLD)).user("ann", tenant="acme")
    with pytest.raises(ConfigurationError, match="0" * 8):
        await encrypting.get_thread("t")
    renewed(database_url, OLD)
    for process in (await make(OLD), await make("plain", OLD)):
        thread = await process.user("ann", tenant="acme").get_thread("t")
        assert (thread.title, thread.meta) == (planted, {"$encrypted": planted})
    renewed(database_url, "plain", OLD)
    thread = await (await make()).user("ann", tenant="acme").get_thread("t")
    assert (thread.title, thread.meta) == (planted, {"$encrypted": planted})


async def test_what_no_database_finds_is_refused(make: Make) -> None:
    drsai = await make(OLD)
    await live(drsai)
    for field in ("error", "text", "tool"):
        with pytest.raises(InvalidRequest, match="DRSAI_ENCRYPTION_KEYS") as caught:
            await drsai.all_runs.list(Wanted(**{field: "model"}))
        assert caught.value.param == field
    for refused in ({"title": "x"}, {"title": {"like": "x%"}}, {"title": ["x"]}, {"error_message": {"ne": "x"}}):
        with pytest.raises(InvalidRequest, match="DRSAI_ENCRYPTION_KEYS"):
            await drsai.db.get(Thread, refused)
    with pytest.raises(InvalidRequest, match="DRSAI_ENCRYPTION_KEYS"):
        await drsai.db.get(Thread, order="title")
    [broken] = await drsai.db.get(Thread, {"tenant": "acme", "error_message": {"ne": None}})
    assert MARKER in (broken.error_message or "")
    # What is in clear is found as before.
    failed = await drsai.all_runs.list(Wanted(status=RunStatus.ERROR, team="lamp"))
    assert [MARKER in (each.error_message or "") for each in failed.items] == [True]
    assert [group.runs for group in await drsai.all_runs.errors()] == [1]


async def test_failed_runs_are_found_by_their_code(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    drsai = await make(OLD)
    user, every = drsai.user("ann", tenant="acme"), drsai.all_runs
    broken = list[str]()
    for number in range(3):
        with pytest.raises(DrSaiError):
            await user.run("lamp", f"break {MARKER}", thread_id=f"broken {number}")
        broken.append((await user.list_runs(f"broken {number}")).items[0].run_id)
    row, given_up = table_of(Run), "The run was given up: its processes were killed."
    for run_id in broken[:2]:
        await drsai.database.write(
            lambda session, run_id=run_id: session.execute(
                sa.update(row).where(row.c.run_id == run_id).values(error_message=given_up)
            )
        )

    async def ids(code: str, order: Order = "newest", limit: int = 20) -> list[str]:
        found, after = list[str](), None
        while True:
            page = await every.list(Wanted(error_code=code), order=order, after=after, limit=limit)
            found += [each.run_id for each in page.items]
            if (after := page.next) is None:
                return found

    monkeypatch.setattr("drsai_backend.features.all_runs.said.MOST_RUNS", 2)
    for limit in (1, 2, 20):
        assert await ids("given_up", limit=limit) == broken[1::-1]
        assert await ids("model_error", limit=limit) == broken[2:]
    assert sorted(await ids("given_up", "slow", 1)) == sorted(broken[:2])
    assert await ids("model_timeout") == []
    assert [each.error_code for each in await every.errors(Wanted(error_code="given_up"))] == ["given_up"]
    wanted = Wanted(error_code="given_up")
    found = await every.steer_all("retry", wanted, limit=1, dry_run=True)
    assert (found.found, [each.run_id for each in found.runs]) == (2, broken[:1])
    done = await every.steer_all("retry", wanted)
    assert {each.run_id: each.outcome for each in done.runs} == dict.fromkeys(broken[:2], "done")
    assert (await every.steer_all("cancel", wanted, dry_run=True)).found == 0


def test_a_text_opens_where_it_belongs_and_nowhere_else() -> None:
    old, new = ring(OLD), ring(NEW, OLD)
    text = old.encrypt_text(b"secret", "run.error_message", "acme")
    assert text != old.encrypt_text(b"secret", "run.error_message", "acme")
    assert new.decrypt_text(text, "run.error_message", "acme") == b"secret"
    with pytest.raises(ConfigurationError, match=new.ids[0]):
        old.decrypt_text(new.encrypt_text(b"x", "run.error_message", "acme"), "run.error_message", "acme")
    with pytest.raises(DatabaseError, match=r"thread\.title"):
        old.decrypt_text(text, "thread.title", "acme")
    with pytest.raises(DatabaseError, match="another tenant"):
        old.decrypt_text(text, "run.error_message", "other")
    # A header that says so does not make it another tenant's.
    forged = text.replace(old.tag("acme"), old.tag("other"))
    for tampered in (forged, text[:-6] + "AAAA==", text[:40], text[:33]):
        with pytest.raises(DatabaseError):
            old.decrypt_text(tampered, "run.error_message", "other" if tampered is forged else "acme")
    for plain in ("", "drsai1:", "drsai1:nothing:of the kind", "drsai1:0123abcd:tag", "čaj" * 30):
        assert old.decrypt_text(plain, "run.error_message", "acme") is None
    assert OLD not in repr(old)


async def test_a_text_that_was_put_into_another_tenants_row_is_refused(make: Make) -> None:
    drsai = await make(OLD)
    for owner in (ANN, BOB):
        await drsai.user(owner.user_id, tenant=owner.tenant).run("lamp", f"Mine: {owner.user_id}", thread_id="t")

    def swap(session: Session) -> None:
        m = sa.table("autogenmessage", sa.column("tenant"), sa.column("seq"), sa.column("config"))
        theirs = sa.select(m.c.config).where(m.c.tenant == "other", m.c.seq == 1).scalar_subquery()
        session.execute(sa.update(m).where(m.c.tenant == "acme", m.c.seq == 1).values(config=theirs))

    await drsai.database.write(swap)
    with pytest.raises(DatabaseError, match="another tenant"):
        await said(drsai)
    again = await make(OLD)  # which has nothing of it in memory
    with pytest.raises(DatabaseError, match="another tenant"):
        await again.user("ann", tenant="acme").run("lamp", "And?", thread_id="t")
    assert "Mine: bob" in await said(again, owner=BOB)


@pytest.mark.parametrize(
    ("texts", "said"),
    [(("short",), "32 characters"), (("plain",), "followed by"), (("plain", "short"), "32 characters")],
)
def test_keys_that_are_none(texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        ring(*texts)
    assert caught.value.param == "encryption_keys"


def test_keys_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{NEW}\n{OLD}\n")
    found = TextKeys.of([], file)
    assert found is not None
    assert found.ids == ring(NEW, OLD).ids
    assert TextKeys.of([]) is None
    with pytest.raises(ConfigurationError, match="cannot be read"):
        TextKeys.of([], tmp_path / "none")


async def test_a_thread_travels_in_clear_and_is_stored_under_the_key_of_where_it_comes(
    make: Make, database_url: str, migrated_sqlite: str, tmp_path: Path
) -> None:
    drsai = await make(OLD)
    await live(drsai)
    data = await drsai.database.read(lambda session: export_thread(session, ANN.thread("t")))
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    target = await make(NEW, url=elsewhere)
    await target.database.write(lambda session: import_thread(session, data, tenant="other", user_id="bob"))
    assert f"I know {MARKER}." in await said(target, owner=BOB)
    assert leaks(elsewhere) == set()
    assert unsealed(elsewhere, ring(NEW)) == set()


async def test_a_tenant_moves_with_its_ciphertext(make: Make, database_url: str, tmp_path: Path) -> None:
    drsai = await make(OLD)
    await live(drsai)
    await drsai.close()
    target = f"sqlite:///{tmp_path / 'target.db'}"
    migrations.upgrade(target)
    with pytest.raises(Conflict, match=ring(OLD).ids[0]):
        move_tenant(database_url, target, "acme")
    other = await make(NEW, OLD, url=target)
    await other.close()
    move_tenant(database_url, target, "acme")
    moved = await make(NEW, OLD, url=target)
    await all_is_read(moved)
    renewed(target, NEW, OLD)
    assert unsealed(target, ring(NEW)) == set()
    assert leaks(target) == set()


def test_an_encryption_that_was_killed_goes_on(commands: Commands, database_url: str, tmp_path: Path) -> None:
    message, many = table_of(AutoGenMessage), 3_000
    db = DatabaseManager(database_url).sync
    db.upsert(thread := Thread(user_id="ann", thread_id="t", title=MARKER))
    db.close()
    row = {"user_id": "ann", "thread_id": "t", "thread_key": thread.id, "config": {"content": f"{MARKER} " * 50}}
    with connecting(database_url) as connection:
        connection.execute(sa.insert(message), [{**row, "seq": seq} for seq in range(1, many + 1)])
    env = {"DRSAI_DATABASE_URL": database_url, "DRSAI_ENCRYPTION_KEYS": OLD}

    def left() -> int:
        with connecting(database_url, write=False) as connection:
            plain = message.c.config["content"].as_string().is_not(None)
            return connection.scalar(sa.select(sa.func.count()).where(plain)) or 0

    command = commands.start("db", "encrypt", cwd=tmp_path, env=env)
    while left() == many:
        assert command.running, command.stderr
    command.kill()
    command.wait()
    assert 0 < left() < many
    again = commands.run("db", "encrypt", cwd=tmp_path, env=env)
    assert again.wait() == 0, again.stderr
    assert f"encrypted with the key {ring(OLD).newest}" in again.stdout
    assert left() == 0
    assert leaks(database_url) == set()
    without = commands.run("threads", "list", "--user", "ann", cwd=tmp_path, env={"DRSAI_DATABASE_URL": database_url})
    assert without.wait() != 0
    assert ring(OLD).ids[0] in without.stderr
    for key, status, said in ((OLD, "ok", ring(OLD).ids[0]), (NEW, "failed", ring(OLD).ids[0])):
        keyed = {**env, "DRSAI_ENCRYPTION_KEYS": key}
        doctor = commands.run("doctor", "--json", "--no-model", cwd=tmp_path, env=keyed)
        doctor.wait()
        [found] = [each for each in json.loads(doctor.stdout)["findings"] if each["subject"] == "texts"]
        assert found["status"] == status
        assert said in found["text"]
    listed = commands.run("threads", "list", "--user", "ann", cwd=tmp_path, env=env)
    assert listed.wait() == 0
    assert MARKER in listed.stdout
