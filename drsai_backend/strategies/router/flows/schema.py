"""The schema of flows has steps, the slots that they fill, and what is wrong with them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from drsai_backend.strategies.router.flows.slots import MAX_TEXT, NotTaken, SlotType, is_date_bound, read
from drsai_backend.strategies.router.flows.values import Comparison, Scalar, same, shown, variables_of
from drsai_backend.strategies.router.patterns import MAX_PATTERN, wrong_with

SLOT: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
SlotName: TypeAlias = Annotated[str, Field(pattern=SLOT)]
StepName: TypeAlias = Annotated[str, Field(pattern=SLOT)]
Says: TypeAlias = Annotated[str, Field(min_length=1, max_length=4000)]
MAX_STEPS: Final = 100


class StepBase(BaseModel):
    """What all steps have."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: ClassVar[str]
    name: StepName | None = Field(default=None, description="What `goto` calls it. Default: its kind, numbered.")
    when: dict[SlotName, Scalar | Comparison] = Field(
        default_factory=dict, description="It is passed over unless all of these hold: a value, or comparisons."
    )

    @property
    def goes_to(self) -> Mapping[str, str]:
        """The steps that it names, by the field."""
        return {}

    @property
    def texts(self) -> Sequence[object]:
        """What has slots in it."""
        return ()

    def applies(self, slots: Mapping[str, object]) -> bool:
        """Whether its conditions hold."""
        return all(
            test.holds(slots.get(name)) if isinstance(test, Comparison) else same(slots.get(name), test)
            for name, test in self.when.items()
        )


class Ask(StepBase):
    """Asks for the value of a slot, unless it is known."""

    kind: ClassVar[str] = "ask"

    ask: SlotName = Field(description="The slot.")
    type: SlotType = "text"
    prompt: Says = Field(description="The question.")
    label: str | None = Field(
        default=None, min_length=1, max_length=100, description="What people call it. Default: the slot's name."
    )
    choices: list[str] | dict[str, list[str]] | None = Field(
        default=None, description="Of a choice: its values, or values with other words for each."
    )
    min: float | str | None = Field(default=None, description="Of a number; of a date a day, or `today`.")
    max: float | str | None = None
    min_length: int = Field(default=1, ge=1, le=MAX_TEXT)
    max_length: int = Field(default=MAX_TEXT, ge=1, le=MAX_TEXT)
    pattern: str | None = Field(
        default=None, min_length=1, max_length=MAX_PATTERN, description="What all of a text has to match."
    )
    retry: Says | None = Field(default=None, description="Said when the answer is not taken, in place of the reason.")
    retries: int = Field(default=3, ge=0, le=10, description="How often it asks again.")
    failed: StepName | None = Field(default=None, description="Where it continues then. Default: the flow is left.")
    optional: bool = Field(default=False, description="`skip` leaves the slot empty.")
    default: Scalar | None = Field(default=None, description="What `skip` stands for.")

    @property
    def synonyms(self) -> Mapping[str, Sequence[str]]:
        """The values of a choice, each with other words for it."""
        given = self.choices or {}
        return given if isinstance(given, dict) else dict.fromkeys(given, ())

    @property
    def called(self) -> str:
        """What people call the slot."""
        return self.label or self.ask.replace("_", " ")

    @property
    def goes_to(self) -> Mapping[str, str]:
        return {} if self.failed is None else {"failed": self.failed}

    @property
    def texts(self) -> Sequence[object]:
        return self.prompt, self.retry or ""

    @model_validator(mode="after")
    def _of_type(self) -> Ask:
        if (self.type == "choice") != bool(self.choices):
            raise ValueError("`choices` belong to `type: choice`, which needs at least one")
        if len(self.synonyms) > 100:
            raise ValueError("`choices` are at most 100")
        bounds = {name: bound for name, bound in (("min", self.min), ("max", self.max)) if bound is not None}
        if bounds and self.type not in ("number", "integer", "date"):
            raise ValueError("`min` and `max` are of numbers and dates; a text has `min_length` and `max_length`")
        for name, bound in bounds.items():
            if self.type == "date" and not is_date_bound(bound):
                raise ValueError(f"`{name}` of a date must be 'today' or a day such as '2026-03-01'")
            if self.type != "date" and isinstance(bound, str):
                raise ValueError(f"`{name}` must be a number")
        if self.pattern is not None and (wrong := wrong_with(self.pattern)) is not None:
            raise ValueError(f"`pattern`: {wrong}")
        if self.min_length > self.max_length:
            raise ValueError("`min_length` is more than `max_length`")
        return self

    @model_validator(mode="after")
    def _takes_default(self) -> Ask:
        if self.default is not None:
            # What `today` is depends on when it is used.
            unbound = self.model_copy(update={"min": None, "max": None}) if self.type == "date" else self
            try:
                read(unbound, shown(self.default), dt.date(2000, 1, 1))
            except NotTaken as error:
                raise ValueError(f"`default` is no value of the slot: {error}") from None
        return self


class Confirm(StepBase):
    """Asks for a yes. `no` says where a no leads: by default out of the flow. With `edit` a person may name a slot to
    change it, with its value or without."""

    kind: ClassVar[str] = "confirm"

    confirm: Says = Field(description="The question, with the slots in it.")
    no: StepName | None = None
    edit: bool = True
    retries: int = Field(default=3, ge=0, le=10)

    @property
    def goes_to(self) -> Mapping[str, str]:
        return {} if self.no is None else {"no": self.no}

    @property
    def texts(self) -> Sequence[object]:
        return (self.confirm,)


class CallTool(StepBase):
    """Calls one of the agent's tools. `result` is the slot for what it returns, `failed` the step after a failure."""

    kind: ClassVar[str] = "tool"

    tool: str = Field(min_length=1, max_length=128)
    arguments: dict[str, object] = Field(default_factory=dict)
    result: SlotName | None = None
    failed: StepName | None = Field(default=None, description="Default: the flow ends and says that it failed.")

    @property
    def goes_to(self) -> Mapping[str, str]:
        return {} if self.failed is None else {"failed": self.failed}

    @property
    def texts(self) -> Sequence[object]:
        return (self.arguments,)


class Say(StepBase):
    """Says something."""

    kind: ClassVar[str] = "say"

    say: Says

    @property
    def texts(self) -> Sequence[object]:
        return (self.say,)


class Goto(StepBase):
    """Continues at another step; a question that it leads to is asked again."""

    kind: ClassVar[str] = "goto"

    goto: StepName

    @property
    def goes_to(self) -> Mapping[str, str]:
        return {"goto": self.goto}


class End(StepBase):
    """Ends the flow; with a text, it is said."""

    kind: ClassVar[str] = "end"

    end: Says | Literal[True]

    @property
    def texts(self) -> Sequence[object]:
        return () if self.end is True else (self.end,)


_KINDS: Final = ("ask", "confirm", "tool", "say", "goto", "end")


def _kind(given: object) -> str | None:
    """Return by which alternative a step is read. No tag is a field's name, so that a path to an error has none in
    it."""
    if isinstance(given, StepBase):
        return f"step:{given.kind}"
    keys = cast("dict[object, object]", given) if isinstance(given, dict) else {}
    return next((f"step:{kind}" for kind in _KINDS if kind in keys), None)


Step: TypeAlias = Ask | Confirm | CallTool | Say | Goto | End
AnyStep: TypeAlias = Annotated[
    Annotated[Ask, Tag("step:ask")]
    | Annotated[Confirm, Tag("step:confirm")]
    | Annotated[CallTool, Tag("step:tool")]
    | Annotated[Say, Tag("step:say")]
    | Annotated[Goto, Tag("step:goto")]
    | Annotated[End, Tag("step:end")],
    Discriminator(
        _kind,
        custom_error_type="step_kind",
        custom_error_message=f"must be an object with one of {', '.join(_KINDS)}",
    ),
]


class FlowTexts(BaseModel):
    """What a flow says beside its steps."""

    model_config = ConfigDict(extra="forbid", strict=True)

    left: Says = Field(default="I have left this. Say `continue` to take it up again.", description="It was left.")
    declined: Says = Field(default="All right, I leave it at that.", description="A person has said no.")
    failed: Says = Field(default="I stop here.", description="It cannot continue; said after the reason.")
    changed: Says = Field(
        default="This has changed in the meantime and cannot be continued. Please begin again.",
        description="Its definition has no such step any more.",
    )
    yes_or_no: Says = Field(default="Please answer yes or no.", description="An answer to a `confirm` is neither.")
    done: Says = Field(default="Done.", description="It has ended without a word.")


class Flow(BaseModel):
    """A conversation of fixed steps."""

    model_config = ConfigDict(extra="forbid", strict=True)

    description: str = Field(min_length=1, max_length=1000, description="What it does, in a few words.")
    when: str = Field(default="", max_length=2000, description="When it is right, for the model that chooses.")
    fill: Literal["typed", "model"] = Field(
        default="typed", description="`model`: a model finds several values in one message."
    )
    texts: FlowTexts = Field(
        default_factory=lambda: FlowTexts(), description="What it says of itself, in another language or other words."
    )
    steps: list[AnyStep] = Field(min_length=1, max_length=MAX_STEPS, description="Taken in order.")

    @cached_property
    def names(self) -> Sequence[str]:
        """The steps' names, in order."""
        counts: dict[str, int] = {}
        names: list[str] = []
        for step in self.steps:
            if step.name is not None or isinstance(step, Ask):
                names.append(step.name or cast("Ask", step).ask)
                continue
            counts[step.kind] = number = counts.get(step.kind, 0) + 1
            names.append(step.kind if number == 1 else f"{step.kind}{number}")
        return names

    @cached_property
    def asked(self) -> Mapping[str, Ask]:
        """The step that asks for a slot, the first of several."""
        found: dict[str, Ask] = {}
        for step in self.steps:
            if isinstance(step, Ask):
                found.setdefault(step.ask, step)
        return found

    @cached_property
    def tools(self) -> frozenset[str]:
        """The tools that it calls."""
        return frozenset(step.tool for step in self.steps if isinstance(step, CallTool))

    def position(self, name: str) -> int | None:
        """Return where a step of that name is."""
        return self.names.index(name) if name in self.names else None

    @model_validator(mode="after")
    def _whole(self) -> Flow:
        if wrong := "; ".join(dict.fromkeys(self._wrong())):
            raise ValueError(wrong)
        return self

    def _wrong(self) -> Iterator[str]:
        for name in self.names:
            if self.names.count(name) > 1:
                yield f"`steps` have the name {name!r} twice: give one of them another `name`"
        slots = {*self.asked, *(step.result for step in self.steps if isinstance(step, CallTool) and step.result)}
        for name, step in zip(self.names, self.steps, strict=True):
            for field, target in step.goes_to.items():
                if target not in self.names:
                    yield f"`{field}` of the step {name!r} is {target!r}, which is no step of the flow"
            for slot in (*step.when, *(each for text in step.texts for each in variables_of(text))):
                if slot not in slots:
                    yield f"the step {name!r} speaks of {slot!r}, which no step of the flow fills"
