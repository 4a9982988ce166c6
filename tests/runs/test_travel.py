"""Going back: random conversations with rewinds and forks, against what the state was and what a fresh thread says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from drsai_backend import DrSai, Thread
from drsai_backend.access.principal import ROLES, Principal, Scope
from drsai_backend.datamodel import JournalEntry, RunStatus, ThreadBranch, ThreadSnapshot
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import Conflict, Forbidden, InsufficientScope, InvalidRequest, NotFound, ThreadBusy
from drsai_backend.features.travel import routes as travel_routes
from drsai_backend.runs import InputMessage
from drsai_backend.runs.requests import ForkOf
from drsai_backend.runs.threads.travel import TurnView
from drsai_backend.state import decode_state
from drsai_backend.state.portable import export_thread, import_thread
from drsai_backend.state.store import compact
from drsai_backend.state.travel import REWOUND, Place, state_at
from tests.support.asks import asks
from tests.support.scripted import ScriptedClient
from tests.support.threads import Make, settings, thread_of

NAME = ThreadName("default", "anonymous", "t")

pytestmark = pytest.mark.usefixtures("checked")


def _heard(messages: Any, _: Any) -> str:
    """An answer that says all that was heard, so that nothing can be missing or too much."""
    texts = [str(message.content) for message in messages[1:]]
    return f"{len(texts)} {hash_of(texts)}"


def hash_of(texts: list[str]) -> str:
    return f"{sum((index + 1) * sum(map(ord, text)) for index, text in enumerate(texts)):x}"


def pair() -> RoundRobinGroupChat:
    agents = [AssistantAgent(name, ScriptedClient(_heard)) for name in ("ann", "bob")]
    return RoundRobinGroupChat([*agents], max_turns=2)


TEAMS: Any = {"pair": pair}


async def state_after(drsai: DrSai, turn: int, name: ThreadName = NAME) -> Any:
    return await drsai.database.read(lambda session: state_at(session, name, Place(turn=turn)))


async def texts_of(drsai: DrSai, thread_id: str = "t", branch: int | None = None) -> list[str]:
    messages = await drsai.list_messages(thread_id, limit=1000, branch=branch)
    return [message.content for message in messages]


async def say(drsai: DrSai, text: str, thread_id: str = "t") -> list[str]:
    result = await drsai.run("pair", text, thread_id=thread_id)
    return [message["content"] for message in result.task_result["messages"]]


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.just(0)),
        st.tuples(st.sampled_from(["turn", "at", "branch", "fork", "compact", "cold"]), st.integers(0, 40)),
    ),
    min_size=4,
    max_size=14,
)


_said: dict[tuple[str, ...], list[str]] = {}


async def fresh(inputs: list[str]) -> list[str]:
    """What a team in memory, which knows nothing else, says to the last of these inputs, that included."""
    key = tuple(inputs)
    if key not in _said:
        team = pair()
        for count, text in enumerate(inputs, 1):
            result = await team.run(task=text)
            _said[key[:count]] = [str(message.content) for message in result.messages]  # pyright: ignore
    return _said[key]


@given(steps=_STEPS)
@hypothesis_settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_turn_is_what_it_was(database_url: str, steps: list[tuple[str, int]]) -> None:
    """The state rebuilt at every turn is that which the team had saved then, and what is said after going back is what
    a fresh team with only that past says."""

    async def follow() -> None:
        async with DrSai(TEAMS, database_url, settings=settings()) as drsai:
            try:
                await _follow(drsai, [("say", 0), ("say", 0), *steps, ("say", 0)])
            finally:
                for thread in (await drsai.list_threads(limit=100)).items:
                    await drsai.delete_thread(thread.thread_id)

    asyncio.run(follow())


async def _follow(drsai: DrSai, steps: list[tuple[str, int]]) -> None:
    states: dict[int, Any] = {}
    inputs: list[str] = []
    ends: dict[int, list[str]] = {0: []}  # by turn that ended a run: the inputs of its path
    for step, number in steps:
        if step == "say":
            inputs = [*inputs, f"question {len(states)}"]
            assert await say(drsai, inputs[-1]) == await fresh(inputs)
            thread = await thread_of(drsai)
            states[thread.turn], ends[thread.turn] = decode_state(thread.state or ""), inputs
        elif step == "turn":
            turn = sorted(ends)[number % len(ends)]
            await drsai.rewind("t", turn=turn)
            inputs = ends[turn]
        elif step == "at":  # The input of a run: the place before it.
            turn = sorted(ends)[1:][number % (len(ends) - 1)]
            [run] = {view.run_id for view in await _turns(drsai, turn)}
            await drsai.rewind("t", at=(await drsai.get_run(run)).first_seq)
            inputs = ends[turn][:-1]
        elif step == "branch":
            branches = (await drsai.branches("t")).items
            chosen = branches[number % len(branches)]
            await drsai.rewind("t", branch=chosen.number)
            inputs = ends[chosen.last_turn]
        elif step == "fork":
            turn = sorted(ends)[number % len(ends)]
            made = (await drsai.fork("t", turn=turn)).thread_id
            heard = [text for count in range(len(ends[turn])) for text in await fresh(ends[turn][: count + 1])]
            assert await texts_of(drsai, made) == heard
            assert await say(drsai, "and now?", made) == await fresh([*ends[turn], "and now?"])
        elif step == "compact":
            key = (await thread_of(drsai)).id
            await drsai.database.write(lambda session, key=key: compact(session, key or 0))
        elif step == "cold":
            drsai.engine._warm.clear()
    for turn, state in states.items():
        assert await state_after(drsai, turn) == state
    assert [text for text in await texts_of(drsai) if text.startswith("question")] == inputs


async def _turns(drsai: DrSai, turn: int) -> list[TurnView]:
    for branch in (await drsai.branches("t")).items:
        found = [view for view in (await drsai.turns("t", branch=branch.number)).items if view.turn == turn]
        if found:
            return found
    raise AssertionError(turn)


async def _talk(make: Make, runs: int, **values: Any) -> DrSai:
    drsai = await make(TEAMS, **values)
    for number in range(runs):
        await say(drsai, f"question {number}")
    return drsai


async def _rows(drsai: DrSai, model: Any) -> int:
    query = sa.select(sa.func.count()).select_from(model)
    return await drsai.database.read(lambda session: session.execute(query).scalar_one())


async def test_in_the_middle_of_a_run(make: Make) -> None:
    """What the run had under way is dropped, as after a stop; the next input is heard by everybody."""
    drsai = await _talk(make, 2)
    thread = await drsai.rewind("t", turn=3)
    assert (thread.status, thread.message_count) == (RunStatus.STOPPED, 6)
    assert await texts_of(drsai) == [*await fresh(["question 0"]), *(await fresh(["question 0", "question 1"]))[:2]]
    stored = await thread_of(drsai)
    assert stored.team_result is not None
    assert [each["source"] for each in stored.team_result["task_result"]["messages"]] == ["user", "ann"]
    assert len(await say(drsai, "once more")) == 3
    assert len(await texts_of(drsai)) == 8
    assert len(await texts_of(drsai, branch=0)) == 6


async def test_a_rewind_writes_three_rows_at_most_and_repeats_none(make: Make) -> None:
    drsai = await _talk(make, 3)
    journal = await _rows(drsai, JournalEntry)
    for _ in range(3):
        await drsai.rewind("t", at=3)
    assert await _rows(drsai, ThreadBranch) == 2
    assert await _rows(drsai, JournalEntry) == journal
    await drsai.rewind("t", branch=0)
    assert await _rows(drsai, ThreadBranch) == 3
    assert await texts_of(drsai) == await texts_of(drsai, branch=0)


async def test_another_process_has_the_thread_warm(make: Make) -> None:
    """It sends again what it knows as old, and is not refused."""
    one = await _talk(make, 2)
    other = await make(TEAMS)
    await other.rewind("t", turn=2)
    assert await say(one, "question 1") == await fresh(["question 0", "question 1"])
    await other.rewind("t", turn=0)
    assert await say(one, "question 0") == await fresh(["question 0"])


async def test_by_hand_as_well(make: Make) -> None:
    """The manager reads and appends the current branch, and notices a rewind that it has not seen."""
    drsai = await _talk(make, 2)
    before = await thread_of(drsai)
    await drsai.rewind("t", turn=2)
    after = await thread_of(drsai)
    assert [each["content"] for each in after.messages] == await texts_of(drsai)
    after.messages = [*after.messages, {"type": "TextMessage", "source": "user", "content": "by hand"}]
    await drsai.db.upsert(after)
    assert (await texts_of(drsai))[-1] == "by hand"
    assert (await thread_of(drsai)).messages == after.messages
    before.messages = [*before.messages, {"type": "TextMessage", "source": "user", "content": "too late"}]
    with pytest.raises(Conflict):
        await drsai.db.upsert(before)


async def test_what_is_refused(make: Make) -> None:
    drsai = await _talk(make, 1)
    places: list[tuple[dict[str, int], str]] = [
        ({"at": 9}, "at"),
        ({"turn": 9}, "turn"),
        ({"branch": 1}, "branch"),
        ({"at": 1, "turn": 1}, "turn"),
        ({}, "at"),
        ({"at": -1}, "at"),
    ]
    for place, param in places:
        with pytest.raises(InvalidRequest) as caught:
            await drsai.rewind("t", **place)
        assert caught.value.param == param
    with pytest.raises(Conflict) as taken:
        await drsai.fork("t", new_thread_id="t")
    assert taken.value.param == "thread_id"
    with pytest.raises(NotFound):
        await drsai.fork("unknown")
    assert await _rows(drsai, ThreadBranch) == 0
    assert await _rows(drsai, Thread) == 1


async def test_who_may(make: Make) -> None:
    drsai = await _talk(make, 1)
    for user, right in (("reader", "read"), ("writer", "write")):
        await drsai.share_thread("t", with_user=user, right=right)  # pyright: ignore[reportArgumentType]
    own = frozenset({Scope.THREADS_READ, Scope.THREADS_WRITE})
    reader, writer, other = (Principal(user, scopes=own) for user in ("reader", "writer", "other"))
    for who, error in ((reader, Forbidden), (other, NotFound)):
        with pytest.raises(error):
            await drsai.engine.rewind(who, NAME, Place(at=0))
    with pytest.raises(NotFound):
        await drsai.engine.fork(other, NAME)
    made = await drsai.engine.fork(reader, NAME)
    assert made.forked_from == {"user_id": "anonymous", "thread_id": "t", "seq": 3}
    with pytest.raises(InsufficientScope):
        await drsai.engine.fork(reader, made.thread_id, to_user="other")
    gateway = Principal("reader", scopes=own | {Scope.ACT_AS})
    with pytest.raises(InsufficientScope):
        await drsai.engine.fork(replace(gateway, acted_by="gateway"), made.thread_id, to_user="other")
    await drsai.engine.fork(gateway, made.thread_id, to_user="other", new_thread_id="given")
    assert (await drsai.user("other").get_thread("given")).message_count == 3
    await drsai.engine.rewind(writer, NAME, Place(at=0))
    acts = [(entry.action, entry.owner, entry.actor) for entry in (await drsai.audit.list("default")).items]
    assert acts[:3] == [
        ("thread.rewound", "anonymous", "writer"),
        ("thread.forked", "reader", "reader"),
        ("thread.forked", "anonymous", "reader"),
    ]


async def test_not_while_a_run_is_live(make: Make) -> None:
    client = ScriptedClient(_heard)
    crew: Any = {"pair": lambda: RoundRobinGroupChat([AssistantAgent("ann", client)], max_turns=1)}
    drsai, other = await make(crew), await make(crew)
    await say(drsai, "first")
    client.hold()
    handle = await drsai.start("pair", "second", thread_id="t")
    await client.asked.wait()
    for process in (drsai, other):
        with pytest.raises(ThreadBusy):
            await process.rewind("t", at=0)
        assert (await process.fork("t", turn=1)).message_count == 2
    client.release()
    await handle.wait()
    await other.rewind("t", at=0)
    assert await texts_of(drsai) == []


async def test_a_run_that_waits_ends_where_its_thread_is_rewound(make: Make) -> None:
    asking: Any = {"pair": lambda: UserProxyAgent("person")}
    drsai = await make(asking)
    assert (await drsai.run("pair", "hello", thread_id="t")).status is RunStatus.AWAITING_INPUT
    thread = await drsai.rewind("t", at=0)
    assert (thread.status, thread.input_request) == (RunStatus.CREATED, None)
    [run] = (await drsai.list_runs("t")).items
    assert (run.status, run.stop_reason) == (RunStatus.STOPPED, REWOUND)
    assert await texts_of(drsai) == []


async def test_of_before_and_from_elsewhere(make: Make) -> None:
    """An earlier version deleted what it had folded. The turns since then can be gone back to, and the error says which
    those are; all that is stored stays."""
    drsai = await _talk(make, 3)
    key = (await thread_of(drsai)).id or 0

    def forget(session: Any) -> None:
        compact(session, key)
        session.execute(sa.delete(JournalEntry))

    await drsai.database.write(forget)
    drsai.engine._warm.clear()
    state = (await thread_of(drsai)).state
    await say(drsai, "since then")
    with pytest.raises(InvalidRequest, match="beside message 9 the turns were not kept"):
        await drsai.rewind("t", at=6)
    with pytest.raises(InvalidRequest, match="beside turn 6 the turns were not kept"):
        await drsai.rewind("t", turn=4)
    await drsai.rewind("t", at=10)  # the input of the newest run
    assert (await thread_of(drsai)).state == state
    assert await say(drsai, "other") == await fresh(["question 0", "question 1", "question 2", "other"])
    await drsai.rewind("t", at=0)
    assert await say(drsai, "anew") == await fresh(["anew"])


async def test_snapshots_grow_apart(make: Make) -> None:
    """Few of many are kept, and each turn is rebuilt from one that is not far."""
    drsai = await make(TEAMS)
    states: dict[int, Any] = {}
    for number in range(24):
        await say(drsai, f"question {number}")
        thread = await thread_of(drsai)
        states[thread.turn] = decode_state(thread.state or "")
        await drsai.database.write(lambda session, key=thread.id: compact(session, key or 0))
    turns = sorted(each.turn for each in await _snapshots(drsai))
    assert len(turns) < 12
    gaps = [(48 - later, later - earlier) for earlier, later in zip([0, *turns], turns, strict=False)]
    assert all(gap <= max(2, distance // 2) for distance, gap in gaps)
    for turn, state in states.items():
        assert await state_after(drsai, turn) == state


async def _snapshots(drsai: DrSai) -> list[Any]:
    return await drsai.database.read(lambda session: list(session.execute(sa.select(ThreadSnapshot.turn))))


@pytest.mark.parametrize("said_since", [False, True])
async def test_branches_move_to_another_database(make: Make, said_since: bool) -> None:
    drsai = await _talk(make, 2)
    await drsai.rewind("t", turn=2)
    if said_since:
        await say(drsai, "other")
    data = await drsai.database.read(lambda session: export_thread(session, NAME))
    await drsai.database.write(lambda session: import_thread(session, data, thread_id="moved"))
    for branch in (None, 0, 1):
        assert await texts_of(drsai, "moved", branch) == await texts_of(drsai, "t", branch)
    inputs = ["question 0", *(["other"] if said_since else []), "and now?"]
    assert await say(drsai, "and now?", "moved") == await fresh(inputs)
    for place in ({"branch": 0}, {"at": 6}, {"at": 4}, {"turn": 4}):
        with pytest.raises(InvalidRequest, match="were not kept"):
            await drsai.rewind("moved", **place)


async def test_a_fork_whose_thread_is_deleted_meanwhile(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another try had made it when this one came, and it is gone when that is looked at."""
    drsai = await make(TEAMS)
    await drsai.run("pair", "one", thread_id="t")

    async def is_there(*_: object, **__: object) -> None:
        raise Conflict("there is a thread 'f' already", param="thread_id")

    monkeypatch.setattr(drsai.engine._travel, "fork", is_there)
    with pytest.raises(NotFound, match="no thread 'f'"):
        await drsai.engine.start(
            *asks("pair", [InputMessage("user", "two")], thread_id="f", fork_of=ForkOf(NAME, Place()))
        )


async def test_the_state_after_a_turn_is_shown_to_its_owner_alone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    drsai = await make(TEAMS)
    await say(drsai, "one")
    await say(drsai, "two")

    def as_user(name: str) -> httpx.AsyncClient:
        who = Principal(name, scopes=ROLES["user"])
        transport = httpx.ASGITransport(app=drsai.app(lambda _: who, is_open=True))
        return httpx.AsyncClient(transport=transport, base_url="http://test")

    async with as_user("anonymous") as owner, as_user("bob") as bob:
        for turn in (1, 2, 4):
            shown = (await owner.get(f"/v1/threads/t/state?turn={turn}")).json()
            assert shown == {
                "object": "thread.state",
                "turn": turn,
                "reason": None,
                "state": await state_after(drsai, turn),
            }
        now = (await owner.get("/v1/threads/t/state")).json()
        assert (now["turn"], now["state"]) == (None, await state_after(drsai, 4))
        assert (await owner.get("/v1/threads/t/state?turn=0")).json()["state"] is None
        refused = await owner.get("/v1/threads/t/state?turn=99")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "turn")
        shared = await owner.post("/v1/threads/t/shares", json={"with_user": "bob", "right": "read"})
        assert shared.is_success
        assert (await bob.get("/v1/threads/t/turns?owner=anonymous")).is_success
        assert (await bob.get("/v1/threads/t/state?owner=anonymous")).status_code == 400
        assert (await bob.get("/v1/threads/t/state")).status_code == 404
        # A fork of theirs is theirs, with its state.
        assert (await bob.post("/v1/threads/t/fork?owner=anonymous", json={"thread_id": "f"})).is_success
        assert (await bob.get("/v1/threads/f/state")).json()["state"] == now["state"]
        monkeypatch.setattr(travel_routes, "_LONGEST_STATE", 100)
        long = (await owner.get("/v1/threads/t/state?turn=1")).json()
        assert long["state"] is None
        assert "drsai threads state" in long["reason"]
