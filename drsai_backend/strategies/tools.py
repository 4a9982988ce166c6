"""The strategy `tools` lets the model call functions until it can answer, or until it says that it is done."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from drsai_backend.agents import ToolAgent
from drsai_backend.agents.tool_agent import REMINDERS
from drsai_backend.strategies.base import AgentParts, StrategyBase


class Tools(StrategyBase):
    """It calls tools until it can answer."""

    kind: Literal["tools"] = "tools"
    require_done: bool = Field(
        default=False, description="Only a call of the tool `done` ends its work; its argument is the answer."
    )
    reminders: int = Field(
        default=REMINDERS, ge=0, le=99, description="How often it is reminded that it has not called `done`."
    )

    def build(self, parts: AgentParts) -> ToolAgent:
        return ToolAgent(
            parts.name,
            parts.client(None),
            workbench=parts.workbenches(),
            handoffs=list(parts.handoffs) or None,
            model_context=parts.model_context(),
            description=parts.description,
            system_message=parts.system_message,
            model_client_stream=parts.stream,
            max_iterations=parts.max_iterations,
            tool_choice=parts.tool_choice,
            require_done=self.require_done,
            reminders=self.reminders,
        )
