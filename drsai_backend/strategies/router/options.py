"""The options of a router are data: who may handle a message, and by which patterns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from drsai_backend.strategies.router.flows.schema import SLOT, Flow, Says
from drsai_backend.strategies.router.flows.words import LEAVE, RESUME
from drsai_backend.strategies.router.patterns import MAX_PATTERN, wrong_with

_TARGETS: Final = ("agent", "flow", "tool", "say")
Word: TypeAlias = Annotated[str, Field(min_length=1, max_length=60)]


class Target(BaseModel):
    """Who handles a message: one of an agent, a flow, a tool with its arguments, or a text that is said."""

    model_config = ConfigDict(extra="forbid", strict=True)

    agent: str | None = Field(default=None, min_length=1)
    flow: str | None = Field(default=None, min_length=1)
    tool: str | None = Field(default=None, min_length=1)
    arguments: dict[str, object] = Field(default_factory=dict)
    say: Says | None = None

    @property
    def kind(self) -> str:
        """Which of them."""
        return next(each for each in _TARGETS if getattr(self, each) is not None)

    @model_validator(mode="after")
    def _one(self) -> Target:
        given = [each for each in _TARGETS if getattr(self, each) is not None]
        if len(given) != 1:
            raise ValueError(f"needs one of {', '.join(_TARGETS)}" + (f", and has {' and '.join(given)}" * bool(given)))
        if self.arguments and self.tool is None:
            raise ValueError("`arguments` are of a `tool`")
        return self


class Pattern(Target):
    """A regular expression, and who handles a message in which it is found. Its named groups fill slots of the flow,
    and are arguments of the tool where none are given."""

    match: str = Field(min_length=1, max_length=MAX_PATTERN)

    @model_validator(mode="after")
    def _of_match(self) -> Pattern:
        if (wrong := wrong_with(self.match)) is not None:
            raise ValueError(f"`match`: {wrong}")
        return self


class Skill(BaseModel):
    """An agent or a team that the model may choose; `when` says for what."""

    model_config = ConfigDict(extra="forbid", strict=True)

    agent: str = Field(pattern=SLOT)
    when: str = Field(default="", max_length=2000, description="Default: its description.")


class RouterOptions(BaseModel):
    """How a router chooses."""

    model_config = ConfigDict(extra="forbid", strict=True)

    patterns: list[Pattern] = Field(
        default_factory=list, max_length=200, description="Looked at first, in this order; no model is asked."
    )
    flows: dict[Annotated[str, Field(pattern=SLOT)], Flow] = Field(
        default_factory=dict, max_length=50, description="By name."
    )
    answers: bool = Field(default=True, description="The model may choose that the agent itself answers.")
    confidence: float = Field(default=0.6, ge=0, le=1, description="Below it, the fallback handles a message.")
    fallback: Target | None = Field(default=None, description="Default: the agent itself answers.")
    repairs: int = Field(default=1, ge=0, le=3, description="How often the model is asked again after nonsense.")
    history: int = Field(default=6, ge=1, le=50, description="How many messages it is shown.")
    instructions: str = Field(default="", max_length=20_000, description="What else it has to know to choose.")
    tool_answers: Literal["phrased", "result"] = Field(
        default="phrased", description="A tool's result in the words of the agent's model, or as it is."
    )
    leave: list[Word] = Field(default=list(LEAVE), max_length=100, description="Words that leave a flow.")
    resume: list[Word] = Field(default=list(RESUME), max_length=100, description="Words that take one up again.")
    switch: Literal["never", "patterns", "model"] = Field(
        default="patterns",
        description="What may leave a flow for something else: nothing, a pattern, or the model too where an answer is "
        "not taken.",
    )

    def wrong_targets(self, skills: set[str]) -> Iterator[str]:
        """Targets that are not there: sentences that name the field."""
        found: list[tuple[str, Target]] = [(f"`patterns[{n}]`", each) for n, each in enumerate(self.patterns)]
        if self.fallback is not None:
            found.append(("`fallback`", self.fallback))
        for where, each in found:
            if each.flow is not None and each.flow not in self.flows:
                yield f"{where} names the flow {each.flow!r}, which is not in `flows`"
            if each.agent is not None and each.agent not in skills:
                yield f"{where} names the agent {each.agent!r}, which is not in `skills`"
        for name in skills & self.flows.keys():
            yield f"`flows.{name}` has the name of an agent in `skills`: call it otherwise"
