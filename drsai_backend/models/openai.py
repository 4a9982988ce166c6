"""The provider of OpenAI-compatible endpoints has AutoGen's client, on a connection pool that all clients share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import lru_cache, partial
from typing import Any, Final, cast
from urllib.parse import urlsplit

from autogen_core import Image
from autogen_core.models import LLMMessage, ModelFamily, ModelInfo, SystemMessage, UserMessage
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.openai import (
    BaseOpenAIChatCompletionClient,
    OpenAIClientConfigurationConfigModel,
    _model_info,  # AutoGen's table of models is exported nowhere else
)
from autogen_ext.models.openai._openai_client import CreateParams, to_oai_type  # what each call converts with
from openai import AsyncOpenAI, Timeout
from pydantic import SecretStr

from drsai_backend.config import Settings, usable_key
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.models.base import ModelProvider
from drsai_backend.models.calls.heard import EncodedAudio
from drsai_backend.models.endpoints.bounded import client_of
from drsai_backend.models.endpoints.forms import MessageForms
from drsai_backend.models.tokens import count_tokens, remaining_tokens

DEFAULT_MODEL: Final = "gpt-4o-mini"
OPENAI_URL: Final = "https://api.openai.com/v1"
CONNECT_SECONDS: Final = 10.0
MAX_CLIENTS: Final = 64
UNKNOWN_MODEL: Final = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    structured_output=False,
    family=ModelFamily.UNKNOWN,
    multiple_system_messages=True,
)


class OpenAIProvider(ModelProvider):
    """Clients for the endpoint of the settings: `OPENAI_API_KEY` (OpenAI itself) or `OPENAI_BASE_URL`.

    All clients share one connection pool, so that the 64 most recently used (model, key) pairs cost little and dropping
    one disturbs no run.

    Args:
        settings: the endpoint and what its models can do.
        forms: messages as they are sent; None: they are converted for each call.
    """

    def __init__(self, settings: Settings, forms: MessageForms | None = None) -> None:
        self._settings = settings
        self._forms = forms
        self._model = settings.model or DEFAULT_MODEL
        self._url = settings.openai_base_url or OPENAI_URL
        self._pool: AsyncOpenAI | None = None
        self._client = lru_cache(MAX_CLIENTS)(self._make)

    def client(self, model: str | None, api_key: SecretStr | None) -> PooledOpenAIClient:
        """The client for a model; `DRSAI_MODEL`, else gpt-4o-mini, when omitted.

        Raises:
            InvalidRequest: no HTTP header can hold the key.
        """
        try:
            secret = (api_key and usable_key(api_key)) or self._settings.openai_api_key
        except ValueError as error:
            raise InvalidRequest(f"`api_key` {error}", param="api_key") from None
        return self._client(model or self._model, secret.get_secret_value() if secret is not None else "none")

    def _make(self, model: str, key: str) -> PooledOpenAIClient:
        if self._pool is None:
            from drsai_backend.models.endpoints.chat import NotingOpenAI

            self._pool = NotingOpenAI(
                api_key="none",  # each client brings its own; local servers want some
                base_url=self._url,
                timeout=Timeout(self._settings.model_timeout, connect=CONNECT_SECONDS),
                max_retries=self._settings.model_max_retries,
                http_client=client_of(self._settings),
            )
        return PooledOpenAIClient(
            self._pool.with_options(api_key=key),
            model=model,
            model_info=self.model_info(model),
            context_size=self._settings.model_context,
            forms=self._forms,
        )

    def model_info(self, model: str) -> ModelInfo:
        """Return what AutoGen knows of a model, or defaults for one it does not know; `DRSAI_MODEL_*` wins over
        both."""
        return info_of(model, {name: getattr(self._settings, f"model_{name}") for name in UNKNOWN_MODEL})

    def describe(self) -> str:
        """The model and the endpoint's address."""
        url = urlsplit(self._url)
        port = f":{url.port}" if url.port else ""
        return f"{self._model} at {url.scheme}://{url.hostname or '?'}{port}{url.path}"

    async def close(self) -> None:
        """Close all connections."""
        self._client.cache_clear()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()


def info_of(model: str, said: Mapping[str, object], default: ModelInfo = UNKNOWN_MODEL) -> ModelInfo:
    """Return what AutoGen knows of a model, or a default for one it does not know; what is `said` and not None wins."""
    try:
        info = _model_info.get_info(model)
    except ValueError:
        info = default
    return cast(ModelInfo, {**info, **{name: value for name, value in said.items() if value is not None}})


class PooledOpenAIClient(BaseOpenAIChatCompletionClient):
    """AutoGen's OpenAI client with a given `AsyncOpenAI`, which it neither owns nor closes.

    Token counts never wait for the network. Dumped, it is AutoGen's `OpenAIChatCompletionClient`, without the key.
    """

    component_type = "model"
    component_provider_override = "autogen_ext.models.openai.OpenAIChatCompletionClient"
    body_form = "openai"
    """Of the bodies that it sends (`CallNotes.sent`)."""

    def __init__(
        self,
        client: AsyncOpenAI,
        *,
        model: str,
        model_info: ModelInfo,
        context_size: int | None = None,
        forms: MessageForms | None = None,
        hears: bool = False,
    ) -> None:
        super().__init__(client=client, create_args={"model": model}, model_info=model_info)
        # AutoGen would warn whenever a gateway answers with another name of the model than its own table has.
        self._resolved_model = None
        self._model = model
        self._context_size = context_size
        self._forms = forms
        self._hears = hears

    @property
    def context_length(self) -> int | None:
        """Tokens of a request and its answer; None: it is not known."""
        with suppress(KeyError):
            return self._context_size or _model_info.get_token_limit(self._model)
        return None

    async def close(self) -> None:
        """Do nothing: the pool belongs to the provider."""

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens of a request; see `drsai_backend.models.tokens`."""
        return count_tokens(super().count_tokens, self._model, messages, tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens left of the context size; see `drsai_backend.models.tokens`."""
        return remaining_tokens(self.count_tokens(messages, tools=tools), self._model, self._context_size)

    def _process_create_args(  # pyright: ignore[reportIncompatibleMethodOverride] - handed on
        self, messages: Sequence[LLMMessage], *options: Any
    ) -> CreateParams:
        """AutoGen's own, but for the messages that are converted one by one: those are not converted again. What
        AutoGen does with several is done by it: system messages in front, the last message, and whatever is odd."""
        if self._hears and not self._model_info["vision"] and not _has_pictures(messages):
            hearing = copy(self)  # AutoGen takes a recording for an image.
            hearing._model_info = {**self._model_info, "vision": True}
            hearing._hears = False
            return hearing._process_create_args(messages, *options)
        first = next((at for at, each in enumerate(messages) if not isinstance(each, SystemMessage)), len(messages))
        middle = messages[first:-1]
        if self._forms is None or not middle or not self._is_plain(messages[first:]):
            return super()._process_create_args(messages, *options)
        params = super()._process_create_args([*messages[:first], messages[-1]], *options)
        how: JsonObject = {
            "model": params.create_args.get("model", "unknown"),
            "model_family": self._model_info["family"],
            "prepend_name": self._add_name_prefixes,
            "include_name_in_message": self._include_name_in_message,
        }
        known: list[Any] = self._forms.of(middle, str(how), partial(to_oai_type, **how))
        merged = next((at for at, each in enumerate(params.messages) if each["role"] != "system"), len(params.messages))
        at = first if self._model_info.get("multiple_system_messages") else merged
        params.messages[at:at] = known
        return params

    def _is_plain(self, messages: Sequence[LLMMessage]) -> bool:
        """Whether each of them is converted by itself, and none is refused."""
        several, sees = self._model_info.get("multiple_system_messages", False), self._model_info["vision"]
        return all(
            several
            if isinstance(each, SystemMessage)
            else sees or not isinstance(each, UserMessage) or isinstance(each.content, str)
            for each in messages
        )

    def _to_config(self) -> OpenAIClientConfigurationConfigModel:
        return OpenAIClientConfigurationConfigModel(
            model=self._model, base_url=str(self._client.base_url), model_info=self._model_info
        )


def _has_pictures(messages: Sequence[LLMMessage]) -> bool:
    parts = (part for each in messages if isinstance(each, UserMessage) for part in each.content)
    return any(isinstance(part, Image) and not isinstance(part, EncodedAudio) for part in parts)
