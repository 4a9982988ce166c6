"""Agents that know the run they take part in, and the tools of the built-in ones."""

from drsai_backend.agents._agents import AssistantAgent, DrSaiAgent, DrSaiAgentMixin
from drsai_backend.agents._bound import RunBound

__all__ = ["AssistantAgent", "DrSaiAgent", "DrSaiAgentMixin", "RunBound"]
