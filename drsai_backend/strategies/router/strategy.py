"""The strategy `router` gives each input to one of an agent's skills, tools and flows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from drsai_backend.strategies.base import AgentParts, AgentWords, StrategyBase
from drsai_backend.strategies.router.flows.schema import CallTool
from drsai_backend.strategies.router.options import RouterOptions, Skill
from drsai_backend.strategies.router.team import RouterTeam


class Router(RouterOptions, StrategyBase):
    """Patterns, then a model, choose who handles each input: an agent, a flow, a tool, or the agent itself."""

    model_config = ConfigDict(extra="forbid", strict=True)
    is_team: ClassVar[bool] = True

    kind: Literal["router"] = "router"
    skills: list[Skill] = Field(default_factory=list, max_length=50)
    model: str | None = Field(
        default=None, min_length=1, description="The profile of the model that chooses. Default: the agent's own."
    )

    def wrong(self, agent: AgentWords) -> Iterator[str]:
        names = [each.agent for each in self.skills]
        for name in sorted({each for each in names if names.count(each) > 1}):
            yield f"`strategy.skills` name the agent {name!r} twice"
        for sentence in self.wrong_targets(set(names)):
            yield f"`strategy`: {sentence}"
        if not (names or self.flows or self.patterns or agent.has_tools):
            yield "strategy 'router' has nothing to choose from: it needs `skills`, `flows`, `patterns` or `tools`"
        if agent.has_handoffs:
            yield "strategy 'router' hands over by itself: leave `handoffs` out"
        if not self.answers and self.fallback is None:
            yield "`strategy.answers` is false, so `strategy.fallback` has to say who handles what fits nothing"
        if not agent.has_tools:
            called = [f"`flows.{name}` calls tools" for name, flow in self.flows.items() if flow.tools]
            called += ["`patterns` call tools" for each in self.patterns if each.tool is not None][:1]
            for sentence in called:
                yield f"`strategy`: {sentence}, and the agent has none: give it `tools`"

    def uses(self) -> dict[str, str]:
        return {f"skills.{position}.agent": each.agent for position, each in enumerate(self.skills)}

    def calls(self) -> dict[str, str]:
        found = {f"patterns.{n}.tool": each.tool for n, each in enumerate(self.patterns) if each.tool is not None}
        if self.fallback is not None and self.fallback.tool is not None:
            found["fallback.tool"] = self.fallback.tool
        for name, flow in self.flows.items():
            for n, step in enumerate(flow.steps):
                if isinstance(step, CallTool):
                    found[f"flows.{name}.steps.{n}.tool"] = step.tool
        return found

    def build(self, parts: AgentParts) -> RouterTeam:
        return RouterTeam(
            parts.name,
            parts.client(None),
            self,
            skills=[parts.part(each.agent) for each in self.skills],
            when={each.agent: each.when for each in self.skills},
            workbenches=parts.workbenches if parts.max_iterations > 1 else None,  # It is asked for an answer.
            router_client=parts.client(self.model),
            description=parts.description,
            system_message=parts.system_message,
            model_context=parts.model_context(),
            model_client_stream=parts.stream,
            max_tool_iterations=max(parts.max_iterations - 1, 1),
            tool_choice=parts.tool_choice,
        )
