"""The views are a step of a run as it is shown, and a page of them."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from pydantic import BaseModel, Field

from drsai_backend.datamodel.file import MessageFile
from drsai_backend.page import Page, read_cursor

SHOWN: Final = 4000
"""Characters of a text of a step that are shown where steps are listed."""
CURSOR_PATTERN: Final = r"^([0-9]{1,9})-([0-9]{1,9})-([0-9]{1,5})$"
"""What the `next` of a page of steps looks like: position, message, and which call of it."""


class Cursor(NamedTuple):
    """Where a step stands: its position, the message that it begins with, and which call of that message it is."""

    position: int = 0
    seq: int = 0
    call: int = 0

    def __str__(self) -> str:
        return f"{self.position}-{self.seq}-{self.call}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raise InvalidRequest for a text that is no `next`."""
        return cls(*map(int, read_cursor(CURSOR_PATTERN, text).groups()))


class RunStep(BaseModel):
    """A step of a run: one call of a tool with what it returned, or an answer. Times are aware and in UTC.

    An answer of a model that calls several tools at once is several steps, in the order of the calls. What the model
    thought, and its tokens, are those of the first one; the others name it in `with_step`.
    """

    position: int = Field(description="1, 2, 3 … within the run.")
    run_id: str
    source: str | None = Field(description="The agent; null: the run's end, where no step was under way.")
    thought: str | None = Field(default=None, description="What the model said it thinks before it acts.")
    tool: str | None = Field(default=None, description="The tool that is called; null: no call.")
    call_id: str | None = Field(default=None, description="The model's id of the call.")
    input: str | None = Field(default=None, description="What the tool is called with: JSON text.")
    observation: str | None = Field(default=None, description="What the tool returned; null: nothing yet, or no call.")
    files: list[MessageFile] = Field(default_factory=list, description="The files that the tool has made.")
    text: str | None = Field(default=None, description="What the agent said, where the step is an answer.")
    is_error: bool = Field(default=False, description="The tool has failed, or the run ended here before its end.")
    error: str | None = Field(default=None, description="How the run was cut off in or after this step.")
    limit: str | None = Field(
        default=None, description="The limit that ended the agent's work after this step, e.g. `max_iterations`."
    )
    is_over: bool = Field(default=True, description="Whether nothing will be added to it.")
    is_stored: bool = Field(
        default=True, description="False: of the turn in flight, which is repeated if its process is lost."
    )
    with_step: int | None = Field(
        default=None, description="Position of the first call of the same answer, where this is another one of it."
    )
    started_at: datetime | None = None
    finished_at: datetime | None = Field(default=None, description="null: it is not over.")
    prompt_tokens: int | None = Field(default=None, description="What the model call used; null: no call of its own.")
    completion_tokens: int | None = None
    model: str | None = Field(default=None, description="The model that answered, where it is known.")
    recalled: list[str] = Field(
        default_factory=list,
        description="What the model was shown beside the thread, such as versions of memories, by name.",
    )
    seq: int = Field(default=0, description="`seq` of the message that it begins with; 0: none is stored yet.")


StepPage = Page[RunStep]  # The name of earlier releases.


def title_of(step: RunStep, source: str | None = None) -> str:
    """Return what to call a step: by its tool, its agent (`source`, where the step does not know it yet), or its
    number."""
    return step.tool or step.source or source or f"Step {step.position}"


def shortened(step: RunStep, characters: int = SHOWN) -> RunStep:
    """The step with its texts cut to so many characters, each with a note of how many are left out."""
    names = ("thought", "input", "observation", "text")
    long = {name: text for name in names if (text := getattr(step, name)) is not None and len(text) > characters}
    return step.model_copy(update={name: cut(text, characters) for name, text in long.items()}) if long else step


def cut(text: str, characters: int) -> str:
    """The beginning of a text, and a note of how many characters of it are left out."""
    return text if len(text) <= characters else f"{text[:characters]}\n[{len(text) - characters} more characters]"
