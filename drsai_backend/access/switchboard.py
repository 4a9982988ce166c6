"""The switchboard has what operators have switched off, as this process knows it: new runs of a team, of a tenant or of
all, calls of a model or a tool, and what a worker would begin.

Where nothing is off, `off` is empty: who looks at that first calls nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from drsai_backend.errors import SwitchedOff

SwitchKind: TypeAlias = Literal["team", "model", "tool", "tenant", "all", "worker"]
KINDS: Final[tuple[SwitchKind, ...]] = get_args(SwitchKind)


class Target(NamedTuple):
    """What can be switched off, in one tenant alone or, with an empty one, in all."""

    kind: str
    name: str = ""
    tenant: str = ""


class Off(NamedTuple):
    """How something is switched off: with which words, and until when, in Unix seconds; None: until it is on again."""

    message: str
    until: float | None = None


class Switchboard:
    """What is switched off.

    Attributes:
        off: by what it is. It may have things whose time is over.
    """

    def __init__(self) -> None:
        self.off: Mapping[Target, Off] = {}

    def find(self, kind: SwitchKind, name: str, tenant: str) -> SwitchedOff | None:
        """Return what says that something is switched off, in that tenant or in all, in the words for the tenant where
        it is both; None: it is on."""
        for where in (tenant, ""):
            found = self.off.get(Target(kind, name, where))
            if found is not None:
                after = None if found.until is None else found.until - time.time()
                if after is None or after > 0:
                    return SwitchedOff(found.message, after=after)
        return None

    def check(self, tenant: str, kind: SwitchKind, name: str) -> None:
        """Raise SwitchedOff where a request of a tenant asks for what is off: all, the tenant, or what is named."""
        asked: tuple[tuple[SwitchKind, str], ...] = (("all", ""), ("tenant", tenant), (kind, name))
        for each in asked:
            if (refusal := self.find(*each, tenant)) is not None:
                raise refusal
