"""The strategy `react` has thoughts and calls of tools as text, for models that cannot call functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from drsai_backend.agents import ReactAgent
from drsai_backend.agents.tool_agent import MAX_STEPS
from drsai_backend.models.text_calls.wording import TextForm
from drsai_backend.strategies.base import AgentParts, AgentWords, StrategyBase


class React(StrategyBase):
    """Thought, action, action input and observation, in turn, as text."""

    kind: Literal["react"] = "react"
    form: TextForm = Field(
        default="text", description="How a call is written: `text`, in lines with labels; `json`, as one object."
    )

    needs_functions: ClassVar[bool] = False

    def wrong(self, agent: AgentWords) -> Iterator[str]:
        if agent.max_iterations > MAX_STEPS:
            yield f"strategy 'react' takes at most {MAX_STEPS} steps: lower `max_iterations`"

    def build(self, parts: AgentParts) -> ReactAgent:
        return ReactAgent(
            parts.name,
            parts.client(None),
            workbench=parts.workbenches(),
            handoffs=list(parts.handoffs) or None,
            model_context=parts.model_context(),
            description=parts.description,
            system_message=parts.system_message,
            model_client_stream=parts.stream,
            max_steps=parts.max_iterations,
            form=self.form,
            tool_choice=parts.tool_choice,
        )
