"""Termination says when a team has done its work: AutoGen's conditions, as data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.conditions import (
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from pydantic import BaseModel, ConfigDict, Field, model_validator

from drsai_backend.definitions.source import FieldPath


class Mention(BaseModel):
    """A text that somebody says; `sources`: only these count."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field(min_length=1)
    sources: list[str] | None = None


class Termination(BaseModel):
    """Each field that is given is a condition, and one that is met is enough; `all`: each of these has to be met."""

    model_config = ConfigDict(extra="forbid", strict=True)

    max_messages: int | None = Field(default=None, ge=1, description="With the user's own.")
    text_mention: str | Mention | None = Field(default=None, description="Somebody says this text.")
    handoff: str | None = Field(default=None, description="Somebody hands over to this name.")
    source: list[str] | None = Field(default=None, min_length=1, description="One of these has spoken.")
    text_message: str | None = Field(default=None, description="This agent has sent a text.")
    function_call: str | None = Field(default=None, description="This tool was called.")
    total_tokens: int | None = Field(default=None, ge=1)
    timeout_seconds: float | None = Field(default=None, gt=0)
    stop_message: bool = Field(default=False, description="Somebody sends a StopMessage.")
    all: list[Termination] | None = Field(default=None, min_length=2)

    @model_validator(mode="after")
    def _says_something(self) -> Termination:
        if not any(True for _ in _conditions(self)):
            raise ValueError("a termination needs at least one condition")
        return self


def named_in(given: Termination, path: FieldPath) -> Iterator[tuple[FieldPath, str, str]]:
    """The participants that a termination at a path names: where, in which of its fields, and their names."""
    mention = given.text_mention.sources if isinstance(given.text_mention, Mention) else None
    own: list[tuple[FieldPath, str | None]] = [
        (("text_message",), given.text_message),
        (("handoff",), given.handoff),
        *((("source", index), name) for index, name in enumerate(given.source or ())),
        *((("text_mention", "sources", index), name) for index, name in enumerate(mention or ())),
    ]
    yield from (((*path, *where), str(where[0]), name) for where, name in own if name is not None)
    for index, each in enumerate(given.all or ()):
        yield from named_in(each, (*path, "all", index))


def can_end(given: Termination, known: Collection[str], targets: Collection[str]) -> bool:
    """Whether any of its conditions may be met; of `all`, that is not known. `known` may speak, and somebody hands over
    to `targets`."""
    own = [(field, name) for where, field, name in named_in(given, ()) if where[0] == field]
    asked = {field for field in Termination.model_fields if getattr(given, field) not in (None, False)}
    met = {field for field, name in own if name in (targets if field == "handoff" else known)}
    return bool(asked.difference(field for field, _ in own) | met)


def condition_of(termination: Termination) -> TerminationCondition:
    """The condition, fresh: it counts what it has seen."""
    first, *others = _conditions(termination)
    for other in others:
        first = first | other
    return first


def _conditions(given: Termination) -> Iterator[TerminationCondition]:
    mention = Mention(text=given.text_mention) if isinstance(given.text_mention, str) else given.text_mention
    made: list[tuple[object, Callable[..., TerminationCondition]]] = [
        (given.max_messages, MaxMessageTermination),
        (given.handoff, HandoffTermination),
        (given.source, SourceMatchTermination),
        (given.text_message, TextMessageTermination),
        (given.function_call, FunctionCallTermination),
        (given.total_tokens, TokenUsageTermination),
        (given.timeout_seconds, TimeoutTermination),
    ]
    if mention is not None:
        yield TextMentionTermination(mention.text, sources=mention.sources)
    for value, make in made:
        if value is not None:
            yield make(value)
    if given.stop_message:
        yield StopMessageTermination()
    if given.all is not None:
        first, *others = map(condition_of, given.all)
        for other in others:
            first = first & other
        yield first
