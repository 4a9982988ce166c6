"""A mode is a strategy by its name: a request words an agent for one task by it, with how many steps and which tools. A
mode is a strategy by its name.

For each mode there is one team, `engine:<mode>`, which no list of models has. Its factory reads what was asked for from
the run's own user input, so that whichever process begins or resumes the run builds the same agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from autogen_agentchat.base import ChatAgent, Team
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drsai_backend.config import Settings
from drsai_backend.definitions.policy import DefinitionPolicy
from drsai_backend.errors import InvalidRequest, TeamBuildError
from drsai_backend.explain import did_you_mean, explain
from drsai_backend.json_types import JsonObject
from drsai_backend.strategies import COMPLETE
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.registry import TeamRegistry

if TYPE_CHECKING:
    from drsai_backend.definitions.schema import AgentDefinition, ToolEntry

ASKED: Final = "engine"
"""Under which name a request's extra fields, and so the stored user input, have a `ModeRequest`."""
MAX_STEPS: Final = 50
MAX_TOOLS: Final = 100
AGENT: Final = "agent"
"""The name of the agent that answers."""
TEAMS: Final = "engine:"
"""How the names of the teams begin."""
_PROMPT: Final = """\
You work on the task that the user gives you, in as few steps as it takes.
Where a tool helps, call it, and go by what it returns. If something cannot be done or found out, say so."""


class ModeRequest(BaseModel):
    """What a request asks for besides its task.

    `tools` are names: of built-in tools that the operator allows, else of tools that the tenant has registered.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    max_steps: int = Field(default=10, ge=1, le=MAX_STEPS)
    tools: list[str] = Field(default_factory=list, max_length=MAX_TOOLS)


def modes_of(settings: Settings) -> list[str]:
    """The modes that can be asked for: those that the operator offers, as far as there is a strategy of that name which
    needs to be told nothing more."""
    return [name for name in settings.engine_modes if name in COMPLETE]


def takes_tools(mode: str) -> bool:
    """Whether an agent of that mode may have tools."""
    from drsai_backend.definitions.schema import BuiltinTool

    try:
        _agent(mode, ModeRequest(), [BuiltinTool(builtin="calculator")])
    except ValidationError:
        return False
    return True


def team_of(mode: str, settings: Settings) -> str:
    """The name of a mode's team.

    Raises:
        InvalidRequest: there is no such mode here; `param` is `mode`.
    """
    known = modes_of(settings)
    if mode in known:
        return TEAMS + mode
    text = f"`mode` must be one of {', '.join(known) or '(none)'}, not {mode!r}{did_you_mean(mode, known)}"
    raise InvalidRequest(text, param="mode")


def mode_of(team: str) -> str | None:
    """The mode of a team; None: it is another one."""
    return team.removeprefix(TEAMS) if team.startswith(TEAMS) else None


def speaker_of(team: str) -> str | None:
    """Return who does all steps of a mode's team; None: several do, or it is no mode's."""
    return AGENT if mode_of(team) in ("tools", "simple", "react") else None


def definition_of(mode: str, asked: ModeRequest, settings: Settings) -> AgentDefinition:
    """The agent that a request words.

    Raises:
        InvalidRequest: the mode cannot be had so; `param` is the field.
    """
    from drsai_backend.definitions.schema import BuiltinTool, RegisteredTool

    builtin = settings.engine_tools
    entries = [
        BuiltinTool(builtin=name) if name in builtin else RegisteredTool(registered=name) for name in asked.tools
    ]
    try:
        return _agent(mode, asked, entries)
    except ValidationError as error:
        reason = next(explain(error)).text
        param = "tools" if asked.tools and not takes_tools(mode) else "max_steps"
        raise InvalidRequest(f"`{param}`: {reason}", param=param) from None


def _agent(mode: str, asked: ModeRequest, entries: Sequence[ToolEntry]) -> AgentDefinition:
    from drsai_backend.definitions.schema import AgentDefinition

    fields: JsonObject = {"prompt": _PROMPT, "strategy": mode, "max_iterations": asked.max_steps}
    return AgentDefinition(description=f"Works on one task ({mode}).", **fields, tools=[*entries])


class ModeTeam:
    """The factory of a mode's team."""

    def __init__(self, mode: str, settings: Settings) -> None:
        self.mode = mode
        self._settings = settings
        self._means = DefinitionPolicy.of(settings)

    def __call__(self, context: RunContext) -> ChatAgent | Team:
        """A fresh agent or team for a run, of what its user input says.

        Raises:
            TeamBuildError: that cannot be built (any more).
        """
        from drsai_backend.definitions.build import DefinedTeam
        from drsai_backend.definitions.schema import Definitions

        stored: JsonObject = context.input_values.get("extra_requests") or {}
        try:
            asked = ModeRequest.model_validate(stored.get(ASKED) or {})
            agent = definition_of(self.mode, asked, self._settings)
        except (ValidationError, InvalidRequest) as error:
            raise TeamBuildError(f"what was asked of the mode {self.mode} cannot be built: {error}") from error
        return DefinedTeam(AGENT, Definitions(agents={AGENT: agent}), self._means)(context)


def add_modes(teams: TeamRegistry, settings: Settings) -> None:
    """Add the teams of all modes, which no list shows."""
    for mode in modes_of(settings):
        if TEAMS + mode in teams and isinstance(teams.get(TEAMS + mode).factory, ModeTeam):
            continue  # A registry that another program's part has used.
        teams.add(TEAMS + mode, ModeTeam(mode, settings), f"Works on one task ({mode}).", is_listed=False)
