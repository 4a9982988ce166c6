"""The turn runtime against stock AutoGen: same events, same order per speaker, same final state, same stop reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.running import Stored, TurnRun, comparable, run_stock
from tests.support.teams.scenarios import SCENARIOS, Scenario

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def by_speaker(events: list[Any]) -> dict[str, list[Any]]:
    speakers: dict[str, list[Any]] = {}
    for event in events:
        speakers.setdefault(event["source"], []).append(event)
    return speakers


@each_scenario
@streaming
async def test_same_as_stock(scenario: Scenario, stream: bool) -> None:
    stock = scenario.build(stream)
    ours = scenario.build(stream)
    run = TurnRun(ours, Stored())
    await run.prepare()
    for task in scenario.tasks:
        expected, stop_reason = await run_stock(stock, task)
        run.seen.clear()
        assert await run.run(task) == stop_reason
        if scenario.name == "graph_fan_out":  # concurrent speakers: only each one's own order is given
            assert by_speaker(run.emitted) == by_speaker(expected)
        else:
            assert run.emitted == expected
        if scenario.name == "graph_fan_out":
            continue
        assert comparable(await ours.save_state()) == comparable(await stock.save_state())


@each_scenario
@streaming
async def test_fold_is_save_state_at_every_boundary(scenario: Scenario, stream: bool) -> None:
    from drsai_backend.state import expand

    stored = Stored()
    run = TurnRun(scenario.build(stream), stored, check_state=True)
    await run.prepare()
    for task in scenario.tasks:
        await run.run(task)
    assert len(stored.states) == len(stored.payloads) > len(scenario.tasks)
    for upto, state in enumerate(stored.states, start=1):
        assert expand(stored.document(upto), stored.configs)[0] == state
        assert expand(stored.document(upto, snapshot_at=upto), stored.configs)[0] == state


@each_scenario
async def test_a_cut_run_goes_on_as_if_never_cut(scenario: Scenario) -> None:
    """Cut at every boundary of the second run: a fresh team loads what is stored and emits exactly the rest."""
    first, second = scenario.tasks
    whole = Stored()
    run = TurnRun(scenario.build(False), whole)
    await run.prepare()
    await run.run(first)
    base = len(whole.payloads)
    marks: list[int] = []
    original = run._turn

    async def mark(turn: Any) -> None:
        marks.append(len(run.seen))
        await original(turn)

    run.on_turn = mark
    run._turn = mark  # type: ignore[method-assign]
    run.seen.clear()
    reason = await run.run(second)
    everything = run.emitted
    final = comparable(await run.session.team.save_state())

    for cut in range(base, len(whole.payloads) - 1):
        pending = whole.pending[cut]
        assert pending is not None
        part = Stored()
        part.payloads = whole.payloads[: cut + 1]
        part.configs = {seq: c for seq, c in whole.configs.items() if seq <= whole.counts[cut]}
        again = TurnRun(scenario.build(False), part)
        await again.prepare()
        await again.session.load(part.document(), part.configs)
        assert await again.run(pending=pending) == reason
        rest = everything[marks[cut - base] :]
        if scenario.name == "graph_fan_out":
            assert by_speaker(again.emitted) == by_speaker(rest)
        else:
            assert again.emitted == rest
            assert comparable(await again.session.team.save_state()) == final


@each_scenario
@pytest.mark.parametrize("way", ["cold", "warm"])
async def test_each_run_on_a_fresh_team(scenario: Scenario, way: str) -> None:
    """A fresh team per run, its state loaded from the journal or moved over in memory, equals one team kept."""
    if scenario.name == "graph_fan_out":
        return
    stock = scenario.build(True)
    stored = Stored()
    warm: Any = None
    resume: Any = None
    for number, task in enumerate([*scenario.tasks, scenario.tasks[-1]]):
        expected, stop_reason = await run_stock(stock, task)
        run = TurnRun(scenario.build(True), stored)
        await run.prepare()
        if number:
            if way == "warm":
                assert await run.session.adopt(warm) == (scenario.name != "none")
            else:
                await run.session.load(stored.document(), stored.configs)
        assert await run.run(task) == stop_reason
        assert run.emitted == expected
        assert comparable(await run.session.team.save_state()) == comparable(await stock.save_state())
        resume = stored.document().resume
        warm = run.session.release(resume)
