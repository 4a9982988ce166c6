"""The model client of one run: the request's parameters go in, what it used comes out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from autogen_core import Component, ComponentModel
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
from autogen_ext.models.openai import BaseOpenAIChatCompletionClient
from pydantic import BaseModel

from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.models.base import ModelParams
from drsai_backend.models.message_rules import MessageForm, MessageRules, Rules, conform, where_of, with_prompt
from drsai_backend.models.openai import PooledOpenAIClient
from drsai_backend.models.requests import AnswerSteps, ModelRequest
from drsai_backend.models.tokens import count_tokens, remaining_tokens

_RENAMES_MAX_TOKENS = frozenset({ModelFamily.O1, ModelFamily.O3, ModelFamily.O4, ModelFamily.GPT_5})


@dataclass(slots=True)
class UsageMeter:
    """What the model calls of a run have used, over all its clients.

    A call that failed or was cancelled is not counted, as no server says what it cost; a server that reports no
    usage counts as a call of 0 tokens. Nothing here is estimated, but what the offline demo model reports of itself.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    check: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    """Called before every model call of the run; what it raises ends the run instead."""

    def add(self, usage: RequestUsage) -> None:
        """Count one finished call."""
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.calls += 1

    def start_from(self, usage: Mapping[str, int]) -> None:
        """Count on from what the run has used in other processes, that of recorded answers included."""
        self.prompt_tokens += usage.get("prompt_tokens", 0)
        self.completion_tokens += usage.get("completion_tokens", 0)

    @property
    def total_tokens(self) -> int:
        """All tokens so far."""
        return self.prompt_tokens + self.completion_tokens

    def as_dict(self) -> dict[str, int]:
        """prompt_tokens, completion_tokens and total_tokens, as OpenAI names them."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.total_tokens,
        }


class RunModelClient(ChatCompletionClient):
    """Wraps any model client for one run.

    With an OpenAI-compatible client or the demo model, `params` are merged into the arguments of every call: they win
    over the client's constructor, and an agent's own `extra_create_args` win over them. Streams of OpenAI-compatible
    clients are asked for their usage. What calls used is added to `meter`, whose `check` may forbid them. In a
    turn that is repeated, recorded answers are given again without asking (see `with_steps`). An endpoint that takes
    messages in turns only gets them so (see `message_rules`). Everything else is the wrapped client's.

    Args:
        inner: the client that does the work. It is not closed by the run.
        params: the request's sampling parameters.
        meter: shared by all clients of the run; a new one when omitted.
        rules: what is known of endpoints; shared by all clients of the process.
        messages: what this model takes; by the settings, its family and its refusals when omitted.
    """

    component_type = "model"

    def __init__(
        self,
        inner: ChatCompletionClient,
        *,
        params: ModelParams | None = None,
        meter: UsageMeter | None = None,
        rules: MessageRules | None = None,
        messages: MessageForm | None = None,
    ) -> None:
        self.inner = inner
        self.params = params if params is not None else ModelParams()
        self.meter = meter if meter is not None else UsageMeter()
        self._openai = inner if isinstance(inner, BaseOpenAIChatCompletionClient) else None
        takes_params = self._openai is not None or getattr(inner, "takes_params", False)
        self._args: JsonObject = self.params.create_args() if takes_params else {}
        if "max_tokens" in self._args and inner.model_info["family"] in _RENAMES_MAX_TOKENS:
            # The reasoning models refuse the old name.
            self._args["max_completion_tokens"] = self._args.pop("max_tokens")
        self.rules = rules if rules is not None else MessageRules()
        self.messages: MessageForm | None = messages
        self._where = where_of(inner)
        self._prompt: str | None = None
        self._steps: AnswerSteps | None = None

    def with_steps(self, steps: AnswerSteps, prompt: str | None = None) -> Self:
        """The same client for one agent, whose answers `steps` records, and gives again when a turn is repeated.

        A recorded answer is no call, and is not counted again; in a stream it comes as the result alone.
        `prompt` is one more system message of every request, after the agent's own.
        """
        # `copy.copy` takes ten times as long, for every agent of every run.
        client = object.__new__(type(self))
        vars(client).update(vars(self))
        client._steps = steps
        client._prompt = prompt
        return client

    def _sent(self, messages: Sequence[LLMMessage], rules: Rules) -> Sequence[LLMMessage]:
        """What the endpoint gets of an agent's messages."""
        if self._prompt is not None:
            messages = with_prompt(messages, self._prompt)
        if rules.names and not rules.alternate:
            return messages
        prefixed = False
        if self._openai is not None:
            self._openai._include_name_in_message = False  # pyright: ignore[reportPrivateUsage]
            prefixed = self._openai._add_name_prefixes  # pyright: ignore[reportPrivateUsage]
        return conform(messages, rules, prefixed=prefixed)

    def _ask(
        self, messages: Sequence[LLMMessage], options: Mapping[str, Any]
    ) -> tuple[int, ModelRequest | None, CreateResult | None]:
        """The number of this answer in the turn, what it is asked for, and the answer, where it is recorded."""
        if self._steps is None:
            return 0, None, None
        request = ModelRequest.of(messages, options)
        number, recorded = self._steps.next_answer(request)
        return number, request, recorded

    def _ready(self, options: JsonObject) -> tuple[Rules, JsonObject]:
        """The rules for the messages of a call, and its options with the request's parameters. It may be forbidden."""
        if self.meter.check is not None:
            self.meter.check()
        if self._args:
            options = {**options, "extra_create_args": {**self._args, **options.get("extra_create_args", {})}}
        family = self.inner.model_info.get("family", ModelFamily.UNKNOWN)
        return self.rules.of(self._where, family, self.messages), options

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        """One answer. Options are those of AutoGen's `create` and the wrapped client's.

        Raises:
            ReplayMismatch: the turn is repeated, and the recorded answer is one to another request.
        """
        number, request, recorded = self._ask(messages, options)
        if recorded is not None:
            return recorded
        try:
            rules, options = self._ready(options)
            while True:
                try:
                    result = await self.inner.create(self._sent(messages, rules), **options)
                    break
                except Exception as error:
                    lesson = self.rules.learn(self._where, rules, error, self.messages)
                    if lesson is None:
                        raise
                    rules = lesson
        except BaseException:
            if self._steps is not None:
                self._steps.not_answered(number)
            raise
        self.meter.add(result.usage)
        if self._steps is not None and request is not None:
            await self._steps.answered(number, request, result)
        return result

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Pieces of text, then the result. Options are those of AutoGen's `create_stream` and the wrapped client's.

        Raises:
            ReplayMismatch: the turn is repeated, and the recorded answer is one to another request.
        """
        number, request, recorded = self._ask(messages, options)
        if recorded is not None:
            yield recorded
            return
        stream: AsyncGenerator[str | CreateResult, None] | None = None
        answered = began = False
        try:
            rules, options = self._ready(options)
            if self._openai is not None:
                created_with = self._openai._create_args  # pyright: ignore[reportPrivateUsage]
                given = options.get("extra_create_args", {}).keys() | created_with
                if "stream_options" not in given:  # AutoGen raises when the two differ
                    options = {"include_usage": True, **options}
            while True:
                stream = self.inner.create_stream(self._sent(messages, rules), **options)
                try:
                    async for item in stream:
                        began = True
                        if isinstance(item, CreateResult):
                            self.meter.add(item.usage)
                            if self._steps is not None and request is not None and not answered:
                                answered = True
                                await self._steps.answered(number, request, item)
                        yield item
                    break
                except Exception as error:
                    lesson = None if began else self.rules.learn(self._where, rules, error, self.messages)
                    if lesson is None:
                        raise
                    rules = lesson
        finally:
            if self._steps is not None and not answered:
                self._steps.not_answered(number)
            # `async for` does not close what it iterates; without this an abandoned answer keeps its connection.
            if stream is not None:
                await stream.aclose()

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens of a request, estimated (see `tokens`) where the exact count would need the network."""
        if self._openai is None or isinstance(self._openai, PooledOpenAIClient):
            return self.inner.count_tokens(messages, tools=tools)
        return count_tokens(self.inner.count_tokens, self._where[1], messages, tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens left of the model's context.

        Raises:
            ConfigurationError: AutoGen does not know the model's context size, and the settings do not say it.
        """
        if self._openai is None or isinstance(self._openai, PooledOpenAIClient):
            return self.inner.remaining_tokens(messages, tools=tools)
        return remaining_tokens(self.count_tokens(messages, tools=tools), self._where[1])

    def actual_usage(self) -> RequestUsage:
        """The wrapped client's count; `meter` is the run's."""
        return self.inner.actual_usage()

    def total_usage(self) -> RequestUsage:
        """The wrapped client's count; `meter` is the run's."""
        return self.inner.total_usage()

    @property
    def capabilities(self) -> ModelCapabilities:  # pyright: ignore[reportDeprecated]
        return self.inner.capabilities  # pyright: ignore[reportDeprecated]

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do."""
        return self.inner.model_info

    async def close(self) -> None:
        """Close the wrapped client. Those of a `ModelClientFactory` are shared and stay open."""
        await self.inner.close()

    def dump_component(self) -> ComponentModel:
        """The wrapped client's config: a run is no part of a component."""
        return self.inner.dump_component()


ClientMaker: TypeAlias = Callable[[str | None, MessageForm | None], RunModelClient]
"""Makes the run's client for a model name, or for the default model: `RunContext.model_client`."""

_current: ContextVar[ClientMaker | None] = ContextVar("drsai_run_model_client", default=None)


@contextmanager
def run_model_clients(maker: ClientMaker) -> Generator[None]:
    """While a team is being built: what `DefaultModelClient` stands for."""
    token = _current.set(maker)
    try:
        yield
    finally:
        _current.reset(token)


class DefaultModelClientConfig(BaseModel):
    """The component config: `model` and `messages` as in `RunContext.model_client`."""

    model: str | None = None
    messages: MessageForm | None = None


class DefaultModelClient(RunModelClient, Component[DefaultModelClientConfig]):
    """The run's own model client, with the request's parameters and key. Only while a team is being built.

    In a component config (`config` may also be `{}`, or `model_client` left out)::

        model_client:
          provider: drsai_backend.models.DefaultModelClient
          config: {model: gpt-4o-mini}

    Raises:
        ConfigurationError: used outside of a team factory.
    """

    component_type = "model"
    component_config_schema = DefaultModelClientConfig
    component_provider_override = "drsai_backend.models.DefaultModelClient"

    def __init__(self, model: str | None = None, messages: MessageForm | None = None) -> None:
        maker = _current.get()
        if maker is None:
            raise ConfigurationError("DefaultModelClient stands for the client of a run: use it inside a team factory")
        vars(self).update(vars(maker(model, messages)))
        self._asked_for = model

    def dump_component(self) -> ComponentModel:
        """Itself, not the wrapped client: loaded again, it is the client of that run."""
        return super(RunModelClient, self).dump_component()

    def _to_config(self) -> DefaultModelClientConfig:
        return DefaultModelClientConfig(model=self._asked_for, messages=self.messages)

    @classmethod
    def _from_config(cls, config: DefaultModelClientConfig) -> Self:
        return cls(model=config.model, messages=config.messages)
