"""A run that has failed is run again from the turn that failed; an input may take the place of the live run's."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from unittest.mock import Mock

import pytest
import sqlalchemy as sa
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MultiModalMessage
from autogen_agentchat.teams import SelectorGroupChat
from sqlalchemy.orm import Session

from drsai_backend import DrSai, DrSaiAgent, RoundRobinGroupChat, RunContext, Thread, tool
from drsai_backend.datamodel import Run, RunStatus
from drsai_backend.datamodel.base import table_of
from drsai_backend.errors import IllegalTransition, RunFailed, ThreadBusy
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.scripted import ScriptedClient
from tests.support.teams.foreign import tiny_image
from tests.support.threads import QUICK, Make, ended, head_of, queued, request, run_of, settings, sources, thread_of


class Payer:
    """Writers w1 and w2; then a payer pays 1 and 2, and the third answer of its model is what `third` says."""

    def __init__(self, server: ModelServer, third: Any = None) -> None:
        self.server, self.third = server, third or Failure(400, "no")
        self.paid: list[int] = []
        self.asked: list[list[dict[str, Any]]] = []
        self.reached = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        server.clear()
        server.script(None, self.answer)

    def team(self, context: RunContext) -> Any:
        @tool
        async def pay(number: int) -> str:
            """Pay.

            Args:
                number: which.
            """
            self.paid.append(number)
            return f"paid {number}"

        client = context.model_client("gpt-4o-mini")
        writers: list[Any] = [DrSaiAgent(name, client, system_message="You write.") for name in ("w1", "w2")]
        payer = DrSaiAgent("payer", client, tools=[pay], max_tool_iterations=9, system_message="You pay.")
        return RoundRobinGroupChat([*writers, payer], max_turns=3)

    def answer(self, asked: ModelRequest) -> Any:
        if not asked.tools:
            return Reply("It is written.")
        self.asked.append(asked.messages)
        done = len({*re.findall(r"paid (\d)", str(asked.messages))})
        if done == 2:
            third = self.third  # Before anybody is told, who may change it.
            self.loop.call_soon_threadsafe(self.reached.set)
            return third
        return Reply(tool_calls=[ToolCall("pay", {"number": done + 1}, f"call{done}")])


@pytest.fixture(scope="module")
def server() -> Any:
    with ModelServer() as server:
        yield server


async def opened(make: Make, server: ModelServer, payer: Payer, **values: Any) -> DrSai:
    serving = {"openai_base_url": server.base_url, "openai_api_key": "k", "model_retries": 0, **QUICK}
    return await make({"crew": payer.team}, **{**serving, **values})


async def failed(drsai: DrSai) -> None:
    with pytest.raises(RunFailed):
        await drsai.run("crew", "Go.", thread_id="t")


def kinds(thread: Thread) -> list[str]:
    return [each["type"] for each in thread.messages]


SAID = ["user", "w1", "w2", *["payer"] * 4]
TYPES = ["TextMessage"] * 3 + ["ToolCallRequestEvent", "ToolCallExecutionEvent"] * 2


async def test_a_retry_is_no_run_that_was_cut(make: Make, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that looks at the thread before the run is resumed, and ends what was cut."""
    payer = Payer(server)
    first, second = [await opened(make, server, payer, recovery="fail") for _ in range(2)]
    await failed(first)
    payer.third = Reply("All is paid.")
    recovery = second.engine._recovery
    resume = recovery.resume

    async def late(head: Any, options: Any) -> Any:
        await first.engine.look_at(head.key)
        return await resume(head, options)

    monkeypatch.setattr(recovery, "resume", late)
    await second.retry("t")
    assert (await ended(second)).status is RunStatus.COMPLETED


async def test_a_retry_by_a_process_that_is_full_is_done_by_another_one_at_once(
    make: Make, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    payer = Payer(server)
    full, _ = [await opened(make, server, payer) for _ in range(2)]
    await failed(full)
    payer.third = Reply("All is paid.")
    monkeypatch.setattr(full.engine._recovery, "is_full", Mock(return_value=True))
    await full.retry("t")
    async with asyncio.timeout(20):  # It is held by nobody: what is held is so for a minute.
        assert (await ended(full)).status is RunStatus.COMPLETED


@pytest.mark.parametrize("recovery", ["continue", "fail"])
async def test_it_starts_at_the_turn_that_failed_with_its_speaker(
    make: Make, server: ModelServer, where: int, recovery: str
) -> None:
    payer = Payer(server)
    drsais = [await opened(make, server, payer, recovery=recovery) for _ in range(2)]
    await failed(drsais[0])
    thread = await thread_of(drsais[0])
    assert (sources(thread), kinds(thread)) == (SAID, TYPES)
    payer.third = Reply("All is paid.")
    requests = len(server.requests)
    detail = await drsais[where].retry("t")
    assert detail.status in (RunStatus.RUNNING, RunStatus.COMPLETED)
    thread = await ended(drsais[0])
    assert (thread.status, thread.error_message, payer.paid) == (RunStatus.COMPLETED, None, [1, 2])
    # Nobody else is asked, and what is told of the calls is told once.
    assert len(server.requests) == requests + 1
    assert (sources(thread), kinds(thread)) == ([*SAID, "payer"], [*TYPES, "TextMessage"])
    run = await run_of(drsais[0])
    assert (run.status, run.error_message, run.attempt) == (RunStatus.COMPLETED, None, 2)
    assert run.finished_at is not None
    steps = (await drsais[0].steps(run.run_id)).items
    assert [each.observation for each in steps if each.tool] == ["paid 1", "paid 2"]
    # It is warm, or stored, as any other.
    assert (await drsais[1 - where].run("crew", "And?", thread_id="t")).status is RunStatus.COMPLETED


async def test_the_steps_of_a_run_that_is_retried_are_listed_once(make: Make, server: ModelServer) -> None:
    payer = Payer(server)
    drsai = await opened(make, server, payer)
    await failed(drsai)
    payer.third = Reply(hang=True)
    payer.reached.clear()
    await drsai.retry("t")
    await asyncio.wait_for(payer.reached.wait(), 20)
    steps = (await drsai.steps((await run_of(drsai)).run_id)).items
    assert [each.observation for each in steps if each.tool] == ["paid 1", "paid 2"]
    await drsai.stop("t")


async def test_the_first_turn(make: Make, server: ModelServer) -> None:
    """No turn is stored: the input is the task once more, and is in the thread once."""
    server.clear()
    server.script(None, [Failure(400, "no"), Reply("It is written.")])

    def build(context: RunContext) -> Any:
        return DrSaiAgent("w", context.model_client("gpt-4o-mini"))

    values = {"openai_base_url": server.base_url, "openai_api_key": "k", "model_retries": 0}
    drsai = await make({"crew": build}, **values)
    await failed(drsai)
    await drsai.retry("t")
    thread = await ended(drsai)
    assert (thread.status, sources(thread)) == (RunStatus.COMPLETED, ["user", "w"])
    asked = [[each for each in given.messages if each["role"] == "user"] for given in server.requests]
    assert asked[0] == asked[1]


async def test_its_client_is_told_the_new_end(make: Make, server: ModelServer) -> None:
    payer = Payer(server)
    drsai = await opened(make, server, payer)
    for _ in range(2):
        assert (await (await drsai.engine.start(*request("Go.", key="k"))).wait()).status is RunStatus.ERROR
    payer.third = Reply("All is paid.")
    await drsai.retry("t")
    await ended(drsai)
    end = await (await drsai.engine.start(*request("Go.", key="k"))).wait()
    assert end.status is RunStatus.COMPLETED
    assert len(await drsai.db.get(Run)) == 1


async def test_a_run_that_was_given_up(make: Make, server: ModelServer) -> None:
    payer = Payer(server)
    drsai = await opened(make, server, payer)
    await failed(drsai)
    more = sa.update(table_of(Run)).values(retries=9, retry_turn=2)

    def died(session: Session) -> None:
        session.execute(more)

    await drsai.database.write(died)
    payer.third = Reply("All is paid.")
    await drsai.retry("t")
    assert (await ended(drsai)).status is RunStatus.COMPLETED
    assert payer.paid == [1, 2]


async def test_a_process_that_is_no_worker_leaves_a_stored_agent_to_workers(
    make: Make, server: ModelServer, database_url: str
) -> None:
    """Every worker serves it; the command line, which is none, does not."""
    server.clear()
    server.script(None, [Failure(400, "no"), Reply("It is written.")])
    serving = {"openai_base_url": server.base_url, "openai_api_key": "k", "model_retries": 0}
    async with DrSai({}, database_url, settings=settings(**serving)) as drsai:
        await drsai.agents.put("poet", {"agents": {"poet": {}}})
        with pytest.raises(RunFailed):
            await drsai.run("poet", "Write.", thread_id="t")
    async with DrSai(None, database_url, settings=settings(**serving), worker=False) as reader:
        assert (await reader.retry("t")).status is RunStatus.RUNNING
        await reader.engine.look_at((await head_of(reader)).key)
        assert (await head_of(reader)).lease_owner is None
    assert len(server.requests) == 1
    drsai = await make({}, **serving, **QUICK)
    assert (await ended(drsai)).status is RunStatus.COMPLETED


async def test_it_may_fail_again(make: Make, server: ModelServer) -> None:
    payer = Payer(server)
    drsai = await opened(make, server, payer)
    await failed(drsai)
    for _ in range(2):
        await drsai.retry("t")
        assert (await ended(drsai)).status is RunStatus.ERROR
    assert kinds(await thread_of(drsai)) == TYPES
    payer.third = Reply("All is paid.")
    result = await drsai.run("crew", "Do go on.", thread_id="t")
    assert (result.status, payer.paid) == (RunStatus.COMPLETED, [1, 2])


async def test_nothing_to_retry(make: Make, server: ModelServer) -> None:
    payer = Payer(server, Reply("All is paid."))
    drsai = await opened(make, server, payer)
    await drsai.run("crew", "Go.", thread_id="t")
    with pytest.raises(IllegalTransition, match="is completed: there is nothing to retry"):
        await drsai.retry("t")


async def test_a_thread_that_was_rewound_to_a_failure(make: Make, server: ModelServer) -> None:
    """What was recorded of the turn is gone, so it would be done again."""
    payer = Payer(server)
    drsai = await opened(make, server, payer)
    await failed(drsai)
    await drsai.rewind("t", at=1)
    await drsai.rewind("t", branch=0)
    assert (await thread_of(drsai)).status is RunStatus.ERROR
    with pytest.raises(IllegalTransition, match="nothing to retry"):
        await drsai.retry("t")
    payer.third = Reply("All is paid.")
    for _ in range(3):
        await drsai.run("crew", "Go on.", thread_id="t")
    assert payer.paid == [1, 2]


# --- rollback ---------------------------------------------------------------------------------------------------------


async def test_an_input_takes_the_place_of_the_live_one(make: Make, server: ModelServer, where: int) -> None:
    payer = Payer(server, Reply(hang=True))
    drsais = [await opened(make, server, payer) for _ in range(2)]
    handle = await drsais[0].start("crew", "Go.", thread_id="t")
    await asyncio.wait_for(payer.reached.wait(), 20)
    payer.third = Reply("All is paid.")
    result = await drsais[where].run("crew", "Rather go home.", thread_id="t", on_busy="rollback")
    assert result.status is RunStatus.COMPLETED
    await handle.wait()
    first, second = sorted(await drsais[0].db.get(Run), key=lambda run: run.created_at)
    assert (first.status, second.status) == (RunStatus.STOPPED, RunStatus.COMPLETED)
    thread = await thread_of(drsais[0])
    # What it had said is on the branch that is left. What it had done is told, and not done again.
    assert sources(thread) == ["payer"] * 4 + ["user", "w1", "w2", "payer"]
    assert payer.paid == [1, 2]
    text = str(payer.asked[-1])
    assert 'pay({"number": 1}): paid 1' in text
    assert "not undone" in text
    assert "Rather go home." in text
    assert "'Go.'" not in text


async def test_the_answer_to_another_input_that_took_its_place_stays(
    make: Make, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    payer = Payer(server, Reply(hang=True))
    first, second = [await opened(make, server, payer) for _ in range(2)]
    await first.start("crew", "Go.", thread_id="t")
    await asyncio.wait_for(payer.reached.wait(), 20)
    payer.third = Reply("All is paid.")
    commands = second.engine._commands
    cancel = commands.cancel

    async def late(*args: Any, **values: Any) -> None:
        await first.run("crew", "Rather go home.", thread_id="t", on_busy="rollback")
        await cancel(*args, **values)

    monkeypatch.setattr(commands, "cancel", late)
    result = await second.run("crew", "Or stay.", thread_id="t", on_busy="rollback")
    assert result.status is RunStatus.COMPLETED
    said = [each["content"] for each in (await thread_of(first)).messages if each["source"] == "user"]
    assert said == ["Rather go home.", "Or stay."]


async def test_no_input_that_waits_is_rolled_over(make: Make, server: ModelServer) -> None:
    payer = Payer(server, Reply(hang=True))
    drsai = await opened(make, server, payer)
    await drsai.start("crew", "Go.", thread_id="t")
    await asyncio.wait_for(payer.reached.wait(), 20)
    await queued(drsai, "Later.")
    with pytest.raises(ThreadBusy, match="inputs wait in the queue"):
        await drsai.run("crew", "Rather go home.", thread_id="t", on_busy="rollback")
    assert (await thread_of(drsai)).status is RunStatus.RUNNING
    await drsai.stop("t")


async def test_a_selector_that_has_seen_an_image_is_repeated(make: Make) -> None:
    """AutoGen writes an image into its prompt as an object of this process."""
    broken = [True]

    def says(messages: Any, options: Any) -> Any:
        return ValueError("no") if broken else "It is red."

    def team() -> RoundRobinGroupChat:
        members = [AssistantAgent(name, ScriptedClient(says, vision=True), description=name) for name in ("ann", "bob")]
        chooser = ScriptedClient(lambda messages, options: "bob")
        inner = SelectorGroupChat([*members], chooser, name="inner", selector_prompt="{history}", max_turns=1)
        return RoundRobinGroupChat([inner], max_turns=1)

    first = await make({"crew": team}, **QUICK)
    with pytest.raises(RunFailed):
        await first.run("crew", MultiModalMessage(content=["Look.", tiny_image()], source="user"), thread_id="t")
    broken.clear()
    other = await make({"crew": team}, **QUICK)
    await other.retry("t")
    thread = await ended(other)
    assert (thread.status, thread.error_message) == (RunStatus.COMPLETED, None)
