"""Hosted tools are tools of this server that a request gives to the agent that answers it.

OpenAI's servers run some in the same way. They are stored with the request's other fields, so that a run that is
resumed has them, too.
"""

from __future__ import annotations

# Private: an agent's workbenches and its loop. tests/teams/test_upstream_agents.py.
# pyright: reportPrivateUsage=false
from collections.abc import Mapping
from typing import Final

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import StaticStreamWorkbench

from drsai_backend.agents.base import AnyTool
from drsai_backend.json_types import JsonObject, as_object
from drsai_backend.teams.team_tree import known_tools
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.fixed import FixedTool

HOSTED_AS: Final = "drsai:hosted_tools"
"""The name under which they are kept in `UserInput.extra_requests`: by the name of each, its fixed arguments."""
HOSTED: Final = ("file_search",)
"""Tools of extensions that a request may give."""
READER: Final = "document_reader"
"""The tool that is given where a user has sent a document which is longer than what is shown of it."""
_ROUNDS: Final = 5
"""In which an agent that has no tools of its own calls them."""


def give_hosted_tools(agent: AssistantAgent, asked: JsonObject, own_tools: Mapping[str, ToolBase]) -> None:
    """Put hosted tools beside those of an agent, which is not bound to its run yet.

    Args:
        asked: what is kept of the request.
        own_tools: tools of extensions.
    """
    names = [name for name in (*HOSTED, READER) if name in asked and name in own_tools]
    known = known_tools(agent)
    tools: list[AnyTool] = [
        FixedTool(own_tools[name], as_object(asked[name])) for name in names if name not in (known or ())
    ]
    if not tools:
        return
    if known == set():
        agent._max_tool_iterations = max(agent._max_tool_iterations, _ROUNDS)
    agent._reflect_on_tool_use = True  # What was found is no answer.
    setattr(agent, "_workbench", [*agent._workbench, StaticStreamWorkbench(tools)])  # noqa: B010 - see `give_tools`
