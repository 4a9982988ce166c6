"""The options of a team are what its factory says of it, by decorators, or a component config by keys beside
AutoGen's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final, TypeVar, cast

from drsai_backend.datamodel.knowledge import AgentStore
from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.client_tools.policy import NO_POLICY, Mode, ToolPolicy
from drsai_backend.teams.limits import NO_LIMITS, RunLimits
from drsai_backend.teams.shown import ShownChoice, read_shown

F = TypeVar("F", bound=Callable[..., object])
_HELD: Final = "team_options"


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """Files in which one agent looks things up.

    Attributes:
        store: the store that has them.
        named: paths, patterns and URLs, as its definition names them.
        folder: where relative paths begin.
        chunk_size: into how many tokens they are cut.
        chunk_overlap: how many of them a chunk repeats of the one before.
    """

    store: AgentStore
    named: tuple[str, ...]
    folder: str
    chunk_size: int
    chunk_overlap: int


@dataclass(frozen=True, slots=True)
class TeamOptions:
    """What a team says of itself; it stands in for what the server's settings say.

    Attributes:
        limits: of its runs.
        client_tools: what it makes of its clients' tools.
        stop_on_disconnect: whether a run ends when its client leaves; None: as the server says.
        answered_by: the participant that answers the user; None: as `team_tree.answering_agent` finds it.
        shown: whose messages are the answer; None: everybody's.
        permissions: the scopes and roles (`role:name`) that whoever asks it needs.
        files: those of its agents' definitions.
    """

    limits: RunLimits = NO_LIMITS
    client_tools: ToolPolicy = NO_POLICY
    stop_on_disconnect: bool | None = None
    answered_by: str | None = None
    shown: ShownChoice | None = None
    permissions: tuple[str, ...] = ()
    files: tuple[AgentFiles, ...] = ()


NO_OPTIONS: Final = TeamOptions()


def options_of(factory: object) -> TeamOptions:
    """Return the options of a team factory (its attribute `team_options`) or component config.

    Raises:
        ValueError: a key beside a component config has a value that cannot be used.
    """
    if not isinstance(factory, Mapping):
        return getattr(factory, _HELD, NO_OPTIONS)
    config = cast("JsonObject", factory)
    return TeamOptions(**{key: read(config[key]) for key, read in KEYS.items() if config.get(key) is not None})


def _read_name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("`answered_by` must be the name of a participant")
    return value


def _read_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("stop_on_disconnect must be true or false")
    return value


KEYS: Final[Mapping[str, Callable[[object], Any]]] = {
    "limits": RunLimits.parse,
    "stop_on_disconnect": _read_flag,
    "answered_by": _read_name,
    "shown": read_shown,
    "client_tools": ToolPolicy.parse,
}
"""The keys beside a component config, and how their values are read."""


def _option(**said: object) -> Callable[[F], F]:
    """Decorate a team factory with options, beside those that it has. It is not changed itself."""

    def mark(factory: F) -> F:
        @wraps(factory)
        def build(*args: object) -> object:
            return factory(*args)

        setattr(build, _HELD, replace(options_of(factory), **said))
        return cast("F", build)

    return mark


def _read(name: str, **given: object) -> Callable[[F], F]:
    try:
        return _option(**{name: KEYS[name]({key: value for key, value in given.items() if value is not None})})
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def limited(
    *, max_turns: int | None = None, max_run_seconds: float | None = None, max_run_tokens: int | None = None
) -> Callable[[F], F]:
    """Decorate a team factory with limits of its own, which stand in for the server's (`RunLimits`; 0: no bound).

    ::

        @limited(max_turns=40, max_run_tokens=200_000)
        def crew(context: RunContext) -> RoundRobinGroupChat: ...

    Raises:
        ConfigurationError: a value that is no bound.
    """
    return _read("limits", max_turns=max_turns, max_run_seconds=max_run_seconds, max_run_tokens=max_run_tokens)


def client_tools(mode: Mode | None = None, *, agent: str | None = None) -> Callable[[F], F]:
    """Decorate a team factory with what it makes of its clients' tools, which stands in for `DRSAI_CLIENT_TOOLS`.

    ::

        @client_tools("offer", agent="editor")
        def newsroom(context: RunContext) -> SelectorGroupChat: ...

    Raises:
        ConfigurationError: there is no such mode.
    """
    return _read("client_tools", mode=mode, agent=agent)


def answered_by(name: str) -> Callable[[F], F]:
    """Decorate a team factory: the participant of that name answers the user.

    ::

        @answered_by("writer")
        def crew() -> RoundRobinGroupChat: ...
    """
    return _option(answered_by=name)


def shows(*names: str) -> Callable[[F], F]:
    """Decorate a team factory: its answers are the messages of the participants of these names; `shows("last")`: the
    newest message alone.

    ::

        @shows("writer")
        def crew() -> RoundRobinGroupChat: ...
    """
    return _option(shown="last" if names == ("last",) else [*names])


def stop_on_disconnect(factory: F) -> F:
    """Decorate a team factory whose runs are stopped when their client leaves, whatever `DRSAI_ON_DISCONNECT` says: for
    teams that people talk to in windows with a stop button. A request's own `on_disconnect` comes first.

    ::

        @stop_on_disconnect
        def writer(context: RunContext) -> AssistantAgent: ...
    """
    return _option(stop_on_disconnect=True)(factory)
