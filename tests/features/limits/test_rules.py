"""Rules: what was set for somebody stands in place of the settings, in all processes and within two seconds."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.access.principal import ROLES, Principal
from drsai_backend.config import Settings
from drsai_backend.datamodel import ApiKey, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, InvalidRequest
from drsai_backend.features.limits.base import Bound, Who
from drsai_backend.features.rules import rows
from tests.features.limits.conftest import STATE, Asking, Make, asking, use_up
from tests.support.commands import Commands
from tests.support.threads import until

ANN = Who("user", "acme", "ann")


async def rules(drsai: DrSai, tenant: str | None = None) -> list[dict[str, Any]]:
    page = await drsai.limits.list(tenant, limit=100)
    return [each.model_dump(exclude={"set_at"}, exclude_none=True) for each in page.items]


async def test_a_part_of_one_is_not_no_limit(make: Make) -> None:
    drsai = await make()
    made = await drsai.limits.set("user", "ann", tenant="acme", requests=0.4)  # pyright: ignore[reportArgumentType]
    assert made.requests == 1, "0 would be no limit"


async def test_they_are_set_listed_and_removed(make: Make) -> None:
    drsai = await make(limit_user={"requests": 1, "tokens": 100_000})
    ann = asking(drsai)
    assert await ann.statuses(2) == [200, 429]
    await drsai.limits.set("user", "ann", tenant="acme", requests=0)
    assert await ann.statuses(3) == [200] * 3
    await drsai.limits.set("user", "ann", tenant="acme", requests=600, runs=4)
    await drsai.limits.set("tenant", tenant="acme", tokens=7)
    await drsai.limits.set("all", runs=9)
    await drsai.limits.set("key", "key_a", requests=5)
    of_ann = {"kind": "user", "tenant": "acme", "name": "ann", "requests": 600, "runs": 4}
    assert await rules(drsai) == [
        {"kind": "key", "tenant": "default", "name": "key_a", "requests": 5},
        {"kind": "all", "tenant": "", "name": "", "runs": 9},
        {"kind": "tenant", "tenant": "acme", "name": "", "tokens": 7},
        of_ann,
    ]
    assert await rules(drsai, "acme") == [{"kind": "tenant", "tenant": "acme", "name": "", "tokens": 7}, of_ann]
    page = await drsai.limits.list(limit=3)
    assert len((await drsai.limits.list(after=page.next, limit=3)).items) == 1
    assert await drsai.limits.remove("user", "ann", tenant="acme")
    assert not await drsai.limits.remove("user", "ann", tenant="acme")
    await drsai.limits.remove("tenant", tenant="acme")
    assert await asking(drsai, "bob").statuses(2) == [200, 429], "the settings hold again"
    told = [(each.action, each.subject, each.owner) async for each in drsai.audit.entries("acme")]
    assert told == [
        ("limit.removed", "tenant", None),
        ("limit.removed", "user ann", "ann"),
        ("limit.set", "tenant", None),
        ("limit.set", "user ann", "ann"),
        ("limit.set", "user ann", "ann"),
    ]


async def test_other_processes_go_by_them(make: Make) -> None:
    here, there = await make(), await make()
    await here.limits.set("user", "ann", tenant="acme", requests=1)
    await use_up(here, Bound(ANN, "requests", 1), 110)

    async def knows() -> bool:
        return bool(there.limits._rules)

    await until(knows, 10)
    assert await asking(there).statuses(1) == [429]
    await here.limits.remove("user", "ann", tenant="acme")

    async def forgets() -> bool:
        return not there.limits._rules

    await until(forgets, 10)
    assert await asking(there).statuses(1) == [200]


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ({"kind": "team", "name": "x", "requests": 1}, "kind"),
        ({"kind": "user", "requests": 1}, "name"),
        ({"kind": "user", "name": "\n", "requests": 1}, "name"),
        ({"kind": "user", "name": "ann", "tenant": "", "requests": 1}, "tenant"),
        ({"kind": "tenant", "name": "ann", "requests": 1}, "name"),
        ({"kind": "user", "name": "ann"}, "requests"),
        ({"kind": "user", "name": "ann", "requests": -1}, "requests"),
        ({"kind": "user", "name": "ann", "tokens": 10**10}, "tokens"),
        ({"kind": "user", "name": "ann", "runs": True}, "runs"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_name(make: Make, said: dict[str, Any], param: str) -> None:
    drsai = await make()
    with pytest.raises(InvalidRequest) as refused:
        await drsai.limits.set(**said)
    assert refused.value.param == param
    assert await rules(drsai) == []


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("limit_user", "requests", "must be words such as requests=60"),
        ("limit_user", "requests=many", "DRSAI_LIMIT_USER"),
        ("limit_tenant", "request=6", "DRSAI_LIMIT_TENANT"),
        ("limit_key", "runs=-1", "DRSAI_LIMIT_KEY"),
        ("limit_all", '{"runs": 1', "DRSAI_LIMIT_ALL"),
        ("limit_address", "-1", "DRSAI_LIMIT_ADDRESS"),
    ],
)
def test_so_are_settings(name: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DRSAI_{name.upper()}", value)
    with pytest.raises(ConfigurationError, match=told):
        Settings(_env_file=None)


def test_settings_are_words_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("requests=60, tokens = 1000,runs=4", '{"requests": 60, "tokens": 1000, "runs": 4}'):
        monkeypatch.setenv("DRSAI_LIMIT_USER", text)
        assert Settings(_env_file=None).limit_user == {"requests": 60, "tokens": 1000, "runs": 4}


async def test_admins_set_those_of_their_tenants_users_and_keys(make: Make) -> None:
    drsai = await make()
    admin = Asking(drsai, Principal("root", "acme", scopes=ROLES["admin"]))
    http = admin.http
    made = await http.put("/v1/limits", json={"user": "ann", "requests": 1})
    assert made.status_code == 200, made.text
    assert {**made.json(), "set_at": 0} == {
        "id": "user ann",
        "object": "limit",
        "kind": "user",
        "tenant": "acme",
        "name": "ann",
        "requests": 1,
        "tokens": None,
        "runs": None,
        "streams": None,
        "set_at": 0,
    }
    assert (await http.put("/v1/limits", json={"key": "key_a", "runs": 2})).status_code == 200
    await drsai.limits.set("tenant", tenant="other", runs=1)
    listed = (await http.get("/v1/limits")).json()["data"]
    assert [each["id"] for each in listed] == ["key key_a", "user ann"]
    assert await asking(drsai).statuses(2) == [200, 429]
    for deleted in (True, False):
        gone = await http.delete("/v1/limits?of_user=ann")
        assert gone.json() == {"id": "user ann", "object": "limit.deleted", "deleted": deleted}
    assert await asking(drsai).statuses(1) == [200]
    for body, param in (
        ({"requests": 1}, "user"),
        ({"user": "ann", "key": "k", "requests": 1}, "user"),
        ({"user": "ann", "requests": -1}, "requests"),
        ({"user": "ann", "runs": "2"}, "runs"),
        ({"user": "ann", "tenant": "other"}, "tenant"),
        ({"user": "ann"}, "requests"),
    ):
        refused = await http.put("/v1/limits", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), body
    assert (await http.delete("/v1/limits")).status_code == 400
    admin.who = Principal("ann", "acme", scopes=ROLES["operator"])
    assert (await http.get("/v1/limits")).status_code == 403


async def test_admins_set_a_bounded_number(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers know all of them. What is set already can be changed, and programs are trusted."""
    monkeypatch.setattr(rows, "MOST", 2)
    drsai = await make()
    admin = asking(drsai, "root", scopes=ROLES["admin"])
    await drsai.limits.set("user", "bob", tenant="other", requests=5)
    for name, status in (("ann", 200), ("bob", 200), ("carl", 409), ("ann", 200)):
        answer = await admin.http.put("/v1/limits", json={"user": name, "requests": 5})
        assert answer.status_code == status, answer.text
    assert (await admin.http.delete("/v1/limits?of_user=bob")).is_success
    assert (await admin.http.put("/v1/limits", json={"user": "carl", "requests": 5})).is_success
    await drsai.limits.set("user", "dan", tenant="acme", requests=5)
    assert len(await rules(drsai, "acme")) == 3


async def test_they_go_with_their_user(make: Make) -> None:
    drsai = await make()
    for user in ("ann", "bob"):
        await drsai.limits.set("user", user, tenant="acme", requests=5)
        assert (await asking(drsai, user).chat()).status_code == 200
    assert (await drsai.users.delete(Owner("acme", "ann")))["limits"] == 2
    assert [each["name"] for each in await rules(drsai)] == ["bob"]
    left = await drsai.database.read(lambda session: session.execute(sa.select(STATE.c.subject)).scalars().all())
    assert left == ["requests/user/acme/bob"]


async def test_they_go_with_their_key(make: Make) -> None:
    drsai = await make()
    made = [(await drsai.keys.create(Owner("acme", user), ["user"])).info for user in ("ann", "bob", "carl")]
    for each in made:
        await drsai.limits.set("key", each.key_id, tenant="acme", requests=5)
    await drsai.limits.set("key", "another", tenant="acme", requests=5)
    await drsai.users.delete(Owner("acme", "ann"))
    await drsai.keys.revoke("acme", made[1].key_id)
    await drsai.limits._sweep()
    left = [made[1].key_id, made[2].key_id, "another"]
    assert sorted(each.name for each in (await drsai.limits.list()).items) == sorted(left)
    # What was used with one that is revoked is told for two months.
    key = table_of(ApiKey)
    long_ago = sa.update(key).where(key.c.revoked_at.is_not(None)).values(revoked_at=utcnow() - timedelta(days=63))
    await drsai.database.write(lambda session: session.connection().execute(long_ago).rowcount)
    await drsai.limits._sweep()
    assert sorted(each.name for each in (await drsai.limits.list()).items) == sorted(left[1:])


def test_the_command_line(commands: Commands, database_url: str, tmp_path: Any) -> None:
    def run(*words: str, expected: int = 0) -> str:
        ran = commands.start("limits", *words, "--database-url", database_url, cwd=tmp_path, env={})
        assert ran.wait(60) == expected, ran.stderr
        return ran.stdout if not expected else ran.stderr

    assert "no limits were set" in run("list")
    assert "user ann (acme): requests 60, runs without limit" in run(
        "set", "user", "ann", "--tenant", "acme", "--requests", "60", "--runs", "0"
    )
    run("set", "all", "--tokens", "1000")
    assert [each["kind"] for each in json.loads(run("list", "--json"))] == ["all", "user"]
    assert "the settings hold again" in run("remove", "all")
    assert "nothing was set" in run("remove", "all")
    assert "there is no limit of a 'team'" in run("set", "team", "x", "--runs", "1", expected=2)
