"""The package keeps multi-agent group chats (Microsoft AutoGen) durably in SQL, behind plain OpenAI Chat Completions.

`DrSai` is the way in. The package is layered; imports point downwards only: cli, api, drsai → runs → teams, agents →
models → state → database → datamodel → config, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.lazily import lazily

if TYPE_CHECKING:
    from drsai_backend.agents import (
        AssistantAgent,
        DrSaiAgent,
        DrSaiAgentMixin,
        ReactAgent,
        ToolAgent,
        idempotent,
        requires_approval,
    )
    from drsai_backend.database import DatabaseManager
    from drsai_backend.datamodel import RunStatus, TeamResult, Thread, UserInput
    from drsai_backend.drsai import DrSai
    from drsai_backend.errors import ToolError, TransientToolError
    from drsai_backend.features.knowledge.autogen import DrSaiKnowledge
    from drsai_backend.features.memory.autogen import DrSaiMemory
    from drsai_backend.runs import Answer
    from drsai_backend.state import decode_state, encode_state
    from drsai_backend.strategies.plan_execute import PlanExecuteTeam
    from drsai_backend.strategies.reflexion import ReflexionTeam
    from drsai_backend.strategies.router import Flow, RouterOptions, RouterTeam
    from drsai_backend.teams.client_tools.definitions import ClientTool, ClientTools, ToolOutput
    from drsai_backend.teams.context import RunContext
    from drsai_backend.teams.group_chats import (
        DrSaiGroupChat,
        GraphFlow,
        MagenticOneGroupChat,
        RoundRobinGroupChat,
        SelectorGroupChat,
        Swarm,
    )
    from drsai_backend.teams.limits import RunLimits
    from drsai_backend.teams.options import answered_by, client_tools, limited, shows, stop_on_disconnect
    from drsai_backend.tools import (
        Depends,
        FileOutput,
        TaskComplete,
        ToolBase,
        ToolIdentity,
        ToolOptions,
        ToolRun,
        dependency_overrides,
        tool,
    )
    from drsai_backend.tools.builtin import BuiltinTools, builtin_tools
    from drsai_backend.tools.registered.workbench import RegisteredTools
else:
    __getattr__ = lazily(
        __name__,
        {
            "agents": "AssistantAgent DrSaiAgent DrSaiAgentMixin ReactAgent ToolAgent idempotent requires_approval",
            "database": "DatabaseManager",
            "datamodel": "RunStatus TeamResult Thread UserInput",
            "drsai": "DrSai",
            "runs": "Answer",
            "state": "decode_state encode_state",
            "features.knowledge.autogen": "DrSaiKnowledge",
            "features.memory.autogen": "DrSaiMemory",
            "strategies.plan_execute": "PlanExecuteTeam",
            "strategies.router": "Flow RouterOptions RouterTeam",
            "strategies.reflexion": "ReflexionTeam",
            "errors": "ToolError TransientToolError",
            "tools.builtin": "BuiltinTools builtin_tools",
            "tools.registered.workbench": "RegisteredTools",
            "tools": "Depends FileOutput ToolBase ToolIdentity ToolOptions ToolRun dependency_overrides tool",
            "tools.results": "TaskComplete",
            "teams.context": "RunContext",
            "teams.options": "answered_by client_tools limited shows stop_on_disconnect",
            "teams.client_tools.definitions": "ClientTool ClientTools ToolOutput",
            "teams.limits": "RunLimits",
            "teams.group_chats": "DrSaiGroupChat GraphFlow MagenticOneGroupChat RoundRobinGroupChat "
            "SelectorGroupChat Swarm",
        },
    )

__version__ = "0.2.0"

__all__ = [
    "Answer",
    "AssistantAgent",
    "BuiltinTools",
    "ClientTool",
    "ClientTools",
    "DatabaseManager",
    "Depends",
    "DrSai",
    "DrSaiAgent",
    "DrSaiAgentMixin",
    "DrSaiGroupChat",
    "DrSaiKnowledge",
    "DrSaiMemory",
    "FileOutput",
    "Flow",
    "GraphFlow",
    "MagenticOneGroupChat",
    "PlanExecuteTeam",
    "ReactAgent",
    "ReflexionTeam",
    "RegisteredTools",
    "RoundRobinGroupChat",
    "RouterOptions",
    "RouterTeam",
    "RunContext",
    "RunLimits",
    "RunStatus",
    "SelectorGroupChat",
    "Swarm",
    "TaskComplete",
    "TeamResult",
    "Thread",
    "ToolAgent",
    "ToolBase",
    "ToolError",
    "ToolIdentity",
    "ToolOptions",
    "ToolOutput",
    "ToolRun",
    "TransientToolError",
    "UserInput",
    "answered_by",
    "builtin_tools",
    "client_tools",
    "decode_state",
    "dependency_overrides",
    "encode_state",
    "idempotent",
    "limited",
    "requires_approval",
    "shows",
    "stop_on_disconnect",
    "tool",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
