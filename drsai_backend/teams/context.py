"""The context of a run is what a team factory is given. A factory is a function, or an AutoGen component config."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, get_args

from autogen_agentchat.base import ChatAgent, Team
from autogen_core import ComponentFromConfig, ComponentLoader, ComponentModel, is_component_class
from autogen_core._component_config import WELL_KNOWN_PROVIDERS
from pydantic import BaseModel, SecretStr, ValidationError

from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import UserInput
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DrSaiError, TeamBuildError
from drsai_backend.explain import did_you_mean, explain, why_not_imported
from drsai_backend.json_types import JsonObject
from drsai_backend.lazily import imported
from drsai_backend.models import (
    Asker,
    DefaultModelClient,
    MessageForm,
    ModelClientFactory,
    ModelParams,
    ProfileClient,
    RunModelClient,
    UsageMeter,
    run_model_clients,
)
from drsai_backend.teams.recall import Recalling, RecallSource
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.mcp.host import McpHost, mcp_host
from drsai_backend.tools.shelf import shelf

if TYPE_CHECKING:
    from drsai_backend.config import Settings
    from drsai_backend.database import DatabaseManager
    from drsai_backend.files import Files
    from drsai_backend.tools.registered.registry import ToolRegistry


@dataclass(slots=True)
class RunContext:
    """One run, as its team factory and its agents see it (`self._run_context`).

    `principal` is who asked: tenant, user, roles and trusted claims, which nothing in a request can set. `user_input`
    is what the request brought; its `api_key` is empty here, as the key is applied by `model_client()`. `input_values`
    are its columns, and `params` its sampling parameters. `db_manager` reads and writes rows of all tables. `meter`
    sums up what the run's model clients use, which `models` makes. `owner` is whose thread it is, where it was shared
    with who asks; None: theirs. `files` are those of users, `tools` the registered ones of the tenant, `own_tools`
    those of the server's extensions, which `builtin_tools` finds by their names, `sources` what extensions recall for
    agents (`recall`), `recalling` what was asked of them so far, `mcp` the operator's MCP servers and the connections
    to all, `team` the name of the team, `began_at` when a run began that is resumed, `settings` those of the server.
    The context lives as long as the run and is never stored.
    """

    principal: Principal
    thread_id: str
    run_id: str
    input_values: JsonObject = field(repr=False)
    db_manager: DatabaseManager
    models: ModelClientFactory = field(repr=False)
    params: ModelParams = field(default_factory=ModelParams)
    api_key: SecretStr | None = None
    meter: UsageMeter = field(default_factory=UsageMeter)
    owner: Owner | None = None
    files: Files | None = field(default=None, repr=False)
    tools: ToolRegistry | None = field(default=None, repr=False)
    began_at: datetime | None = None
    settings: Settings | None = field(default=None, repr=False)
    own_tools: Mapping[str, ToolBase] = field(default_factory=dict[str, ToolBase], repr=False)
    sources: Mapping[str, RecallSource] = field(default_factory=dict[str, RecallSource], repr=False)
    mcp: McpHost | None = field(default=None, repr=False)
    team: str = ""
    recalling: Sequence[Recalling] | None = field(default=None, init=False, repr=False)
    _user_input: UserInput | None = field(default=None, init=False, repr=False)

    @property
    def user_id(self) -> str:
        """The user who asked."""
        return self.principal.user_id

    @property
    def user_input(self) -> UserInput:
        """What the request brought. Made when it is first asked for: few teams do, and a table object is dear."""
        if self._user_input is None:
            name = (self.owner or self.principal.owner).thread(self.thread_id)
            self._user_input = UserInput(**name._asdict(), **self.input_values)
        return self._user_input

    def recall(self, part: object, source: str, options: Mapping[str, object] | None = None) -> None:
        """Show an agent what a feature finds for each question, in one message beside those of the thread.

        Args:
            part: the agent; or a group chat, all of whose agents are shown it; or an agent's AutoGen `Memory`.
            source: the feature, by its name.
            options: for this agent, as the feature has them.

        Raises:
            TeamBuildError: there is no such feature here, or the options are none of it.
        """
        make = self.sources.get(source)
        if make is None:
            raise TeamBuildError(f"nothing can be recalled from {source!r} here")
        self.recalling = [*(self.recalling or ()), (part, make(self, options or {}))]

    def model_client(
        self,
        model: str | None = None,
        messages: MessageForm | None = None,
        *,
        cache_seed: int | None = None,
        defaults: ModelParams | None = None,
    ) -> RunModelClient:
        """A model client with the request's sampling parameters and key; what it uses counts for this run.

        Args:
            model: the name of a profile (docs/models.md), else the model's name at the endpoint; the default profile,
                else the configured model, when omitted.
            messages: what it takes: `any`, `alternating`, `no_system`, `reasoning`; see `DRSAI_MODEL_MESSAGES`, which
                it wins over.
            cache_seed: of a profile that caches: another seed has answers of its own. Default: the request's
                `cache_seed`, else the profile's.
            defaults: parameters for what the request does not say.
        """
        inner = self.models.create(model, self.api_key)
        if isinstance(inner, ProfileClient):
            seed = cache_seed if cache_seed is not None else self._seed()
            asker = Asker(self.principal.owner, seed, messages, self.models.rules, self.files, self.owner)
            inner = inner.bound(asker)
        params = (
            self.params if defaults is None else ModelParams(**{**defaults.create_args(), **self.params.create_args()})
        )
        return RunModelClient(inner, params=params, meter=self.meter, rules=self.models.rules, messages=messages)

    def _seed(self) -> int | None:
        extra: JsonObject = self.input_values.get("extra_requests") or {}
        asked: object = extra.get("cache_seed")
        return asked if isinstance(asked, int) else None


BuiltTeam: TypeAlias = ChatAgent | Team
TeamFactory: TypeAlias = (
    Callable[[], BuiltTeam | Awaitable[BuiltTeam]]
    | Callable[[RunContext], BuiltTeam | Awaitable[BuiltTeam]]
    | Mapping[str, object]
)
"""Builds a fresh team for a run: a callable, sync or async, of no argument or one `RunContext`, or an AutoGen
component config. Everything it returns belongs to that one run."""


async def build_team(factory: TeamFactory, context: RunContext) -> BuiltTeam:
    """Call a team factory. While it runs, `DefaultModelClient` is the client of this run.

    Raises:
        TeamBuildError: the factory raised (the original error is `__cause__`), or returned no agent or team.
        DrSaiError: raised by the factory itself on purpose; passed on as it is.
    """
    token, host_token = shelf.set(context), mcp_host.set(context.mcp)
    try:
        with run_model_clients(context.model_client):
            if isinstance(factory, Mapping):
                config = ComponentModel(**completed(cast("JsonObject", factory)))
                team: object = ComponentLoader.load_component(config, expected=object)
            else:
                function = cast("Callable[..., object]", factory)
                team = function(context) if takes_context(function) else function()
                if inspect.isawaitable(team):
                    team = await cast("Awaitable[object]", team)
    except DrSaiError:
        raise
    except Exception as error:
        # A factory is foreign code: whatever it raises becomes the one error that callers know. Clients see the text of
        # that, and a foreign exception's may quote a key.
        raise TeamBuildError(f"the team could not be built: its factory raised {type(error).__name__}") from error
    finally:
        shelf.reset(token)
        mcp_host.reset(host_token)
    if not isinstance(team, ChatAgent | Team):
        raise TeamBuildError(f"the team factory returned {type(team).__name__}, not an AutoGen agent or team")
    return team


@lru_cache(maxsize=256)
def takes_context(function: Callable[..., object]) -> bool:
    """True when a factory takes the run context as its first positional argument.

    Raises:
        TypeError: it needs more than that one argument.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return False  # a builtin without a signature
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in positional[1:] if p.default is p.empty]
    needed += [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if needed:
        raise TypeError(f"a team factory takes no argument or one RunContext; this one also needs {', '.join(needed)}")
    return bool(positional) or any(p.kind is p.VAR_POSITIONAL for p in parameters)


_KEYS: Final = ("api_key", "azure_ad_token")
"""Fields of model clients that AutoGen dumps as asterisks."""

# --- component configs -----------------------------------------------------------------------------------------------


def completed(config: Mapping[str, object]) -> JsonObject:
    """A copy of a component config with what AutoGen wants to have spelled out: model clients and plain defaults.

    AutoGen's config classes require fields such as `description` or `reflect_on_tool_use` that their constructors
    have defaults for; a person who writes a config by hand leaves them out. A key that AutoGen has written as `****` is
    left out: the client takes its own from the environment.
    """
    result = copy.deepcopy(dict(config))
    _complete(result)
    return result


def problems(config: object, where: str = "") -> list[str]:
    """Return what is wrong with a component config and the configs inside it, one sentence each; empty when it can be
    used."""
    if not isinstance(config, Mapping):
        return [f"{where or 'the team'} is not a component config (a mapping with `provider` and `config`)"]
    component = cast("JsonObject", config)
    provider = component.get("provider")
    if not isinstance(provider, str):
        return [f"{where or 'the team'} has no `provider`"]
    if not isinstance(component.get("config"), Mapping):
        return [f"{provider} has no `config`"]
    try:
        component_class, schema = _class(provider)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        return [f"{provider} cannot be used: {why_not_imported(error)}"]
    found: list[str] = []
    if not where:
        if not issubclass(component_class, ChatAgent | Team):
            found.append(f"{provider} is neither an agent nor a team")
        found += _violations(provider, ComponentModel, component)  # of inner ones, the outer schema has it
    found += _violations(provider, schema, completed(component)["config"])
    given, newest = component.get("component_version"), cast("int", getattr(component_class, "component_version", 1))
    if isinstance(given, int) and given < newest and not _reads_older(component_class):
        found.append(
            f"{provider}: component_version: {given} is of an older release of AutoGen, and this one reads {newest}: "
            f"where the fields are still right, write {newest}"
        )
    for name, part in _components_in(component["config"]):
        found += problems(part, f"{where}.{name}" if where else name)
    return found


def _reads_older(component_class: type[object]) -> bool:
    # Private: a class that reads its older configs overrides it. tests/teams/test_upstream.py fails when it moves.
    own = (vars(each) for each in component_class.__mro__ if each is not ComponentFromConfig)
    return any("_from_config_past_version" in each for each in own)


def _violations(provider: str, schema: type[BaseModel], value: object) -> list[str]:
    """Return what a schema says of a value. Fields that it does not have are refused; AutoGen leaves them aside in
    silence."""
    try:
        schema.model_validate(value, extra=None if schema.model_config.get("extra") == "allow" else "forbid")
    except ValidationError as error:
        known, unknown = schema.model_fields, "there is no such field"
        return [
            f"{provider}: {each.place}: "
            + (each.text if each.type != "extra_forbidden" else unknown + did_you_mean(each.place, known))
            for each in explain(error)
        ]
    return []


def _components_in(config: Mapping[str, object]) -> Iterator[tuple[str, JsonObject]]:
    for name, value in config.items():
        for part in cast("list[object]", value) if isinstance(value, list) else [value]:
            if isinstance(part, Mapping) and "provider" in part and "config" in part:
                yield name, cast("JsonObject", part)


def _class(provider: str) -> tuple[type[object], type[BaseModel]]:
    """The class that a provider names, and the schema of its config."""
    path = WELL_KNOWN_PROVIDERS.get(provider, provider)
    module, _, name = path.rpartition(".")
    if not module:
        raise ValueError("a provider is written package.module.Class")
    found = imported(f"{module}:{name}")
    if not isinstance(found, type) or not is_component_class(found):
        raise TypeError("it is not an AutoGen component class")
    cls = cast("type[Any]", found)
    return cls, cls.component_config_schema


def _drop_masked(values: JsonObject) -> None:
    for name in _KEYS:
        if set(str(values.get(name))) == {"*"}:
            del values[name]


def _complete(component: Mapping[str, object]) -> None:
    config = component.get("config")
    if not isinstance(config, dict):
        return
    values = cast("JsonObject", config)
    for _, part in _components_in(values):
        _complete(part)
    _drop_masked(values)
    try:
        cls, schema = _class(str(component.get("provider")))
    except (ImportError, AttributeError, TypeError, ValueError):
        return  # loading it will say why
    defaults = inspect.signature(cls.__init__).parameters
    for name, wanted in schema.model_fields.items():
        if not wanted.is_required() or values.get(name) is not None:
            continue
        if name == "model_client":
            values[name] = {"provider": DefaultModelClient.component_provider_override, "config": {}}
        elif name in defaults and isinstance(defaults[name].default, str | int | float | bool):
            values[name] = defaults[name].default
        elif type(None) in get_args(wanted.annotation):
            values[name] = None  # AutoGen's own dumps leave such fields out
        elif wanted.annotation is bool and name in defaults and defaults[name].default is None:
            values[name] = False  # `None` there means "decide later", and later it is False without an output type
