"""Which agent of a team answers the user: its messages take the form that a request asks for, and it may call the
client's tools.

A lone agent does. In a group chat it is the participant that the team's setting names (`answered_by`, or the key
`answered_by` beside a component config); without one the last participant that asks a model, of a graph the last
at its end. So a writer and a reviewer answer by the reviewer. Magentic-One answers by its orchestrator, which is no
agent.
"""

from __future__ import annotations

from typing import Any, cast

from autogen_agentchat.agents import MessageFilterAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent

# Private: the participants and the graph of a group chat. tests/teams/test_upstream.py.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams import BaseGroupChat, GraphFlow, MagenticOneGroupChat

from drsai_backend.errors import TeamBuildError
from drsai_backend.teams.team_tree import Part, is_a


def answering_agent(team: Part, named: str | None = None) -> Part | None:
    """The agent that answers the user, or None: none of the team does by a model.

    Raises:
        TeamBuildError: the team has no participant of the name `named`.
    """
    if not is_a(team, BaseGroupChat):
        if is_a(team, MessageFilterAgent):
            return answering_agent(team._wrapped_agent)
        asks_model = getattr(team, "_model_client", None) is not None and not is_a(team, UserProxyAgent)
        return team if asks_model else None
    participants: list[ChatAgent | BaseGroupChat] = list(cast("list[Any]", team._participants))
    if named is not None:
        found = next((each for each in participants if each.name == named), None)
        if found is None:
            raise TeamBuildError(f"the team is said to be answered by {named!r}, which is none of its participants")
        return answering_agent(found)
    if is_a(team, MagenticOneGroupChat):
        return None
    if is_a(team, GraphFlow):
        ends = team._graph.get_leaf_nodes()
        participants = [each for each in participants if each.name in ends] or participants
    return next((agent for each in reversed(participants) if (agent := answering_agent(each)) is not None), None)
