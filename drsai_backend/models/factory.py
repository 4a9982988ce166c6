"""Which model client a name means, by the settings; clients are made once and shared."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from urllib.parse import urlsplit

from autogen_core.models import ChatCompletionClient, ModelFamily, ModelInfo
from autogen_ext.models.openai import _model_info  # AutoGen's table of models is exported nowhere else
from openai import AsyncOpenAI, Timeout
from pydantic import SecretStr

from drsai_backend.config import Settings, usable_key
from drsai_backend.errors import ConfigurationError, InvalidRequest
from drsai_backend.models.demo import DemoChatCompletionClient
from drsai_backend.models.message_rules import MessageRules
from drsai_backend.models.openai_client import PooledOpenAIClient

DEFAULT_MODEL: Final = "gpt-4o-mini"
OPENAI_URL: Final = "https://api.openai.com/v1"
CONNECT_SECONDS: Final = 10.0
MAX_CLIENTS: Final = 64


class ModelClientFactory:
    """Makes model clients: for the OpenAI-compatible endpoint of the settings, or the offline demo model without one.

    An endpoint is set by `OPENAI_API_KEY` (OpenAI itself) or `OPENAI_BASE_URL` (with or without a key). All clients
    share one connection pool, so that the 64 most recently used (model, key) pairs cost little and dropping one
    disturbs no run. One factory serves one event loop.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        if settings.require_model and self.is_demo:
            raise ConfigurationError(
                "a model is required and no endpoint is set: set OPENAI_API_KEY or OPENAI_BASE_URL, or leave out "
                "--require-model and DRSAI_REQUIRE_MODEL"
            )
        self._clients: OrderedDict[tuple[str, str], ChatCompletionClient] = OrderedDict()
        self._demo = DemoChatCompletionClient(delay=settings.demo_delay)
        self._pool: AsyncOpenAI | None = None
        self.rules = MessageRules(settings.model_messages)
        """Which messages endpoints take; of all clients of this process, those of team factories too."""

    @property
    def is_demo(self) -> bool:
        """True when no endpoint is set and every client is the offline demo model."""
        return self._settings.is_demo

    @property
    def model(self) -> str:
        """The model that `create()` uses when it is not given one."""
        return "offline-demo" if self.is_demo else self._settings.model or DEFAULT_MODEL

    def describe(self) -> str:
        """What answers, in a few words for a console. Never holds a key or a password."""
        if self.is_demo:
            return "offline demo model"
        url = urlsplit(self._settings.openai_base_url or OPENAI_URL)
        host = url.hostname or "?"
        port = f":{url.port}" if url.port else ""
        return f"{self.model} at {url.scheme}://{host}{port}{url.path}"

    def create(self, model: str | None = None, api_key: SecretStr | None = None) -> ChatCompletionClient:
        """The client for a model.

        Args:
            model: its name at the endpoint; `DRSAI_MODEL`, else gpt-4o-mini, when omitted. The demo model ignores it.
            api_key: used instead of `OPENAI_API_KEY`. It goes to the endpoint of the settings and nowhere else.

        Raises:
            InvalidRequest: no HTTP header can hold the key.
        """
        if self.is_demo:
            return self._demo
        name = model or self.model
        try:
            secret = (api_key and usable_key(api_key)) or self._settings.openai_api_key
        except ValueError as error:
            raise InvalidRequest(f"`api_key` {error}", param="api_key") from None
        key = secret.get_secret_value() if secret is not None else "none"  # local servers want some key
        client = self._clients.get((name, key))
        if client is None:
            client = PooledOpenAIClient(
                self._connections().with_options(api_key=key),
                model=name,
                model_info=self.model_info(name),
                context_size=self._settings.model_context,
            )
            self._clients[name, key] = client
            if len(self._clients) > MAX_CLIENTS:
                self._clients.popitem(last=False)
        self._clients.move_to_end((name, key))
        return client

    def model_info(self, model: str) -> ModelInfo:
        """What AutoGen knows of a model, or defaults for one it does not know; `DRSAI_MODEL_*` wins over both."""
        try:
            info = _model_info.get_info(model).copy()
        except ValueError:
            info = ModelInfo(
                vision=False,
                function_calling=True,
                json_output=True,
                structured_output=False,
                family=ModelFamily.UNKNOWN,
                multiple_system_messages=True,
            )
        settings = self._settings
        if settings.model_vision is not None:
            info["vision"] = settings.model_vision
        if settings.model_function_calling is not None:
            info["function_calling"] = settings.model_function_calling
        if settings.model_json_output is not None:
            info["json_output"] = settings.model_json_output
        if settings.model_structured_output is not None:
            info["structured_output"] = settings.model_structured_output
        if settings.model_multiple_system_messages is not None:
            info["multiple_system_messages"] = settings.model_multiple_system_messages
        if settings.model_family is not None:
            info["family"] = settings.model_family
        return info

    def _connections(self) -> AsyncOpenAI:
        if self._pool is None:
            self._pool = AsyncOpenAI(
                api_key="none",  # each client brings its own
                base_url=self._settings.openai_base_url or OPENAI_URL,
                timeout=Timeout(self._settings.model_timeout, connect=CONNECT_SECONDS),
                max_retries=self._settings.model_max_retries,
            )
        return self._pool

    async def close(self) -> None:
        """Close all connections. The factory can be used again afterwards."""
        self._clients.clear()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
