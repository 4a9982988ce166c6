"""The strategy `plan_execute` makes a plan and has its steps done; what they gave is the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from drsai_backend.strategies.base import AgentParts, AgentWords, StrategyBase
from drsai_backend.strategies.plan_execute.team import PlanExecuteTeam

__all__ = ["PlanExecute", "PlanExecuteTeam"]


class PlanExecute(StrategyBase):
    """It makes a plan, does its steps with the agent's tools, some at once, and answers from their results."""

    is_team: ClassVar[bool] = True

    kind: Literal["plan_execute"] = "plan_execute"
    check: bool = Field(default=False, description="A person approves, edits or rejects each plan first.")
    max_steps: int = Field(default=20, ge=1, le=99, description="Attempts at steps in a run.")
    retries: int = Field(default=3, ge=0, le=10, description="Attempts at one step beside the first.")
    replans: int = Field(default=2, ge=0, le=10, description="Plans beside the first.")
    at_once: int = Field(default=3, ge=1, le=10, description="Steps that are done at the same time.")
    planner_model: str | None = Field(default=None, min_length=1, description="The profile or model that plans.")

    def wrong(self, agent: AgentWords) -> Iterator[str]:
        if agent.has_handoffs:
            yield "strategy 'plan_execute' hands over to nobody: leave `handoffs` out, or take 'tools'"

    def build(self, parts: AgentParts) -> PlanExecuteTeam:
        return PlanExecuteTeam(
            parts.client(self.planner_model),
            workbench=parts.workbenches if parts.max_iterations > 1 else None,  # It is asked for an answer.
            executor_client=parts.client(None),
            name=parts.name,
            description=parts.description,
            system_message=parts.system_message,
            model_context=parts.model_context,
            max_steps=self.max_steps,
            retries=self.retries,
            replans=self.replans,
            at_once=self.at_once,
            check=self.check,
            # The last answer of a step is the one that reflects.
            max_tool_iterations=max(parts.max_iterations - 1, 1),
            tool_choice=parts.tool_choice,
            model_client_stream=parts.stream,
        )
