"""The machine takes a flow on its way: from what a person has said to what is said to them, and where it stands then.

Nothing here waits or remembers: a `Progress` is JSON, and each answer leads from one to the next. What calls tools and
asks models is handed in.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from drsai_backend.json_types import JsonObject
from drsai_backend.strategies.router.flows.schema import Ask, CallTool, Confirm, End, Flow, Goto, Say, Step
from drsai_backend.strategies.router.flows.slots import NotTaken, read
from drsai_backend.strategies.router.flows.values import filled, rendered, shown
from drsai_backend.strategies.router.flows.words import SKIP, is_one_of, truth_of

_AROUND: Final = " \t\n:=,.;!\u3002\uff1a\uff0c"
_LEAD: Final = re.compile(
    r"(?:(?:should|must|has to) be|is|to|into|ist|auf|soll|改成|改为|是)(?:\s+|(?<=[^\x00-\x7f]))", re.IGNORECASE
)
"""What may stand between the name of a slot and its new value."""
MAX_MOVES: Final = 200
"""Steps that are taken between two questions to the person."""
_OVER: Final = End(end=True)
"""What follows the last step."""


@dataclass
class Progress:
    """Where a flow stands.

    Attributes:
        step: the name of the step that waits for an answer.
        kind: its kind; a step of another kind under that name is of another flow.
        slots: what is filled.
        tries: answers to this step that were not taken.
        back: the step to which a change of a slot returns.
        left: it was left, and may be taken up again.
    """

    step: str = ""
    kind: str = ""
    slots: JsonObject = field(default_factory=dict)
    tries: int = 0
    back: str | None = None
    left: bool = False

    def dump(self) -> JsonObject:
        """Return it as JSON, without what is empty."""
        values = {name: value for name, value in vars(self).items() if value not in (None, False, 0, "", {})}
        return {**values, "slots": dict(self.slots)}

    @classmethod
    def load(cls, value: JsonObject) -> Progress:
        """Return what `dump` gave."""
        known: JsonObject = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        known["slots"] = dict(value.get("slots") or {})
        return cls(**known)


@dataclass(frozen=True)
class ToolOutcome:
    """What a tool has returned: text or JSON; `failed`: it did not do what it should."""

    value: object
    failed: bool = False


@dataclass(frozen=True)
class Ended:
    """The flow has come to its end. `how`: at its last step; a person has said no; or it could not continue."""

    how: Literal["done", "declined", "failed"]


Call = Callable[[str, JsonObject], AsyncGenerator[object, None]]
"""Calls a tool: events to show, and last the `ToolOutcome`."""
Find = Callable[[str, Mapping[str, Ask]], Awaitable[Mapping[str, str]]]
"""Finds values of slots in a text: texts by slot."""


class Walk:
    """One part of a flow: from a message to the next question, or to the end.

    Args:
        progress: is changed as it moves.
        today: what `tomorrow` counts from.
        find: where given, asks a model for slots' values in a text.
    """

    def __init__(self, flow: Flow, progress: Progress, today: dt.date, call: Call, find: Find | None = None) -> None:
        self.flow = flow
        self.progress = progress
        self.ended: Ended | None = None
        self._today = today
        self._call = call
        self._find = find
        self._position = 0

    async def start(self, text: str, given: Mapping[str, str]) -> AsyncGenerator[object, None]:
        """Go on from the first step. `given` are texts that a pattern has found for slots. What is said comes as texts,
        among events of tools."""
        self._fill_all(given)
        if self._find is not None:
            self._fill_all(await self._find(text, self._open()))
        async for item in self._from(0):
            yield item

    async def answer(self, text: str) -> AsyncGenerator[object, None]:
        """Go on from an answer to the step that waits."""
        position = self.flow.position(self.progress.step)
        step = None if position is None else self.flow.steps[position]
        if position is None or step is None or step.kind != self.progress.kind:
            self.ended = Ended("failed")
            yield self.flow.texts.changed
            return
        reply = self._asked(step, text) if isinstance(step, Ask) else self._confirmed(cast("Confirm", step), text)
        async for item in reply:
            yield item

    def question(self) -> str:
        """The question that waits, once more; "": there is none of that name any more."""
        position = self.flow.position(self.progress.step)
        step = None if position is None else self.flow.steps[position]
        if isinstance(step, Ask):
            return rendered(step.prompt, self.progress.slots)
        return rendered(step.confirm, self.progress.slots) if isinstance(step, Confirm) else ""

    def takes(self, text: str) -> bool:
        """Whether the step that waits takes a text as its answer."""
        position = self.flow.position(self.progress.step)
        step = None if position is None else self.flow.steps[position]
        if isinstance(step, Ask):
            return self._takes(step, text) or (_may_skip(step) and is_one_of(text, SKIP))
        return truth_of(text) is not None or self._changed(text) is not None

    # --- answers ------------------------------------------------------------------------------------------------

    async def _asked(self, step: Ask, text: str) -> AsyncGenerator[object, None]:
        progress = self.progress
        problem: str | None = None
        try:
            progress.slots[step.ask] = await self._value(step, text)
        except NotTaken as error:
            problem = str(error)
        if problem is not None:
            async for item in self._again(step, problem):
                yield item
            return
        back, progress.back, progress.tries = progress.back, None, 0
        position = self.flow.position(progress.step if back is None else back) or 0
        async for item in self._from(position) if back is None else self._changed_to(step.ask, position):
            yield item

    async def _value(self, step: Ask, text: str) -> object:
        """Return what an answer says of a slot; None: it is skipped. Other slots that the model finds in it are filled.

        Raises:
            NotTaken: it is no value of the slot.
        """
        if _may_skip(step) and is_one_of(text, SKIP):
            return None if step.default is None else read(step, shown(step.default), self._today)
        found: Mapping[str, str] = {}
        if self._find is not None and (step.type == "text" or not self._takes(step, text)):
            found = await self._find(text, {step.ask: step, **self._open()})
        self._fill_all({name: value for name, value in found.items() if name != step.ask})
        return read(step, found.get(step.ask, text), self._today)

    async def _again(self, step: Ask, problem: str) -> AsyncGenerator[object, None]:
        progress = self.progress
        progress.tries += 1
        if progress.tries <= step.retries:
            yield f"{rendered(step.retry or problem, progress.slots)}\n\n{rendered(step.prompt, progress.slots)}"
        elif step.failed is not None:
            async for item in self._jump(step.failed):
                yield item
        else:
            self.ended = Ended("failed")
            yield f"{problem} {self.flow.texts.failed}"

    async def _confirmed(self, step: Confirm, text: str) -> AsyncGenerator[object, None]:
        progress = self.progress
        truth = truth_of(text)
        position = self.flow.position(progress.step) or 0
        if truth is True:
            progress.tries = 0
            async for item in self._from(position + 1):
                yield item
        elif step.edit and (changed := self._changed(text)) is not None:
            slot, value = changed
            if value is None:
                yield self._ask_again(slot, position)
            else:
                progress.slots[slot] = value
                async for item in self._changed_to(slot, position):
                    yield item
        elif truth is False and step.no is not None:
            async for item in self._jump(step.no):
                yield item
        elif truth is False:
            self.ended = Ended("declined")
            yield self.flow.texts.declined
        else:
            progress.tries += 1
            if progress.tries > step.retries:
                self.ended = Ended("declined")
                yield self.flow.texts.declined
                return
            yield f"{self.flow.texts.yes_or_no}\n\n{rendered(step.confirm, progress.slots)}"

    async def _changed_to(self, slot: str, position: int) -> AsyncGenerator[object, None]:
        """Return to the step that asked for a change of this slot, by way of questions that it has made necessary.
        Values of those that it has made void are dropped."""
        slots = self.progress.slots
        for step in self.flow.steps[:position]:
            if not isinstance(step, Ask) or slot not in step.when:
                continue
            if not step.applies(slots):
                slots.pop(step.ask, None)
            elif step.ask not in slots:
                yield self._ask_again(step.ask, position)
                return
        async for item in self._from(position):
            yield item

    def _ask_again(self, slot: str, position: int) -> str:
        """The question for a slot, after which the flow returns to the step at `position`."""
        names, progress = self.flow.names, self.progress
        progress.slots.pop(slot, None)
        progress.back = names[position]
        progress.step = self._step_of(slot)
        progress.kind, progress.tries = Ask.kind, 0
        return self.question()

    def _changed(self, text: str) -> tuple[str, object] | None:
        """The slot that a person wants to change, and its new value; None as the value: they did not say it."""
        for slot, step in sorted(self.flow.asked.items(), key=lambda each: -len(each[1].called)):
            names = "|".join(re.escape(name) for name in (step.called, slot))
            edges = (r"(?<!\w)", r"(?!\w)") if step.called.isascii() else ("", "")
            found = re.search(f"{edges[0]}(?:{names}){edges[1]}", text, re.IGNORECASE)
            if found is None:
                continue
            rest = text[found.end() :].strip(_AROUND)
            rest = _LEAD.sub("", rest, count=1).strip(_AROUND)
            if truth_of(rest) is False:  # "the day is wrong"
                return slot, None
            try:
                return slot, read(step, rest, self._today)
            except NotTaken:
                return slot, None
        return None

    # --- steps --------------------------------------------------------------------------------------------------

    async def _jump(self, name: str) -> AsyncGenerator[object, None]:
        """Continue at a step; a question there is asked again."""
        self._to(name)
        self.progress.tries, self.progress.back = 0, None
        async for item in self._from(self._position):
            yield item

    async def _from(self, position: int) -> AsyncGenerator[object, None]:
        """Take steps until one waits for the person, or the flow ends."""
        progress, self._position = self.progress, position
        for _ in range(MAX_MOVES):
            match step := self._due():
                case Ask() | Confirm():
                    progress.step, progress.kind, progress.tries = self.flow.names[self._position], step.kind, 0
                    yield self.question()
                    return
                case Say():
                    yield rendered(step.say, progress.slots)
                    self._position += 1
                case Goto():
                    self._to(step.goto)
                case End():
                    self.ended = Ended("done")
                    if step.end is not True:
                        yield rendered(step.end, progress.slots)
                    return
                case CallTool():
                    async for item in self._called(step):
                        yield item
                    if self.ended is not None:
                        return
        self.ended = Ended("failed")
        yield self.flow.texts.failed

    def _due(self) -> Step:
        """The first step from here on that applies, and does not ask for what is known."""
        slots = self.progress.slots
        for position in range(self._position, len(self.flow.steps)):
            step = self.flow.steps[position]
            if step.applies(slots) and not (isinstance(step, Ask) and step.ask in slots):
                self._position = position
                return step
        return _OVER

    async def _called(self, step: CallTool) -> AsyncGenerator[object, None]:
        """Call a tool, and move to where what it returned leads."""
        outcome = ToolOutcome(None, failed=True)
        async for item in self._call(step.tool, filled(step.arguments, self.progress.slots)):
            if isinstance(item, ToolOutcome):
                outcome = item
            else:
                yield item
        if step.result is not None:
            self.progress.slots[step.result] = outcome.value
        if not outcome.failed:
            self._position += 1
        elif step.failed is not None:
            self._to(step.failed)
        else:
            self.ended = Ended("failed")
            yield f"{outcome.value}\n\n{self.flow.texts.failed}"

    def _to(self, name: str) -> None:
        """Move to a step; what it asks for is asked again."""
        position = self.flow.position(name)
        assert position is not None, "checked with the flow"
        self._position = position
        step = self.flow.steps[position]
        if isinstance(step, Ask):
            self.progress.slots.pop(step.ask, None)

    # --- slots --------------------------------------------------------------------------------------------------

    def _open(self) -> Mapping[str, Ask]:
        return {name: step for name, step in self.flow.asked.items() if name not in self.progress.slots}

    def _fill_all(self, found: Mapping[str, str]) -> None:
        """Take what fits; what does not is asked for."""
        for name, text in found.items():
            step = self.flow.asked.get(name)
            if step is not None and self._takes(step, text):
                self.progress.slots[name] = read(step, text, self._today)

    def _takes(self, step: Ask, text: str) -> bool:
        try:
            read(step, text, self._today)
        except NotTaken:
            return False
        return True

    def _step_of(self, slot: str) -> str:
        return next(
            name
            for name, step in zip(self.flow.names, self.flow.steps, strict=True)
            if isinstance(step, Ask) and step.ask == slot
        )


def _may_skip(step: Ask) -> bool:
    return step.optional or step.default is not None
