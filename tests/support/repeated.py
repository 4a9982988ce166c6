"""A team that is run until it comes to its end, over crashes and questions, each time afresh from what was stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drsai_backend.access.principal import Principal
from drsai_backend.catalog import Recipe
from drsai_backend.config import Settings
from drsai_backend.models import ContinueRules, ModelClientFactory
from drsai_backend.runs import Ask
from drsai_backend.runs.start.build import inject
from drsai_backend.runs.start.parameters import allot
from drsai_backend.state.codec import dump_json, load_json
from drsai_backend.teams.client_tools.definitions import ClientTools
from drsai_backend.teams.client_tools.policy import ToolPolicy
from drsai_backend.teams.context import BuiltTeam, RunContext, build_team
from drsai_backend.teams.limits import NO_LIMITS
from drsai_backend.teams.options import options_of
from drsai_backend.teams.replay.steps import Step, ToolEvent, TurnSteps
from drsai_backend.teams.suspension import InputBroker, InputRequired, parse_decision
from drsai_backend.teams.team_tree import as_team, tree_of
from tests.support.running import Stored, TurnRun, comparable

Answer = Callable[[InputRequired], str]
CHUNK = "ModelClientStreamingChunkEvent"


class Crash(Exception):
    """Stands for the end of the process."""


@dataclass
class Story:
    """What became of a run, and what is stored of it.

    `crash_at`: the number of the write, counted over the whole story, at which the process ends; `durable`: that write
    was still done. Writes are those of steps, and with `cuts_turns` those of turns. `tools` are the client's, of which
    each returns its name and its arguments. `provided` are fields of the run's context.
    """

    build: Callable[[], BuiltTeam] | Callable[[RunContext], BuiltTeam]
    answer: Answer | None = None
    tools: ClientTools | None = None
    provided: Mapping[str, Any] = field(default_factory=dict[str, Any])
    crash_at: int | None = None
    durable: bool = False
    cuts_turns: bool = False
    stored: Stored = field(default_factory=Stored)
    steps: dict[tuple[str, str], Step] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    cut: tuple[str, ...] = ()
    """The names of the steps in the write at which the process ended."""
    writes: int = 0
    attempts: int = 0
    questions: list[InputRequired] = field(default_factory=list)
    events: list[ToolEvent] = field(default_factory=list)
    shown: list[Any] = field(default_factory=list)
    reason: str | None = None
    state: Any = None
    usage: int = 0

    def store(self, steps: Sequence[Step]) -> None:
        for step in steps:
            key = step.agent, step.step
            assert key not in self.steps, f"{key} is stored twice"
            dumped = load_json(dump_json(step.value))
            assert dumped == step.value
            self.steps[key] = Step(step.agent, step.step, step.digest, dumped)

    async def _store(self, steps: Sequence[Step]) -> None:
        self.writes += 1
        crash = self.writes == self.crash_at
        if not crash or self.durable:
            self.store(steps)
        if crash:
            self.cut = tuple(step.step for step in steps)
            raise Crash
        await asyncio.sleep(0)

    async def run(self, task: str = "Begin.") -> Story:
        """Run to the end. A question is answered by `answer`, on a fresh session."""
        while not await self.attempt(task):
            assert self.attempts < 20
        return self

    async def attempt(self, task: str = "Begin.") -> bool:
        """One process's part. True at the end of the run."""
        self.attempts += 1
        broker = InputBroker(list(self.answers))
        steps = TurnSteps(list(self.steps.values()), self._store, self.events.append)
        given = {"db_manager": None, "models": ModelClientFactory(Settings(_env_file=None)), **self.provided}
        context = RunContext(Principal("u"), "t", "r", {}, **given)
        team = as_team(await build_team(self.build, context))
        members = tree_of(team)
        recipe = Recipe("t", self.build, options_of(self.build), NO_LIMITS, ToolPolicy("offer"))
        allotted = allot(members, Ask("t", client_tools=self.tools), recipe, ContinueRules())
        inject(members, context, broker, steps, None, allotted)
        run = TurnRun(team, self.stored, broker=broker, steps=steps)
        await run.prepare()
        if self.stored.payloads:
            await run.session.load(self.stored.document(), self.stored.configs)
        on_turn = run.on_turn

        async def turn_stored(turn: Any) -> None:
            self.writes += self.cuts_turns
            crash = self.cuts_turns and self.writes == self.crash_at
            if crash:
                self.cut = ("turn",)
                if not self.durable:
                    raise Crash
            await on_turn(turn)
            self.shown += run.seen
            run.seen.clear()
            assert steps.turn_done() or not self.steps, "steps of a turn that is stored are left over"
            self.steps.clear()
            self.answers.clear()
            broker.turn_done()
            if crash:
                raise Crash

        run.on_turn = turn_stored
        async with asyncio.timeout(30):
            try:
                if self.stored.payloads:
                    self.reason = await run.run(pending=self.stored.pending[-1])
                else:
                    self.reason = await run.run(task)
            except Crash:
                assert self.crash_at is not None
                return False
            except InputRequired as question:
                self.store(steps.unstored())
                self.questions.append(question)
                frame = {"source": question.source, "key": question.key, "place": question.place}
                if question.tool_calls is not None:
                    results = [
                        {"key": each["key"], "called": each["called"], "content": returned(each), "is_error": False}
                        for each in question.tool_calls
                    ]
                    self.answers.append({**frame, "results": results})
                    return False
                if self.answer is None:
                    raise
                said = parse_decision(self.answer(question), vars(question))
                self.answers.append({**frame, **said})
                return False
            finally:
                self.usage += context.meter.completion_tokens
        self.shown += run.seen
        self.steps.clear()
        self.answers.clear()
        self.state = _without_chunks(comparable(await team.save_state()))
        return True

    @property
    def said(self) -> list[Any]:
        """The messages, without chunks."""
        return [comparable(message) for message in self.shown if message.type != CHUNK]


def returned(call: dict[str, Any]) -> str:
    """What a tool of the client's returns."""
    return f"{call['name']} of the client did {call['arguments']}"


def _without_chunks(state: Any) -> Any:
    """A manager's thread holds the pieces that an agent used as a tool has streamed; a replayed answer has none."""
    if isinstance(state, dict):
        return {key: _without_chunks(value) for key, value in state.items()}
    if isinstance(state, list):
        kept = (each for each in state if not isinstance(each, dict) or each.get("type") != CHUNK)
        return [_without_chunks(each) for each in kept]
    return state
