"""Ways in which an agent works, each by a name of its own."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, get_args

from pydantic import BeforeValidator, Field

from drsai_backend.strategies.base import AgentParts, StrategyBase
from drsai_backend.strategies.plan_execute import PlanExecute
from drsai_backend.strategies.react import React
from drsai_backend.strategies.reflexion import Reflexion
from drsai_backend.strategies.router import Router
from drsai_backend.strategies.simple import Simple
from drsai_backend.strategies.tools import Tools

Strategy: TypeAlias = Tools | Simple | React | PlanExecute | Reflexion | Router
NAMES: Final = tuple(str(each.model_fields["kind"].default) for each in get_args(Strategy))
"""The strategies that a definition may name."""


def _of_name(given: Any) -> Any:
    return {"kind": given} if isinstance(given, str) else given


_Name = Annotated[str, Field(json_schema_extra={"enum": [*NAMES]})]
StrategyChoice: TypeAlias = Annotated[
    Annotated[Strategy, Field(discriminator="kind")],
    BeforeValidator(_of_name, json_schema_input_type=_Name | Strategy),
]
"""A strategy by its name, or an object with `kind` and its options."""

__all__ = [
    "NAMES",
    "AgentParts",
    "PlanExecute",
    "React",
    "Reflexion",
    "Router",
    "Simple",
    "Strategy",
    "StrategyBase",
    "StrategyChoice",
    "Tools",
]
