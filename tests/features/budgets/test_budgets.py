"""Budgets: what model calls use is counted, what runs may use is reserved, and where too little is left nothing is
asked."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import AssistantAgent, DrSai, RoundRobinGroupChat, RunContext, RunStatus
from drsai_backend.datamodel import QueuedInput, Run, table_of
from drsai_backend.errors import BudgetReached
from drsai_backend.features.budgets.rows import ENDED, forget_before
from drsai_backend.models import ModelParams
from tests.features.budgets.conftest import CALL, Asking, Make, asking, error_of, reserved, rows, today, used
from tests.support.calls import Slow
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import until


def pair(context: RunContext) -> RoundRobinGroupChat:
    """Ann and bob speak once each."""
    agents = [AssistantAgent(name, context.model_client()) for name in ("ann", "bob")]
    return RoundRobinGroupChat([*agents], max_turns=2)


async def test_what_calls_use_is_counted(make: Make) -> None:
    """Of each budget that counts for who asks, with the write that stores the calls."""
    drsai = await make(
        {"pair": pair},
        budget_user={"tokens_day": 100_000},
        budget_tenant={"tokens_month": 1e6, "cost_day": 5},
        budget_key={"cost_month": 1},
    )
    asked = asking(drsai, key_id="key_a")
    assert (await asked.chat(model="pair")).status_code == 200
    assert (await asked.chat(model="pair")).status_code == 200
    cost = 4 * (100 * 15 + 10 * 60)  # gpt-4o-mini: 0.15 and 0.60 a million, in 0.00000001
    month = today()[:7]
    for subject, period in (
        ("user/acme/ann", today()),
        ("tenant/acme/", today()),
        ("tenant/acme/", month),
        ("key/acme/key_a", month),
    ):
        assert await used(drsai, subject=subject, period=period) == (4 * CALL, cost), subject
    assert "" not in await rows(drsai, period=month)


async def test_nothing_is_stored_where_none_is_set(make: Make) -> None:
    drsai = await make()
    assert await asking(drsai).statuses(2) == [200, 200]
    assert not await rows(drsai)


async def test_a_request_is_refused_where_too_little_is_left(make: Make, model: ModelServer) -> None:
    drsai = await make(budget_user={"tokens_day": 3 * CALL})
    asked = asking(drsai)
    assert await asked.statuses(3, max_tokens=50) == [200, 200, 200]
    refused = await asked.chat("other", max_tokens=50)
    assert refused.status_code == 429
    error = error_of(refused)
    assert error["code"] == error["type"] == "insufficient_quota"
    assert f"the budget of {3 * CALL} tokens a day for you is used up: it begins anew at 20" in error["message"]
    assert error["message"].endswith("T00:00:00Z")
    assert refused.headers["x-should-retry"] == "false"
    assert len(model.requests) == 3
    assert (await asking(drsai, "bob").chat(max_tokens=50)).status_code == 200
    assert await used(drsai) == (3 * CALL, (await used(drsai))[1])


async def test_money_runs_out_too(make: Make) -> None:
    drsai = await make(budget_all={"cost_month": 0.00005})
    statuses = await asking(drsai).statuses(5, max_tokens=10)
    assert statuses[0] == 200
    assert statuses[-1] == 429
    spent = (await used(drsai, subject="all//", period=today()[:7]))[1]
    assert spent <= 5000


async def test_a_model_without_a_price_counts_for_tokens_alone(make: Make) -> None:
    drsai = await make(model="unheard-of", model_info={"family": "unknown"}, budget_user={"cost_day": 0.000001})
    assert await asking(drsai).statuses(2) == [200, 200]
    assert await used(drsai) == (2 * CALL, 0)


async def test_the_operator_words_what_is_told(make: Make) -> None:
    drsai = await make(budget_user={"tokens_day": 10}, budget_message="Ask Eve for more ({budget}, until {until}).")
    message = error_of(await asking(drsai).chat(max_tokens=50))["message"]
    assert message.startswith("Ask Eve for more (the budget of 10 tokens a day for you, until 20")
    with pytest.raises(BudgetReached, match="Ask Eve"):
        await drsai.user("ann").start("plain", "x" * 100)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "completions", "messages", "responses"])
async def test_a_chat_window_shows_them_where_a_run_is_paused(make: Make, path: str, streams: bool) -> None:
    """After what was said before that, in whatever form the answer is."""
    words = "{budget} is used up: ask Eve."
    drsai = await make({"pair": pair}, budget_user={"tokens_day": 200}, budget_message=words)
    told = "the budget of 200 tokens a day for you is used up: ask Eve."
    said: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 80}
    if path == "responses":
        said = {"input": "Hello", "max_output_tokens": 80}
    elif path == "completions":
        said = {"prompt": "Hello", "max_tokens": 80}
    answer = await asking(drsai).http.post(f"/v1/{path}", json={"model": "pair", "stream": streams, **said})
    assert answer.status_code == 200
    assert told in answer.text.replace(f'"stop_reason":"{told}"', "")


async def test_a_history_with_them_continues_the_thread(make: Make) -> None:
    drsai = await make({"pair": pair}, budget_user={"tokens_day": 200}, budget_message="Ask Eve.")
    asked, history = asking(drsai), [{"role": "user", "content": "Hello"}]
    body = {"model": "pair", "messages": history, "max_tokens": 80}
    first = (await asked.http.post("/v1/chat/completions", json=body)).json()
    shown = first["choices"][0]["message"]
    assert shown["content"].endswith("\n\nAsk Eve.")
    await drsai.user("ann", tenant="acme").pause(first["thread_id"])  # Nothing resumes it meanwhile.
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=100_000)
    body["messages"] = [*history, shown, {"role": "user", "content": "More"}]
    second = (await asked.http.post("/v1/chat/completions", json=body)).json()
    assert second["thread_id"] == first["thread_id"]
    assert second["drsai"]["status"] == "completed"
    assert "Ask Eve." not in second["choices"][0]["message"]["content"]


async def test_a_run_that_reaches_its_budget_is_paused_and_resumed(make: Make, model: ModelServer) -> None:
    """In the midst of its turns: what was stored stays, and where more was set it goes on from there."""
    drsai = await make({"pair": pair}, budget_user={"tokens_day": 200})
    asked = asking(drsai)
    told = (await asked.chat(model="pair", max_tokens=80)).json()
    assert told["drsai"]["status"] == "paused"
    assert told["drsai"]["stop_code"] == "insufficient_quota"
    assert "the budget of 200 tokens a day for you is used up" in told["drsai"]["stop_reason"]
    assert len(model.requests) == 1
    run = await drsai.user("ann", tenant="acme").get_run(told["drsai"]["run_id"])
    assert (run.status, run.stop_code) == (RunStatus.PAUSED, "insufficient_quota")
    ann = drsai.user("ann", tenant="acme")

    async def is_it(status: RunStatus) -> bool:
        return (await ann.get_run(run.run_id)).status is status

    # Nothing changed: it is paused again.
    await ann.resume("t")
    await until(lambda: is_it(RunStatus.PAUSED))
    assert len(model.requests) == 1
    # With more, it goes on by itself.
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=100_000)
    await until(lambda: is_it(RunStatus.COMPLETED))
    assert len(model.requests) == 2
    assert (await used(drsai))[0] == 2 * CALL


async def test_a_call_inside_a_turn_is_not_made_and_what_was_done_is_kept(make: Make, model: ModelServer) -> None:
    """After a tool was called, the second call of the turn finds nothing: the tool is not called again afterwards."""
    called: list[str] = []

    async def look(name: str) -> str:
        """Look a name up."""
        called.append(name)
        return "found"

    def tooled(context: RunContext) -> AssistantAgent:
        client = context.model_client()
        return AssistantAgent("ann", client, tools=[look], reflect_on_tool_use=True)

    def answer(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("Found.", prompt_tokens=100, completion_tokens=10)
        return Reply(tool_calls=[ToolCall("look", {"name": "x"})], prompt_tokens=100, completion_tokens=10)

    model.script(None, answer)
    drsai = await make({"tooled": tooled}, budget_user={"tokens_day": 200})
    told = (await asking(drsai).chat(model="tooled", max_tokens=100)).json()
    assert told["drsai"]["status"] == "paused"
    assert called == ["x"]
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=100_000)
    ann = drsai.user("ann", tenant="acme")

    async def is_done() -> bool:
        return (await ann.get_run(told["drsai"]["run_id"])).status is RunStatus.COMPLETED

    await until(is_done)
    assert called == ["x"]
    assert len(model.requests) == 2
    assert (await used(drsai))[0] == 2 * CALL


async def test_calls_beside_runs_are_the_first_to_stop(make: Make, model: ModelServer) -> None:
    drsai = await make(budget_user={"tokens_day": 115}, task_model="gpt-4o-mini")
    asked = asking(drsai)
    title = {"messages": [{"role": "user", "content": "### Task:\nGenerate a concise, 3-5 word title"}]}
    title |= {"metadata": {"task": "title_generation"}}
    assert (await asked.chat(max_tokens=10)).status_code == 200
    refused = await asked.chat("other", max_tokens=1, **title)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "insufficient_quota")


async def test_processes_share_budgets_and_are_not_over(make: Make, model: ModelServer) -> None:
    """Many runs at once, in two processes: those that begin have their calls, and no more is used than there is."""
    opened = [await make(budget_tenant={"tokens_day": 10 * CALL}) for _ in range(2)]

    async def ask(number: int) -> str:
        told = (await asking(opened[number % 2], f"u{number}").chat(max_tokens=100)).json()
        return told["drsai"]["status"] if "drsai" in told else told["error"]["code"]

    told = await asyncio.gather(*map(ask, range(30)))
    assert {*told} <= {"completed", "paused", "insufficient_quota"}
    spent = (await used(opened[0], subject="tenant/acme/"))[0]
    assert spent == told.count("completed") * CALL == len(model.requests) * CALL
    assert 0 < spent <= 10 * CALL
    # All that was reserved is free again, as the runs are over.
    assert await asking(opened[0], "eve").statuses(1, max_tokens=5) == [200]


async def test_a_long_run_asks_seldom(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where much is left, calls are drawn from what was reserved with the run's first write."""

    async def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("drsai_backend.features.budgets.extension.Budgets._reserve", never)
    drsai = await make({"pair": pair}, budget_user={"tokens_day": 1_000_000})
    assert await asking(drsai).statuses(3, model="pair") == [200, 200, 200]
    assert await reserved(drsai)
    assert (await used(drsai))[0] == 6 * CALL


async def test_it_is_told_once_that_a_budget_nears_its_end(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    drsai = await make(budget_user={"tokens_day": 5 * CALL})
    with caplog.at_level("WARNING", "drsai.budgets"):
        assert await asking(drsai).statuses(4, max_tokens=10) == [200] * 4
        assert not caplog.records
        assert await asking(drsai).statuses(3, max_tokens=10) == [200, 429, 429]
    texts = [each.getMessage() for each in caplog.records]
    assert texts.count("a budget nears its end: 80 % are used") == 1


async def test_who_waits_behind_is_told_as_well(make: Make) -> None:
    """A message for a thread whose run is paused for a budget is refused before it is stored; one that is stored, as
    it could be that there is enough, ends when there is not."""
    drsai = await make(budget_user={"tokens_day": 200})
    asked: Asking = asking(drsai)
    told = [(await asked.chat(max_tokens=many)).json()["drsai"]["status"] for many in (80, 60)]
    assert told == ["completed", "paused"]
    assert (await asked.chat(max_tokens=300)).status_code == 429
    told = (await asked.chat(max_tokens=1)).json()
    assert told["drsai"]["status"] == "stopped"
    assert "the budget of 200 tokens" in told["drsai"]["stop_reason"]


async def test_what_waits_ends_in_the_write_that_pauses(make: Make, model: ModelServer) -> None:
    """So that a kill leaves nothing behind a run that is paused."""
    gate = threading.Event()

    async def answer(_: ModelRequest) -> Reply:
        await asyncio.to_thread(gate.wait)
        return Reply("Fine.", prompt_tokens=100, completion_tokens=10)

    model.script(None, answer)
    drsai = await make({"pair": pair}, budget_user={"tokens_day": CALL + 20})
    ann, few = drsai.user("ann", tenant="acme"), ModelParams(max_tokens=30)
    first = await ann.start("pair", "x", thread_id="t", params=few)
    second = await ann.start("pair", "y", thread_id="t", params=few, on_busy="enqueue")
    query = sa.select(table_of(Run).c.status).where(table_of(Run).c.run_id == first.run_id)
    waiting = sa.select(sa.func.count()).select_from(table_of(QueuedInput))

    def look(session: Session) -> tuple[RunStatus, int]:
        return session.execute(query).scalar_one(), session.execute(waiting).scalar_one()

    assert await drsai.database.read(look) == (RunStatus.RUNNING, 1)
    gate.set()

    async def is_paused() -> bool:
        status, queued = await drsai.database.read(look)
        assert (status, queued) in ((RunStatus.RUNNING, 1), (RunStatus.PAUSED, 0))
        return not queued

    await until(is_paused)
    run = await ann.get_run(second.run_id)
    assert run.status is RunStatus.STOPPED
    assert "the budget of" in (run.stop_reason or "")


async def test_it_is_off_where_there_is_none(make: Make) -> None:
    drsai: DrSai = await make()
    assert drsai.budgets.draw is not None
    assert "_ledger" not in vars(drsai.budgets)
    assert await asking(drsai).statuses(1) == [200]
    assert "_ledger" not in vars(drsai.budgets)


async def test_a_run_under_way_meets_a_budget_that_is_set_meanwhile(make: Make, model: ModelServer) -> None:
    """At its next model call, though there was none when it began; and it goes on once there is more."""
    drsai = await make({"pair": pair})
    ann, gate, few = drsai.user("ann", tenant="acme"), threading.Event(), ModelParams(max_tokens=30)

    async def answer(_: ModelRequest) -> Reply:
        await asyncio.to_thread(gate.wait)
        return Reply("Fine.", prompt_tokens=100, completion_tokens=10)

    model.script(None, answer)
    run = await ann.start("pair", "x", thread_id="t", params=few)
    await until(lambda: _asked(model, 1))
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=CALL + 20)
    gate.set()
    await run.wait()
    assert (await ann.get_run(run.run_id)).status is RunStatus.PAUSED
    assert len(model.requests) == 1
    assert (await used(drsai))[0] == CALL, "what it had asked before counts, too"
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=100_000)

    async def is_done() -> bool:
        return (await ann.get_run(run.run_id)).status is RunStatus.COMPLETED

    await until(is_done)
    assert (await used(drsai))[0] == 2 * CALL


async def _asked(model: ModelServer, many: int) -> bool:
    return len(model.requests) == many


async def test_nothing_is_estimated_where_there_is_no_budget(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor after the last one was removed."""

    def never(*_: object, **__: object) -> int:
        raise AssertionError

    drsai = await make({"pair": pair})
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=100_000)
    assert await asking(drsai).statuses(1, model="pair") == [200]
    await drsai.budgets.remove("user", "ann", tenant="acme")
    monkeypatch.setattr("drsai_backend.models.calls.run_client.estimate_tokens", never)
    assert await asking(drsai).statuses(1, model="pair") == [200]


async def test_what_was_reserved_for_runs_that_have_ended_is_forgotten(make: Make, model: ModelServer) -> None:
    """Some at a time, or by the sweep; what is reserved for a run under way stays."""
    gate = threading.Event()
    gate.set()

    async def answer(_: ModelRequest) -> Reply:
        await asyncio.to_thread(gate.wait)
        return Reply("Fine.", prompt_tokens=100, completion_tokens=10)

    model.script(None, answer)
    drsai = await make(budget_user={"tokens_day": 10**9})
    assert await asking(drsai).statuses(ENDED + 4) == [200] * (ENDED + 4)
    assert len(await rows(drsai)) <= ENDED + 2
    gate.clear()
    run = await drsai.user("ann", tenant="acme").start("plain", "x")
    while (gone := await drsai.database.write(lambda session: forget_before(session, today(), 1))) != 0:
        assert gone == 1
    assert (await rows(drsai)).keys() == {"", run.run_id}
    gate.set()
    await run.wait()


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
async def test_a_call_that_is_cut_off_counts(make: Make, model: ModelServer, streams: bool) -> None:
    """Whoever stops each answer before its end does not get them for nothing: what the endpoint did not say by then is
    estimated, in budgets, in usage and in the run alike."""
    words = ["word "] * 400
    reply = Reply("".join(words), chunks=words, chunk_delay=0.02, delay=0 if streams else 60)
    model.script(None, lambda request: reply)

    async def stopped(drsai: DrSai, thread: str) -> dict[str, int]:
        before, ann = len(model.requests), drsai.user("ann", tenant="acme")
        asked = asyncio.create_task(asking(drsai).chat(thread, stream=streams, max_tokens=500))

        async def is_asked() -> bool:
            return len(model.requests) > before

        await until(is_asked)
        await asyncio.sleep(0.4)
        await ann.stop(thread)
        assert (await asked).status_code == 200
        [run] = (await ann.list_runs(thread)).items
        assert run.status is RunStatus.STOPPED
        assert run.calls is not None
        assert run.usage is not None
        [call] = run.calls
        assert call["cut"]
        assert call["prompt_tokens"] + call.get("completion_tokens", 0) == run.usage["total_tokens"]
        return run.usage

    def plain(context: RunContext) -> AssistantAgent:
        return AssistantAgent("ann", context.model_client(), model_client_stream=streams)

    drsai = await make({"plain": plain}, budget_user={"tokens_day": 1_000})
    usage = await stopped(drsai, "t")
    assert usage["prompt_tokens"] > 10
    assert (usage["completion_tokens"] > 3) is streams
    assert (await used(drsai))[0] == usage["total_tokens"]
    [day] = (await drsai.usage.report(group_by=["day"])).items
    assert (day.calls, day.total_tokens) == (1, usage["total_tokens"])
    total = usage["total_tokens"]
    for number in range(3):
        total += (await stopped(drsai, f"t{number}"))["total_tokens"]
    assert (await used(drsai))[0] == total
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=total)
    assert (await asking(drsai).chat("more")).status_code == 429


async def committing(drsai: DrSai, model: ModelServer) -> asyncio.Task[Any]:
    """A request to `pair` whose first turn is being committed."""
    model.script(None, lambda request: Reply("Fine.", prompt_tokens=100, completion_tokens=10, delay=0.3))
    asked = asyncio.create_task(asking(drsai).chat(model="pair"))

    async def is_asked() -> bool:
        return len(model.requests) == 1

    await until(is_asked)
    slow = Slow(drsai.database, "write")
    while (await used(drsai))[0] < CALL:
        slow.done.clear()
        await slow.done.wait()
    return asked


async def test_a_turn_counts_once_when_a_shutdown_meets_its_commit(make: Make, model: ModelServer) -> None:
    budget = {"tokens_day": 100_000}
    other = await make({"pair": pair}, budget_user=budget)
    drsai = await make({"pair": pair}, budget_user=budget, shutdown_grace_seconds=0)
    await committing(drsai, model)
    await drsai.close()
    for key in await other.engine.sweep():
        await other.engine.look_at(key)

    async def is_over() -> bool:
        [run] = (await other.user("ann", tenant="acme").list_runs("t")).items
        return run.status is RunStatus.COMPLETED

    await until(is_over)
    [run] = (await other.user("ann", tenant="acme").list_runs("t")).items
    assert run.usage is not None
    assert (await used(other))[0] == run.usage["total_tokens"] == len(model.requests) * CALL == 2 * CALL


async def test_a_turn_counts_once_when_a_stop_meets_its_commit(make: Make, model: ModelServer) -> None:
    """Its calls are stored with it, although the run was stopped before it heard of that."""
    drsai = await make({"pair": pair}, budget_user={"tokens_day": 100_000})
    asked = await committing(drsai, model)
    ann = drsai.user("ann", tenant="acme")
    await ann.stop("t")
    assert (await asked).status_code == 200
    [run] = (await ann.list_runs("t")).items
    assert (run.status, len(model.requests)) == (RunStatus.STOPPED, 1)
    assert run.usage is not None
    assert run.usage["total_tokens"] == CALL
    assert (await used(drsai))[0] == CALL
