"""A flow on its way: from what a person has said to what is said to them, and where it stands then.

Nothing here waits or remembers: a `Progress` is JSON, and each answer leads from one to the next. What calls tools and
asks models is handed in.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from drsai_backend.json_types import JsonObject
from drsai_backend.strategies.router.flows import Ask, CallTool, Confirm, End, Flow, Goto, Say
from drsai_backend.strategies.router.slots import NotTaken, read
from drsai_backend.strategies.router.values import filled, rendered
from drsai_backend.strategies.router.words import SKIP, is_one_of, truth_of

_AROUND: Final = " \t\n:=,.;!\u3002\uff1a\uff0c"
_LEAD: Final = re.compile(
    r"(?:(?:should|must|has to) be|is|to|into|ist|auf|soll|改成|改为|是)(?:\s+|(?<=[^\x00-\x7f]))", re.IGNORECASE
)
"""What may stand between the name of a slot and its new value."""
MAX_MOVES: Final = 200
"""Steps between two questions to the person."""


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
        """As JSON, without what is empty."""
        values = {name: value for name, value in vars(self).items() if value not in (None, False, 0, "", {})}
        return {**values, "slots": dict(self.slots)}

    @classmethod
    def load(cls, value: JsonObject) -> Progress:
        """What `dump` gave."""
        known: dict[str, Any] = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        known["slots"] = dict(value.get("slots") or {})
        return cls(**known)


@dataclass(frozen=True)
class ToolOutcome:
    """What a tool has returned: text or JSON; `failed`: it did not do what it should."""

    value: Any
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

    async def start(self, text: str, given: Mapping[str, str]) -> AsyncGenerator[object, None]:
        """From the first step. `given` are texts that a pattern has found for slots. What is said comes as texts, among
        events of tools."""
        self._fill_all(given)
        if self._find is not None:
            self._fill_all(await self._find(text, self._open()))
        async for item in self._from(0):
            yield item

    async def answer(self, text: str) -> AsyncGenerator[object, None]:
        """From an answer to the step that waits."""
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
            return self._takes(step, text) or (step.optional and is_one_of(text, SKIP))
        return truth_of(text) is not None or self._changed(text) is not None

    # --- answers ------------------------------------------------------------------------------------------------

    async def _asked(self, step: Ask, text: str) -> AsyncGenerator[object, None]:
        progress = self.progress
        problem: str | None = None
        if (step.optional or step.default is not None) and is_one_of(text, SKIP):
            progress.slots[step.ask] = step.default
        else:
            found: Mapping[str, str] = {}
            if self._find is not None and (step.type == "text" or not self._takes(step, text)):
                found = await self._find(text, {step.ask: step, **self._open()})
            self._fill_all({name: value for name, value in found.items() if name != step.ask})
            try:
                progress.slots[step.ask] = read(step, found.get(step.ask, text), self._today)
            except NotTaken as error:
                problem = str(error)
        if problem is not None:
            async for item in self._again(step, problem):
                yield item
            return
        back, progress.back, progress.tries = progress.back, None, 0
        position = self.flow.position(back if back is not None else progress.step)
        async for item in self._from(position or 0):
            yield item

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
                progress.slots.pop(slot, None)
                back = progress.step
                async for item in self._jump(self._step_of(slot)):
                    yield item
                progress.back = back if self.ended is None else None
            else:
                progress.slots[slot] = value
                async for item in self._from(position):
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

    def _changed(self, text: str) -> tuple[str, Any] | None:
        """The slot that a person wants to change, and its new value; None as the value: they did not say it."""
        for slot, step in sorted(self.flow.asked.items(), key=lambda each: -len(each[1].called)):
            names = "|".join(re.escape(name) for name in (step.called, slot))
            edges = (r"(?<!\w)", r"(?!\w)") if step.called.isascii() else ("", "")
            found = re.search(f"{edges[0]}(?:{names}){edges[1]}", text, re.IGNORECASE)
            if found is None:
                continue
            rest = text[found.end() :].strip(_AROUND)
            rest = _LEAD.sub("", rest, count=1).strip(_AROUND)
            try:
                return slot, read(step, rest, self._today)
            except NotTaken:
                return slot, None
        return None

    # --- steps --------------------------------------------------------------------------------------------------

    async def _jump(self, name: str) -> AsyncGenerator[object, None]:
        """Continue at a step; a question there is asked again."""
        position = self.flow.position(name)
        assert position is not None, "checked with the flow"
        step = self.flow.steps[position]
        if isinstance(step, Ask):
            self.progress.slots.pop(step.ask, None)
        self.progress.tries = 0
        async for item in self._from(position):
            yield item

    async def _from(self, position: int) -> AsyncGenerator[object, None]:
        """Take steps until one waits for the person, or the flow ends."""
        progress, flow = self.progress, self.flow
        for _ in range(MAX_MOVES):
            if position >= len(flow.steps):
                self.ended = Ended("done")
                return
            step = flow.steps[position]
            if not step.applies(progress.slots) or (isinstance(step, Ask) and step.ask in progress.slots):
                position += 1
                continue
            match step:
                case Ask() | Confirm():
                    progress.step, progress.kind, progress.tries = flow.names[position], step.kind, 0
                    yield self.question()
                    return
                case Say():
                    yield rendered(step.say, progress.slots)
                    position += 1
                case Goto():
                    position = self._to(step.goto)
                case End():
                    self.ended = Ended("done")
                    if step.end is not True:
                        yield rendered(step.end, progress.slots)
                    return
                case CallTool():
                    outcome = ToolOutcome(None, failed=True)
                    async for item in self._call(step.tool, filled(step.arguments, progress.slots)):
                        if isinstance(item, ToolOutcome):
                            outcome = item
                        else:
                            yield item
                    if step.result is not None:
                        progress.slots[step.result] = outcome.value
                    if not outcome.failed:
                        position += 1
                    elif step.failed is not None:
                        position = self._to(step.failed)
                    else:
                        self.ended = Ended("failed")
                        yield f"{outcome.value}\n\n{self.flow.texts.failed}"
                        return
        self.ended = Ended("failed")
        yield self.flow.texts.failed

    def _to(self, name: str) -> int:
        position = self.flow.position(name)
        assert position is not None, "checked with the flow"
        step = self.flow.steps[position]
        if isinstance(step, Ask):
            self.progress.slots.pop(step.ask, None)
        return position

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
