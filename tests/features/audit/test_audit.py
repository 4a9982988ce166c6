"""The audit log: rows are added in the transaction of an act, listed, pruned, and never changed."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database.audit import MAX_DETAIL, AuditRecord, audit
from drsai_backend.datamodel import AuditEntry, JsonObject, table_of, utcnow
from drsai_backend.datamodel.audit import CLI, PROGRAM, REFUSAL, Action, Actor, By
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DatabaseError, DrSaiError, InvalidRequest
from drsai_backend.features.audit.extension import Audit
from drsai_backend.features.base import Host

ANN = Owner("acme", "ann")
ROOT = Actor(By.USER, "root", "key_1", "gateway", "req_1")
_entry = table_of(AuditEntry)


async def add(db: DatabaseManager, actor: Actor, action: Action, subject: str, **more: object) -> None:
    await db.database.write(partial(audit, actor=actor, action=action, subject=subject, **more))


def log_of(db: DatabaseManager) -> Audit:
    return Audit(Host(db, Settings()))


async def entries(db: DatabaseManager, *of: str | None) -> list[AuditRecord]:
    return [item async for item in log_of(db).entries(*of)]


async def test_an_entry_says_who_did_what(db: DatabaseManager) -> None:
    await db.ensure_schema()
    detail: JsonObject = {"why": "č" * 10, "n": 1}
    await add(db, ROOT, Action.THREAD_SHARED, "t", owner=ANN.thread("t"), detail=detail)
    await add(db, CLI, Action.SECRETS_ROTATED, "userinput")
    newest, oldest = await entries(db)
    assert oldest.model_dump(exclude={"id", "at"}) == {
        "tenant": "acme",
        "by": "user",
        "actor": "root",
        "key_id": "key_1",
        "acted_by": "gateway",
        "action": "thread.shared",
        "kind": "thread",
        "subject": "t",
        "owner": "ann",
        "thread_id": "t",
        "detail": detail,
        "request_id": "req_1",
    }
    assert (newest.by, newest.actor, newest.tenant, newest.detail) == ("cli", None, None, None)
    assert utcnow() - timedelta(minutes=1) < oldest.at <= newest.at <= utcnow()


async def test_an_act_that_is_rolled_back_leaves_no_entry(db: DatabaseManager) -> None:
    await db.ensure_schema()

    def act(session: Session) -> None:
        audit(session, PROGRAM, Action.THREAD_DELETED, "t", owner=ANN)
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        await db.database.write(act)
    assert await entries(db) == []


async def test_entries_are_never_changed(db: DatabaseManager) -> None:
    await db.ensure_schema()
    await add(db, ROOT, Action.KEY_CREATED, "key_2", owner=ANN)
    before = await entries(db)
    with pytest.raises(DrSaiError) as refused:
        await db.database.write(lambda session: session.execute(sa.update(_entry).values(actor="eve")).rowcount)
    assert isinstance(refused.value, DatabaseError) or REFUSAL in refused.value.message
    assert await entries(db) == before
    [row] = await db.get(AuditEntry)
    row.actor = "eve"
    for attempt in (db.upsert(row), db.upsert(AuditEntry(by="user", action="x", kind="x", subject="x"))):
        with pytest.raises(InvalidRequest, match="written by the acts"):
            await attempt
    with pytest.raises(InvalidRequest, match="written by the acts"):
        await db.delete(AuditEntry, {"subject": "key_2"})
    assert await entries(db) == before


_JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5000), st.lists, max_leaves=20)


@given(detail=st.dictionaries(st.text(max_size=20), _JSON, max_size=30), subject=st.text(max_size=2000))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_what_an_entry_holds_is_bounded_and_never_refused(
    db: DatabaseManager, detail: JsonObject, subject: str
) -> None:
    await db.ensure_schema()
    await add(db, PROGRAM, Action.THREAD_IMPORTED, subject, owner=ANN, detail=detail)
    [entry] = (await log_of(db).list(limit=1)).items
    assert len(entry.subject) <= 300
    assert entry.detail is not None
    assert len(str(entry.detail)) <= 2 * MAX_DETAIL


async def test_filters_and_pages(db: DatabaseManager) -> None:
    await db.ensure_schema()
    log = log_of(db)
    for n in range(7):
        await add(db, ROOT, Action.THREAD_DELETED, f"t{n}", owner=ANN)
    await add(db, PROGRAM, Action.THREAD_IMPORTED, "u", owner=Owner("acme", "bob"))
    await add(db, PROGRAM, Action.KEY_REVOKED, "k", owner=Owner("other", "ann"))
    seen: list[str] = []
    after = None
    while True:
        page = await log.list("acme", after=after, limit=3)
        seen += [item.subject for item in page.items]
        if (after := page.next) is None:
            break
    assert seen == ["u", *(f"t{n}" for n in reversed(range(7)))]
    assert {item.subject for item in await entries(db, None, "ann")} == {"k", *(f"t{n}" for n in range(7))}
    for user in ("root", "gateway"):
        assert len(await entries(db, "acme", user)) == 7
    assert [item.subject for item in await entries(db, "acme", None, "thread.imported")] == ["u"]
    assert len(await entries(db, "acme", None, "thread")) == 8
    for wrong in ({"action": "x"}, {"after": "x"}):
        with pytest.raises(InvalidRequest) as refused:
            await log.list(**wrong)
        assert refused.value.param in wrong


async def test_pruning_is_told(db: DatabaseManager) -> None:
    await db.ensure_schema()
    log = log_of(db)
    for tenant, count in (("acme", 3), ("other", 2)):
        for n in range(count):
            await add(db, PROGRAM, Action.THREAD_DELETED, f"t{n}", owner=Owner(tenant, "ann"))
    assert await log.prune(timedelta(days=1)) == 0
    assert await log.prune(timedelta(0), tenant="acme", actor=CLI) == 3
    assert await log.prune(timedelta(0), tenant="acme") == 1  # the entry of the pruning before, and no endless loop
    assert [(item.action, item.by, item.detail and item.detail["entries"]) for item in await entries(db, "acme")] == [
        ("audit.pruned", "program", 1)
    ]
    assert len(await entries(db, "other")) == 2
    for wrong in (timedelta(seconds=-1), timedelta.max):
        with pytest.raises(InvalidRequest) as refused:
            await log.prune(wrong)
        assert refused.value.param == "older_than"
