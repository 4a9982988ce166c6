"""Agents that know the run they take part in."""

from __future__ import annotations

import autogen_agentchat.agents

from drsai_backend.agents._bound import RunBound


class DrSaiAgentMixin(RunBound):
    """For an agent of one's own: `class Librarian(DrSaiAgentMixin, BaseChatAgent)`.

    `self._db_manager` and `self._run_context` are there in `on_messages`; not yet in `__init__`.
    """


class DrSaiAgent(DrSaiAgentMixin, autogen_agentchat.agents.AssistantAgent):
    """AutoGen's `AssistantAgent`, with the same arguments, plus `self._db_manager` and `self._run_context`."""

    component_provider_override = "drsai_backend.DrSaiAgent"


AssistantAgent = DrSaiAgent
"""The same class under AutoGen's name: moving over is an import change."""
