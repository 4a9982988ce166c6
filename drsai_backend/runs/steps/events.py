"""Events of steps are what the log of a run tells where it is read as steps."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from drsai_backend.errors import InvalidRequest
from drsai_backend.runs.steps.views import Cursor, RunStep
from drsai_backend.runs.threads.views import RunView

STEP_PATTERN: Final = r"^[0-9]{1,9}(-[0-9]{1,9}){5}-[0-9]{1,10}$"
"""What the id of such an event looks like."""
START, _THOUGHT, _CALL, _RESULT, END = 1, 2, 3, 4, 5


class Mark(NamedTuple):
    """A place among the events of a run's steps; its text is the id of an event.

    Attributes:
        stored: the last step that is stored for good, and so never changes.
        position: the step that the event is of.
        part: which event of that step it is, in their order.
        epoch: of an end, that of the run's part that has ended; else 0.
        check: of the step; a step that is made anew in another way has another one. 0: it has begun, and no more is
            told of it.
    """

    stored: Cursor = Cursor()
    position: int = 0
    part: int = END
    epoch: int = 0
    check: int = 0

    def __str__(self) -> str:
        stored = self.stored
        return "-".join(map(str, (*stored, self.position, self.part, self.epoch, self.check)))

    @classmethod
    def parse(cls, text: str, param: str = "after") -> Mark:
        """The place that an event's id names. Raises InvalidRequest for a text that is no such id."""
        if re.fullmatch(STEP_PATTERN, text) is None:
            raise InvalidRequest(f"`{param}` is not the id of an event of steps", param=param)
        position, seq, call, of, part, epoch, check = map(int, text.split("-"))
        return cls(Cursor(position, seq, call), of, part, epoch, check)


@dataclass(frozen=True, slots=True)
class _OfStep:
    step: RunStep


@dataclass(frozen=True, slots=True)
class StepStarted(_OfStep):
    """A step has begun. Who is told so at once knows its position alone, and which `team` works: the model has not
    answered yet."""

    team: str | None = None


class StepThought(_OfStep):
    """What the model said that it thinks."""


class StepCalled(_OfStep):
    """A tool is called."""


class StepReturned(_OfStep):
    """The tool has returned, or failed."""


class StepEnded(_OfStep):
    """The step is over. It is complete now."""


@dataclass(frozen=True, slots=True)
class StepsVoid:
    """Steps after that position were told, and did not come to be stored: their turn was cut off, or its agents have
    spoken in another order. What is in their place follows."""

    after: int


@dataclass(frozen=True, slots=True)
class StepsEnded:
    """The run is over, or its part up to a question or a pause."""

    run: RunView


StepNews: TypeAlias = StepStarted | StepThought | StepCalled | StepReturned | StepEnded | StepsVoid
StepEvent: TypeAlias = StepNews | StepsEnded


class LoggedStep(NamedTuple):
    """An event of a run's steps, and where it stands."""

    position: Mark
    run_id: str
    event: StepEvent


def check_of(step: RunStep) -> int:
    """Tells a step from another one at its position."""
    return zlib.crc32(f"{step.source}\0{step.tool}\0{step.call_id}\0{step.input}".encode("utf-8", "replace"))


def parts_of(step: RunStep) -> Iterator[tuple[int, StepEvent]]:
    """Yield what there is to tell of a step, in order, each with its number."""
    yield START, StepStarted(step)
    if step.thought:
        yield _THOUGHT, StepThought(step)
    if step.tool is not None:
        yield _CALL, StepCalled(step)
    if step.observation is not None:
        yield _RESULT, StepReturned(step)
    if step.is_over:
        yield END, StepEnded(step)
