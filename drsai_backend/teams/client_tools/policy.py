"""A policy says what a team makes of its clients' tools, and which of its agents gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias, cast, get_args

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ChatCompletionClient

from drsai_backend.json_types import JsonObject
from drsai_backend.teams.team_tree import Part, TeamTree, is_a

Mode: TypeAlias = Literal["offer", "ignore", "refuse"]
"""What becomes of a client's tools: the answering agent may call them; they are left aside, and the client is told; a
request that has any is refused."""

_MODES: Final = get_args(Mode)


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """A team's own word. `mode=None`: the server's setting holds. `agent`: the name of the agent that gets the tools;
    None: the one that answers the user."""

    mode: Mode | None = None
    agent: str | None = None

    @classmethod
    def parse(cls, value: object) -> Self:
        """A policy from a word, or from a mapping of `mode` and `agent`, as a file of teams has it.

        Raises:
            ValueError: it is neither.
        """
        given = {"mode": value} if isinstance(value, str) else value
        if not isinstance(given, Mapping):
            raise ValueError(f"client_tools is one of {', '.join(_MODES)}, or an object of mode and agent")
        fields = cast("JsonObject", given)
        for name, each in fields.items():
            if name not in ("mode", "agent"):
                raise ValueError(f"client_tools has no {name!r}; there are mode, agent")
            if not isinstance(each, str) or (name == "mode" and each not in _MODES):
                known = f"one of {', '.join(_MODES)}" if name == "mode" else "the name of an agent"
                raise ValueError(f"client_tools: {name} must be {known}")
        return cls(**fields)

    def over(self, mode: Mode) -> ToolPolicy:
        """Return this policy; where it says nothing, `mode`."""
        return self if self.mode is not None else ToolPolicy(mode, self.agent)


NO_POLICY: Final = ToolPolicy()


def agent_for_tools(tree: TeamTree, answering: Part | None, policy: ToolPolicy) -> AssistantAgent | None:
    """The agent that gets a client's tools: the one that the policy names, else `answering`, which answers the user
    (`team_tree.answering_agent`). None: there is no such agent, or it can call no tools (it is no `AssistantAgent`, its
    answers have a form (`output_content_type`), or its model knows no function calling)."""
    agent = answering
    if policy.agent is not None:
        agent = next((each for each in tree.agents if each.name == policy.agent), None)
    return agent if agent is not None and is_a(agent, AssistantAgent) and _calls_functions(agent) else None


def _calls_functions(agent: AssistantAgent) -> bool:
    client: object = getattr(agent, "_model_client", None)
    # With a form for its answer, OpenAI's client takes tools with strict schemas only, which a client's seldom have.
    is_free = getattr(agent, "_output_content_type", None) is None
    return is_free and isinstance(client, ChatCompletionClient) and client.model_info["function_calling"]
