"""The client of the offline demo model."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Literal, Self

from autogen_core import CancellationToken, Component
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelCapabilities,  # pyright: ignore[reportDeprecated]
    ModelFamily,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from drsai_backend.models.demo.rules import answer
from drsai_backend.models.tokens import estimate_content, estimate_tokens

CONTEXT_SIZE: Final = 128_000
_BYTES_PER_TOKEN: Final = 4
_REPORT_SECONDS: Final = 60.0
_log = logging.getLogger("drsai.model")


class DemoConfig(BaseModel):
    """The component config of the demo model."""

    delay: float = 0.015


class DemoChatCompletionClient(ChatCompletionClient, Component[DemoConfig]):
    """An offline stand-in for a language model: deterministic, by fixed rules, and honest about it in every answer.

    It remembers what the conversation says, calls the tools that a message asks for, hands over, selects speakers,
    reviews, writes, and fills JSON schemas. Text answers begin with "[offline demo model]"; answers that a program
    reads (JSON, the name of a speaker) do not. Equal requests get equal answers. Of the parameters it honours
    `max_tokens`, by cutting the text. Usage is estimated: utf-8 bytes / 4.

    Args:
        delay: seconds between two words of a stream; 0 sends all at once.
    """

    component_type = "model"
    component_config_schema = DemoConfig
    component_provider_override = "drsai_backend.models.DemoChatCompletionClient"
    takes_params = True

    def __init__(self, delay: float = 0.015) -> None:
        self._delay = delay
        self._answers = 0
        self._report_at = 0.0
        self._usage = RequestUsage(prompt_tokens=0, completion_tokens=0)

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """One answer, at once.

        Raises:
            CancelledError: the token is cancelled already.
        """
        if cancellation_token is not None and cancellation_token.is_cancelled():
            raise asyncio.CancelledError
        self._report()
        schemas = [tool.schema if isinstance(tool, Tool) else tool for tool in tools]
        choice = tool_choice.name if isinstance(tool_choice, Tool) else tool_choice
        content = answer(messages, schemas, tool_choice=choice, json_output=json_output)
        finish: Literal["stop", "length", "function_calls"] = "function_calls" if isinstance(content, list) else "stop"
        limit = extra_create_args.get("max_tokens")
        if isinstance(content, str) and limit is not None and estimate_content(content) > limit:
            content = content.encode()[: limit * _BYTES_PER_TOKEN].decode("utf-8", "ignore")
            finish = "length"
        usage = RequestUsage(
            prompt_tokens=estimate_tokens(messages, tools=schemas), completion_tokens=estimate_content(content)
        )
        self._usage = RequestUsage(
            prompt_tokens=self._usage.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self._usage.completion_tokens + usage.completion_tokens,
        )
        return CreateResult(finish_reason=finish, content=content, usage=usage, cached=False)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """The words of the answer, then the result. Options as those of `create`.

        Raises:
            CancelledError: the token is cancelled.
        """
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        token: CancellationToken | None = options.get("cancellation_token")
        if token is not None:
            token.link_future(stopped)
        result = await self.create(messages, **options)
        words: list[str] = re.findall(r"\s*\S+\s*$|\s*\S+", result.content) if isinstance(result.content, str) else []
        for word in words:
            if self._delay:
                await asyncio.wait([stopped], timeout=self._delay)
            if stopped.cancelled():
                raise asyncio.CancelledError
            yield word
        yield result

    def _report(self) -> None:
        """Once a minute, say in the log who answers: a server that was meant to have a model looks healthy without."""
        self._answers += 1
        if time.monotonic() >= self._report_at:
            self._report_at = time.monotonic() + _REPORT_SECONDS
            text = "the offline demo model answers (%d so far): set OPENAI_API_KEY or OPENAI_BASE_URL for a model"
            _log.warning(text, self._answers)

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimated tokens of a request."""
        return estimate_tokens(messages, tools=tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimated tokens left of a context of 128,000."""
        return CONTEXT_SIZE - estimate_tokens(messages, tools=tools)

    def actual_usage(self) -> RequestUsage:
        """Estimated tokens of all calls."""
        return self._usage

    total_usage = actual_usage

    @property
    def model_info(self) -> ModelInfo:
        """All abilities: the rules cover them."""
        return {
            "vision": True,
            "function_calling": True,
            "json_output": True,
            "structured_output": True,
            "family": ModelFamily.UNKNOWN,
            "multiple_system_messages": True,
        }

    @property
    def capabilities(self) -> ModelCapabilities:  # pyright: ignore[reportDeprecated]
        return self.model_info  # pyright: ignore[reportReturnType]

    async def close(self) -> None:
        """Nothing to close."""

    def _to_config(self) -> DemoConfig:
        return DemoConfig(delay=self._delay)

    @classmethod
    def _from_config(cls, config: DemoConfig) -> Self:
        return cls(delay=config.delay)
