"""Which provider makes the model clients of this process."""

from __future__ import annotations

from autogen_core.models import ChatCompletionClient
from pydantic import SecretStr

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError, DrSaiError
from drsai_backend.models.base import ModelProvider
from drsai_backend.models.demo import DemoChatCompletionClient
from drsai_backend.models.embeddings import Embeddings
from drsai_backend.models.endpoints.continuation import ContinueRules
from drsai_backend.models.endpoints.message_rules import MessageRules
from drsai_backend.models.facts import ModelFacts, facts_of
from drsai_backend.models.openai import OpenAIProvider


class ModelClientFactory:
    """Makes model clients: of the given provider, else for the OpenAI-compatible endpoint of the settings, else, where
    none is set, of the offline demo model. One factory serves one event loop.

    Attributes:
        embeddings: those of the configured endpoint.
        rules: which messages endpoints take; of all clients of this process, those of team factories too.
        continues: how their models continue answers.

    Raises:
        ConfigurationError: a model is required, and there is only the demo model.
    """

    def __init__(self, settings: Settings, provider: ModelProvider | None = None) -> None:
        self._provider = provider or (None if settings.is_demo else OpenAIProvider(settings))
        self._demo = DemoChatCompletionClient(settings.demo_delay)
        self.embeddings = Embeddings(settings)
        self.rules = MessageRules(settings.model_messages)
        self.continues = ContinueRules(settings.model_continues)
        if settings.require_model and self.is_demo:
            raise ConfigurationError(
                "a model is required and no endpoint is set: set OPENAI_API_KEY or OPENAI_BASE_URL, or leave out "
                "--require-model and DRSAI_REQUIRE_MODEL"
            )

    @property
    def is_demo(self) -> bool:
        """True when every client is the offline demo model."""
        return self._provider is None

    def describe(self) -> str:
        """What answers, in a few words for a console. Never holds a key or a password."""
        return self._provider.describe() if self._provider is not None else "offline demo model"

    def create(self, model: str | None = None, api_key: SecretStr | None = None) -> ChatCompletionClient:
        """The client for a model. Arguments and errors as those of `ModelProvider.client`."""
        return self._provider.client(model, api_key) if self._provider is not None else self._demo

    def facts(self) -> ModelFacts | None:
        """What the default model can do; None: its provider gives no client without a request."""
        try:
            return facts_of(self.create())
        except DrSaiError:
            return None

    async def close(self) -> None:
        """Close all connections. The factory can be used again afterwards."""
        await self.embeddings.close()
        if self._provider is not None:
            await self._provider.close()
