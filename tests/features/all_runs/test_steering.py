"""Runs of whomever are stopped, paused, resumed and retried as by their owners, and the audit log says who did it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.datamodel.audit import Actor, By
from drsai_backend.errors import IllegalTransition, NotFound
from drsai_backend.features.all_runs.base import VERBS, SteeredAll, Wanted
from drsai_backend.runs import InputMessage
from tests.support.asks import asks
from tests.support.teams.crew import Asker, Crew
from tests.support.threads import QUICK, Make, until

AT = "/v1/admin/runs"
OLGA = Actor(By.USER, "olga", "key_1")


async def begin(drsai: DrSai, user: str, thread: str = "t", *, tenant: str = "acme", **values: Any) -> str:
    given = {"team": "crew", "messages": [InputMessage("user", "Hello")], "principal": Principal(user, tenant)}
    return (await drsai.engine.start(*asks(**{**given, "thread_id": thread, **values}))).run_id


async def status_of(drsai: DrSai, run_id: str) -> RunStatus:
    return (await drsai.all_runs.get(run_id)).status


async def becomes(drsai: DrSai, run_id: str, status: RunStatus) -> None:
    async def is_so() -> bool:
        return await status_of(drsai, run_id) is status

    await until(is_so)


async def entries(drsai: DrSai) -> list[tuple[str, str, str | None, str | None]]:
    """What the audit log has of runs, oldest first: act, run, whose, who."""
    page = await drsai.audit.list(action="run", limit=500)
    return [(item.action, item.subject, item.owner, item.actor) for item in reversed(page.items)]


def outcomes(done: SteeredAll) -> dict[str, str]:
    return {run.run_id: run.outcome for run in done.runs}


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_each_verb_does_what_the_owners_does(make: Make, where: str) -> None:
    crew = Crew()
    crew.ann.hold()
    runner, other = await make({"crew": crew}, **QUICK), await make({"crew": crew}, **QUICK)
    every = (runner if where == "here" else other).all_runs
    run = await begin(runner, "bob")
    await crew.ann.asked.wait()
    with pytest.raises(NotFound):
        await every.steer("cancel", run, tenant="other", actor=OLGA)
    await every.steer("pause", run, tenant="acme", actor=OLGA)
    await every.steer("pause", run, tenant="acme", actor=OLGA)
    crew.ann.release()
    await becomes(runner, run, RunStatus.PAUSED)
    crew.bob.hold()
    assert (await every.steer("resume", run, actor=OLGA)).status is RunStatus.RUNNING
    await crew.bob.asked.wait()
    stopped = await every.steer("cancel", run, actor=OLGA)
    assert stopped.status is RunStatus.STOPPED
    assert (await every.steer("cancel", run, actor=OLGA)).status is RunStatus.STOPPED, "as its owner may, again"
    for verb in ("pause", "resume", "retry"):
        with pytest.raises(IllegalTransition):
            await every.steer(verb, run, actor=OLGA)
    # What is asked already, or cannot be, is no act.
    assert await entries(runner) == [
        ("run.pause_requested", run, "bob", "olga"),
        ("run.resume_requested", run, "bob", "olga"),
        ("run.cancel_requested", run, "bob", "olga"),
    ]
    [entry] = (await runner.audit.list(tenant="acme", action="run.cancel_requested")).items
    assert (entry.thread_id, entry.key_id, entry.detail) == ("t", "key_1", {"team": "crew", "status": "running"})


async def test_a_run_that_has_failed_is_retried_where_it_is_the_last(make: Make) -> None:
    crew = Crew()
    rule, crew.bob.rule = crew.bob.rule, lambda *_: RuntimeError("no")
    drsai = await make({"crew": crew}, **QUICK)
    first = await begin(drsai, "bob")
    await becomes(drsai, first, RunStatus.ERROR)
    second = await begin(drsai, "bob")
    await becomes(drsai, second, RunStatus.ERROR)
    crew.bob.rule = rule
    with pytest.raises(IllegalTransition):
        await drsai.all_runs.steer("retry", first)
    done = await drsai.all_runs.steer_all("retry", Wanted(error_code="run_failed"), actor=OLGA)
    assert (done.found, outcomes(done)) == (1, {second: "done"})
    await becomes(drsai, second, RunStatus.COMPLETED)
    assert await status_of(drsai, first) is RunStatus.ERROR


async def test_the_run_and_no_later_one_of_its_thread(make: Make) -> None:
    """What a verb is asked to do with a run that is over does nothing to the one that is live."""
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK)
    over = await begin(drsai, "bob")
    await becomes(drsai, over, RunStatus.COMPLETED)
    crew.ann.hold()
    live = await begin(drsai, "bob")
    await crew.ann.asked.wait()
    for verb in VERBS:
        with pytest.raises(IllegalTransition):
            await drsai.all_runs.steer(verb, over)
    assert await status_of(drsai, live) is RunStatus.RUNNING
    assert (await drsai.user("bob", tenant="acme").get_thread("t")).control is None
    crew.ann.release()


async def test_all_that_is_not_over_is_ended_at_once(make: Make) -> None:
    """Live here, live in another process, in the queue, waiting for a person: of one tenant, and of no other."""
    crew, asker = Crew(), Asker()
    crew.ann.hold()
    teams = {"crew": crew, "asker": asker}
    here, other = await make(teams, **QUICK), await make(teams, **QUICK)
    wanted = [
        await begin(here, "ann", "a"),
        await begin(other, "bob", "b"),
        await begin(other, "bob", "c", team="asker"),
    ]
    wanted.append(await begin(here, "ann", "a", background=True, on_busy="enqueue"))
    left = await begin(here, "ann", "a", tenant="rest")
    await becomes(here, wanted[2], RunStatus.AWAITING_INPUT)
    every = here.all_runs
    counted = await every.steer_all("cancel", Wanted(), tenant="acme", dry_run=True, actor=OLGA)
    assert (counted.found, outcomes(counted)) == (4, dict.fromkeys(wanted, "found"))
    assert await entries(here) == []
    assert await status_of(here, wanted[0]) is RunStatus.RUNNING
    some = await every.steer_all("cancel", Wanted(status=RunStatus.RUNNING), tenant="acme", limit=1, actor=OLGA)
    assert (some.found, outcomes(some)) == (2, {wanted[0]: "done"})
    done = await every.steer_all("cancel", Wanted(), tenant="acme", actor=OLGA)
    assert outcomes(done).keys() <= {*wanted[1:]}
    assert {*outcomes(done).values()} <= {"done", "asked"}
    for run in wanted:
        await becomes(here, run, RunStatus.STOPPED)
    assert await status_of(here, left) is RunStatus.RUNNING
    again = await every.steer_all("cancel", Wanted(), tenant="acme", actor=OLGA)
    assert (again.found, again.runs) == (0, [])
    assert sorted((run, whose) for _, run, whose, _ in await entries(here)) == sorted(
        zip(wanted, ("ann", "bob", "bob", "ann"), strict=True)
    )
    # Who has ended a question is told there.
    messages = await here.user("bob", tenant="acme").list_messages("c")
    assert messages[-1].message["user_id"] == "olga"
    crew.ann.release()


async def test_pauses_are_taken_back_together(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **QUICK)
    runs = [await begin(drsai, user) for user in ("ann", "bob", "eve")]
    every = drsai.all_runs
    paused = await every.steer_all("pause", Wanted(team="crew"), actor=OLGA)
    assert outcomes(paused) == dict.fromkeys(runs, "asked")
    assert (await every.steer_all("pause", Wanted(), actor=OLGA)).found == 0
    await every.steer("resume", runs[0], actor=OLGA)
    crew.ann.release()
    await becomes(drsai, runs[0], RunStatus.COMPLETED)
    for run in runs[1:]:
        await becomes(drsai, run, RunStatus.PAUSED)
    resumed = await every.steer_all("resume", Wanted(), actor=OLGA)
    assert outcomes(resumed) == dict.fromkeys(runs[1:], "done")
    for run in runs:
        await becomes(drsai, run, RunStatus.COMPLETED)
    assert len(await entries(drsai)) == 6


async def test_what_cannot_be_done_is_told_of_each(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **QUICK)
    runs = [await begin(drsai, user) for user in ("ann", "bob")]
    pause = drsai.engine.pause

    async def fails(who: Principal, *rest: Any) -> Any:
        if who.user_id == "ann":
            raise IllegalTransition("it is over by now")
        return await pause(who, *rest)

    monkeypatch.setattr(drsai.engine, "pause", fails)
    done = await drsai.all_runs.steer_all("pause", Wanted(), actor=OLGA)
    assert [(run.run_id, run.outcome, run.reason) for run in done.runs] == [
        (runs[0], "refused", "it is over by now"),
        (runs[1], "asked", None),
    ]
    crew.ann.release()


async def test_over_http(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **QUICK)
    run = await begin(drsai, "bob")
    await begin(drsai, "bob", tenant="rest")
    who = Principal("olga", "acme", scopes=frozenset({Scope.RUNS_ADMIN}), key_id="key_1")
    transport = httpx.ASGITransport(app=drsai.app(lambda _: who, is_open=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        told = (await http.post(f"{AT}/cancel", json={"dry_run": True, "user": "bob", "to": 2_000_000_000})).json()
        assert (told["object"], told["found"], told["dry_run"]) == ("admin.runs.steered", 1, True)
        assert [(each["id"], each["outcome"], each["user"]) for each in told["data"]] == [(run, "found", "bob")]
        assert (await http.post(f"{AT}/{run}/pause", json={})).json()["status"] == "running"
        refused = await http.post(f"{AT}/{run}/retry", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "illegal_transition")
        done = (await http.post(f"{AT}/cancel", json={"status": "running"})).json()
        assert [(each["id"], each["outcome"], each["status"]) for each in done["data"]] == [(run, "done", "stopped")]
    found = [(item.action, item.actor, item.key_id) for item in (await drsai.audit.list("acme", action="run")).items]
    assert found == [("run.cancel_requested", "olga", "key_1"), ("run.pause_requested", "olga", "key_1")]
    crew.ann.release()


async def test_whom_a_gateway_acts_as_is_no_operator(make: Make) -> None:
    drsai = await make({})
    made = await drsai.keys.create(Principal("portal", "acme").owner, ["operator", "act-as"])
    transport = httpx.ASGITransport(app=drsai.app(is_open=True))
    key = {"Authorization": f"Bearer {made.key.get_secret_value()}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=key) as http:
        assert (await http.get("/v1/admin/runs")).status_code == 200
        as_ann = await http.get("/v1/admin/runs", headers={"X-OpenWebUI-User-Email": "ann"})
        assert (as_ann.status_code, as_ann.json()["error"]["code"]) == (403, "insufficient_scope")
