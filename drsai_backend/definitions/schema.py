"""The schema is what can be said in a definition: agents and teams as data.

One schema for files and for what is stored over the API. Names are AutoGen's where AutoGen has them. A definition names
code, endpoints and secrets; it holds none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    model_validator,
)

from drsai_backend.datamodel.knowledge import AgentStore
from drsai_backend.definitions.policy import NAME
from drsai_backend.definitions.termination import Termination
from drsai_backend.json_types import JsonObject
from drsai_backend.strategies import StrategyChoice, Tools
from drsai_backend.teams.options import AgentFiles
from drsai_backend.teams.permissions import wrong_permissions
from drsai_backend.teams.shown import ShownChoice, check_names
from drsai_backend.tools.http import HttpToolConfig
from drsai_backend.tools.marks import ApprovalChoice

Name: TypeAlias = Annotated[str, Field(pattern=NAME)]
MAX_ITERATIONS: Final = 99
MAX_TOOLS: Final = 128
"""Of an agent."""
PERSON: Final = "user"
"""Whom an agent of a swarm may hand over to, beside the participants."""
MAX_PROMPT: Final = 200_000
"""Characters of a prompt."""


_WHO_MAY: Final = "Scopes, and roles as `role:name`: whoever asks it needs all of them."


def _known_permissions(given: list[str]) -> list[str]:
    for _, sentence in wrong_permissions(given):
        raise ValueError(sentence)
    return given


Permissions: TypeAlias = Annotated[list[str], AfterValidator(_known_permissions)]


class Part(BaseModel):
    """Unknown fields are refused, so that a slip of the pen is no silent default. What validates is built when it is
    first needed: of the whole it takes 9 MB."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class ModelChoice(Part):
    """A model and how it is asked. What a request says of a parameter goes before it."""

    profile: str | None = Field(
        default=None,
        min_length=1,
        description="A model profile, or a model's name at the endpoint. Default: the default one.",
    )
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    reasoning_effort: str | None = None
    verbosity: str | None = None
    parallel_tool_calls: bool | None = None
    messages: Literal["any", "alternating", "no_system", "reasoning"] | None = Field(
        default=None, description="What the model takes, as `DRSAI_MODEL_MESSAGES`."
    )
    cache_seed: int | None = Field(default=None, description="Of a profile that caches answers.")


class Example(Part):
    """What a user said once, and a good answer."""

    user: str = Field(min_length=1)
    assistant: str = Field(min_length=1)


_APPROVED: Final = (
    "A person approves each call of which the tool itself says nothing; an object of `by`, `not_by` and `deadline` "
    "says who, and for how many seconds it waits."
)


class FixedPart(Part):
    """What tools have of which something can be fixed."""

    requires_approval: ApprovalChoice = Field(default=False, description=_APPROVED)
    arguments: JsonObject = Field(
        default_factory=dict,
        max_length=50,
        description="Arguments that are given at each call. The model neither sees nor changes them.",
    )


class BuiltinTool(FixedPart):
    """A tool of this package, by its name."""

    builtin: str
    options: JsonObject = Field(default_factory=dict, description="Those of the tool: docs/builtin-tools.md.")


class RegisteredTool(FixedPart):
    """A tool that the tenant has registered over the API (`POST /v1/tools`)."""

    registered: str


class HttpEndpointTool(FixedPart):
    """An HTTP endpoint as a tool."""

    http: HttpToolConfig


class McpOptions(Part):
    """In place of what the server's own entry says."""

    timeout: float | None = Field(default=None, gt=0, le=3600, description="Seconds that a call or a list may take.")
    max_output: int | None = Field(default=None, ge=100, description="Characters of a result that the model gets.")
    idempotent: bool | None = Field(default=None, description="After a crash calls are made again without asking.")
    resources: bool | None = Field(default=None, description="Offer the server's resources as tools.")
    prompts: bool | None = Field(default=None, description="Offer the server's prompts as tools.")


class McpTools(Part):
    """The tools of an MCP server of the operator's."""

    mcp: str = Field(min_length=1, description="Its name in `DRSAI_MCP_SERVERS`.")
    include: list[str] | None = Field(default=None, description="The tools that are offered, by the server's names.")
    exclude: list[str] = Field(default_factory=list, description="Those that are not.")
    arguments: dict[str, JsonObject] = Field(
        default_factory=dict,
        max_length=128,
        description="Of a tool, by the server's name, those that are given at each call. The model neither sees nor "
        "changes them.",
    )
    options: McpOptions = Field(default_factory=McpOptions)
    requires_approval: ApprovalChoice = Field(default=False, description=_APPROVED)

    @model_validator(mode="after")
    def _of_offered(self) -> McpTools:
        for tool in self.arguments:
            if tool in self.exclude or (self.include is not None and tool not in self.include):
                raise ValueError(f"`arguments` are for {tool!r}, which is not offered")
        return self


class PythonTool(FixedPart):
    """A tool written in Python, by its import path. The operator says which packages may be named."""

    python: str = Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$", description="`package.module:name`.")


class AgentAsTool(Part):
    """Another agent or team as a tool."""

    agent: Name


_KINDS: Final = ("builtin", "registered", "http", "mcp", "python", "agent")


def _kind(entry: object) -> str | None:
    """Return by which alternative an entry is read: what it names decides, so that an error is about that one. No tag
    is a key, so that places lead to the key that is wrong."""
    if isinstance(entry, str):
        return "=name"
    keys: Collection[object] = cast("dict[object, object]", entry) if isinstance(entry, dict) else ()
    if isinstance(entry, Part):
        keys = type(entry).model_fields
    return next((f"={kind}" for kind in _KINDS if kind in keys), None)


ToolEntry: TypeAlias = Annotated[
    Annotated[str, Tag("=name")]
    | Annotated[BuiltinTool, Tag("=builtin")]
    | Annotated[RegisteredTool, Tag("=registered")]
    | Annotated[HttpEndpointTool, Tag("=http")]
    | Annotated[McpTools, Tag("=mcp")]
    | Annotated[PythonTool, Tag("=python")]
    | Annotated[AgentAsTool, Tag("=agent")],
    Discriminator(
        _kind,
        custom_error_type="tool_kind",
        custom_error_message=f"must be the name of a tool, or an object with one of {', '.join(_KINDS)}",
    ),
]
"""A tool of an agent; a text is the name of one of this package's, or of one that the file defines under `tools`."""


class UnboundedContext(Part):
    kind: Literal["unbounded"]


class BufferedContext(Part):
    """The newest messages."""

    kind: Literal["buffered"]
    buffer_size: int = Field(ge=1)


class EphemeralContext(Part):
    """All messages, of some tools the newest outputs only."""

    kind: Literal["ephemeral_outputs"]
    ephemeral: dict[str, int] = Field(default_factory=dict)


class TokenContext(Part):
    """The newest messages within a number of tokens."""

    kind: Literal["token_buffered"]
    max_tokens: int = Field(ge=1)
    keep_first: bool = True
    ephemeral: dict[str, int] = Field(default_factory=dict)


class CompactedContext(Part):
    """A summary of what is older, made when the prompt gets long."""

    kind: Literal["compaction"]
    max_tokens: int | None = Field(default=None, ge=1, description="Default: three quarters of the model's window.")
    share: float = Field(default=0.8, gt=0, le=1)
    keep: float = Field(default=0.3, gt=0, lt=1)
    prompt: str | None = None
    model: str | None = Field(default=None, description="The profile that summarises. Default: the agent's own model.")
    keep_first: bool = True
    ephemeral: dict[str, int] = Field(default_factory=dict)


AnyContext: TypeAlias = UnboundedContext | BufferedContext | EphemeralContext | TokenContext | CompactedContext


def _of_name(given: object) -> object:
    return {"kind": given} if isinstance(given, str) else given


_ContextName = Annotated[str, Field(json_schema_extra={"enum": ["unbounded", "ephemeral_outputs", "compaction"]})]
Context: TypeAlias = Annotated[
    Annotated[AnyContext, Field(discriminator="kind")],
    BeforeValidator(_of_name, json_schema_input_type=_ContextName | AnyContext),
]
"""A context by its name, or an object with `kind` and its options."""


class Memory(Part):
    """What is remembered of a user beyond the thread."""

    top_k: int = Field(default=5, ge=1, le=100, description="Memories that an agent is shown.")
    min_score: float | None = Field(default=None, ge=0, le=1, description="Their least score.")
    scope: str = Field(
        default="",
        max_length=64,
        pattern=r"^[\w.: -]*$",
        description="Those that were stored under this name, too. Default: those for all.",
    )
    shared: Literal["team", "tenant"] | None = Field(
        default=None,
        description="Show it what all users share of this team, or of all teams, and let them learn it here: as far as "
        "`DRSAI_MEMORY_SHARED` allows. Default: as that says.",
    )


KNOWLEDGE: Final = "knowledge_search"
"""The tool by which an agent looks something up."""


class Knowledge(Part):
    """Documents that an agent looks things up in: docs/knowledge.md."""

    stores: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(
        default_factory=list,
        max_length=16,
        description="Stores of whoever asks, or of all users of their tenant, by their names or ids.",
    )
    mode: Literal["tool", "context"] = Field(
        default="tool",
        description=f"`tool`: the agent calls `{KNOWLEDGE}`; `context`: passages are put before each question.",
    )
    retrieval: Literal["hybrid", "vector", "keyword"] = "hybrid"
    top_k: int = Field(default=5, ge=1, le=50, description="Passages that are found.")
    min_score: float | None = Field(default=None, ge=0, le=1, description="Their least cosine.")
    max_tokens: int = Field(default=2_000, ge=100, description="In `context`, of the passages together.")
    ranker: str | None = Field(
        default=None, min_length=1, max_length=255, description="The profile of a model that puts passages in order."
    )
    files: list[Annotated[str, Field(min_length=1, max_length=2048)]] = Field(
        default_factory=list,
        max_length=1000,
        description="Documents of this agent alone, in definitions that are files: paths of files and folders, and "
        "patterns, relative to the definition's file; and URLs.",
    )
    chunk_size: int = Field(
        default=500, ge=1, description="Tokens of a piece into which `files` are cut, 100 to 4096 of them."
    )
    chunk_overlap: int = Field(default=50, ge=0, description="Of these, those that it repeats of the piece before.")
    embeddings: str | None = Field(default=None, description="Is the server's: `DRSAI_EMBEDDINGS_MODEL`.")
    _folder: str = PrivateAttr("")

    @model_validator(mode="after")
    def _of_pieces(self) -> Knowledge:
        if self.chunk_overlap >= self.chunk_size:
            raise ValueError("`chunk_overlap` must be less than `chunk_size`")
        return self

    def lookup(self, store: str) -> JsonObject:
        """Return what the feature is told to do, in its words. `store`: the one that has `files`."""
        said = self.model_dump(include={"top_k", "retrieval", "min_score", "max_tokens", "ranker"})
        return {**said, "stores": [*self.stores, *([AgentStore(store)] if self.files else [])]}

    def read_from(self, folder: str) -> None:
        """Say where relative paths begin."""
        self._folder = folder

    def files_in(self, store: str) -> AgentFiles:
        """Return `files`, and what of them has to be in their store."""
        return AgentFiles(AgentStore(store), tuple(self.files), self._folder, self.chunk_size, self.chunk_overlap)


def _of_stores(given: object) -> object:
    if isinstance(given, str):
        return {"stores": [given]}
    return {"stores": cast("object", given)} if isinstance(given, list) else given


KnowledgeChoice: TypeAlias = Annotated[
    Knowledge, BeforeValidator(_of_stores, json_schema_input_type=str | list[str] | Knowledge)
]
"""Stores by their names, or an object with `stores` and options."""


class AgentDefinition(Part):
    """One agent."""

    description: str = Field(
        default="", max_length=4000, description="One line for users, and for who chooses speakers."
    )
    prompt: str = Field(
        default="", max_length=MAX_PROMPT, description="Its system message; `{{name}}` is a variable of the request."
    )
    examples: list[Example] = Field(default_factory=list, max_length=50, description="Put after the prompt.")
    model: str | ModelChoice | None = Field(default=None, description="A profile by name, or with parameters.")
    strategy: StrategyChoice = Field(
        default=Tools(), description="How it works: a strategy by name, or an object with `kind` and its options."
    )
    max_iterations: int = Field(
        default=10,
        ge=1,
        le=MAX_ITERATIONS,
        description="Answers of its model in one turn, those that call tools included.",
    )
    tools: list[ToolEntry] = Field(default_factory=list, max_length=MAX_TOOLS)
    tool_choice: str = Field(
        default="auto", description="`auto`, `required`, `none`, or the tool that has to be called."
    )
    context: Context | None = Field(
        default=None,
        description="What of the thread the model is shown: a context by name, or an object with `kind` and its "
        "options. Default: all.",
    )
    handoffs: list[Name] = Field(default_factory=list, description="In a swarm: to whom it may hand over.")
    memory: Memory | None = Field(default=None, description="Show it what is known of the user: docs/memory.md.")
    knowledge: KnowledgeChoice | None = Field(
        default=None, description="What it looks things up in: names of stores, or an object with `stores` and options."
    )
    stream: bool = Field(default=True, description="Show the answer while it is made.")
    permissions: Permissions = Field(default_factory=list, max_length=32, description=_WHO_MAY)

    @model_validator(mode="after")
    def _of_strategy(self) -> AgentDefinition:
        if wrong := "; ".join(self.strategy.wrong(self)):
            raise ValueError(wrong)
        return self

    @property
    def has_tools(self) -> bool:
        return bool(self.tools) or self.looks_up

    @property
    def looks_up(self) -> bool:
        """Whether it has a tool to look something up."""
        return self.knowledge is not None and self.knowledge.mode == "tool"

    @property
    def has_handoffs(self) -> bool:
        return bool(self.handoffs)


class Limits(Part):
    """What a run may use, in place of the server's limits."""

    max_turns: int | None = Field(default=None, ge=1)
    max_run_seconds: float | None = Field(default=None, gt=0)
    max_run_tokens: int | None = Field(default=None, ge=1)


class TeamBase(Part):
    """What all teams have."""

    description: str = Field(default="", max_length=4000)
    participants: list[Name] = Field(min_length=1, max_length=64, description="Agents and teams of this definition.")
    termination: Termination | None = Field(default=None, description="When it has done its work.")
    max_turns: int | None = Field(default=None, ge=1)
    answered_by: Name | None = Field(default=None, description="The participant whose words are the answer.")
    shown: ShownChoice | None = Field(
        default=None,
        description="The participants whose messages are the text of the answer, or `last`: the newest message alone. "
        "Default: all.",
    )
    limits: Limits | None = None
    permissions: Permissions = Field(default_factory=list, max_length=32, description=_WHO_MAY)

    @model_validator(mode="after")
    def _of_participants(self) -> TeamBase:
        twice = sorted({name for name in self.participants if self.participants.count(name) > 1})
        if twice:
            raise ValueError(f"`participants` has {twice[0]!r} twice")
        if self.answered_by is not None and self.answered_by not in self.participants:
            raise ValueError(f"`answered_by` is {self.answered_by!r}, which is none of the participants")
        if self.shown not in (None, "last"):
            check_names(self.shown, self.participants)
        return self


class RoundRobinTeam(TeamBase):
    """Participants take turns."""

    kind: Literal["round_robin"]


class SelectorTeam(TeamBase):
    """A model picks the next speaker."""

    kind: Literal["selector"]
    model: str | ModelChoice | None = None
    prompt: str | None = Field(
        default=None, description="With `{roles}`, `{participants}`, `{history}`; `{{` and `}}` are braces."
    )
    allow_repeated_speaker: bool = False


class SwarmTeam(TeamBase):
    """Agents hand over to each other; the first participant begins. An answer in text ends it, and a handoff to `user`
    asks the person, unless `termination` or `max_turns` say more."""

    kind: Literal["swarm"]


class Edge(Part):
    """From one participant of a graph to the next; `when`: only if the message holds this text."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True, defer_build=True)

    source: Name = Field(alias="from")
    target: Name = Field(alias="to")
    when: str | None = Field(default=None, min_length=1)


class GraphTeam(TeamBase):
    """Participants run along a directed graph."""

    kind: Literal["graph"]
    edges: list[Edge] = Field(min_length=1)
    start: Name | None = Field(default=None, description="Where it begins; needed where each has something before it.")

    @model_validator(mode="after")
    def _of_graph(self) -> GraphTeam:
        for edge in self.edges:
            for name in (edge.source, edge.target):
                if name not in self.participants:
                    raise ValueError(f"`edges` name {name!r}, which is none of the participants")
        if self.start is not None and self.start not in self.participants:
            raise ValueError(f"`start` is {self.start!r}, which is none of the participants")
        return self


class MagenticOneTeam(TeamBase):
    """An orchestrator plans and delegates."""

    kind: Literal["magentic_one"]
    model: str | ModelChoice | None = None
    max_stalls: int = Field(default=3, ge=1)


TeamDefinition: TypeAlias = Annotated[
    RoundRobinTeam | SelectorTeam | SwarmTeam | GraphTeam | MagenticOneTeam, Field(discriminator="kind")
]


class Definitions(Part):
    """The agents and teams of a file, or of several that include each other."""

    agents: dict[Name, AgentDefinition] = Field(default_factory=dict)
    teams: dict[Name, TeamDefinition] = Field(default_factory=dict)
    tools: dict[Name, ToolEntry] = Field(
        default_factory=dict, description="Tools by names of the definition's own, for several agents."
    )
    serve: list[Name] | None = Field(
        default=None, description="What is offered to clients. Default: all teams, or all agents where there are none."
    )

    @property
    def served(self) -> list[str]:
        """The names of what is offered, in order."""
        return list(self.serve if self.serve is not None else self.teams or self.agents)

    def store_of(self, agent: str) -> str:
        """The name of the store that has the `files` of an agent: what is served is called so nowhere else."""
        return agent if agent in self.served else f"{self.served[0]}/{agent}"


def json_schema() -> JsonObject:
    """The JSON Schema of a file, for editors."""
    schema = Definitions.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["properties"]["include"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Other files of definitions, relative to this one.",
    }
    return schema
