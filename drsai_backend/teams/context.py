"""What a team factory is given, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from autogen_agentchat.base import ChatAgent, Team
from pydantic import SecretStr

from drsai_backend.datamodel import UserInput
from drsai_backend.errors import DrSaiError, TeamBuildError
from drsai_backend.models import (
    MessageForm,
    ModelClientFactory,
    ModelParams,
    RunModelClient,
    UsageMeter,
    run_model_clients,
)
from drsai_backend.teams.components import load_team_component

if TYPE_CHECKING:
    from drsai_backend.database import DatabaseManager


@dataclass(slots=True)
class RunContext:
    """One run, as its team factory and its agents see it (`self._run_context`).

    `user_input` is what the request brought; its `api_key` is empty here, as the key is applied by `model_client()`.
    `input_values` are its columns, and `params` its sampling parameters. `db_manager` reads and writes rows of all
    tables. `meter` sums up what the run's model clients use, which `models` makes. The context lives as long as the run
    and is never stored.
    """

    user_id: str
    thread_id: str
    run_id: str
    input_values: Mapping[str, Any] = field(repr=False)
    db_manager: DatabaseManager
    models: ModelClientFactory = field(repr=False)
    params: ModelParams = field(default_factory=ModelParams)
    api_key: SecretStr | None = None
    meter: UsageMeter = field(default_factory=UsageMeter)
    _user_input: UserInput | None = field(default=None, init=False, repr=False)

    @property
    def user_input(self) -> UserInput:
        """What the request brought. Made when it is first asked for: few teams do, and a table object is dear."""
        if self._user_input is None:
            self._user_input = UserInput(user_id=self.user_id, thread_id=self.thread_id, **self.input_values)
        return self._user_input

    def model_client(self, model: str | None = None, messages: MessageForm | None = None) -> RunModelClient:
        """A model client with the request's sampling parameters and key; what it uses counts for this run.

        Args:
            model: the model's name at the endpoint; the configured one when omitted.
            messages: what it takes: `any`, `alternating`, `no_system`; see `DRSAI_MODEL_MESSAGES`, which it wins over.
        """
        inner = self.models.create(model, self.api_key)
        return RunModelClient(inner, params=self.params, meter=self.meter, rules=self.models.rules, messages=messages)


BuiltTeam: TypeAlias = ChatAgent | Team
TeamFactory: TypeAlias = (
    Callable[[], BuiltTeam | Awaitable[BuiltTeam]]
    | Callable[[RunContext], BuiltTeam | Awaitable[BuiltTeam]]
    | Mapping[str, Any]
)
"""Builds a fresh team for a run: a callable, sync or async, of no argument or one `RunContext`, or an AutoGen
component config. Everything it returns belongs to that one run."""


async def build_team(factory: TeamFactory, context: RunContext) -> BuiltTeam:
    """Call a team factory. While it runs, `DefaultModelClient` is the client of this run.

    Raises:
        TeamBuildError: the factory raised (the original error is `__cause__`), or returned no agent or team.
        DrSaiError: raised by the factory itself on purpose; passed on as it is.
    """
    try:
        with run_model_clients(context.model_client):
            if isinstance(factory, Mapping):
                team: object = load_team_component(cast("Mapping[str, Any]", factory))
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
