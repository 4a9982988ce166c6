"""The limits of a run say what it may use before it is ended: turns, seconds, tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self, cast

from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.suspension import StopRequested


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Bounds of a run, over all processes that take part in it. None: what is said elsewhere holds; 0: no bound.

    Attributes:
        max_turns: turns, those of nested teams included. The run ends when another one would start.
        max_run_seconds: for how long it may run. The time that it waits for a person, or is paused, does not count.
        max_run_tokens: prompt and completion tokens of its model calls. No call starts once they are used up.
    """

    max_turns: int | None = None
    max_run_seconds: float | None = None
    max_run_tokens: int | None = None

    @classmethod
    def parse(cls, value: object) -> Self:
        """Limits from a mapping of their names, as a file of teams has them.

        Raises:
            ValueError: an unknown name, or a value that is no bound.
        """
        if not isinstance(value, Mapping):
            raise ValueError("limits are an object of max_turns, max_run_seconds and max_run_tokens")
        given = cast("JsonObject", value)
        for name, each in given.items():
            if name not in _NAMES:
                raise ValueError(f"limits has no {name!r}; there are {', '.join(_NAMES)}")
            kinds = (int, float) if name == "max_run_seconds" else (int,)
            if isinstance(each, bool) or not isinstance(each, kinds) or each < 0:
                raise ValueError(f"limits: {name} must be a number that is not negative (0: no bound)")
        return cls(**given)

    def over(self, other: RunLimits) -> RunLimits:
        """These limits; where they say nothing, `other`'s."""
        return _each(self, other, lambda mine, theirs: theirs if mine is None else mine)

    def lowered(self, wanted: RunLimits) -> RunLimits:
        """The lower of both, bound by bound."""
        if wanted is NO_LIMITS or wanted == NO_LIMITS:
            return self
        return _each(self, wanted, lambda mine, theirs: min((each for each in (mine, theirs) if each), default=mine))

    def check(self, wanted: RunLimits) -> None:
        """Refuse a request that wants more than these limits allow.

        Raises:
            InvalidRequest: `param` names the bound.
        """
        for name in _NAMES:
            most, asked = getattr(self, name), getattr(wanted, name)
            if most and asked and asked > most:
                raise InvalidRequest(f"`{name}` must be at most {most:g}: this server allows no more", param=name)

    def as_dict(self) -> dict[str, float] | None:
        """The bounds that are given, by name; None: there are none."""
        if self == NO_LIMITS:
            return None
        return {name: value for name in _NAMES if (value := getattr(self, name)) is not None} or None


NO_LIMITS: Final = RunLimits()
_NAMES = tuple(field.name for field in fields(RunLimits))


def _each(mine: RunLimits, theirs: RunLimits, choose: Callable[[Any, Any], Any]) -> RunLimits:
    return RunLimits(*(choose(getattr(mine, name), getattr(theirs, name)) for name in _NAMES))


class LimitReached(StopRequested):
    """The run has used up what it may use: it ends as STOPPED, and `code` names the bound."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
