"""A thread has a budget, of all runs in it, whoever asks for them; a fork has its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drsai_backend.access.principal import ROLES, Principal
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.rules.base import of_thread, thread_of
from tests.features.budgets.conftest import CALL, Asking, Make, asking, error_of, rows, used
from tests.features.budgets.test_budgets import pair
from tests.support.commands import Commands
from tests.support.model_server import ModelServer

T = "thread/acme/ann%2Ft"
FEW: dict[str, Any] = {"max_tokens": 50}


async def test_it_bounds_the_runs_of_its_thread(make: Make, model: ModelServer) -> None:
    drsai = await make(budget_user={"tokens_day": 100_000})
    await drsai.budgets.set("thread", "ann/t", tenant="acme", tokens_day=2 * CALL)
    asked = asking(drsai)
    assert await asked.statuses(3, **FEW) == [200, 200, 429]
    refused = error_of(await asked.chat(**FEW))
    assert f"the budget of {2 * CALL} tokens a day for this thread is used up" in refused["message"]
    assert len(model.requests) == 2
    # Others of the user, and one of the same name of somebody else's, have none.
    assert (await asked.chat("u", **FEW)).status_code == 200
    assert (await asking(drsai, "bob").chat(**FEW)).status_code == 200
    assert (await used(drsai, subject=T))[0] == 2 * CALL
    assert (await used(drsai))[0] == 3 * CALL
    # A fork begins with nothing used.
    await drsai.budgets.set("thread", "ann/f", tenant="acme", tokens_day=100_000)
    await drsai.user("ann", tenant="acme").fork("t", new_thread_id="f")
    assert (await asked.chat("f", **FEW)).status_code == 200
    assert (await used(drsai, subject="thread/acme/ann%2Ff"))[0] == CALL
    assert (await used(drsai, subject=T))[0] == 2 * CALL


async def test_each_thread_has_that_of_the_settings(make: Make, model: ModelServer) -> None:
    """In the midst of a run, too, where it is paused."""
    drsai = await make({"pair": pair}, budget_thread={"tokens_day": 200})
    asked = asking(drsai)
    for thread in ("t", "u"):
        told = (await asked.chat(thread, model="pair", max_tokens=80)).json()["drsai"]
        assert (told["status"], told["stop_code"]) == ("paused", "insufficient_quota")
        assert "the budget of 200 tokens a day for this thread" in told["stop_reason"]
        assert (await used(drsai, subject=f"thread/acme/ann%2F{thread}"))[0] == CALL
    assert len(model.requests) == 2
    # Where nobody has named the thread, it is not known when the request is stored, but before the model is asked.
    body = {"model": "pair", "messages": [{"role": "user", "content": "Hello"}], **FEW}
    told = (await asked.http.post("/v1/chat/completions", json=body)).json()["drsai"]
    assert told["status"] == "paused"
    run = await drsai.user("ann", tenant="acme").get_run(told["run_id"])
    assert (await used(drsai, subject=f"thread/acme/ann%2F{run.thread_id}"))[0] == CALL


async def test_it_goes_with_its_user(make: Make) -> None:
    drsai = await make()
    for name in ("ann/t", "Ann/t", "anna/t"):
        await drsai.budgets.set("thread", name, tenant="acme", tokens_day=5_000)
        assert await asking(drsai, name.removesuffix("/t")).statuses(1) == [200]
    assert (await drsai.users.delete(Owner("acme", "ann")))["budgets"]
    assert [each.name for each in (await drsai.budgets.list()).items] == ["anna/t", "Ann/t"]
    assert not await rows(drsai, subject=T)
    for name in ("Ann", "anna"):
        assert await rows(drsai, subject=f"thread/acme/{name}%2Ft")


def test_each_thread_has_one_name() -> None:
    names = [ThreadName("acme", *each) for each in (("a", "b"), ("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("%", "/"))]
    assert [of_thread(each).name for each in names] == ["a/b", "a%2Fb/c", "a/b%2Fc", "a%252Fb/c", "%25/%2F"]
    assert [thread_of(of_thread(each)) for each in names] == names


@pytest.mark.parametrize("name", ["", "ann", "ann/", "/t", " ann/t", "ann/t\n", "ann/" + 256 * "t"])
async def test_what_names_no_thread_is_refused(make: Make, name: str) -> None:
    drsai = await make()
    with pytest.raises(InvalidRequest) as refused:
        await drsai.budgets.set("thread", name, tenant="acme", tokens_day=1)
    assert refused.value.param == "name"
    with pytest.raises(InvalidRequest, match="no limit of a 'thread'"):
        await drsai.limits.set("thread", "ann/t", tenant="acme", requests=1)
    assert not (await drsai.budgets.list()).items


async def test_admins_set_those_of_their_tenants_threads(make: Make) -> None:
    drsai = await make()
    http = Asking(drsai, Principal("root", "acme", scopes=ROLES["admin"])).http
    made = (await http.put("/v1/budgets", json={"thread": "ann/t", "tokens_day": 1})).json()
    assert (made["id"], made["kind"], made["name"]) == ("thread ann/t", "thread", "ann/t")
    assert await asking(drsai).statuses(1) == [429]
    for deleted in (True, False):
        gone = await http.delete("/v1/budgets?of_thread=ann/t")
        assert gone.json() == {"id": "thread ann/t", "object": "budget.deleted", "deleted": deleted}
    for body in ({"thread": "ann/t", "user": "ann", "tokens_day": 1}, {"thread": "ann", "tokens_day": 1}):
        assert (await http.put("/v1/budgets", json=body)).status_code == 400
    assert (await http.delete("/v1/budgets?of_thread=ann/t&of_user=ann")).status_code == 400


def test_the_command_line(commands: Commands, database_url: str, tmp_path: Any) -> None:
    def run(*words: str) -> str:
        ran = commands.start("budgets", *words, "--database-url", database_url, cwd=tmp_path, env={})
        assert ran.wait(60) == 0, ran.stderr
        return ran.stdout

    assert "thread ann/t (acme): tokens a day 60" in run(
        "set", "thread", "ann/t", "--tenant", "acme", "--tokens-day", "60"
    )
    assert [each["name"] for each in json.loads(run("list", "--json"))] == ["ann/t"]
    assert "the settings hold again" in run("remove", "thread", "ann/t", "--tenant", "acme")
