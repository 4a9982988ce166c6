"""The model client of one run: the request's parameters go in, what it used comes out."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Self

from autogen_core import ComponentModel
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

from drsai_backend.errors import ParameterRefused
from drsai_backend.json_types import JsonObject
from drsai_backend.models.answer import ModelAnswer, ReasonedResult
from drsai_backend.models.calls.params import ModelParams, of_a_manager, renames_max_tokens
from drsai_backend.models.calls.records import record_of, spent
from drsai_backend.models.calls.requests import AnswerSteps, ModelRequest
from drsai_backend.models.calls.seen_images import SeenImages
from drsai_backend.models.endpoints.answers import CallNotes, UsageMeter, current_notes, noting
from drsai_backend.models.endpoints.bounded import AnswerLength
from drsai_backend.models.endpoints.continuation import ContinuingClient
from drsai_backend.models.endpoints.message_rules import (
    MessageForm,
    MessageRules,
    Rules,
    Where,
    conform,
    where_of,
    with_prompt,
    without_calls,
)
from drsai_backend.models.endpoints.refused import refused_parameter
from drsai_backend.models.endpoints.thoughts import with_thought
from drsai_backend.models.openai import PooledOpenAIClient
from drsai_backend.models.text_calls.asking import TextCalls
from drsai_backend.models.text_calls.wording import Known, TextForm
from drsai_backend.models.tokens import count_tokens, remaining_tokens
from drsai_backend.models.turns import AT_A_TURN, turn

_CUT: Final[Any] = {
    "finish_reason": "length",
    "usage": RequestUsage(prompt_tokens=0, completion_tokens=0),
    "cached": False,
}


def takes_parameter(client: ChatCompletionClient, name: str) -> bool:
    """Whether a model client takes a parameter of requests; see `ModelProvider`."""
    if isinstance(client, RunModelClient):
        return takes_parameter(client.inner, name)
    takes: bool | Collection[str] = getattr(client, "takes_params", False)
    return isinstance(client, BaseOpenAIChatCompletionClient) or (takes if isinstance(takes, bool) else name in takes)


class RunModelClient(ChatCompletionClient):
    """Wraps any model client for one run.

    With an OpenAI-compatible client, or another that takes them, `params` are merged into the arguments of every call:
    they win over the client's constructor, and an agent's own `extra_create_args` win over them. `with_steps` says
    whose calls they are, and so which of them they get. Streams of OpenAI-compatible clients are asked for their usage.
    A thought is told apart from the text of its answer (see `thoughts`), and never sent as one. What calls used, and
    how they finished, is added to `meter`, whose `check` may forbid them. In a turn that is repeated, recorded answers
    are given again without asking (see `with_steps`). An endpoint that takes messages in turns only gets them so (see
    `message_rules`). Everything else is the wrapped client's.

    Args:
        inner: the client that does the work. It is not closed by the run.
        params: the request's parameters.
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
        self._asks: ChatCompletionClient | ContinuingClient = inner
        self.params = params if params is not None else ModelParams()
        self.meter = meter if meter is not None else UsageMeter()
        self._openai = inner if isinstance(inner, BaseOpenAIChatCompletionClient) else None
        given = self.params.create_args()
        self._args = {name: value for name, value in given.items() if takes_parameter(inner, name)} if given else {}
        self._form: JsonObject | None = self._args.pop("response_format", None)
        self._answers = False
        self._speaker: str | None = None
        self.rules = rules if rules is not None else MessageRules()
        # A profile's client makes messages fit each of its endpoints.
        self.messages: MessageForm | None = "any" if getattr(inner, "conforms", False) else messages
        is_bounded = "max_tokens" in self._args and self._openai is not None
        if is_bounded and renames_max_tokens(*self._where, inner.model_info["family"]):
            self._args["max_completion_tokens"] = self._args.pop("max_tokens")
        self._prompt: str | None = None
        self._steps: AnswerSteps | None = None
        self._offer: Callable[[JsonObject], JsonObject] | None = None
        self._images: Callable[[], SeenImages] | None = None
        self._seen_images: SeenImages | None = None
        self._text_form: TextForm | None = None
        self._rendered: Known = {}
        self.thoughts: dict[str, str] = {}
        """What the model has thought in this run beside calls of tools, by the ids of the calls."""

    @cached_property
    def _where(self) -> Where:
        return where_of(self.inner)

    def calling_in_text(self, form: TextForm) -> Self:
        """The same client, for an agent whose tools are called by text, as the model calls no functions or calls them
        badly. Agents see it as one of a model that does. `form`: how calls are written."""
        client = object.__new__(type(self))
        vars(client).update(vars(self), _text_form=form)
        return client

    @property
    def calls_in_text(self) -> bool:
        """Whether tools are called by text."""
        return self._text_form is not None

    def of_run(self, params: ModelParams, meter: UsageMeter, rules: MessageRules) -> RunModelClient:
        """The same client in a run, where an agent has made it before there was one."""
        client = RunModelClient(self.inner, params=params, meter=meter, rules=rules, messages=self.messages)
        return client if self._text_form is None else client.calling_in_text(self._text_form)

    def with_steps(
        self,
        steps: AnswerSteps,
        prompt: str | None = None,
        offer: Callable[[JsonObject], JsonObject] | None = None,
        *,
        speaker: str | None = None,
        manages: bool = False,
        answers: bool = False,
        asks: ContinuingClient | None = None,
        images: Callable[[], SeenImages] | None = None,
    ) -> Self:
        """The same client for one agent, whose answers `steps` records, and gives again when a turn is repeated.

        A recorded answer is no call, and is not counted again; in a stream it comes as the result alone.
        `prompt` is one more system message of every request, after the agent's own. `offer` says what the options of
        each request become that is really made. `speaker` is the agent's name; one that `answers` the user does so in
        the request's `response_format`. With `manages` the calls are a group chat's own. `asks` makes calls, if given.
        `images` makes those of the agent's tools.
        """
        # `copy.copy` takes ten times as long, for every agent of every run.
        client = object.__new__(type(self))
        vars(client).update(
            vars(self),
            _steps=steps,
            _prompt=prompt,
            _offer=offer,
            _speaker=speaker,
            _answers=answers,
            _asks=asks or self._asks,
            _images=images,
            _seen_images=None,
            _rendered={},
            thoughts={},
            _args=of_a_manager(self._args) if manages and self._args else self._args,
        )
        return client

    async def _seen(self, messages: Sequence[LLMMessage]) -> Sequence[LLMMessage]:
        """The messages, for a model that sees with the images that the agent's tools have returned."""
        if self._images is None or not self.inner.model_info.get("vision"):
            return messages
        self._seen_images = self._seen_images or self._images()
        return await self._seen_images.shown(messages)

    def _sent(self, messages: Sequence[LLMMessage], rules: Rules, options: Mapping[str, Any]) -> Sequence[LLMMessage]:
        """What the endpoint gets of an agent's messages."""
        if self._prompt is not None:
            messages = with_prompt(messages, self._prompt)
        if not rules.undeclared and not options.get("tools"):
            messages = without_calls(messages)
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
        if self._offer is not None:
            options = self._offer(options)
        if self._args or self._form:
            options = {**options, "extra_create_args": {**self._asked(options), **options.get("extra_create_args", {})}}
        family = self.inner.model_info.get("family", ModelFamily.UNKNOWN)
        return self.rules.of(self._where, family, self.messages), options

    def _asked(self, options: JsonObject) -> JsonObject:
        """The request's parameters for one call."""
        args = self._args
        if "parallel_tool_calls" in args and not options.get("tools"):
            args = {name: value for name, value in args.items() if name != "parallel_tool_calls"}  # else refused
        # An agent with a form of its own keeps it.
        if self._answers and self._form is not None and options.get("json_output") is None:
            args = {**args, "response_format": self._form}
        return args

    def _asking(self, options: JsonObject) -> tuple[ChatCompletionClient | ContinuingClient | TextCalls, JsonObject]:
        """Who is asked, and with which options."""
        if self._text_form is None:
            return self._asks, options
        where = None if self._openai is None else self._where
        asks = TextCalls(self._asks, self._text_form, options, self.rules.no_stop, where, self._rendered)
        return asks, asks.options

    def _refused(self, error: Exception, options: JsonObject) -> ParameterRefused | None:
        """What to raise where an endpoint has refused one of the request's parameters."""
        sent = self._asked(options)
        name = refused_parameter(error, [name for name in sent if options["extra_create_args"][name] is sent[name]])
        return None if name is None else ParameterRefused.of(name)

    def _answered(self, result: CreateResult, notes: CallNotes, *, counts: bool = True) -> None:
        """Note an answer; one that was recorded before does not count again."""
        if counts:
            self.meter.add(*spent(result, notes))
        if self._speaker is None:
            return
        if isinstance(result, ReasonedResult) and (reasoning := result.reasoning) is not None:
            self.meter.thoughts.setdefault(self._speaker, []).append(reasoning)
            self.thoughts |= {call.id: reasoning for call in result.content if not isinstance(call, str)}
        if isinstance(result, ModelAnswer):
            self.meter.answered[self._speaker] = result.by()
        else:
            self.meter.answered.pop(self._speaker, None)
        if isinstance(result.content, str):
            self.meter.finishes[self._speaker] = notes.finish(result)
        else:
            self.meter.finishes.pop(self._speaker, None)

    def _record(self, number: int, result: CreateResult, notes: CallNotes, since: float) -> None:
        """Keep a call that was made, for `Run.calls`. Calls of nobody in particular have no place in a run."""
        if self._speaker is not None:
            usage, details = spent(result, notes)
            seconds = round(time.monotonic() - since, 3)
            self.meter.records.append(record_of(self._speaker, number, self._where[1], result, usage, details, seconds))

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        """One answer. Options are those of AutoGen's `create` and the wrapped client's.

        Raises:
            ReplayMismatch: the turn is repeated, and the recorded answer is one to another request.
        """
        number, request, recorded = self._ask(messages, options)
        # Those of a profile's client, whose attempt this is.
        notes = current_notes() or CallNotes(bounds=self.rules.bounds, thoughts=self.thoughts)
        if recorded is not None:
            self._answered(recorded, notes, counts=False)
            return recorded
        since = time.monotonic()
        try:
            rules, options = self._ready(options)
            messages = await self._seen(messages)
            asks, options = self._asking(options)
            if isinstance(asks, TextCalls):
                messages = asks.rendered(messages)
            while True:
                try:
                    notes.returns_thoughts = rules.reasoning
                    with noting(notes):
                        result = await asks.create(self._sent(messages, rules, options), **options)
                    break
                except Exception as error:
                    lesson = self._lesson(rules, error, options)
                    if lesson is None:
                        notes.check_answer(error)
                        raise
                    rules = lesson
        except BaseException:
            if self._steps is not None:
                self._steps.not_answered(number)
            raise
        result = notes.bounded(with_thought(result))
        self._answered(result, notes)
        self._record(number, result, notes, since)
        if self._steps is not None and request is not None:
            await self._steps.answered(number, request, result)
        return result

    def _lesson(self, rules: Rules, error: Exception, options: JsonObject) -> Rules | None:
        """The rules for another try; None: the error teaches nothing.

        Raises:
            ParameterRefused: the endpoint does not take a parameter of the request.
        """
        if (lesson := self.rules.learn(self._where, rules, error, self.messages)) is not None:
            return lesson
        refused = self._refused(error, options) if self._args or self._form else None
        if refused is not None:
            raise refused from error
        return None

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Pieces of text, then the result. Options are those of AutoGen's `create_stream` and the wrapped client's.

        A thought comes in front of the text, between `<think>` and `</think>`; the result has it apart. An
        agent's first piece is empty, and no other: who shows those of several calls as one sees where a call begins.

        Raises:
            ReplayMismatch: the turn is repeated, and the recorded answer is one to another request.
        """
        number, request, recorded = self._ask(messages, options)
        notes = current_notes() or CallNotes(bounds=self.rules.bounds, thoughts=self.thoughts)
        if recorded is not None:
            self._answered(recorded, notes, counts=False)
            yield recorded
            return
        since = time.monotonic()
        stream: AsyncGenerator[str | CreateResult, None] | None = None
        answered = began = False
        said: list[str] = []
        length = AnswerLength(self.rules.bounds)
        try:
            rules, options = self._ready(options)
            messages = await self._seen(messages)
            if self._openai is not None:
                created_with = self._openai._create_args  # pyright: ignore[reportPrivateUsage]
                given = options.get("extra_create_args", {}).keys() | created_with
                if "stream_options" not in given:  # AutoGen raises when the two differ
                    options = {"include_usage": True, **options}
            asks, options = self._asking(options)
            if isinstance(asks, TextCalls):
                messages = asks.rendered(messages)
            while True:
                notes.returns_thoughts = rules.reasoning
                stream = asks.create_stream(self._sent(messages, rules, options), **options)
                try:
                    with noting(notes):  # Its request is sent with the first step.
                        item = await anext(stream, None)
                    while item is not None:
                        began = True
                        if isinstance(item, str) and item:
                            if not said and self._speaker is not None:
                                yield ""
                            if notes.together % AT_A_TURN == 0:
                                await turn(len(said))
                            said.append(length.text(item))
                            if said[-1]:  # Nothing of it may be taken where the answer is too long.
                                yield said[-1]
                            if length.over:  # Whose client has no bound of its own.
                                item = CreateResult(content="".join(said), **_CUT)
                        if isinstance(item, CreateResult):
                            item = notes.bounded(with_thought(item, said))
                            self._answered(item, notes, counts=not answered)
                            if not answered:
                                self._record(number, item, notes, since)
                            if self._steps is not None and request is not None and not answered:
                                await self._steps.answered(number, request, item)
                            answered = True
                            yield item
                        if length.over:
                            break
                        item = await anext(stream, None)
                    break
                except Exception as error:
                    lesson = None if began else self._lesson(rules, error, options)
                    if lesson is None:
                        notes.check_answer(error)
                        raise
                    rules = lesson
        finally:
            if self._steps is not None and not answered:
                self._steps.not_answered(number)
            # `async for` does not close what it iterates; without this an abandoned answer keeps its connection.
            if stream is not None:
                await stream.aclose()
            await notes.close()

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
        """What the model can do; one whose tools are called by text calls functions."""
        info = self.inner.model_info
        return info if self._text_form is None else {**info, "function_calling": True}

    async def close(self) -> None:
        """Close the wrapped client. Those of a `ModelClientFactory` are shared and stay open."""
        await self.inner.close()

    def dump_component(self) -> ComponentModel:
        """The wrapped client's config: a run is no part of a component."""
        return self.inner.dump_component()
