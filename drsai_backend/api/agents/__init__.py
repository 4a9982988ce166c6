"""`/v1/agents`: stored definitions of agents and teams."""

from drsai_backend.api.agents.routes import agent_routes

__all__ = ["agent_routes"]
