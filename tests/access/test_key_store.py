"""API keys as they are made, shown, revoked and refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from datetime import UTC, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend.access import warm_keys
from drsai_backend.access.keys import encode_key, make_key, parse_key
from drsai_backend.access.principal import ROLES, Scope
from drsai_backend.database import DatabaseManager, api_keys
from drsai_backend.datamodel import ApiKey, utcnow
from drsai_backend.datamodel.access import KeyDigest
from drsai_backend.datamodel.audit import Actor, By
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, InvalidRequest, NotFound, Unauthenticated
from tests.access.conftest import MakeProcess, Process

ANN = Owner("default", "ann")
BOB = Owner("acme", "bob")


async def refusal(asking: Awaitable[Any], *hidden: str) -> str:
    """The text with which a check is refused, which holds nothing of what is `hidden`."""
    with pytest.raises(Unauthenticated) as refused:
        await asking
    text = refused.value.message
    assert refused.value.status == 401
    assert not any(part in text for key in hidden for part in (key, key[9:20], key[-6:]))
    return text


async def test_a_key_works_at_once_in_every_process(process: MakeProcess) -> None:
    here, there = process(), process()
    made = await here.keys.create(ANN, ["user", "act-as"], "laptop", timedelta(days=90), actor=Actor(By.USER, "root"))
    key = made.key.get_secret_value()
    for each in (here, there):
        principal = await each.keys.check(key)
        assert principal.owner == ANN
        assert principal.scopes == ROLES["user"] | {Scope.ACT_AS}
        assert principal.key_id == made.info.key_id
        assert principal.acted_by is None
    [info] = (await there.keys.list()).items
    assert (info.name, info.created_by, info.state, info.revoked_at) == ("laptop", "root", "active", None)
    assert info.created_at.tzinfo is UTC
    assert info.expires_at == info.created_at + timedelta(days=90)
    assert info.scopes == sorted(ROLES["user"] | {Scope.ACT_AS})


async def test_roles_are_kept_with_a_key(process: MakeProcess) -> None:
    here, there = process(), process()
    made = await here.keys.create(ANN, ["chat"], roles=["treasurer", "head of sales", "treasurer"])
    principal = await there.keys.check(made.key.get_secret_value())
    assert principal.roles == {"treasurer", "head of sales"}
    assert principal.scopes == {Scope.CHAT}
    assert made.info.roles == ["head of sales", "treasurer"]
    assert (await there.keys.list()).items == [made.info]
    for roles in ([""], ["a\nb"], ["a" * 256], list(map(str, range(257))), [7]):
        with pytest.raises(InvalidRequest, match="role"):
            await here.keys.create(ANN, ["chat"], roles=roles)  # type: ignore[arg-type]


async def test_a_user_has_a_bounded_number_of_keys_that_work(
    process: MakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "MAX_KEYS", 2)
    keys = process().keys
    first = await keys.create(ANN, ["chat"])
    await keys.create(ANN, ["chat"], expires_in=timedelta(milliseconds=1))
    await asyncio.sleep(0.01)
    await keys.create(ANN, ["chat"])
    with pytest.raises(Conflict, match="ann has 2 keys"):
        await keys.create(ANN, ["chat"])
    await keys.create(BOB, ["chat"])
    await keys.create(Owner("acme", "ann"), ["chat"])
    await keys.revoke(None, first.info.key_id)
    await keys.create(ANN, ["chat"])


async def test_the_key_is_nowhere(process: MakeProcess, db: DatabaseManager, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    one = process()
    made = await one.keys.create(ANN, ["chat"])
    key = made.key.get_secret_value()
    await one.keys.check(key)
    [row] = await db.get(ApiKey)
    shown = [repr(made), str(made), repr(one.keys), made.info.model_dump_json(), repr(row), caplog.text]
    shown += [str(value) for value in row.model_dump().values()]
    assert row.digest == parse_key(key)
    assert not any(key[9:] in each or key[9:52] in each for each in shown)
    assert row.digest not in "".join([*shown[:5], caplog.text])


async def test_each_refusal_says_why_and_repeats_nothing(process: MakeProcess, db: DatabaseManager) -> None:
    one, other = process(), process()
    good = (await one.keys.create(ANN, ["user"])).key.get_secret_value()
    revoked = await one.keys.create(ANN, ["user"])
    await one.keys.revoke("default", revoked.info.key_id)
    expired = make_key()
    past = utcnow() - timedelta(minutes=1)
    digest = str(parse_key(expired))
    await db.upsert(ApiKey(key_id="key_old", digest=digest, tenant="t", user_id="u", scopes=["chat"], expires_at=past))
    tried = {
        "sk-proj-" + good[9:]: "no API key of this service",
        good[:-1]: "mistyped",
        good.swapcase(): "no API key",
        encode_key(1): "not known",
        revoked.key.get_secret_value(): "revoked",
        expired: f"expired at {past.isoformat(' ', 'seconds')}",
    }
    for each in (one, other):
        for text, why in tried.items():
            for _ in range(2):
                assert why in await refusal(each.keys.check(text), text)
        assert (await each.keys.check(good)).user_id == "ann"


async def test_a_key_expires_while_it_is_in_use(process: MakeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    one = process(stale_seconds=600)
    made = await one.keys.create(ANN, ["user"], expires_in=timedelta(hours=1))
    key = made.key.get_secret_value()
    await one.keys.check(key)
    reads = one.backend.reads
    end = made.info.created_at.timestamp() + 3600
    for moment, works in ((end - 1, True), (end + 0.001, False)):
        clock = SimpleNamespace(time=lambda moment=moment: moment, monotonic=warm_keys.time.monotonic)
        with monkeypatch.context() as patch:
            patch.setattr(warm_keys, "time", clock)
            if works:
                await one.keys.check(key)
            else:
                assert "expired at" in await refusal(one.keys.check(key), key)
    assert one.backend.reads == reads


@pytest.mark.parametrize(
    ("arguments", "param", "said"),
    [
        ({"scopes": ["chat", "chatter"]}, "scope", "no scope or role 'chatter', but viewer, user"),
        ({"scopes": []}, "scope", "needs a scope or a role"),
        ({"scopes": [""]}, "scope", "no scope or role ''"),
        ({"expires_in": timedelta(0)}, "expires", "in the future"),
        ({"expires_in": timedelta(days=-1)}, "expires", "in the future"),
        ({"expires_in": timedelta.max}, "expires", "year 9999"),
        ({"name": ""}, "name", "1 to 255 characters"),
        ({"name": "a\x1bb"}, "name", "printable"),
        ({"owner": Owner("default", " ann")}, "user", "printable"),
        ({"owner": Owner("default", "a" * 256)}, "user", "1 to 255 characters"),
        ({"owner": Owner("a\x00", "ann")}, "tenant", "printable"),
    ],
)
async def test_what_is_no_key_is_refused(
    process: MakeProcess, arguments: dict[str, Any], param: str, said: str
) -> None:
    one = process()
    with pytest.raises(InvalidRequest, match=said) as refused:
        await one.keys.create(**{"owner": ANN, "scopes": ["user"], **arguments})
    assert refused.value.param == param
    assert (await one.keys.list()).items == []


async def test_keys_are_listed_in_pages(process: MakeProcess) -> None:
    one = process()
    made = [(await one.keys.create(owner, ["chat"])).info for owner in (ANN, BOB, ANN, BOB, ANN)]
    newest = [info.key_id for info in reversed(made)]

    async def listed(limit: int, *only: str | None) -> list[str]:
        page = await one.keys.list(*only, limit=limit)
        found = [info.key_id for info in page.items]
        while page.next is not None:
            assert len(page.items) == limit
            page = await one.keys.list(*only, after=page.next, limit=limit)
            found += [info.key_id for info in page.items]
        return found

    for limit in (1, 2, 3, 5, 6):
        assert await listed(limit) == newest
        assert await listed(limit, "default") == newest[::2]
        assert await listed(limit, "acme", "bob") == newest[1::2]
        assert await listed(limit, None, "bob") == newest[1::2]
        assert await listed(limit, "acme", "ann") == []
    for after in ("x", "-1", "1" * 19, "٣"):
        with pytest.raises(InvalidRequest, match="`after`"):
            await one.keys.list(after=after)


async def test_a_key_is_revoked_once_and_by_its_tenant(process: MakeProcess) -> None:
    one = process()
    made = await one.keys.create(ANN, ["user"])
    key_id, key = made.info.key_id, made.key.get_secret_value()
    for tenant, wrong in (("acme", key_id), ("default", "key_0"), (None, "key_0")):
        with pytest.raises(NotFound) as missing:
            await one.keys.revoke(tenant, wrong)
        assert missing.value.param == "key_id"
    await one.keys.check(key)
    first = await one.keys.revoke("default", key_id, actor=Actor(By.USER, "root"))
    assert (first.state, first.revoked_by) == ("revoked", "root")
    assert await one.keys.revoke(None, key_id, actor=Actor(By.USER, "eve")) == first
    assert (await one.keys.list()).items == [first]
    assert "revoked" in await refusal(one.keys.check(key), key)


async def test_whether_a_key_was_ever_made(process: MakeProcess) -> None:
    one, other = process(), process()
    assert not await one.keys.any_exist()
    reads = one.backend.reads
    assert not await one.keys.any_exist()
    assert one.backend.reads == reads
    made = await other.keys.create(ANN, ["user"])
    async with asyncio.timeout(10):
        while not await one.keys.any_exist():  # noqa: ASYNC110 - the database tells
            await asyncio.sleep(0.05)
    await one.keys.revoke(None, made.info.key_id)
    assert await process().keys.any_exist()
    reads = one.backend.reads, other.backend.reads
    assert (await one.keys.any_exist(), await other.keys.any_exist()) == (True, True)
    assert (one.backend.reads, other.backend.reads) == reads


async def test_a_scope_of_a_later_version_allows_nothing_here(process: MakeProcess, db: DatabaseManager) -> None:
    key = make_key()
    row = ApiKey(key_id="key_x", digest=str(parse_key(key)), tenant="t", user_id="u", scopes=["chat", "flights:book"])
    await db.upsert(row)
    one = process()
    assert (await one.keys.check(key)).scopes == {Scope.CHAT}
    assert (await one.keys.list()).items[0].scopes == ["chat", "flights:book"]


# --- last_used_at -----------------------------------------------------------------------------------------------------


async def used(one: Process, *, all_of: int) -> dict[str, Any]:
    """When the keys were used last, once that is written of so many."""
    async with asyncio.timeout(20):
        while True:
            found = {info.key_id: info.last_used_at for info in (await one.keys.list()).items}
            if sum(moment is not None for moment in found.values()) >= all_of:
                return found
            await asyncio.sleep(0.02)


async def test_the_use_of_keys_is_noted_together_once_a_minute(process: MakeProcess, db: DatabaseManager) -> None:
    one, other = process(stale_seconds=0.3), process(stale_seconds=0.3)
    made = [await one.keys.create(ANN, ["user"]) for _ in range(5)]
    secrets = [each.key.get_secret_value() for each in made]
    await asyncio.gather(*map(one.keys.check, secrets[:4]))
    first = await used(one, all_of=4)
    moments = [first[each.info.key_id] for each in made]
    assert None not in moments[:4]
    assert moments == [moments[0]] * 4 + [None]
    reads, writes = one.backend.reads, one.backend.writes
    while one.backend.reads < reads + 10:  # polls
        await one.keys.check(secrets[0])
        await asyncio.sleep(0.01)
    assert one.backend.writes <= writes + 2, "of a process that is slow and looks a key up again"

    await asyncio.gather(*map(other.keys.check, secrets))  # another process, in the same minute
    assert {**await used(other, all_of=5), made[4].info.key_id: None} == first

    ago = utcnow() - timedelta(seconds=61)
    await db.database.write(lambda session: session.execute(sa.update(ApiKey).values(last_used_at=ago)))
    third = process()
    await third.keys.check(secrets[0])
    await third.keys.close()
    last = {info.key_id: info.last_used_at for info in (await one.keys.list()).items}
    assert last.pop(made[0].info.key_id) > moments[0]
    assert set(last.values()) == {ago}


async def test_processes_that_note_a_use_in_the_same_minute_write_one(
    process: MakeProcess, db: DatabaseManager
) -> None:
    one = process()
    await one.keys.create(ANN, ["user"])
    [row] = await db.get(ApiKey)
    first = utcnow()
    for seconds, written in ((0, 0), (30, 0), (59, 0), (61, 61)):
        at = first + timedelta(seconds=seconds)
        older_than = at - timedelta(seconds=60)
        await one.database.write(
            partial(api_keys.note_use, digests=[KeyDigest(row.digest)], at=at, older_than=older_than)
        )
        assert (await one.keys.list()).items[0].last_used_at == first + timedelta(seconds=written)


async def test_the_use_is_noted_when_the_database_is_back(process: MakeProcess) -> None:
    one = process(stale_seconds=0.2)
    key = (await one.keys.create(ANN, ["user"])).key.get_secret_value()
    await one.keys.check(key)
    write, failed = one.backend.write, asyncio.Event()

    async def failing(*_: Any, **__: Any) -> None:
        failed.set()
        one.backend.away = True
        await write(lambda session: None)

    one.backend.write = failing  # type: ignore[method-assign]
    await failed.wait()
    one.backend.write, one.backend.away = write, False  # type: ignore[method-assign]
    await one.keys.check(key)
    await used(one, all_of=1)
