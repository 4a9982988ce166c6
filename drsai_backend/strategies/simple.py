"""The strategy `simple` is one call of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from drsai_backend.agents import DrSaiAgent
from drsai_backend.strategies.base import AgentParts, AgentWords, StrategyBase


class Simple(StrategyBase):
    """One call of its model, without tools."""

    kind: Literal["simple"] = "simple"

    def wrong(self, agent: AgentWords) -> Iterator[str]:
        if agent.has_tools or agent.has_handoffs:
            yield "strategy 'simple' calls no tools: leave `tools` and `handoffs` out, or take 'tools'"

    def build(self, parts: AgentParts) -> DrSaiAgent:
        return DrSaiAgent(
            parts.name,
            parts.client(None),
            model_context=parts.model_context(),
            description=parts.description,
            system_message=parts.system_message,
            model_client_stream=parts.stream,
        )
