"""The strategy `reflexion` has attempts judged and made again until one is good enough; the best one answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from drsai_backend.strategies.base import AgentParts, AgentWords, StrategyBase
from drsai_backend.strategies.reflexion.team import MOST_ATTEMPTS, ReflexionTeam
from drsai_backend.strategies.tools import Tools

__all__ = ["Reflexion", "ReflexionTeam"]


class Reflexion(StrategyBase):
    """It attempts a task, is judged, and tries again with what was said of it; the best attempt answers."""

    is_team: ClassVar[bool] = True

    kind: Literal["reflexion"] = "reflexion"
    threshold: float = Field(default=0.7, ge=0, le=1, description="A score that is enough.")
    max_attempts: int = Field(default=3, ge=1, le=MOST_ATTEMPTS, description="Attempts at one task.")
    judge_model: str | None = Field(
        default=None, min_length=1, description="The profile or model that judges. Default: the agent's own."
    )
    criteria: str = Field(default="", max_length=20_000, description="What a good answer is, for the judge.")
    judge_prompt: str | None = Field(
        default=None, min_length=1, max_length=20_000, description="The judge's system message, in place of the usual."
    )
    judge_repairs: int = Field(
        default=2, ge=0, le=5, description="How often the judge is asked again where it gives no score."
    )

    def wrong(self, agent: AgentWords) -> Iterator[str]:
        if agent.has_handoffs:
            yield "strategy 'reflexion' hands over to nobody: leave `handoffs` out, or take 'tools'"

    def build(self, parts: AgentParts) -> ReflexionTeam:
        options = self.model_dump(exclude={"kind", "judge_model"})
        return ReflexionTeam(
            Tools().build(parts),
            parts.client(self.judge_model),
            name=parts.name,
            description=parts.description,
            **options,
        )
