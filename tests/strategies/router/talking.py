"""A conversation with a router: each message is a run of its own, of a team that is built afresh from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autogen_agentchat.messages import ThoughtEvent

from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs.start.build import inject
from drsai_backend.teams.context import RunContext, build_team
from drsai_backend.teams.recording.recorder import Turn
from drsai_backend.teams.replay.steps import TurnSteps
from drsai_backend.teams.suspension import InputBroker
from drsai_backend.teams.team_tree import as_team, tree_of
from tests.support.running import Stored, TurnRun, as_messages, comparable

FLOW = {
    "description": "Books a table.",
    "when": "the user wants to eat out",
    "steps": [
        {"ask": "day", "type": "date", "prompt": "Which day?"},
        {"ask": "people", "type": "integer", "min": 1, "max": 12, "prompt": "How many people?", "label": "guests"},
        {"ask": "room", "type": "choice", "choices": ["inside", "terrace"], "prompt": "Inside or on the terrace?",
         "when": {"people": {"below": 7}}},
        {"confirm": "A table for {{people}} on {{day}}?"},
        {"tool": "book", "arguments": {"day": "{{day}}", "people": "{{people}}"}, "result": "booking",
         "failed": "sorry"},
        {"end": "Booked: {{booking}}."},
        {"end": "It is full.", "name": "sorry"},
    ],
}  # fmt: skip


class Crash(Exception):
    """Stands for the end of the process."""


class _Run(TurnRun):
    """Ends with a `Crash` behind the first boundary, if it is to."""

    last: Turn
    crashes = False
    steers: str | None = None

    async def _turn(self, turn: Turn) -> None:
        await super()._turn(turn)
        self.last = turn
        if self.steers is not None:
            text, self.steers = self.steers, None
            await self.session.steer(as_messages(text))
            await super()._turn(await self.session.capture_turn())
        if self.crashes:
            raise Crash


@dataclass
class Talk:
    """What was said, and what is stored of it. `said` are the answers, `thoughts` the decisions."""

    build: Callable[[], Any]
    stored: Stored = field(default_factory=Stored)
    said: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    spoken: list[str] = field(default_factory=list)
    """All texts that were shown, in order."""
    state: Any = None
    _warm: Any = None

    async def say(self, text: str, *, warm: bool = False, cut: bool = False, steer: str | None = None) -> str:
        """Send a message. Returns the answer.

        Args:
            warm: the state is that of the process before, as objects; else it is read from what is stored.
            cut: the process ends when the decision is stored, and another one continues.
            steer: is sent when the decision is stored.
        """
        if not cut:
            return await self._attempt(text, None, warm=warm, steer=steer)
        try:
            await self._attempt(text, None, warm=warm, crashes=True, steer=steer)
        except Crash:
            return await self._attempt(None, self.stored.pending[-1])
        raise AssertionError("there was no boundary")

    async def _attempt(
        self,
        text: str | None,
        pending: list[str] | None,
        *,
        warm: bool = False,
        crashes: bool = False,
        steer: str | None = None,
    ) -> str:
        steps = TurnSteps()
        given: dict[str, Any] = {"db_manager": None, "models": ModelClientFactory(Settings(_env_file=None))}
        context = RunContext(Principal("u"), "t", "r", {}, **given)
        team = as_team(await build_team(self.build, context))
        members = tree_of(team)
        inject(members, context, InputBroker(), steps)
        run = _Run(team, self.stored, steps=steps)
        run.crashes, run.steers = crashes, steer
        await run.prepare()
        keep_run = pending is not None
        if warm and self._warm is not None:
            assert await run.session.adopt(self._warm, keep_run=keep_run)
        elif self.stored.payloads:
            await run.session.load(self.stored.document(), self.stored.configs, keep_run=keep_run)
        try:
            await run.run(text, pending)
        finally:
            shown = [each for each in run.seen if each.type != "ModelClientStreamingChunkEvent"]
            self.types += [each.type for each in shown]
            self.thoughts += [each.content for each in shown if isinstance(each, ThoughtEvent)]
        answers = [each for each in shown if each.type in ("TextMessage", "ToolCallSummaryMessage")]
        self.said.append(answers[-1].content)
        self.spoken += [each.content for each in answers]
        self.state = comparable(await team.save_state())
        self._warm = run.session.release(run.last.entry.resume)
        return self.said[-1]

    async def through(self, messages: Sequence[str]) -> list[str]:
        """Send several. Returns the answers."""
        return [await self.say(each) for each in messages]
