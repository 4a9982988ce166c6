"""A run's life on a stored thread: what is stored, what goes on, what is refused. On SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat

from drsai_backend import RunStatus, Thread, UserInput, decode_state, encode_state
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import AutoGenMessage, JournalEntry, Run, ThreadSnapshot
from drsai_backend.errors import (
    Conflict,
    DamagedState,
    InvalidRequest,
    NotFound,
    RunFailed,
    TeamBuildError,
    ThreadBusy,
    UnknownModel,
    UnsupportedStateVersion,
)
from tests.support import threads
from tests.support.running import comparable
from tests.support.scripted import Answer, ScriptedClient, counting, user_count
from tests.support.teams.crew import pair
from tests.support.teams.scenarios import agent
from tests.support.threads import WHERE, Make, thread_of

request = partial(threads.request, team="pair")


async def test_a_run_stores_everything(make: Make) -> None:
    drsai = await make({"pair": pair})
    result = await drsai.run("pair", "Hello there.", thread_id="t")
    assert result.status is RunStatus.COMPLETED
    assert [message["source"] for message in result.task_result["messages"]] == ["user", "ann", "bob"]
    thread = await thread_of(drsai)
    assert thread.status is RunStatus.COMPLETED
    assert thread.title == "Hello there."
    assert thread.team == "pair"
    assert thread.messages == result.task_result["messages"]
    assert thread.team_result is not None
    assert thread.team_result["task_result"]["messages"] == result.task_result["messages"]
    assert thread.team_result["usage"] == result.usage
    assert result.usage["completion_tokens"] == 2
    assert thread.lease_owner is None
    assert thread.user_input is not None
    assert thread.user_input["user_last_message"] == "Hello there."
    [run] = await drsai.db.get(Run, filters={"run_id": result.run_id})
    assert (run.status, run.first_seq, run.last_seq) == (RunStatus.COMPLETED, 1, 3)
    assert thread.state is not None
    assert set(decode_state(thread.state)["agent_states"]) == {"ann", "bob", "RoundRobinGroupChatManager"}


async def test_the_stored_state_is_the_teams_own(make: Make) -> None:
    """What `Thread.state` decodes to is what stock AutoGen saves after the same conversation, and can load."""
    drsai = await make({"pair": pair})
    stock = pair()
    for text in ("One.", "Two.", "Three."):
        await drsai.run("pair", text, thread_id="t")
        await stock.run(task=text)
    state = decode_state((await thread_of(drsai)).state or "")
    assert comparable(state) == comparable(await stock.save_state())
    loaded = pair()
    await loaded.load_state(state)
    assert comparable(await loaded.save_state()) == comparable(state)


@pytest.mark.parametrize("warm_threads", [0, 8])
async def test_goes_on_in_another_process_as_if_it_were_one(make: Make, warm_threads: int) -> None:
    stock = pair()
    for text in ("One.", "Two.", "Three.", "Four."):
        drsai = await make({"pair": pair}, warm_threads=warm_threads)
        for part in ("a", "b"):
            result = await drsai.run("pair", f"{text} {part}", thread_id="t")
            expected = await stock.run(task=f"{text} {part}")
            assert comparable(result.task_result["messages"]) == comparable(list(expected.messages))
            assert result.task_result["stop_reason"] == expected.stop_reason


async def test_a_warm_state_is_not_believed_when_another_process_went_on(make: Make) -> None:
    first, second = await make({"pair": pair}), await make({"pair": pair})
    stock = pair()
    for drsai, text in ((first, "1"), (second, "2"), (first, "3"), (first, "4"), (second, "5")):
        result = await drsai.run("pair", text, thread_id="t")
        expected = await stock.run(task=text)
        assert comparable(result.task_result["messages"]) == comparable(list(expected.messages))


async def test_long_threads_are_folded_into_snapshots(make: Make) -> None:
    drsai = await make({"pair": pair})
    stock = pair()
    for number in range(70):
        await drsai.run("pair", f"message {number}", thread_id="t")
        await stock.run(task=f"message {number}")
    # The journal is kept, for those who go back; a state is read from the newest snapshot on.
    assert len(await drsai.db.get(JournalEntry)) == 140
    assert max(each.turn for each in await drsai.db.get(ThreadSnapshot)) > 70
    assert comparable(decode_state((await thread_of(drsai)).state or "")) == comparable(await stock.save_state())
    other = await make({"pair": pair})
    result = await other.run("pair", "after", thread_id="t")
    expected = await stock.run(task="after")
    assert comparable(result.task_result["messages"]) == comparable(list(expected.messages))


async def test_streaming_shows_chunks_at_once_and_messages_when_stored(make: Make) -> None:
    drsai = await make({"pair": pair})
    seen: list[Any] = []
    async for item in drsai.run_stream("pair", "Hello", thread_id="t"):
        if isinstance(item, TextMessage):
            stored = await drsai.db.get(AutoGenMessage, filters=WHERE)
            assert item.id in [row.config["id"] for row in stored]
        seen.append(item)
    kinds = [type(item).__name__ for item in seen]
    assert kinds[0] == "TextMessage"
    assert kinds[-1] == "TaskResult"
    chunks = "".join(item.content for item in seen if isinstance(item, ModelClientStreamingChunkEvent))
    assert chunks == "".join(item.content for item in seen if isinstance(item, TextMessage) and item.source != "user")
    assert [message.source for message in seen[-1].messages] == ["user", "ann", "bob"]


async def test_users_are_apart(make: Make) -> None:
    drsai = await make({"pair": pair})
    await drsai.user("eve").run("pair", "mine", thread_id="t")
    await drsai.user("adam").run("pair", "mine", thread_id="t")
    page = await drsai.engine.list_threads(Principal("eve"), after=None, limit=10)
    assert [item.message_count for item in page.items] == [3]
    with pytest.raises(NotFound):
        await drsai.engine.get_thread(Principal("nobody"), "t")
    await drsai.engine.delete_thread(Principal("eve"), "t")
    with pytest.raises(NotFound):
        await drsai.engine.list_messages(Principal("eve"), "t", after=0, limit=10)
    assert len(await drsai.engine.list_messages(Principal("adam"), "t", after=1, limit=10)) == 2


async def test_pages_of_threads(make: Make) -> None:
    drsai = await make({"pair": pair})
    for number in range(5):
        await drsai.run("pair", f"thread {number}", thread_id=f"t{number}")
    seen: list[str] = []
    after = None
    for _ in range(3):
        page = await drsai.engine.list_threads(Principal(), after=after, limit=2)
        seen += [item.thread_id for item in page.items]
        after = page.next
    assert (seen, after) == (["t4", "t3", "t2", "t1", "t0"], None)
    with pytest.raises(InvalidRequest):
        await drsai.engine.list_threads(Principal(), after="nonsense", limit=2)


# --- what goes wrong ------------------------------------------------------------------------------------------------


def failing_second() -> RoundRobinGroupChat:
    def fail(messages: Any, options: Any) -> Answer:
        return ValueError("secret sk-12345") if user_count(messages) == 2 else "fine"

    return RoundRobinGroupChat([agent("ann", True), agent("bob", True, fail)], max_turns=2)


async def test_an_error_ends_the_run_and_keeps_its_finished_turns(make: Make) -> None:
    drsai = await make({"pair": failing_second})
    with pytest.raises(RunFailed) as caught:
        await drsai.run("pair", "One", thread_id="t")
    assert isinstance(caught.value.__cause__, ValueError)
    thread = await thread_of(drsai)
    assert thread.status is RunStatus.ERROR
    assert "ValueError" in (thread.error_message or "")
    assert "sk-12345" not in (thread.error_message or "")
    assert [message["source"] for message in thread.messages] == ["user", "ann"]
    other = await make({"pair": pair})
    result = await other.run("pair", "Two", thread_id="t")
    said = [message["content"] for message in result.task_result["messages"]]
    # Her instructions, both tasks, and what she said herself in the turn before the error.
    assert said[1].startswith("ann sees 4 ")
    assert (await thread_of(other)).status is RunStatus.COMPLETED


async def test_input_of_a_run_that_failed_at_once_is_remembered(make: Make) -> None:
    def fail_first(messages: Any, options: Any) -> Answer:
        return ValueError("no") if user_count(messages) == 1 else f"I know of {user_count(messages)}"

    def team() -> RoundRobinGroupChat:
        return RoundRobinGroupChat([agent("ann", True, fail_first)], max_turns=1)

    drsai = await make({"pair": team})
    with pytest.raises(RunFailed):
        await drsai.run("pair", "My name is Ada.", thread_id="t")
    result = await drsai.run("pair", "What is my name?", thread_id="t")
    assert result.text == "I know of 2"
    assert [m["source"] for m in (await thread_of(drsai)).messages] == ["user", "user", "ann"]
    assert [m["content"] for m in result.task_result["messages"]] == ["What is my name?", "I know of 2"]


async def test_errors_before_the_first_write_store_nothing(make: Make) -> None:
    def broken() -> Any:
        raise RuntimeError("no")

    drsai = await make({"pair": pair, "broken": broken, "odd": lambda: 42})
    with pytest.raises(UnknownModel):
        await drsai.run("nobody", "x", thread_id="t")
    for team in ("broken", "odd"):
        with pytest.raises(TeamBuildError):
            await drsai.run(team, "x", thread_id="t")
    for text in ("nul \0", "lone \ud800"):
        with pytest.raises(InvalidRequest):
            await drsai.run("pair", text, thread_id="t")
    assert await drsai.db.get(Thread) == []
    assert await drsai.db.get(UserInput) == []
    assert (await drsai.run("pair", "good", thread_id="t")).status is RunStatus.COMPLETED


async def test_a_damaged_or_later_state_is_refused_and_left_alone(make: Make) -> None:
    drsai = await make({"pair": pair}, warm_threads=0)
    await drsai.run("pair", "x", thread_id="t")
    good = (await drsai.db.get(JournalEntry, order="turn"))[-1].payload
    table = JournalEntry.__table__  # type: ignore[attr-defined]
    later = "RFMD" + good[4:]
    for payload, error in ((good[:-8], DamagedState), (later, UnsupportedStateVersion)):
        change = sa.update(table).values(payload=payload)
        await drsai.database.write(lambda session, change=change: session.execute(change))
        before = await drsai.db.get(AutoGenMessage, filters=WHERE)
        with pytest.raises(error, match="'t'"):
            await drsai.run("pair", "y", thread_id="t")
        assert len(await drsai.db.get(AutoGenMessage, filters=WHERE)) == len(before)
        assert (await drsai.db.get(Thread, filters=WHERE, load_state=False))[0].status is RunStatus.COMPLETED
        assert (await drsai.run("pair", "x")).status is RunStatus.COMPLETED


async def test_one_run_at_a_time(make: Make) -> None:
    slow = ScriptedClient(counting("ann"))
    slow.hold()

    def team() -> RoundRobinGroupChat:
        from autogen_agentchat.agents import AssistantAgent

        return RoundRobinGroupChat([AssistantAgent("ann", slow)], max_turns=1)

    drsai, other = await make({"pair": team}), await make({"pair": team})
    handle = await drsai.engine.start(*request("x"))
    for engine in (drsai.engine, other.engine):
        with pytest.raises(ThreadBusy):
            await engine.start(*request("y", on_busy="reject"))
    with pytest.raises(Conflict):
        await drsai.engine.delete_thread(Principal(), "t")
    [live] = await drsai.db.get(Thread, filters=WHERE)
    live.status = RunStatus.COMPLETED
    with pytest.raises(Conflict):
        await drsai.db.upsert(live)
    slow.release()
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert (await drsai.run("pair", "y", thread_id="t")).status is RunStatus.COMPLETED


async def test_many_threads_at_once(make: Make) -> None:
    drsai = await make({"pair": pair})
    results = await asyncio.gather(*(drsai.run("pair", f"x{n}", thread_id=f"t{n % 20}-{n}") for n in range(60)))
    assert {result.status for result in results} == {RunStatus.COMPLETED}
    assert len(await drsai.db.get(AutoGenMessage)) == 180


async def test_stop(make: Make) -> None:
    slow = ScriptedClient(counting("ann"), delay=5)

    def team() -> RoundRobinGroupChat:
        from autogen_agentchat.agents import AssistantAgent

        return RoundRobinGroupChat([agent("bob", False), AssistantAgent("ann", slow)], max_turns=2)

    drsai = await make({"pair": team})
    task = asyncio.create_task(drsai.run("pair", "x", thread_id="t"))
    while len(await drsai.db.get(AutoGenMessage, filters=WHERE)) < 2:  # noqa: ASYNC110 - the database tells
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while (await thread_of(drsai)).status is RunStatus.RUNNING:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    thread = await thread_of(drsai)
    assert thread.status is RunStatus.STOPPED
    assert [message["source"] for message in thread.messages] == ["user", "bob"]
    await drsai.stop("t")  # once more is no error
    slow.delay = 0
    assert (await drsai.run("pair", "y", thread_id="t")).status is RunStatus.COMPLETED
    with pytest.raises(Conflict):
        await drsai.stop("t")


# --- what users store -----------------------------------------------------------------------------------------------


async def test_a_state_set_by_hand_is_the_next_runs_state(make: Make) -> None:
    drsai = await make({"pair": pair})
    await drsai.run("pair", "x", thread_id="t")
    stock = pair()
    for text in ("a", "b", "c"):
        await stock.run(task=text)
    thread = await thread_of(drsai)
    thread.state = encode_state(dict(await stock.save_state()))
    await drsai.db.upsert(thread)
    result = await drsai.run("pair", "d", thread_id="t")
    expected = await stock.run(task="d")
    assert comparable(result.task_result["messages"]) == comparable(list(expected.messages))
    assert comparable(decode_state((await thread_of(drsai)).state or "")) == comparable(await stock.save_state())


async def test_participants_may_come_and_go(make: Make) -> None:
    def three() -> RoundRobinGroupChat:
        return RoundRobinGroupChat([agent(name, True) for name in ("ann", "bob", "new")], max_turns=3)

    drsai = await make({"pair": pair})
    await drsai.run("pair", "x", thread_id="t")
    changed = await make({"pair": three})
    result = await changed.run("pair", "y", thread_id="t")
    texts = {m["source"]: m["content"] for m in result.task_result["messages"]}
    assert texts["ann"].startswith("ann sees 5 ")
    assert texts["new"].startswith("new sees 7 ")
    back = await make({"pair": pair})
    assert (await back.run("pair", "z", thread_id="t")).status is RunStatus.COMPLETED


async def test_a_selector_team_is_stored_before_its_first_speaker(make: Make) -> None:
    chooser = ScriptedClient(lambda messages, options: "bob")
    blocked = asyncio.Event()

    def wait(messages: Any, options: Any) -> Answer:
        blocked.set()
        return "hello"

    def team() -> SelectorGroupChat:
        return SelectorGroupChat([agent("ann", True), agent("bob", True, wait)], chooser, max_turns=1)

    drsai = await make({"pair": team})
    result = await drsai.run("pair", "x", thread_id="t")
    assert blocked.is_set()
    entries = await drsai.db.get(JournalEntry, order="turn")
    assert len(entries) == 2
    # The selector's own call counts, though no message carries it.
    assert result.usage["completion_tokens"] == 2
