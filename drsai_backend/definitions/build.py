"""A build makes team factories of definitions: a run builds what the same words in Python would build."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, Literal, TypeVar, cast

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.tools import StaticStreamWorkbench, Workbench

from drsai_backend.agents.base import AnyTool
from drsai_backend.agents.contexts import CompactionContext, EphemeralOutputsContext, TokenBufferedContext
from drsai_backend.definitions.check import needed_by
from drsai_backend.definitions.functions import NOT_FIXED, function_tool
from drsai_backend.definitions.group_chats import build_group_chat
from drsai_backend.definitions.policy import DefinitionPolicy
from drsai_backend.definitions.schema import (
    KNOWLEDGE,
    AgentAsTool,
    AgentDefinition,
    BufferedContext,
    BuiltinTool,
    CompactedContext,
    Definitions,
    EphemeralContext,
    FixedPart,
    HttpEndpointTool,
    Limits,
    McpTools,
    ModelChoice,
    PythonTool,
    RegisteredTool,
    TeamDefinition,
    TokenContext,
    ToolEntry,
)
from drsai_backend.definitions.templates import prompt_of
from drsai_backend.errors import TeamBuildError
from drsai_backend.json_types import JsonObject
from drsai_backend.models import ModelParams, RunModelClient
from drsai_backend.models.facts import facts_of
from drsai_backend.strategies import AgentParts
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.limits import NO_LIMITS, RunLimits
from drsai_backend.teams.options import TeamOptions
from drsai_backend.tools import ToolBase
from drsai_backend.tools.builtin import builtin_tools
from drsai_backend.tools.fixed import FixedTool
from drsai_backend.tools.http import HttpTool
from drsai_backend.tools.mcp import McpWorkbench
from drsai_backend.tools.mcp.host import named_servers
from drsai_backend.tools.registered.workbench import Fix, RegisteredTools

T = TypeVar("T", bound=AnyTool)
_UNKNOWN_WINDOW: Final = 32_000
"""Tokens of a model that does not say how many it takes."""
_NO_PARAMETER: Final = frozenset({"profile", "messages", "cache_seed"})


class DefinedTeam:
    """The factory of one agent or team of some definitions.

    Args:
        name: of the agent or team.
        given: the definitions, which were checked.
        means: what the operator lets them use.
    """

    def __init__(self, name: str, given: Definitions, means: DefinitionPolicy) -> None:
        self.name = name
        self._given = given
        self._means = means
        limits: Limits | None = getattr(self.definition, "limits", None)
        self.team_options = TeamOptions(
            limits=NO_LIMITS if limits is None else RunLimits(**limits.model_dump()),
            answered_by=getattr(self.definition, "answered_by", None),
            shown=getattr(self.definition, "shown", None),
            permissions=tuple(self.definition.permissions),
            files=tuple(
                agent.knowledge.files_in(given.store_of(each))
                for each, agent in given.agents.items()
                if agent.knowledge is not None and agent.knowledge.files and each in needed_by([name], given)
            ),
        )
        self.__doc__ = self.definition.description

    @property
    def definition(self) -> AgentDefinition | TeamDefinition:
        """The agent's or team's own."""
        return self._given.agents.get(self.name) or self._given.teams[self.name]

    @property
    def memory_shared(self) -> Literal["team", "tenant"] | None:
        """The widest of what its agents ask for (`Memory.shared`)."""
        agents = (self._given.agents.get(each) for each in needed_by([self.name], self._given))
        asked = {each.memory.shared for each in agents if each is not None and each.memory is not None}
        return "tenant" if "tenant" in asked else "team" if "team" in asked else None

    def __call__(self, context: RunContext) -> ChatAgent | Team:
        """A fresh agent or team for a run.

        Raises:
            TeamBuildError: the model calls no functions and the agent has tools; or a function cannot be imported.
        """
        return Builder(self._given, self._means, context).part(self.name)


def factories(given: Definitions, means: DefinitionPolicy) -> dict[str, DefinedTeam]:
    """The factories of what is served, by name. The definitions were checked (`check.wrong_names`)."""
    return {name: DefinedTeam(name, given, means) for name in given.served}


class Builder:
    """Builds for one run. An agent that is used twice is built twice."""

    def __init__(self, given: Definitions, means: DefinitionPolicy, context: RunContext) -> None:
        self._given = given
        self._means = means
        self._context = context

    def part(self, name: str) -> ChatAgent | Team:
        """The agent or team of a name."""
        agent = self._given.agents.get(name)
        if agent is not None:
            return self._agent(name, agent)
        return build_group_chat(name, self._given.teams[name], self.part, self.client)

    def client(self, model: str | ModelChoice | None) -> RunModelClient:
        """The client of a model as a definition names it."""
        if model is None or isinstance(model, str):
            return self._context.model_client(model)
        params = model.model_dump(exclude_none=True, exclude=set(_NO_PARAMETER))
        return self._context.model_client(
            model.profile,
            model.messages,
            cache_seed=model.cache_seed,
            defaults=ModelParams(**params) if params else None,
        )

    def _agent(self, name: str, agent: AgentDefinition) -> ChatAgent | Team:
        parts = AgentParts(
            name=name,
            description=agent.description or name,
            system_message=prompt_of(agent.prompt, agent.examples, self._context) or None,
            client=partial(self._client_of, agent.model),
            workbenches=partial(self._workbenches, name, agent),
            model_context=partial(self._model_context, agent),
            handoffs=tuple(agent.handoffs),
            max_iterations=agent.max_iterations,
            tool_choice=agent.tool_choice,
            stream=agent.stream,
            part=self.part,
            run=self._context,
        )
        calls = bool(agent.has_tools or agent.handoffs) and agent.strategy.needs_functions
        if calls and not parts.client(None).model_info["function_calling"]:
            hint = "leave them out, or take the strategy 'react'"
            raise TeamBuildError(f"agent {name!r} has tools, and its model calls no functions: {hint}")
        built = agent.strategy.build(parts)
        if agent.knowledge is not None and not agent.looks_up:
            self._context.recall(built, "knowledge", agent.knowledge.lookup(self._given.store_of(name)))
        if agent.memory is not None:
            self._context.recall(built, "memory", agent.memory.model_dump())
        return built

    def _client_of(self, own: str | ModelChoice | None, profile: str | None) -> RunModelClient:
        return self.client(own if profile is None else profile)

    def _model_context(self, agent: AgentDefinition) -> ChatCompletionContext:
        match given := agent.context:
            case BufferedContext():
                return BufferedChatCompletionContext(given.buffer_size)
            case EphemeralContext():
                return EphemeralOutputsContext(given.ephemeral)
            case TokenContext():
                return TokenBufferedContext(given.max_tokens, keep_first=given.keep_first, ephemeral=given.ephemeral)
            case CompactedContext():
                prompt: JsonObject = {} if given.prompt is None else {"prompt": given.prompt}
                return CompactionContext(
                    given.max_tokens or self._room(agent.model),
                    None if given.model is None else self.client(given.model),
                    share=given.share,
                    keep=given.keep,
                    keep_first=given.keep_first,
                    ephemeral=given.ephemeral,
                    **prompt,
                )
            case _:
                return UnboundedChatCompletionContext()

    def _room(self, model: str | ModelChoice | None) -> int:
        """Tokens that a prompt's messages may take, beside the system message, the tools and the answer."""
        return (facts_of(self.client(model).inner).context_length or _UNKNOWN_WINDOW) * 3 // 4

    def _workbenches(self, name: str, agent: AgentDefinition) -> list[Workbench]:
        tools: list[AnyTool] = []
        registered: dict[str, Fix] = {}
        rest: list[Workbench] = []
        for entry in agent.tools:
            named = self._given.tools.get(entry, BuiltinTool(builtin=entry)) if isinstance(entry, str) else entry
            match named:
                case RegisteredTool():
                    registered[named.registered] = partial(_fixed, entry=named)
                case McpTools():
                    rest.append(_mcp(named))
                case _:
                    tools.append(self._tool(named))
        if agent.knowledge is not None and agent.looks_up:
            lookup = agent.knowledge.lookup(self._given.store_of(name))
            tools.append(LookupTool(builtin_tools([KNOWLEDGE], None)[0], lookup))
        if tools:
            rest.insert(0, StaticStreamWorkbench(tools))
        if registered:
            rest.append(RegisteredTools([*registered], registered))
        return rest

    def _tool(self, entry: ToolEntry) -> AnyTool:
        match entry:
            case BuiltinTool():
                return _fixed(builtin_tools([entry.builtin], None, **{entry.builtin: entry.options})[0], entry)
            case HttpEndpointTool():
                return _fixed(HttpTool(entry.http, allowed_addresses=self._means.allowed_addresses), entry)
            case PythonTool():
                return _fixed(function_tool(entry.python, self._means.python), entry)
            case AgentAsTool():
                return self._agent_tool(entry.agent)
            case _:
                raise AssertionError("these have workbenches of their own")

    def _agent_tool(self, name: str) -> AnyTool:
        built = self.part(name)
        if isinstance(built, ChatAgent):
            return AgentTool(cast(BaseChatAgent, built))
        given = self._given.agents.get(name) or self._given.teams[name]
        return TeamTool(cast(BaseGroupChat, built), name, given.description or name)


class LookupTool(FixedTool):
    """Looks something up in the stores of an agent; how many passages is the model's to say."""

    def __init__(self, inner: ToolBase, lookup: JsonObject) -> None:
        self._lookup = lookup
        super().__init__(inner, {name: lookup[name] for name in ("stores", "retrieval", "min_score", "ranker")})

    def check(self, arguments: Mapping[str, object]) -> JsonObject:
        """See `ToolBase.check`."""
        top_k = self._lookup["top_k"]
        given = super().check({"top_k": top_k, **arguments} if isinstance(arguments, dict) else arguments)
        return {**given, "stores": self._lookup["stores"]}  # The check has made plain texts of all names.


def _fixed(tool: T, entry: FixedPart) -> T | ToolBase:
    """The tool, with what its entry fixes."""
    if not (entry.arguments or entry.requires_approval):
        return tool
    if not isinstance(tool, ToolBase):
        raise TeamBuildError(f"a tool of the agent: {NOT_FIXED}")
    return FixedTool(tool, entry.arguments, entry.requires_approval)


def _mcp(entry: McpTools) -> McpWorkbench:
    server = named_servers().named(entry.mcp)
    changed: JsonObject = {"exclude": (*server.exclude, *entry.exclude), **entry.options.model_dump(exclude_none=True)}
    # What the operator says of the server itself goes first.
    changed["requires_approval"] = server.requires_approval or entry.requires_approval
    changed["arguments"] = {
        tool: {**entry.arguments.get(tool, {}), **server.arguments.get(tool, {})}
        for tool in (*server.arguments, *entry.arguments)
    }
    if entry.include is not None:
        kept = entry.include if server.include is None else [each for each in entry.include if each in server.include]
        changed["include"] = tuple(kept)
    return McpWorkbench([server.model_copy(update=changed)])
