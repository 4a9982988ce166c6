"""Strategies are ways in which an agent works, each by a name of its own."""

from typing import TYPE_CHECKING, Final

from drsai_backend.lazily import lazily

if TYPE_CHECKING:
    from drsai_backend.strategies.base import AgentParts, StrategyBase
    from drsai_backend.strategies.choice import Strategy, StrategyChoice
    from drsai_backend.strategies.plan_execute import PlanExecute
    from drsai_backend.strategies.react import React
    from drsai_backend.strategies.reflexion import Reflexion
    from drsai_backend.strategies.router import Router
    from drsai_backend.strategies.simple import Simple
    from drsai_backend.strategies.tools import Tools
else:
    __getattr__ = lazily(
        __name__,
        {
            "base": "AgentParts StrategyBase",
            "choice": "Strategy StrategyChoice",
            "plan_execute": "PlanExecute",
            "react": "React",
            "reflexion": "Reflexion",
            "router": "Router",
            "simple": "Simple",
            "tools": "Tools",
        },
    )

NAMES: Final = ("tools", "simple", "react", "plan_execute", "reflexion", "router")
"""The strategies that a definition may name."""
COMPLETE: Final = ("tools", "simple", "react", "plan_execute", "reflexion")
"""Those that need to be told nothing more."""

__all__ = [
    "COMPLETE",
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
