"""AutoGen's group chats, with the same arguments, that know the run they take part in."""

from __future__ import annotations

import autogen_agentchat.teams

from drsai_backend.agents import RunBound


class DrSaiGroupChat(RunBound, autogen_agentchat.teams.BaseGroupChat):
    """Base of this package's group chats, and of one's own: subclass it as AutoGen's `BaseGroupChat`.

    `self._db_manager` and `self._run_context` are there before the manager is made; not yet in `__init__`.
    """


class RoundRobinGroupChat(DrSaiGroupChat, autogen_agentchat.teams.RoundRobinGroupChat):
    """Participants take turns. See `autogen_agentchat.teams.RoundRobinGroupChat`."""

    component_provider_override = "drsai_backend.RoundRobinGroupChat"


class SelectorGroupChat(DrSaiGroupChat, autogen_agentchat.teams.SelectorGroupChat):
    """A model or a function picks the next speaker. See `autogen_agentchat.teams.SelectorGroupChat`."""

    component_provider_override = "drsai_backend.SelectorGroupChat"


class Swarm(DrSaiGroupChat, autogen_agentchat.teams.Swarm):
    """Agents hand over to each other. See `autogen_agentchat.teams.Swarm`."""

    component_provider_override = "drsai_backend.Swarm"


class GraphFlow(DrSaiGroupChat, autogen_agentchat.teams.GraphFlow):
    """Agents run along a directed graph. See `autogen_agentchat.teams.GraphFlow`."""

    component_provider_override = "drsai_backend.GraphFlow"


class MagenticOneGroupChat(DrSaiGroupChat, autogen_agentchat.teams.MagenticOneGroupChat):
    """An orchestrator plans and delegates. See `autogen_agentchat.teams.MagenticOneGroupChat`."""

    component_provider_override = "drsai_backend.MagenticOneGroupChat"
