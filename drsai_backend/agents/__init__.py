"""The agents of this package know the run that they take part in."""

from drsai_backend.agents.base import AssistantAgent, DrSaiAgent, DrSaiAgentMixin, RunBound, bind
from drsai_backend.agents.tool_agent import ReactAgent, ReminderEvent, ToolAgent
from drsai_backend.tools import idempotent, requires_approval

__all__ = [
    "AssistantAgent",
    "DrSaiAgent",
    "DrSaiAgentMixin",
    "ReactAgent",
    "ReminderEvent",
    "RunBound",
    "ToolAgent",
    "bind",
    "idempotent",
    "requires_approval",
]
