"""The group chats of definitions are built here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.teams import DiGraph, DiGraphBuilder, DiGraphEdge, DiGraphNode

from drsai_backend.definitions.schema import (
    PERSON,
    GraphTeam,
    MagenticOneTeam,
    ModelChoice,
    RoundRobinTeam,
    SelectorTeam,
    SwarmTeam,
    TeamDefinition,
)
from drsai_backend.definitions.termination import condition_of
from drsai_backend.json_types import JsonObject
from drsai_backend.models import RunModelClient
from drsai_backend.teams.group_chats import (
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)

_GRAPH: Final = (
    "give `when` to all edges from a participant or to none of them, and in each circle to one at least; it needs a "
    "participant where it begins (`start`) and one where it ends"
)


def build_group_chat(
    name: str,
    team: TeamDefinition,
    part: Callable[[str], ChatAgent | Team],
    client: Callable[[str | ModelChoice | None], RunModelClient],
) -> Team:
    """A group chat of a definition. `part` builds a participant by its name, `client` a model's client."""
    participants = cast("list[Any]", [part(each) for each in team.participants])
    common: JsonObject = {
        "name": name,
        "description": team.description or name,
        "termination_condition": None if team.termination is None else condition_of(team.termination),
        "max_turns": team.max_turns,
    }
    match team:
        case RoundRobinTeam():
            return RoundRobinGroupChat(participants, **common)
        case SelectorTeam():
            prompt: JsonObject = {} if team.prompt is None else {"selector_prompt": team.prompt}
            repeats = team.allow_repeated_speaker
            return SelectorGroupChat(
                participants, client(team.model), allow_repeated_speaker=repeats, **prompt, **common
            )
        case SwarmTeam():
            common["termination_condition"] = _end_of(team)
            return Swarm(participants, **common)
        case GraphTeam():
            return _graph(team, dict(zip(team.participants, participants, strict=True)), common)
        case MagenticOneTeam():
            if team.max_turns is None:
                del common["max_turns"]  # AutoGen's own default is a number.
            return MagenticOneGroupChat(participants, client(team.model), max_stalls=team.max_stalls, **common)


def _end_of(team: SwarmTeam) -> TerminationCondition:
    """Return what ends a swarm: a handoff to the person, which AutoGen's own takes for an error, and what the
    definition says. Where it says nothing of answers, an answer in text ends it; else its agent would be asked again
    and again."""
    end: TerminationCondition = HandoffTermination(PERSON)
    given = team.termination
    if given is not None:
        end |= condition_of(given)
    if not (given.model_fields_set - {"handoff"} if given is not None else team.max_turns):
        for name in team.participants:
            end |= TextMessageTermination(source=name)
    return end


def _graph(team: GraphTeam, agents: Mapping[str, ChatAgent], common: JsonObject) -> GraphFlow:
    builder = DiGraphBuilder()
    for agent in agents.values():
        builder.add_node(agent)
    for edge in team.edges:
        builder.add_edge(agents[edge.source], agents[edge.target], condition=edge.when)
    if team.start is not None:
        builder.set_entry_point(agents[team.start])
    return GraphFlow(list(agents.values()), builder.build(), **common)


def wrong_graph(team: GraphTeam) -> str | None:
    """Return why a graph cannot run, and what to do; None: it can."""
    nodes = {
        name: DiGraphNode(
            name=name,
            edges=[DiGraphEdge(target=edge.target, condition=edge.when) for edge in team.edges if edge.source == name],
        )
        for name in team.participants
    }
    try:
        DiGraph(nodes=nodes, default_start_node=team.start).graph_validate()
    except ValueError as error:
        return f"cannot run ({str(error).rstrip('.')}): {_GRAPH}"
    return None
