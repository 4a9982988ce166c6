"""`tools`: the model calls functions until it can answer."""

from __future__ import annotations

from typing import Literal

from drsai_backend.agents import DrSaiAgent
from drsai_backend.strategies.base import AgentParts, StrategyBase


class Tools(StrategyBase):
    """It calls tools until it can answer."""

    kind: Literal["tools"] = "tools"

    def build(self, parts: AgentParts) -> DrSaiAgent:
        workbenches = parts.workbenches()
        calls = bool(workbenches) and parts.max_iterations > 1
        return DrSaiAgent(
            parts.name,
            parts.client(None),
            workbench=workbenches or None,
            handoffs=list(parts.handoffs) or None,
            model_context=parts.model_context(),
            description=parts.description,
            system_message=parts.system_message,
            model_client_stream=parts.stream,
            reflect_on_tool_use=bool(workbenches),
            # The last answer of its turn is the one that reflects.
            max_tool_iterations=max(parts.max_iterations - 1, 1) if calls else 1,
            tool_choice=parts.tool_choice,
        )
