"""Agents that know the run they take part in, marks on tools, and the tools of the built-in ones."""

from drsai_backend.agents._agents import AssistantAgent, DrSaiAgent, DrSaiAgentMixin
from drsai_backend.agents._bound import RunBound
from drsai_backend.agents._policy import idempotent, requires_approval

__all__ = ["AssistantAgent", "DrSaiAgent", "DrSaiAgentMixin", "RunBound", "idempotent", "requires_approval"]
