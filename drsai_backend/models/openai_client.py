"""The client for OpenAI-compatible endpoints: AutoGen's, on a connection pool that all clients share."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_core.models import LLMMessage, ModelInfo
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.openai import BaseOpenAIChatCompletionClient, OpenAIClientConfigurationConfigModel
from openai import AsyncOpenAI

from drsai_backend.models.tokens import count_tokens, remaining_tokens


class PooledOpenAIClient(BaseOpenAIChatCompletionClient):
    """AutoGen's OpenAI client with a given `AsyncOpenAI`, which it neither owns nor closes.

    Token counts never wait for the network. Dumped, it is AutoGen's `OpenAIChatCompletionClient`, without the key.
    """

    component_type = "model"
    component_provider_override = "autogen_ext.models.openai.OpenAIChatCompletionClient"

    def __init__(
        self, client: AsyncOpenAI, *, model: str, model_info: ModelInfo, context_size: int | None = None
    ) -> None:
        super().__init__(client=client, create_args={"model": model}, model_info=model_info)
        # AutoGen would warn whenever a gateway answers with another name of the model than its own table has.
        self._resolved_model = None
        self._model = model
        self._context_size = context_size

    async def close(self) -> None:
        """Nothing: the pool belongs to the `ModelClientFactory`."""

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens of a request; see `drsai_backend.models.tokens`."""
        return count_tokens(super().count_tokens, self._model, messages, tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens left of the context size; see `drsai_backend.models.tokens`."""
        return remaining_tokens(super().count_tokens, self._model, messages, tools, self._context_size)

    def _to_config(self) -> OpenAIClientConfigurationConfigModel:
        return OpenAIClientConfigurationConfigModel(
            model=self._model, base_url=str(self._client.base_url), model_info=self._model_info
        )
