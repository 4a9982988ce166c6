"""Switches are listed, audited and refused where they cannot be; all processes go by them within two seconds."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.access.principal import ROLES, Scope
from drsai_backend.database.moving import refuse_runs
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.audit import CLI, Actor, By
from drsai_backend.datamodel.switches import CLOSED, is_moved
from drsai_backend.errors import Conflict, DatabaseUnavailable, InvalidRequest
from drsai_backend.features.switches import rows
from drsai_backend.runs.recovery.leases import shown_worker
from tests.features.switches.conftest import GONE, Make, asking, later_on
from tests.support.commands import Commands
from tests.support.threads import until

OLGA = Actor(By.USER, "olga", "key_1")
AT = "/v1/switches"


async def switches(drsai: DrSai, tenant: str | None = None) -> list[tuple[str, str, str]]:
    return [(each.kind, each.name, each.tenant) for each in (await drsai.switches.list(tenant)).items]


async def test_they_are_listed_and_audited(make: Make) -> None:
    drsai = await make()
    until_when = utcnow() + timedelta(hours=2)
    made = await drsai.switches.off(
        "team", "research", tenant="acme", message=f" {GONE} ", until=until_when, actor=OLGA
    )
    assert (made.message, made.until) == (GONE, until_when)
    await drsai.switches.off("model", "org/gpt-4o:free", message="No.")
    await drsai.switches.off("tenant", "other", message="No.")
    await drsai.switches.off("all", message="No.")
    await drsai.switches.off("team", "research", tenant="acme", message="Other words.", actor=OLGA)
    assert await switches(drsai) == [
        ("team", "research", "acme"),
        ("all", "", ""),
        ("tenant", "other", "other"),
        ("model", "org/gpt-4o:free", ""),
    ]
    assert await switches(drsai, "acme") == [("team", "research", "acme")]
    page = await drsai.switches.list(limit=3)
    assert len((await drsai.switches.list(after=page.next, limit=3)).items) == 1
    assert await drsai.switches.on("team", "research", tenant="acme", actor=OLGA)
    assert not await drsai.switches.on("team", "research", tenant="acme")
    assert not await drsai.switches.on("team", "research"), "it was off in one tenant"
    told = [
        (each.action, each.subject, each.actor, (each.detail or {}).get("message"))
        for each in (await drsai.audit.list("acme", action="switch")).items
    ]
    assert told == [
        ("switch.on", "team research", "olga", None),
        ("switch.off", "team research", "olga", "Other words."),
        ("switch.off", "team research", "olga", GONE),
    ]
    everywhere = [each.subject for each in (await drsai.audit.list(None, action="switch")).items]
    assert {"all", "model org/gpt-4o:free", "tenant other"} < {*everywhere}


async def test_a_row_whose_time_is_over_is_gone_with_the_next_change(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    drsai = await make()
    await drsai.switches.off("team", "a", message=GONE, until=utcnow() + timedelta(hours=1))
    later_on(monkeypatch)
    assert await switches(drsai) == []
    await drsai.switches.off("team", "b", message=GONE)
    count = await drsai.database.read(
        lambda session: session.connection().exec_driver_sql("SELECT count(*) FROM switch").scalar_one()
    )
    assert count == 1


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ({"kind": "user", "name": "ann"}, "kind"),
        ({"kind": "team"}, "name"),
        ({"kind": "team", "name": "\n"}, "name"),
        ({"kind": "tenant"}, "name"),
        ({"kind": "tenant", "name": "acme", "tenant": "other"}, "tenant"),
        ({"kind": "all", "name": "research"}, "name"),
        ({"kind": "all", "tenant": "acme"}, "tenant"),
        ({"kind": "team", "name": "a", "tenant": ""}, "tenant"),
        ({"kind": "team", "name": "a", "message": " \n"}, "message"),
        ({"kind": "team", "name": "a", "message": "x" * 501}, "message"),
        ({"kind": "team", "name": "a", "message": "a\0b"}, "message"),
        ({"kind": "team", "name": "a", "until": utcnow() - timedelta(seconds=1)}, "until"),
        ({"kind": "team", "name": "a", "until": utcnow() + timedelta(days=5_000)}, "until"),
        ({"kind": "team", "name": "a", "until": datetime(2050, 1, 1)}, "until"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_name(make: Make, said: dict[str, Any], param: str) -> None:
    drsai = await make()
    given: dict[str, Any] = {"message": "No.", **said}
    with pytest.raises(InvalidRequest) as refused:
        await drsai.switches.off(**given)
    assert refused.value.param == param
    assert await switches(drsai) == []


async def test_other_processes_go_by_them_within_two_seconds(make: Make) -> None:
    here, there = await make(), await make()
    ann = asking(there)
    assert await ann.status() == 200
    await here.switches.off("team", "research", message=GONE)
    assert await asking(here).status() == 503, "here, at once"

    async def is_refused() -> bool:
        return bool(there.models.switches.off)

    await until(is_refused, 10)
    assert await ann.status() == 503
    await here.switches.on("team", "research")

    async def is_served() -> bool:
        return not there.models.switches.off

    await until(is_served, 10)
    assert await ann.status() == 200


async def test_while_the_database_is_away_what_was_known_holds(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drsai = await make()
    await drsai.switches.off("team", "research", message=GONE)
    read, failed = drsai.database.read, asyncio.Event()

    async def away(*_: Any, **__: Any) -> Any:
        failed.set()
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(drsai.database, "read", away)
    await failed.wait()
    assert drsai.models.switches.off
    monkeypatch.setattr(drsai.database, "read", read)
    assert await asking(drsai).status() == 503
    await drsai.switches.on("team", "research")
    assert await asking(drsai).status() == 200


async def test_operators_switch_what_is_of_their_tenant(make: Make) -> None:
    drsai = await make()
    olga = asking(drsai, "olga", scopes=frozenset({Scope.RUNS_ADMIN}), key_id="key_1")
    http, ends = olga.http, int(time.time()) + 3600
    body = {"kind": "team", "name": "research", "message": GONE, "until": ends}
    made = await http.put(AT, json=body)
    assert made.status_code == 200, made.text
    assert {**made.json(), "set_at": 0} == {
        "id": "team research",
        "object": "switch",
        "tenant": "acme",
        "set_at": 0,
        **body,
    }
    assert (await http.put(AT, json={"kind": "tenant", "message": GONE})).json()["name"] == "acme"
    await drsai.switches.off("team", "research", message="All.")
    await drsai.switches.off("model", "x", tenant="other", message="Other.")
    assert [each["id"] for each in (await http.get(AT)).json()["data"]] == ["tenant acme", "team research"]
    user = asking(drsai)
    assert (await user.chat()).json()["error"]["message"] == GONE
    await drsai.switches.on("team", "research")
    for deleted in (True, False):
        gone = await http.delete(f"{AT}?kind=tenant")
        assert gone.json() == {"id": "tenant acme", "object": "switch.deleted", "deleted": deleted}
    assert await user.status() == 503
    assert await user.status("other") == 200
    assert await asking(drsai, tenant="other").status() == 200
    assert (await http.delete(f"{AT}?kind=team&name=research")).json()["deleted"]
    assert await user.status() == 200
    told = [(each.action, each.actor, each.key_id) for each in (await drsai.audit.list("acme", action="switch")).items]
    assert told == [("switch.on", "olga", "key_1")] * 2 + [("switch.off", "olga", "key_1")] * 2
    for wrong, param in (
        ({"kind": "all"}, "kind"),
        ({"kind": "user", "name": "x"}, "kind"),
        ({"kind": "team"}, "name"),
        ({"kind": "team", "name": "\n"}, "name"),
        ({"kind": "tenant", "name": "other"}, "name"),
        ({"kind": "team", "name": "x", "message": " "}, "message"),
        ({"kind": "team", "name": "x", "until": 5}, "until"),
        ({"kind": "team", "name": "x", "until": "2h"}, "until"),
        ({"kind": "team", "name": "x", "tenant": "other"}, "tenant"),
    ):
        refused = await http.put(AT, json={"message": "No.", **wrong})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), wrong
    assert (await http.delete(AT)).json()["error"]["param"] == "kind"
    assert (await http.delete(f"{AT}?kind=team")).json()["error"]["param"] == "name"
    olga.who = asking(drsai, "olga", scopes=ROLES["user"]).who
    assert (await http.get(AT)).status_code == 403


async def test_what_the_servers_operator_has_switched_off_stays_so(make: Make, database_url: str) -> None:
    """By the command line, by a program, or for a move: an operator of the tenant neither lifts nor changes it."""
    drsai = await make()
    http = asking(drsai, "olga", scopes=frozenset({Scope.RUNS_ADMIN})).http
    research, whole = {"kind": "team", "name": "research"}, {"kind": "tenant", "name": "acme"}
    await drsai.switches.off("team", "research", tenant="acme", message=GONE, actor=CLI)
    assert (await http.put(AT, json={**whole, "message": "Mine."})).status_code == 200
    await asyncio.to_thread(refuse_runs, database_url, "acme")
    for named, why in ((research, "the server's operator"), (whole, "moved to another database")):
        for refused in (
            await http.delete(AT, params=named),
            await http.put(AT, json={**named, "message": "Mine.", "until": int(time.time()) + 2}),
        ):
            assert refused.status_code == 403, refused.text
            assert why in refused.json()["error"]["message"]
    assert {each["message"] for each in (await http.get(AT)).json()["data"]} == {GONE, "Mine."}
    assert ("tenant", "acme", "") in await switches(drsai)
    await drsai.switches.on("tenant", "acme")
    # Words are no move.
    assert (await http.put(AT, json={**whole, "message": CLOSED})).status_code == 200
    assert not await drsai.database.read(lambda session: session.scalar(sa.select(is_moved("acme"))))
    assert (await http.delete(AT, params=whole)).json()["deleted"]
    assert await drsai.switches.on("team", "research", tenant="acme")
    assert (await http.put(AT, json={**research, "message": "Mine."})).status_code == 200
    assert (await http.put(AT, json={**research, "message": "Mine again."})).status_code == 200
    assert (await http.delete(AT, params=research)).json()["deleted"]


async def test_operators_of_a_tenant_switch_a_bounded_number_off(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers know all of them. What is off already can be changed, and programs are trusted."""
    monkeypatch.setattr(rows, "MOST", 2)
    drsai = await make()
    await drsai.switches.off("team", "x", tenant="other", message="No.")
    for name in ("x", "y", "x"):
        await drsai.switches.off("team", name, tenant="acme", message="No.", actor=OLGA)
    with pytest.raises(Conflict, match="2 switches"):
        await drsai.switches.off("team", "z", tenant="acme", message="No.", actor=OLGA)
    assert await switches(drsai, "acme") == [("team", "x", "acme"), ("team", "y", "acme")]
    await drsai.switches.off("team", "z", tenant="acme", message="No.")
    assert len(await switches(drsai, "acme")) == 3


async def test_the_command_line_switches_for_a_server(
    make: Make, commands: Commands, database_url: str, tmp_path: Path
) -> None:
    """Another process, which looks for changes each second."""
    drsai = await make()
    ann = asking(drsai)

    async def run(*words: str, expected: int = 0) -> str:
        ran = commands.start("switches", *words, "--database-url", database_url, cwd=tmp_path, env={})
        assert await asyncio.to_thread(ran.wait, 60) == expected, ran.stderr
        return ran.stdout if not expected else ran.stderr

    assert "nothing is switched off" in await run("list")
    told = await run("off", "team", "research", "--message", GONE, "--tenant", "acme", "--until", "2h")
    assert told.startswith("team research (in tenant acme) is off until 20")

    async def refused() -> bool:
        return await ann.status() == 503

    await until(refused, 10)
    assert (await ann.chat()).json()["error"]["message"] == GONE
    await run("off", "tenant", "other", "-m", "[bold]Rest[/bold]")
    assert [each["kind"] for each in json.loads(await run("list", "--json"))] == ["tenant", "team"]
    assert "tenant other: [bold]Rest[/bold]" in await run("list")
    assert "team research is on again" in await run("on", "team", "research", "--tenant", "acme")
    assert "team research was not off" in await run("on", "team", "research", "--tenant", "acme")

    async def served() -> bool:
        return await ann.status() == 200

    await until(served, 10)
    for words, text in (
        (("off", "team", "x"), "`--message` must have 1 to 500 characters"),
        (("off", "user", "x", "-m", "No."), "a 'user' cannot be switched off"),
        (("off", "team", "x", "-m", "No.", "--until", "soon"), "--until soon: a time is a number"),
        (("off", "team", "x", "-m", "No.", "--until", "9999999d"), "--until 9999999d: that is too long"),
        (("off", "team", "x", "-m", "No.", "--until", "4000d"), "`--until` must be a time to come"),
        (("on", "team"), "`NAME` must have 1 to 255 characters"),
    ):
        assert text in await run(*words, expected=2), words
    assert len(json.loads(await run("list", "--json"))) == 1


async def test_a_worker_that_is_not_there_is_warned_of(
    make: Make, commands: Commands, database_url: str, tmp_path: Path
) -> None:
    """It is switched off nevertheless: it may come, or come back."""
    drsai = await make()

    async def is_there() -> bool:
        return bool((await drsai.all_runs.board()).workers)

    await until(is_there, 10)
    here = shown_worker((await drsai.all_runs.board()).workers[0].worker)
    for worker, told in (
        (here, ""),
        (f"{here}x", f"Warning: no worker {here}x is there now; did you mean {here!r}?\n"),
        ("TYPO", "Warning: no worker TYPO is there now; `drsai top` shows those there are\n"),
    ):
        words = ("off", "worker", worker, "-m", "No.", "--database-url", database_url)
        ran = commands.start("switches", *words, cwd=tmp_path, env={})
        assert await asyncio.to_thread(ran.wait, 60) == 0, ran.stderr
        assert (ran.stdout, ran.stderr) == (f"worker {worker} is off\n", told)
