"""Durable multi-agent group chats (Microsoft AutoGen) behind plain OpenAI Chat Completions, kept in SQL.

`DrSai` is the way in. The package is layered; imports point downwards only: cli, api, drsai → runs → teams, agents →
models → state → database → datamodel → config, errors.
"""

from drsai_backend.agents import AssistantAgent, DrSaiAgent, DrSaiAgentMixin
from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import RunStatus, TeamResult, Thread, UserInput
from drsai_backend.drsai import DrSai
from drsai_backend.state import decode_state, encode_state
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.group_chats import (
    DrSaiGroupChat,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)

__version__ = "0.1.0"

__all__ = [
    "AssistantAgent",
    "DatabaseManager",
    "DrSai",
    "DrSaiAgent",
    "DrSaiAgentMixin",
    "DrSaiGroupChat",
    "GraphFlow",
    "MagenticOneGroupChat",
    "RoundRobinGroupChat",
    "RunContext",
    "RunStatus",
    "SelectorGroupChat",
    "Swarm",
    "TeamResult",
    "Thread",
    "UserInput",
    "decode_state",
    "encode_state",
]
