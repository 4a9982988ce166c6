"""What runs, threads and keys leave in the audit log, and what leaves nothing there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.orm import Session

from drsai_backend import Answer, DrSai, RunStatus, Thread, log_context
from drsai_backend.access.principal import Principal, Scope, scopes_of
from drsai_backend.database.audit import AuditRecord
from drsai_backend.database.manager.rotation import BATCH, rotate
from drsai_backend.database.retention import prune
from drsai_backend.database.shares import Grantee
from drsai_backend.datamodel import (
    ApiKey,
    AuditEntry,
    AutoGenMessage,
    Right,
    Run,
    ThreadShare,
    UserInput,
    WebhookSecret,
    table_of,
    utcnow,
)
from drsai_backend.datamodel.audit import CLI, Action, By
from drsai_backend.datamodel.owner import Owner
from drsai_backend.definitions.stored.store import DefinitionSpec
from drsai_backend.errors import DatabaseError, InvalidRequest, NotFound, StaleAnswer, ThreadBusy
from drsai_backend.features.all_runs.base import VERBS
from drsai_backend.features.knowledge.base import NewStore
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.state.portable import export_thread, import_thread
from drsai_backend.tools.registered.registry import ToolSpec
from tests.runs.test_answers import Office
from tests.support.teams.crew import Crew
from tests.support.threads import Make, ended, reached, request

GATEWAY = Principal("ann", "acme", key_id="key_1", acted_by="gateway")


async def entries(drsai: DrSai, *of: str | None) -> list[AuditRecord]:
    """Oldest first."""
    return [item async for item in drsai.audit.entries(*of)][::-1]


def told(item: AuditRecord) -> tuple[Any, ...]:
    return item.action, item.by, item.actor, item.subject, item.owner, item.thread_id


async def test_a_plain_run_leaves_no_entry(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    await drsai.run("crew", "Hello.", thread_id="t")
    await drsai.run("crew", "Again.", thread_id="t")
    await (await drsai.start("crew", "Later.", thread_id="u", background=True)).wait()
    asked = Principal("ann", "acme", frozenset({Scope.CHAT}), key_id="key_1")
    await (await drsai.engine.start(*request("Hello.", principal=asked))).wait()
    assert await entries(drsai) == []


async def test_an_answer_says_who_decided_what(make: Make) -> None:
    office = Office()
    drsai = await make({"office": office})
    result = await drsai.user("ann", tenant="acme").run("office", "Send it.", thread_id="t")
    assert result.input_request is not None
    question = str(result.input_request["id"])
    token = log_context.bind("req_7")
    who = Principal("ann", "acme", key_id="key_1")
    denied = Answer(question, None, "deny", "never on a Sunday")
    await (await drsai.engine.answer(who, "t", denied)).wait()
    log_context.restore(token)
    with pytest.raises(StaleAnswer):
        await drsai.engine.answer(who, "t", denied)
    [entry] = await entries(drsai, "acme")
    assert told(entry) == ("input_request.answered", "user", "ann", question, "ann", "t")
    assert entry.detail == {
        "run_id": result.run_id,
        "decision": "deny",
        "reason": "never on a Sunday",
        "tool": "send",
    }
    assert (entry.key_id, entry.acted_by, entry.request_id) == ("key_1", None, "req_7")


async def test_a_chat_message_may_be_the_answer(make: Make) -> None:
    drsai = await make({"office": Office()})
    result = await drsai.run("office", "Send it.", thread_id="t")
    assert result.status is RunStatus.AWAITING_INPUT
    await drsai.run("office", "approve", thread_id="t")
    [entry] = await entries(drsai)
    assert told(entry)[:3] == ("input_request.answered", "program", None)
    assert entry.detail is not None
    assert entry.detail["decision"] == "approve"


@pytest.mark.parametrize("background", [False, True])
async def test_a_run_that_a_gateway_starts_as_a_user_leaves_one_entry(make: Make, background: bool) -> None:
    drsai = await make({"crew": Crew()})
    handle = await drsai.engine.start(*request("Hello.", principal=GATEWAY, background=background))
    await handle.wait()
    await drsai.engine.get_thread(GATEWAY, "t")
    await drsai.engine.list_threads(GATEWAY, after=None, limit=5)
    [entry] = await entries(drsai, "acme")
    assert told(entry) == ("run.started_as", "user", "ann", handle.run_id, "ann", "t")
    assert (entry.key_id, entry.acted_by, entry.detail) == ("key_1", "gateway", {"team": "crew"})


async def test_threads_that_are_deleted(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    for thread_id in ("one", "two", "three", "four"):
        await drsai.user("ann", tenant="acme").run("crew", "Hello.", thread_id=thread_id)
    await drsai.engine.delete_thread(replace(GATEWAY, acted_by=None), "one")
    await drsai.user("ann", tenant="acme").delete_thread("two")
    assert await drsai.db.delete(Thread, {"thread_id": "three", "tenant": "acme", "user_id": "ann"}) == 1
    await drsai.database.write(partial(prune, older_than=timedelta(0)))
    assert [told(item) for item in await entries(drsai, "acme")] == [
        ("thread.deleted", "user", "ann", "one", "ann", "one"),
        ("thread.deleted", "program", None, "two", "ann", "two"),
        ("thread.deleted", "program", None, "three", "ann", "three"),
        ("threads.pruned", "program", None, "acme", None, None),
    ]


async def test_a_deletion_that_is_refused_leaves_no_entry(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai, other = await make({"crew": crew}), await make({"crew": Crew()})
    handle = await drsai.start("crew", "Hello.", thread_id="t")
    await reached(drsai, "running")
    with pytest.raises(ThreadBusy):
        await other.delete_thread("t")
    assert await entries(drsai) == []
    await drsai.engine.cancel_run(Principal(), handle.run_id)
    await ended(drsai)
    crew.ann.release()


async def test_an_import(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    await drsai.user("ann").run("crew", "Hello.", thread_id="t")
    data = await drsai.database.read(partial(export_thread, name=Owner("default", "ann").thread("t")))
    await drsai.database.write(partial(import_thread, data=data, tenant="acme", thread_id="copy"))
    [entry] = await entries(drsai, "acme")
    assert told(entry) == ("thread.imported", "program", None, "copy", "ann", "copy")


async def test_shares(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    await drsai.user("ann", tenant="acme").run("crew", "Hello.", thread_id="t")
    admin = Principal("root", "acme", scopes_of(["admin"]), key_id="key_1")
    await drsai.user("ann", tenant="acme").share_thread("t", with_user="bob")
    await drsai.user("ann", tenant="acme").share_thread("t", with_user="bob", right="answer")
    name = Owner("acme", "ann").thread("t")
    await drsai.engine.share_thread(admin, name, Grantee(with_role="clerk"), Right.WRITE)
    await drsai.engine.unshare_thread(admin, name, Grantee("bob"))
    with pytest.raises(NotFound):
        await drsai.engine.unshare_thread(admin, name, Grantee("bob"))
    for nobody in (Grantee(), Grantee("bob", "clerk"), Grantee("ann")):
        with pytest.raises(InvalidRequest):
            await drsai.engine.share_thread(admin, name, nobody, Right.READ)
    assert [(*told(item)[:5], item.key_id, item.detail) for item in await entries(drsai, "acme")] == [
        ("thread.shared", "program", None, "t", "ann", None, {"with_user": "bob", "with_role": None, "right": "read"}),
        (
            "thread.shared",
            "program",
            None,
            "t",
            "ann",
            None,
            {"with_user": "bob", "with_role": None, "right": "answer"},
        ),
        (
            "thread.shared",
            "user",
            "root",
            "t",
            "ann",
            "key_1",
            {"with_user": None, "with_role": "clerk", "right": "write"},
        ),
        ("thread.unshared", "user", "root", "t", "ann", "key_1", {"with_user": "bob", "with_role": None}),
    ]


async def test_a_rotation_leaves_an_entry_of_each_batch(make: Make) -> None:
    drsai = await make({"crew": Crew()}, secret_key=SecretStr("old"))
    row = {"tenant": "t", "user_id": "u", "created_at": utcnow(), "updated_at": utcnow(), "version": "1"}
    rows = [{**row, "thread_id": f"{n}", "api_key": drsai.db.secrets.encrypt("sk")} for n in range(BATCH + 7)]
    await drsai.database.write(lambda session: session.execute(sa.insert(table_of(UserInput)), rows).rowcount)
    after = await make({"crew": Crew()}, secret_key=SecretStr("new"), secret_key_old="old")
    assert (await rotate(after.database, after.db.secrets, actor=CLI)).done == len(rows)
    assert (await rotate(after.database, after.db.secrets)).done == 0
    assert [(*told(item), item.tenant, item.detail) for item in await entries(after)] == [
        ("secrets.rotated", "cli", None, "userinput", None, None, None, {"secrets": BATCH}),
        ("secrets.rotated", "cli", None, "userinput", None, None, None, {"secrets": 7}),
    ]
    assert await entries(after, "t") == []  # It is the operator's act, and no tenant's.


async def test_no_act_is_stored_without_its_entry(make: Make) -> None:
    """The log refuses each entry: none of the acts was done. An export is refused to be handed out."""
    drsai = await make({"crew": Crew(), "office": Office()})
    for thread_id in ("t", "u"):
        await drsai.user("ann", tenant="acme").run("crew", "Hello.", thread_id=thread_id)
    asked = await drsai.user("ann", tenant="acme").run("office", "Send it.", thread_id="asks")
    await drsai.user("ann", tenant="acme").share_thread("t", with_user="bob")
    key = await drsai.keys.create(Owner("acme", "ann"), ["user"])
    data = await drsai.database.read(partial(export_thread, name=Owner("acme", "ann").thread("t")))
    await drsai.webhooks.make_secret(Owner("acme", "ann"))
    assert asked.input_request is not None
    approved = Answer(str(asked.input_request["id"]), None, "approve")
    file = await drsai.files.create(Owner("acme", "ann"), "a.txt", b"a")
    registrar = Principal("ann", "acme", frozenset({Scope.TOOLS_REGISTER, Scope.AGENTS_WRITE}))
    tool = partial(ToolSpec, kind="http", config={"description": "x", "endpoint": {"url": "https://a.example/"}})
    await drsai.engine.tools.register(registrar, tool("asks"))
    agents, agent = drsai.engine.agents, DefinitionSpec("asks", {"agents": {"asks": {}}})
    for replaces in (False, True):
        await agents.put(registrar, agent, replaces=replaces)
    knowledge = drsai.extension(Knowledge)
    store = await knowledge.create(Owner("acme", "ann"), NewStore(name="handbook"))
    more = DefinitionSpec("more", {"agents": {"more": {}}})
    await drsai.limits.set("user", "ann", tenant="acme", requests=4)
    await drsai.switches.off("team", "none", message="No.")
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=10**9)
    for turns in (300, 400):
        await drsai.config.set({"max_turns": turns})
    await drsai.config.set({"max_turns": 1}, "test")
    await _refuse_entries(drsai)
    before = await _stored(drsai)
    ann = Principal("ann", "acme")
    acts: dict[str, Callable[[], Awaitable[object]]] = {
        "key.created": lambda: drsai.keys.create(Owner("acme", "bob"), ["user"]),
        "key.revoked": lambda: drsai.keys.revoke("acme", key.info.key_id),
        "thread.deleted": lambda: drsai.user("ann", tenant="acme").delete_thread("t"),
        "threads.pruned": lambda: drsai.database.write(partial(prune, older_than=timedelta(0))),
        "thread.imported": lambda: drsai.database.write(
            partial(import_thread, data=data, tenant="acme", thread_id="copy")
        ),
        "thread.shared": lambda: drsai.user("ann", tenant="acme").share_thread("u", with_user="bob"),
        "thread.unshared": lambda: drsai.user("ann", tenant="acme").unshare_thread("t", with_user="bob"),
        "input_request.answered": lambda: drsai.engine.answer(ann, "asks", approved),
        "run.started_as": lambda: drsai.engine.start(*request("Hello.", principal=GATEWAY, thread_id="new")),
        "thread.rewound": lambda: drsai.user("ann", tenant="acme").rewind("t", turn=1),
        "thread.history_loaded": lambda: drsai.user("ann", tenant="acme").load_history(
            "t", [{"role": "user", "content": "Hello."}]
        ),
        "thread.forked": lambda: drsai.user("ann", tenant="acme").fork("t", to_user="bob"),
        "key.changed": lambda: drsai.webhooks.change_key("acme", key.info.key_id, "https://hooks.example.org/"),
        "webhook_secret.created": lambda: drsai.webhooks.make_secret(Owner("acme", "bob")),
        "webhook_secret.rotated": lambda: drsai.webhooks.make_secret(Owner("acme", "ann")),
        "budget.set": lambda: drsai.budgets.set("user", "ann", tenant="acme", cost_day=5),
        "budget.removed": lambda: drsai.budgets.remove("user", "ann", tenant="acme"),
        "limit.set": lambda: drsai.limits.set("user", "ann", tenant="acme", requests=5),
        "limit.removed": lambda: drsai.limits.remove("user", "ann", tenant="acme"),
        "switch.off": lambda: drsai.switches.off("team", "none", message="Not now."),
        "switch.on": lambda: drsai.switches.on("team", "none"),
        "config.changed": lambda: drsai.config.set({"max_turns": 500}),
        "config.deleted": lambda: drsai.config.delete("test"),
        "config.rolled_back": lambda: drsai.config.roll_back(1),
        "knowledge.deleted": lambda: knowledge.delete(Owner("acme", "ann"), store.store_id),
        "file.deleted": lambda: drsai.files.delete(Owner("acme", "ann"), file.file_id),
        "tool.registered": lambda: drsai.engine.tools.register(registrar, tool("more")),
        "tool.changed": lambda: drsai.engine.tools.register(registrar, tool("asks"), replaces=True),
        "tool.deleted": lambda: drsai.engine.tools.unregister(registrar, "asks"),
        "agent.created": lambda: agents.put(registrar, more, replaces=False),
        "agent.updated": lambda: agents.put(registrar, agent, replaces=True),
        "agent.rolled_back": lambda: agents.roll_back(registrar, "asks", 1),
        "agent.deleted": lambda: agents.delete(registrar, "asks"),
        "user.deleted": lambda: drsai.keys.delete_of(Owner("acme", "ann"), may_be_last=True),
    }
    acts["run.cancel_requested"] = partial(drsai.all_runs.steer, "cancel", asked.run_id, tenant="acme")
    for action, act in acts.items():
        with pytest.raises(DatabaseError):
            await act()
        assert await _stored(drsai) == before, action
    elsewhere = {"secrets.rotated", "thread.exported", "user.exported", "audit.pruned"}
    # As the one above, of runs that are in another state.
    elsewhere |= {f"run.{verb}_requested" for verb in VERBS if verb != "cancel"}
    assert {*acts} | elsewhere == {*Action}
    await drsai.close()  # Its last look at the database is no act.


async def _refuse_entries(drsai: DrSai) -> None:
    def make_trigger(session: Session) -> None:
        connection = session.connection()
        if connection.dialect.name == "sqlite":
            body = ["CREATE TRIGGER full BEFORE INSERT ON auditentry BEGIN SELECT RAISE(ABORT, 'full'); END"]
        else:
            body = [
                "CREATE FUNCTION full_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'full'; END $$",
                "CREATE TRIGGER full_up BEFORE INSERT ON auditentry FOR EACH ROW EXECUTE FUNCTION full_up()",
            ]
        for statement in body:
            connection.exec_driver_sql(statement)

    await drsai.database.write(make_trigger)


async def _stored(drsai: DrSai) -> dict[str, object]:
    """All that an act could change; not when threads were looked at, or who holds them."""

    def read(session: Session) -> dict[str, object]:
        run, message, key = (table_of(kind) for kind in (Run, AutoGenMessage, ApiKey))
        columns = {
            "threads": (table_of(Thread).c.thread_id, table_of(Thread).c.branch),
            "runs": (run.c.run_id, run.c.status),
            "messages": (message.c.seq,),
            "shares": (table_of(ThreadShare).c.with_user,),
            "keys": (key.c.key_id, key.c.revoked_at, key.c.webhook_url),
            "secrets": (table_of(WebhookSecret).c.secret,),
            "entries": (table_of(AuditEntry).c.id,),
        }
        return {name: sorted(map(str, session.execute(sa.select(*each)))) for name, each in columns.items()}

    return await drsai.database.read(read)


async def test_keys_over_http(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    admin = await drsai.keys.create(Owner("acme", "root"), ["admin"])
    headers = {"Authorization": f"Bearer {admin.key.get_secret_value()}", "X-Request-Id": "req_9"}
    transport = httpx.ASGITransport(drsai.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:
        made = (await http.post("/v1/keys", json={"user": "ann", "name": "laptop", "expires_in_days": 1})).json()
        for _ in range(2):  # The second time nothing is done.
            await http.delete(f"/v1/keys/{made['id']}")
        shown = (await http.get("/v1/audit", params={"user": "ann"})).json()
        assert (await http.get("/v1/audit", params={"action": "no"})).json()["error"]["param"] == "action"
    first, *rest = await entries(drsai)
    assert told(first) == ("key.created", "program", None, admin.info.key_id, "root", None)
    assert [told(item)[:5] for item in rest] == [
        ("key.created", "user", "root", made["id"], "ann"),
        ("key.revoked", "user", "root", made["id"], "ann"),
    ]
    assert {(item.key_id, item.request_id) for item in rest} == {(admin.info.key_id, "req_9")}
    assert rest[0].detail is not None
    assert rest[0].detail["name"] == "laptop"
    assert [item["action"] for item in shown["data"]] == ["key.revoked", "key.created"]
    assert shown["data"][0]["at"] == int(rest[1].at.timestamp())
    assert made["key"] not in str(shown)


def test_how_somebody_acts_is_no_part_of_who_they_are() -> None:
    assert Principal("ann", by=By.PROGRAM) == Principal("ann")
    assert Principal("ann", by=By.CLI).dump(Owner("default", "ann")) is None
    assert Principal("ann", by=By.PROGRAM).actor.user_id is None
