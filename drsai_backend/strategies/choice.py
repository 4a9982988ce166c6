"""The choice of a strategy in a definition is made by its name, or as an object with its options."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from drsai_backend.strategies import NAMES
from drsai_backend.strategies.plan_execute import PlanExecute
from drsai_backend.strategies.react import React
from drsai_backend.strategies.reflexion import Reflexion
from drsai_backend.strategies.router import Router
from drsai_backend.strategies.simple import Simple
from drsai_backend.strategies.tools import Tools

Strategy: TypeAlias = Tools | Simple | React | PlanExecute | Reflexion | Router


def _of_name(given: object) -> object:
    return {"kind": given} if isinstance(given, str) else given


_Name = Annotated[str, Field(json_schema_extra={"enum": [*NAMES]})]
StrategyChoice: TypeAlias = Annotated[
    Annotated[Strategy, Field(discriminator="kind")],
    BeforeValidator(_of_name, json_schema_input_type=_Name | Strategy),
]
"""A strategy by its name, or an object with `kind` and its options."""
