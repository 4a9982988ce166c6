"""Budgets are set for keys, users, tenants and all, in place of the settings, and followed by all processes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend.access.principal import ROLES, Principal
from drsai_backend.config import Settings
from drsai_backend.datamodel import ApiKey, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, InvalidRequest
from tests.features.budgets.conftest import CALL, Asking, Make, asking, rows, used
from tests.support.commands import Commands
from tests.support.threads import until


async def test_all_processes_follow_what_is_set(make: Make) -> None:
    here, there = await make(budget_user={"tokens_day": 1_000_000}), await make(budget_user={"tokens_day": 1_000_000})
    made = await here.budgets.set("user", "ann", tenant="acme", tokens_day=1, cost_month=2.5)
    assert (made.tokens_day, made.cost_month, made.tokens_month) == (1, 2.5, None)

    async def is_refused() -> bool:
        return (await asking(there).chat()).status_code == 429

    await until(is_refused)
    assert await here.budgets.remove("user", "ann", tenant="acme")
    assert not await here.budgets.remove("user", "ann", tenant="acme")
    assert await asking(here).statuses(1) == [200]


async def test_a_budget_of_less_than_the_smallest_is_one(make: Make) -> None:
    drsai = await make(budget_user={"tokens_day": 0.5})
    assert await asking(drsai).statuses(1) == [429]
    made = await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=0, cost_day=1e-9)
    assert (made.tokens_day, made.cost_day) == (0, 1e-8)


async def test_what_is_used_is_told(make: Make) -> None:
    """And stays used when another budget is set."""
    drsai = await make(budget_user={"tokens_day": 100_000})
    assert await asking(drsai).statuses(2) == [200, 200]
    made = await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=2 * CALL, tokens_month=10**9)
    assert made.used["tokens_day"] == 2 * CALL
    assert made.used["cost_day"] == pytest.approx(2 * (100 * 0.15 + 10 * 0.6) / 1e6)
    assert made.used["tokens_month"] == 0
    assert await asking(drsai).statuses(1) == [429]
    [listed] = (await drsai.budgets.list("acme")).items
    assert listed == made


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ({"kind": "team", "tokens_day": 1}, "kind"),
        ({"kind": "user", "tokens_day": 1}, "name"),
        ({"kind": "all", "name": "x", "tokens_day": 1}, "name"),
        ({"kind": "user", "name": "ann"}, "tokens_day"),
        ({"kind": "user", "name": "ann", "tokens_month": -1}, "tokens_month"),
        ({"kind": "user", "name": "ann", "cost_day": float("nan")}, "cost_day"),
        ({"kind": "user", "name": "ann", "cost_month": 10**11}, "cost_month"),
        ({"kind": "user", "name": "ann", "tokens_day": True}, "tokens_day"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_name(make: Make, said: dict[str, Any], param: str) -> None:
    drsai = await make()
    with pytest.raises(InvalidRequest) as refused:
        await drsai.budgets.set(**said)
    assert refused.value.param == param
    assert not (await drsai.budgets.list()).items


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("budget_user", "tokens_day", "must be words such as tokens_day=1000000 or cost_month=50"),
        ("budget_tenant", "tokens=6", "DRSAI_BUDGET_TENANT"),
        ("budget_key", "cost_day=-1", "DRSAI_BUDGET_KEY"),
        ("budget_all", "cost_day=nan", "DRSAI_BUDGET_ALL"),
    ],
)
def test_so_are_settings(name: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DRSAI_{name.upper()}", value)
    with pytest.raises(ConfigurationError, match=told):
        Settings(_env_file=None)


def test_settings_are_words_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("tokens_day=60, cost_month = 2.5", '{"tokens_day": 60, "cost_month": 2.5}'):
        monkeypatch.setenv("DRSAI_BUDGET_USER", text)
        assert Settings(_env_file=None).budget_user == {"tokens_day": 60, "cost_month": 2.5}


async def test_admins_set_those_of_their_tenants_users_and_keys(make: Make) -> None:
    drsai = await make()
    admin = Asking(drsai, Principal("root", "acme", scopes=ROLES["admin"]))
    http = admin.http
    made = (await http.put("/v1/budgets", json={"user": "ann", "tokens_day": 1, "cost_month": 2})).json()
    assert {**made, "set_at": 0} == {
        "id": "user ann",
        "object": "budget",
        "kind": "user",
        "tenant": "acme",
        "name": "ann",
        "tokens_day": 1,
        "tokens_month": None,
        "cost_day": None,
        "cost_month": 2.0,
        "used": {"tokens_day": 0, "tokens_month": 0, "cost_day": 0, "cost_month": 0},
        "set_at": 0,
    }
    await drsai.budgets.set("tenant", tenant="other", tokens_day=1)
    assert [each["id"] for each in (await http.get("/v1/budgets")).json()["data"]] == ["user ann"]
    assert await asking(drsai).statuses(1) == [429]
    for deleted in (True, False):
        gone = await http.delete("/v1/budgets?of_user=ann")
        assert gone.json() == {"id": "user ann", "object": "budget.deleted", "deleted": deleted}
    for body, param in (
        ({"tokens_day": 1}, "user"),
        ({"user": "ann", "cost_day": -1}, "cost_day"),
        ({"user": "ann", "tokens_day": 1.5}, "tokens_day"),
        ({"user": "ann"}, "tokens_day"),
    ):
        refused = await http.put("/v1/budgets", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), body
    admin.who = Principal("ann", "acme", scopes=ROLES["operator"])
    assert (await http.get("/v1/budgets")).status_code == 403


async def test_they_go_with_their_user(make: Make) -> None:
    drsai = await make()
    for user in ("ann", "bob"):
        await drsai.budgets.set("user", user, tenant="acme", tokens_day=5_000)
        assert await asking(drsai, user).statuses(1) == [200]
    assert (await drsai.users.delete(Owner("acme", "ann")))["budgets"]
    assert [each.name for each in (await drsai.budgets.list()).items] == ["bob"]
    assert not await rows(drsai)
    assert await used(drsai, subject="user/acme/bob") != (0, 0)


async def test_they_go_with_their_key(make: Make) -> None:
    drsai = await make()
    made = [(await drsai.keys.create(Owner("acme", user), ["user"])).info for user in ("ann", "bob", "carl")]
    for each in made:
        await drsai.budgets.set("key", each.key_id, tenant="acme", tokens_day=5_000)
    await drsai.budgets.set("key", "another", tenant="acme", tokens_day=5_000)
    await drsai.users.delete(Owner("acme", "ann"))
    await drsai.keys.revoke("acme", made[1].key_id)
    await drsai.budgets._sweep()
    left = [made[1].key_id, made[2].key_id, "another"]
    assert sorted(each.name for each in (await drsai.budgets.list()).items) == sorted(left)
    # What was used with one that is revoked is told for two months.
    key = table_of(ApiKey)
    long_ago = sa.update(key).where(key.c.revoked_at.is_not(None)).values(revoked_at=utcnow() - timedelta(days=63))
    await drsai.database.write(lambda session: session.connection().execute(long_ago).rowcount)
    await drsai.budgets._sweep()
    assert sorted(each.name for each in (await drsai.budgets.list()).items) == sorted(left[1:])


def test_the_command_line(commands: Commands, database_url: str, tmp_path: Any) -> None:
    def run(*words: str, expected: int = 0) -> str:
        ran = commands.start("budgets", *words, "--database-url", database_url, cwd=tmp_path, env={})
        assert ran.wait(60) == expected, ran.stderr
        return ran.stdout if not expected else ran.stderr

    assert "no budgets were set" in run("list")
    told = run("set", "user", "ann", "--tenant", "acme", "--tokens-day", "60", "--cost-month", "2.5")
    assert "user ann (acme): tokens a day 60 (0 used), cost a month 2.5 (0 used)" in told
    run("set", "all", "--tokens-month", "0")
    assert [each["kind"] for each in json.loads(run("list", "--json"))] == ["all", "user"]
    assert "tokens a month without budget" in run("list")
    assert "the settings hold again" in run("remove", "all")
    assert "there is no budget of a 'team'" in run("set", "team", "x", "--tokens-day", "1", expected=2)
