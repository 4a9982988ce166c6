"""The three invariants of a stored thread, over random teams and conversations.

1. At every boundary, expand(fold(snapshot, journal)) is `await team.save_state()`.
2. A run that is cut at any boundary and goes on in a fresh team, in another process too, says what is left to say.
3. What a turn stores does not grow with the thread.

`DRSAI_HUNT=5000` looks at so many random conversations instead of a fixed few.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drsai_backend.state import expand
from drsai_backend.state.codec import dump_json
from drsai_backend.teams.recording.recorder import WarmState
from tests.support.commands import Commands, clean_environment
from tests.support.running import Stored, TurnRun, comparable, run_stock
from tests.support.teams import conversations
from tests.support.teams.conversations import Spec, build

HUNT = int(os.environ.get("DRSAI_HUNT", "0"))
quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
profile = settings(
    max_examples=HUNT or 40, derandomize=not HUNT, deadline=None, suppress_health_check=quiet, database=None
)

texts = st.sampled_from(
    [
        "",
        "the same text",
        "the same text",
        "TERMINATE",
        "ann: bob",
        '{"type": "TextMessage"}',
        '["u", 1]',
        "häl\u200dlo 🦜\n\n\t\\n",
        "C:\\udir\\u0000",
        "nul \0",
        "lone \ud800",
        "x" * 5_000,
    ]
) | st.text(max_size=30)

members = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(conversations.MEMBERS),
        "context": st.sampled_from(conversations.CONTEXTS),
        "thought": st.sampled_from([None, None, "Let me think."]),
        "stream": st.booleans(),
        "reflect": st.booleans(),
        "iterations": st.integers(1, 3),
        "tools": st.lists(st.sampled_from(["add", "fail", "count", "agent", "team"]), unique=True, max_size=4),
    }
)

specs = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(conversations.KINDS),
        "seed": st.integers(0, 2**32),
        "members": st.lists(members, min_size=3, max_size=5),
        "texts": st.lists(texts, min_size=1, max_size=6),
        "most": st.integers(2, 9),
        "turns": st.none() | st.integers(1, 6),
        "conditions": st.lists(
            st.sampled_from(["and", "text", "tokens", "handoff", "function", "own"]), max_size=3, unique=True
        ),
        "events": st.booleans(),
        "tasks": st.lists(st.sampled_from(["text", "text", "several", "handoff", "image"]), min_size=1, max_size=4),
        "ways": st.lists(st.sampled_from(["same", "cold", "warm"]), min_size=4, max_size=4),
        "cut": st.floats(0, 1),
        "snapshot": st.floats(0, 1),
    }
)


def by_source(events: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for event in events:
        found.setdefault(event["source"], []).append(event)
    return found


class Conversation:
    """A thread of several runs, kept in memory and in `stored`, as a spec says."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.stored = Stored()
        self.run: TurnRun | None = None
        self.warm: WarmState | None = None

    async def next_run(self, number: int) -> TurnRun:
        """The team for the next run: the same, or a fresh one that is loaded, or takes the state over."""
        way = self.spec["ways"][number]
        if self.run is not None and way == "same":
            self.run.seen.clear()
            return self.run
        run = TurnRun(build(self.spec), self.stored, check_state=True)
        await run.prepare()
        if self.run is not None:
            warm = self.run.session.release(self.stored.document().resume)
            if way == "cold" or not await run.session.adopt(warm):
                await run.session.load(self.stored.document(), self.stored.configs)
        self.run = run
        return run


async def converse(spec: Spec) -> None:
    stock = build(spec)
    conversation = Conversation(spec)
    exact = spec["kind"] != "fan_out"
    base, marks = 0, [0]
    reason: str | None = None
    for number in range(len(spec["tasks"])):
        run = await conversation.next_run(number)
        base = len(conversation.stored.payloads)
        marks = watch(run)
        try:
            expected, reason = await run_stock(stock, conversations.task(spec, number))
        except RuntimeError:  # Some teams cannot take some tasks.
            with pytest.raises(Exception):  # noqa: B017 - whatever AutoGen has made text of
                await run.run(conversations.task(spec, number))
            return
        assert await run.run(conversations.task(spec, number)) == reason
        if not exact:  # Concurrent speakers: only each one's own order is given.
            assert by_source(run.emitted) == by_source(expected)
            continue
        assert run.emitted == expected
        assert comparable(await run.session.team.save_state()) == comparable(await stock.save_state())
    run = conversation.run
    assert run is not None
    check_fold(conversation.stored, spec)
    await check_cut(conversation, run, base, marks, reason)


def watch(run: TurnRun) -> list[int]:
    """How much had been emitted at each turn."""
    marks: list[int] = []
    kept = type(run)._turn

    async def mark(turn: Any) -> None:
        marks.append(len(run.seen))
        await kept(run, turn)

    run.on_turn = mark
    run._turn = mark  # type: ignore[method-assign]
    return marks


def check_fold(stored: Stored, spec: Spec) -> None:
    for upto, state in enumerate(stored.states, start=1):
        assert expand(stored.document(upto), stored.configs)[0] == state
        snapshot = max(1, round(spec["snapshot"] * upto))
        assert expand(stored.document(upto, snapshot_at=snapshot), stored.configs)[0] == state


def cut_at(spec: Spec, stored: Stored, base: int) -> Spec | None:
    """The thread as it is stored at one boundary of the last run."""
    boundaries = range(base, len(stored.payloads) - 1)
    if not boundaries:
        return None
    cut = boundaries[min(int(spec["cut"] * len(boundaries)), len(boundaries) - 1)]
    configs = {seq: config for seq, config in stored.configs.items() if seq <= stored.counts[cut]}
    return {
        "spec": spec,
        "payloads": stored.payloads[: cut + 1],
        "configs": configs,
        "pending": stored.pending[cut],
        "cut": cut - base,
    }


async def check_cut(conversation: Conversation, run: TurnRun, base: int, marks: list[int], reason: str | None) -> None:
    spec, stored = conversation.spec, conversation.stored
    cut = cut_at(spec, stored, base)
    if cut is None:
        return
    rest = await conversations.continue_cut({**cut, "payloads": list(cut["payloads"])})
    assert rest["reason"] == reason
    expected = run.emitted[marks[cut["cut"]] :]
    if spec["kind"] == "fan_out":
        assert by_source(rest["events"]) == by_source(expected)
        return
    assert rest["events"] == expected
    assert rest["state"] == comparable(stored.states[-1])


@given(specs)
@profile
def test_random_conversations(spec: Spec) -> None:
    """Against stock AutoGen with one team kept, whichever way our teams come by their state."""
    asyncio.run(converse(spec))


@pytest.mark.parametrize("kind", conversations.KINDS)
@given(st.data())
@settings(profile, max_examples=HUNT // 10 or 4)
def test_random_conversations_of_each_kind(kind: str, data: st.DataObject) -> None:
    asyncio.run(converse({**data.draw(specs), "kind": kind}))


PROCESS_SPECS = [
    {
        "kind": kind,
        "seed": 7,
        "members": [
            {
                "kind": "assistant",
                "context": "unbounded",
                "thought": None,
                "stream": False,
                "reflect": True,
                "iterations": 2,
                "tools": ["add", "count"],
            }
        ]
        * 3,
        "texts": ["one", "two", "häl\u200dlo 🦜"],
        "most": 9,
        "turns": None,
        "conditions": ["own"],
        "events": True,
        "tasks": ["text", "several"],
        "ways": ["same"] * 4,
        "cut": 0.5,
        "snapshot": 0.5,
    }
    for kind in ("round_robin", "selector", "loop", "magentic")
]


@pytest.mark.parametrize("spec", PROCESS_SPECS, ids=lambda spec: spec["kind"])
async def test_another_process_goes_on(commands: Commands, tmp_path: Path, spec: Spec) -> None:
    conversation = Conversation(spec)
    base, marks, reason = 0, [0], None
    for number in range(len(spec["tasks"])):
        run = await conversation.next_run(number)
        run.seen.clear()
        base = len(conversation.stored.payloads)
        marks = watch(run)
        reason = await run.run(conversations.task(spec, number))
    assert conversation.run is not None
    cut = cut_at(spec, conversation.stored, base)
    assert cut is not None
    program = ("-m", "tests.support.teams.conversations")
    done = commands.program(*program, cwd=tmp_path, env=clean_environment(), stdin=json.dumps(cut))
    assert await asyncio.to_thread(done.wait, 60) == 0, done.stderr
    rest = json.loads(done.stdout)
    assert rest["events"] == conversation.run.emitted[marks[cut["cut"]] :]
    assert rest["reason"] == reason
    assert rest["state"] == comparable(conversation.stored.states[-1])


LONG_SPECS = [spec for spec in PROCESS_SPECS if spec["kind"] != "magentic"]


@pytest.mark.parametrize(
    "kind", ["round_robin", "selector", "selector_function", "swarm", "sequence", "loop", "nested"]
)
async def test_an_entry_does_not_grow_with_the_thread(kind: str) -> None:
    """The encoded entry of every turn around run 300 is as small as around run 5, but for longer numbers."""
    spec = {**PROCESS_SPECS[0], "kind": kind, "tasks": ["text"], "texts": ["a text of some length"], "turns": 2}
    spec["members"] = [{**PROCESS_SPECS[0]["members"][0], "tools": []}] * 3
    stored = Stored()
    run = TurnRun(build(spec), stored)
    await run.prepare()
    sizes: list[list[int]] = []
    for _ in range(301):
        start = len(stored.payloads)
        await run.run("Go on.")
        sizes.append([len(payload) for payload in stored.payloads[start:]])
        if kind == "nested":  # Its inner team ends by its own counter.
            sizes[-1] = sizes[-1][:1]
    early, late = (max(max(each) for each in sizes[at : at + 6]) for at in (3, 294))
    assert late <= early * 1.2 + 64, (early, late)
    assert max(map(max, sizes[1:])) < 4_000


async def test_texts_are_stored_once() -> None:
    """A long text is a row of its own; the journal refers to it from every buffer and context."""
    spec = {**PROCESS_SPECS[0], "texts": ["z" * 20_000], "tasks": ["text"]}
    spec["members"] = [{**PROCESS_SPECS[0]["members"][0], "tools": []}] * 3
    stored = Stored()
    run = TurnRun(build(spec), stored)
    await run.prepare()
    await run.run("Go on.")
    assert sum(map(len, stored.payloads)) < 8_000
    assert sum(len(dump_json(config)) for config in stored.configs.values()) > 100_000
