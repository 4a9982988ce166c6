"""A provider makes the client of one profile: AutoGen's, on connections that equal endpoints share."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from autogen_core.models import ChatCompletionClient, ModelInfo
from openai import AsyncOpenAI, Timeout
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import SecretStr

from drsai_backend.config import Settings, usable_key
from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.models.base import ModelProvider
from drsai_backend.models.calls.params import PARAMETERS
from drsai_backend.models.demo import DemoChatCompletionClient
from drsai_backend.models.endpoints.bounded import client_of
from drsai_backend.models.endpoints.forms import MessageForms
from drsai_backend.models.openai import CONNECT_SECONDS, OPENAI_URL, UNKNOWN_MODEL, PooledOpenAIClient, info_of
from drsai_backend.models.profiles.schema import ENDPOINTS, KEYS, Profile

if TYPE_CHECKING:
    from drsai_backend.models.endpoints.anthropic import NotingAnthropic

Place: TypeAlias = tuple[str, ...]
"""What profiles have in common that share connections."""
_ARGUMENTS: Final = frozenset(CompletionCreateParamsNonStreaming.__annotations__) | {"extra_body", "extra_headers"}
_ANTHROPIC_URL: Final = "https://api.anthropic.com"
_CLAUDE: Final[ModelInfo] = {**UNKNOWN_MODEL, "vision": True, "family": "claude", "multiple_system_messages": False}


class Providers:
    """Makes the clients of profiles, for one process and event loop.

    Args:
        settings: the key and endpoint that `openai` profiles have which name none.
        default: the process's own provider, for `provider: default`; None: the demo model.
        forms: messages as they are sent; None: they are converted for each call.
    """

    def __init__(self, settings: Settings, default: ModelProvider | None, forms: MessageForms | None = None) -> None:
        self._settings = settings
        self._forms = forms
        self._default = default
        self._pools: dict[Place, AsyncOpenAI | NotingAnthropic] = {}
        self._closing = set[asyncio.Task[None]]()

    def endpoint(self, profile: Profile) -> str:
        """The address that a profile's calls go to; for `default` and `demo` a word."""
        match profile.provider:
            case "demo" | "default":
                return profile.provider
            case "openai":
                return profile.endpoint or self._settings.openai_base_url or OPENAI_URL
            case "anthropic":
                return profile.endpoint or _ANTHROPIC_URL
            case provider:
                return profile.endpoint or ENDPOINTS[provider]

    @property
    def default_name(self) -> str:
        """Return what answers for `provider: default`, in a few words."""
        return self._default.describe() if self._default is not None else "demo"

    def place(self, profile: Profile) -> Place:
        """Return by what the connections of a profile are found."""
        more = str(profile.prompt_cache) if profile.provider == "anthropic" else profile.api_version or ""
        return profile.provider, self.endpoint(profile), more, str(self._seconds(profile))

    def _seconds(self, profile: Profile) -> float:
        return profile.timeout or self._settings.model_timeout

    def uses_request_key(self, profile: Profile) -> bool:
        """Whether a request's own key is sent: to the endpoint of the settings, which it is for, and to no other."""
        is_open = profile.provider == "openai" and profile.endpoint is None and profile.key_env is None
        return is_open or profile.provider == "default"

    def check(self, name: str, profile: Profile) -> None:
        """Fail at the start rather than at the first call.

        Raises:
            ConfigurationError: a key or a package is missing.
        """
        if profile.key_env is not None:
            self._key(name, profile)
        if profile.provider == "anthropic" and importlib.util.find_spec("anthropic") is None:
            raise ConfigurationError(
                f"profiles.{name}.provider: anthropic needs a package: pip install 'drsai-backend[anthropic]'"
            )

    def client(self, name: str, profile: Profile, api_key: SecretStr | None) -> ChatCompletionClient:
        """The client of a profile. `api_key`: the request's own, used where `uses_request_key` says so.

        Raises:
            ConfigurationError: the variable with its key is not set.
            InvalidRequest: the request's key cannot be used.
        """
        given = api_key if self.uses_request_key(profile) else None
        match profile.provider:
            case "demo":
                return DemoChatCompletionClient(self._settings.demo_delay)
            case "default":
                if self._default is None:
                    return DemoChatCompletionClient(self._settings.demo_delay)
                return self._default.client(profile.model, given)
            case "anthropic":
                return self._anthropic(name, profile)
            case _:
                return self._openai(name, profile, given)

    def _openai(self, name: str, profile: Profile, given: SecretStr | None) -> ChatCompletionClient:
        from drsai_backend.models.endpoints.chat import NotingAzure, NotingOpenAI

        url, model, seconds = self.endpoint(profile), profile.model or "", self._seconds(profile)
        secret = (given and usable_key(given)) or self._key(name, profile)
        place = self.place(profile)
        pool = cast("AsyncOpenAI | None", self._pools.get(place))
        if pool is None:
            make = (
                partial(NotingAzure, azure_endpoint=url, api_version=profile.api_version)
                if profile.provider == "azure"
                else partial(NotingOpenAI, base_url=url)
            )
            pool = self._pools[place] = make(
                api_key="none",  # each client brings its own; local servers want some
                timeout=Timeout(seconds, connect=min(CONNECT_SECONDS, seconds)),
                max_retries=0,  # `retries` of the profile counts
                http_client=client_of(self._settings),
            )
        key = secret.get_secret_value() if secret is not None else "none"
        client = PooledOpenAIClient(
            pool.with_options(api_key=key),
            model=model,
            model_info=self.model_info(profile),
            context_size=profile.limits.context,
            forms=self._forms,
            hears=profile.can.audio,
        )
        client._create_args.update(_arguments(profile.parameters))  # pyright: ignore[reportPrivateUsage] - AutoGen's own place for them
        return client

    def _anthropic(self, name: str, profile: Profile) -> ChatCompletionClient:
        import anthropic

        from drsai_backend.models.endpoints.anthropic import NotingAnthropic, PooledAnthropicClient

        url, seconds, place = self.endpoint(profile), self._seconds(profile), self.place(profile)
        pool = cast("NotingAnthropic | None", self._pools.get(place))
        if pool is None:
            timeout = anthropic.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
            bounded = client_of(self._settings, anthropic.DefaultAsyncHttpxClient)
            pool = NotingAnthropic(api_key="none", base_url=url, timeout=timeout, max_retries=0, http_client=bounded)
            self._pools[place] = pool
        key = self._key(name, profile)
        client = pool.with_options(api_key=key.get_secret_value() if key is not None else "none")
        client.marks = profile.prompt_cache
        own = {name: value for name, value in profile.parameters.items() if name not in PARAMETERS}
        args: JsonObject = {"model": profile.model, **own}
        return PooledAnthropicClient(
            client,
            create_args=args,
            model_info=self.model_info(profile),
            context_size=profile.limits.context,
            forms=self._forms,
        )

    def _key(self, name: str, profile: Profile) -> SecretStr | None:
        variable = profile.key_env or KEYS.get(profile.provider)
        is_settings = profile.provider == "openai" and profile.key_env is None
        if is_settings and profile.endpoint is None:
            return self._settings.openai_api_key
        if is_settings:
            return None  # OpenAI's key is for OpenAI, and not for whatever endpoint a profile names.
        text = os.environ.get(variable, "") if variable is not None else ""
        if not text.strip():
            if profile.key_env is not None:
                raise ConfigurationError(f"profiles.{name}.key_env: the variable {variable} is not set")
            return None
        try:
            return usable_key(SecretStr(text))
        except ValueError as error:
            raise ConfigurationError(f"profiles.{name}.key_env: {variable} {error}") from None

    def model_info(self, profile: Profile) -> ModelInfo:
        """Return what AutoGen knows of a model, or defaults for one that it does not know; what the profile says
        wins."""
        can = profile.can
        said = {
            "vision": can.vision,
            "function_calling": can.tools,
            "json_output": can.json_output,
            "structured_output": can.structured_output,
            "multiple_system_messages": can.multiple_system_messages,
            "family": profile.family,
        }
        return info_of(profile.model or "", said, _CLAUDE if profile.provider == "anthropic" else UNKNOWN_MODEL)

    def leave(self, place: Place) -> None:
        """Close the connections of a place that nobody uses any more; outside of an event loop, `close` does."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if (pool := self._pools.pop(place, None)) is not None:
            self._closing.add(closing := loop.create_task(pool.close()))
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections."""
        pools, self._pools = self._pools, {}
        await asyncio.gather(*self._closing, *(pool.close() for pool in pools.values()))


def _arguments(parameters: JsonObject) -> JsonObject:
    """A profile's own parameters as arguments of the openai package, which takes what it does not know of in
    `extra_body`. Those that requests have, too, are merged with theirs (`fallback.target`)."""
    own = {name: value for name, value in parameters.items() if name not in PARAMETERS or name == "response_format"}
    known = {name: value for name, value in own.items() if name in _ARGUMENTS}
    other = {name: value for name, value in own.items() if name not in _ARGUMENTS}
    return {**known, "extra_body": {**other, **known.get("extra_body", {})}} if other else known
