"""Options say how calls of a tool are made: for how long, how often, by whom, how many at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.marks import Approval

MAX_OUTPUT: Final = 50_000
"""Characters of a result that the model gets, where nothing else is said."""

TIMEOUT: Final = 30.0
"""Seconds of an attempt, where nobody says how long it may take."""

ApprovalRule: TypeAlias = bool | Approval | Callable[[JsonObject], bool | Approval]
"""Whether a person approves calls: never, always, by somebody (`Approval`), or where a function of the arguments says
so: those that the tool gets, as JSON, or those that it refuses. The function must answer the same for the same
arguments: it is asked again when a turn is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """The options of a tool.

    Attributes:
        timeout: seconds that one attempt may take; None: for ever.
        retries: how often an attempt that ends with a `TransientToolError` is repeated.
        idempotent: a call that may have been made before a crash is repeated without asking a person.
        requires_approval: see `ApprovalRule`.
        ephemeral: only the newest so many results stay in the model's context; None: all.
        permission: the scope that who asks must have; None: anybody.
        max_output: characters of the result that the model gets. Of a longer one the whole is kept as a file.
        concurrency: how many calls run at once in this process; None: any number.
        cites: its results have passages that the answer may cite (`datamodel.citations`).

    Raises:
        ConfigurationError: a value cannot work; the text names the option.
    """

    timeout: float | None = TIMEOUT
    retries: int = 0
    idempotent: bool = False
    requires_approval: ApprovalRule = False
    ephemeral: int | None = None
    permission: str | None = None
    max_output: int = MAX_OUTPUT
    concurrency: int | None = None
    cites: bool = False

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise ConfigurationError(f"timeout={self.timeout}: a tool needs more than no time; None: for ever")
        for name, least in (("retries", 0), ("ephemeral", 0), ("max_output", 100), ("concurrency", 1)):
            value: int | None = getattr(self, name)
            if value is not None and value < least:
                raise ConfigurationError(f"{name}={value}: the least is {least}")

    def approval(self, arguments: JsonObject) -> Approval | None:
        """Return by whom a call with these arguments is to be approved; None: it needs no approval.

        A rule that fails on the arguments counts as one that wants an approval.
        """
        rule = self.requires_approval
        if isinstance(rule, bool):
            return Approval() if rule else None
        if isinstance(rule, Approval):
            return rule
        try:
            found = rule(arguments)
        except Exception:  # noqa: BLE001 - it is foreign code, and silence is no approval.
            found = True
        if isinstance(found, Approval):
            return found
        return Approval() if found else None
