"""The run's client is a model client to which the request's parameters go, and out of which comes what it used."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, Self, cast

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
from drsai_backend.models.answer import (
    Asked,
    Items,
    ModelAnswer,
    ModelCall,
    ReasonedResult,
    ToolAnswer,
    asked,
    result_of,
)
from drsai_backend.models.calls.params import ModelParams, of_a_manager, renames_max_tokens
from drsai_backend.models.calls.requests import AnswerSteps, ModelRequest, tool_name
from drsai_backend.models.calls.seen_images import SeenImages
from drsai_backend.models.endpoints.answers import NOTES, AnsweredCall, CallNotes, CallRecord, UsageMeter
from drsai_backend.models.endpoints.bounded import AnswerBounds, AnswerLength
from drsai_backend.models.endpoints.message_rules import (
    MessageForm,
    MessageRules,
    Rules,
    Where,
    before_question,
    conform,
    quotes,
    where_of,
    with_prompt,
    without_calls,
)
from drsai_backend.models.endpoints.refused import refused_parameter
from drsai_backend.models.endpoints.thoughts import with_thought
from drsai_backend.models.openai import PooledOpenAIClient
from drsai_backend.models.text_calls.asking import TextCalls
from drsai_backend.models.text_calls.wording import RenderedMessages, TextForm
from drsai_backend.models.tokens import count_tokens, estimate_content, estimate_tokens, remaining_tokens
from drsai_backend.models.turns import AT_A_TURN, turns_here

_CUT: Final[Any] = {
    "finish_reason": "length",
    "usage": RequestUsage(prompt_tokens=0, completion_tokens=0),
    "cached": False,
}


def _estimated(messages: Sequence[LLMMessage], options: JsonObject) -> int:
    """Return about how many tokens are sent."""
    return estimate_tokens(messages, tools=options.get("tools") or ())


def takes_parameter(client: ChatCompletionClient, name: str) -> bool:
    """Whether a model client takes a parameter of requests; see `ModelProvider`."""
    if isinstance(client, RunModelClient):
        return takes_parameter(client.inner, name)
    takes: bool | Collection[str] = getattr(client, "takes_params", False)
    return isinstance(client, BaseOpenAIChatCompletionClient) or (takes if isinstance(takes, bool) else name in takes)


@dataclass(slots=True, eq=False)
class AgentCalls:
    """Whose calls a client makes, and what it keeps from call to call.

    Attributes:
        steps: records the agent's answers, and gives them again when a turn is repeated. A recorded answer is no call,
            and is not counted again; in a stream it comes as the result alone.
        prompt: one more system message of every request, after the agent's own.
        offer: says what the options of each request become that is really made.
        speaker: the agent's name.
        answers: the agent answers the user: in the request's `response_format`.
        asks: makes the calls, in place of the wrapped client.
        images: makes those of the agent's tools.
        seen: those that were made.
        rendered: messages as texts that call tools.
        recall: finds a text for the messages of a request, which is put before the question.
        known: says in a turn that is repeated what the model of the next request could, where that mattered. Its agent
            would leave images out where the model sees none any more, or ask for JSON in another form, and what is
            recorded would be an answer to another request.
    """

    steps: AnswerSteps | None = None
    prompt: str | None = None
    offer: Callable[[JsonObject], JsonObject] | None = None
    speaker: str | None = None
    answers: bool = False
    asks: Asked | None = None
    images: Callable[[], SeenImages] | None = None
    seen: SeenImages | None = None
    rendered: RenderedMessages = field(default_factory=RenderedMessages)
    recall: Callable[[Sequence[LLMMessage]], Awaitable[str | None]] | None = None
    known: Callable[[], JsonObject] | None = None


class _Text(AnswerLength):
    """The text of an answer that comes in pieces, which take their turns.

    Attributes:
        turns: those of the event loop.
        round: the round of them in which the newest piece has come.
        together: how many pieces have come in it before that, and so without a wait.
    """

    def __init__(self, bounds: AnswerBounds) -> None:
        super().__init__(bounds)
        self.turns = turns_here()
        self.round, self.together = -1, 0


class _Call:
    """A call under way: its number in the agent's turn, which is free again where no answer is given; and the answer,
    at first the one that is recorded. `model`: the name that the client has for its model; where a profile has asked
    another one, that is named."""

    def __init__(
        self,
        steps: AnswerSteps | None,
        call: ModelCall,
        notes: CallNotes,
        meter: UsageMeter,
        model: str,
    ) -> None:
        self.notes = notes
        self.meter = meter
        self._failed = meter.failed
        self._model = model
        self.since = time.monotonic()
        self.number, self.answer = 0, None
        self.said: list[str] = []
        """What has come of the answer's text."""
        self.prompt: Callable[[], int] | None = None
        """Estimates what is sent; None: nothing is, so far."""
        self.is_counted = False
        self.reserved: Callable[[bool], None] | None = None
        """Is told the end of a call that was reserved (`UsageMeter.reserve`)."""
        self.steps = steps
        if steps is not None:
            self.request = ModelRequest.of(call.messages, call.options)
            self.number, self.answer = steps.next_answer(self.request)

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self.steps is not None and self.answer is None:
            self.steps.not_answered(self.number)
        count = self.meter.under_way.pop(self, None)
        if count is not None and not self.is_counted:
            count(self, error is not None and not isinstance(error, Exception))
        if self.reserved is not None:
            self.reserved(self.is_counted)
        await self.notes.close()
        if self._failed is not None and isinstance(error, Exception):
            self._failed(str(self.notes.by.get("model", self._model)), error)
        self.notes.check_answer(error)

    def unanswered(self, is_cut: bool) -> tuple[RequestUsage, Mapping[str, int]]:
        """Return what a call has used to which no answer is given. One that was cut off, or broke while its answer
        came, was worked at: what its endpoint has not said of that is estimated."""
        again, was_worked_at = self.meter.is_made_again, self.notes.is_sent and (is_cut or any(self.said))
        if self.prompt is None or not was_worked_at or (again is not None and again()):
            return self.notes.unanswered(0, 0)
        return self.notes.unanswered(self.prompt(), estimate_content("".join(self.said)))

    def record(self, agent: str, result: CreateResult | None, counts: Mapping[str, int]) -> CallRecord:
        """Return what `Run.calls` keeps of it. `result`: its answer; None: none is given."""
        record: dict[str, object] = {"agent": agent, "step": f"m{self.number}"}
        if isinstance(result, ModelAnswer):
            record |= {"profile": result.profile, "model": result.model, "attempts": result.attempts}
        elif result is None and self.notes.by:
            record |= self.notes.by
        elif self._model:
            record["model"] = self._model
        if result is None:
            record["cut"] = True
        elif result.cached:
            record["cached"] = True
        record |= {name: count for name, count in counts.items() if count}
        record["seconds"] = round(time.monotonic() - self.since, 3)
        return cast(CallRecord, record)


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
        self.params = params if params is not None else ModelParams()
        self.meter = meter if meter is not None else UsageMeter()
        self._openai = inner if isinstance(inner, BaseOpenAIChatCompletionClient) else None
        given = self.params.create_args()
        self._args = {name: value for name, value in given.items() if takes_parameter(inner, name)} if given else {}
        self._form: JsonObject | None = self._args.pop("response_format", None)
        self.rules = rules if rules is not None else MessageRules()
        # A profile's client makes messages fit each of its endpoints, and its attempts say what is sent.
        self._conforms = bool(getattr(inner, "conforms", False))
        self.messages: MessageForm | None = "any" if self._conforms else messages
        is_bounded = "max_tokens" in self._args and self._openai is not None
        if is_bounded and renames_max_tokens(*self._where, inner.model_info["family"]):
            self._args["max_completion_tokens"] = self._args.pop("max_tokens")
        self._agent = AgentCalls()
        self._text_form: TextForm | None = None
        self.thoughts: dict[str, str] = {}
        """What the model has thought in this run beside calls of tools, by the ids of the calls."""
        self.signed: dict[str, list[JsonObject]] = {}
        """The same as Anthropic's blocks."""
        self.answered_by_tool = False
        """Whether a tool has given the last answer."""
        self.show: Callable[[str], None] | None = None
        """Shows the pieces of an answer that follow its beginning; None: its agent, which gets them, does."""

    @cached_property
    def _where(self) -> Where:
        return where_of(self.inner)

    def _copy(self) -> Self:
        client = object.__new__(type(self))  # As `copy` does it, in ten calls more.
        vars(client).update(vars(self))
        return client

    def calling_in_text(self, form: TextForm) -> Self:
        """The same client, for an agent whose tools are called by text, as the model calls no functions or calls them
        badly. Agents see it as one of a model that does. `form`: how calls are written."""
        client = self._copy()
        client._text_form = form
        return client

    @property
    def calls_in_text(self) -> bool:
        """Whether tools are called by text."""
        return self._text_form is not None

    def of_run(self, params: ModelParams, meter: UsageMeter, rules: MessageRules) -> RunModelClient:
        """The same client in a run, where an agent has made it before there was one."""
        client = RunModelClient(self.inner, params=params, meter=meter, rules=rules, messages=self.messages)
        return client if self._text_form is None else client.calling_in_text(self._text_form)

    def with_steps(self, agent: AgentCalls, *, manages: bool = False) -> Self:
        """The same client for one agent. With `manages` the calls are a group chat's own."""
        client = self._copy()
        agent.asks = agent.asks or self._agent.asks
        client._agent = agent
        client.thoughts, client.signed = {}, {}
        client._args = of_a_manager(self._args) if manages and self._args else self._args
        return client

    async def _seen(self, messages: Sequence[LLMMessage]) -> Sequence[LLMMessage]:
        """The messages, for a model that sees with the images that the agent's tools have returned."""
        if self._agent.images is None or not self.inner.model_info.get("vision"):
            return messages
        self._agent.seen = self._agent.seen or self._agent.images()
        return await self._agent.seen.shown(messages)

    def _sent(
        self, messages: Sequence[LLMMessage], rules: Rules, options: Mapping[str, object]
    ) -> Sequence[LLMMessage]:
        """Return what the endpoint gets of an agent's messages."""
        if self._agent.prompt is not None:
            messages = with_prompt(messages, self._agent.prompt)
        if not rules.undeclared and not options.get("tools"):
            messages = without_calls(messages)
        if rules.names and not rules.alternate:
            return messages
        prefixed = False
        if self._openai is not None:
            self._openai._include_name_in_message = False  # pyright: ignore[reportPrivateUsage]
            prefixed = self._openai._add_name_prefixes  # pyright: ignore[reportPrivateUsage]
        return conform(messages, rules, prefixed=prefixed)

    def _ready(self, options: JsonObject) -> tuple[Rules, JsonObject]:
        """The rules for the messages of a call, and its options with the request's parameters. It may be forbidden."""
        if self.meter.check is not None:
            self.meter.check()
        if self._agent.offer is not None:
            options = self._agent.offer(options)
        if self.rules.switches.off:
            options = self._left_on(options)
        if self._args or self._form:
            options = {**options, "extra_create_args": {**self._asked(options), **options.get("extra_create_args", {})}}
        family = self.inner.model_info.get("family", ModelFamily.UNKNOWN)
        return self.rules.of(self._where, family, self.messages), options

    def _left_on(self, options: JsonObject) -> JsonObject:
        """Return the options of a call without the tools that are switched off. Raises SwitchedOff: its model is."""
        switches, tenant = self.rules.switches, self.meter.tenant
        if (refusal := switches.find("model", self._where[1], tenant)) is not None:
            raise refusal
        tools: Sequence[Tool | ToolSchema] = options.get("tools") or ()
        left = [each for each in tools if switches.find("tool", tool_name(each), tenant) is None]
        if len(left) == len(tools):
            return options
        options = {**options, "tools": left}
        chosen: object = options.get("tool_choice")
        if not left or not (isinstance(chosen, str) or chosen in left):
            options.pop("tool_choice", None)  # What is not offered cannot be demanded.
        return options

    def _asked(self, options: Mapping[str, object]) -> JsonObject:
        """The request's parameters for one call."""
        args = self._args
        if "parallel_tool_calls" in args and not options.get("tools"):
            args = {name: value for name, value in args.items() if name != "parallel_tool_calls"}  # else refused
        # An agent with a form of its own keeps it.
        if self._agent.answers and self._form is not None and options.get("json_output") is None:
            args = {**args, "response_format": self._form}
        return args

    def _note(self, result: CreateResult, notes: CallNotes) -> None:
        """Note what an answer tells of itself, for whoever shows the agent's message."""
        if (speaker := self._agent.speaker) is None:
            return
        if isinstance(result, ReasonedResult):
            if (reasoning := result.reasoning) is not None:
                self.meter.thoughts.setdefault(speaker, []).append(reasoning)
                self.thoughts |= {call.id: reasoning for call in result.content if not isinstance(call, str)}
            if (signed := result.signed) is not None:
                self.signed |= {call.id: signed for call in result.content if not isinstance(call, str)}
        if isinstance(result, ModelAnswer):
            self.meter.answered[speaker] = result.by()
        else:
            self.meter.answered.pop(speaker, None)
        if isinstance(result.content, str):
            self.meter.finishes[speaker] = notes.finish(result)
        else:
            self.meter.finishes.pop(speaker, None)

    async def _taken(self, call: _Call, given: CreateResult, said: Sequence[str]) -> CreateResult:
        """The answer of a call, noted, counted and recorded. A call of an agent is kept for `Run.calls`; others have no
        place in a run."""
        signed = call.notes.whole_signed()
        result = call.notes.bounded(with_thought(given, said))
        if signed and not isinstance(result.content, str):
            result = ReasonedResult.of_signed(result, signed)
        self._note(result, call.notes)
        if call.answer is None:
            exchange = None
            if self.meter.keeps_exchanges:  # Before it is counted: a run that is stopped meanwhile has all or nothing.
                from drsai_backend.models.calls.exchanges import exchange_of

                exchange = await exchange_of(call.notes, result)
            usage, details = call.notes.spent(result)
            self._count(call, result, usage, details, exchange)
            if call.steps is not None:
                await call.steps.answered(call.number, call.request, result)
            call.answer = result
        return result

    def _count(
        self,
        call: _Call,
        result: CreateResult | None,
        usage: RequestUsage,
        details: Mapping[str, int],
        exchange: bytes | None = None,
    ) -> None:
        """Count what a call has used, once; `result`: its answer, None where it came to none."""
        self.meter.add(usage, details)
        call.is_counted = True
        speaker, each = self._agent.speaker, self.meter.each
        if speaker is None and each is None:
            return
        counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens, **details}
        record = call.record(speaker or "", result, counts)
        if speaker is not None:
            self.meter.keep(record)
        if each is not None:
            each(AnsweredCall(**record) if exchange is None else AnsweredCall(**record, exchange=exchange))

    def _count_unanswered(self, call: _Call, is_cut: bool) -> None:
        """Count a call that came to no answer, if it has used anything. One that is answered is still under way while
        whoever has its answer keeps its stream."""
        if call.is_counted:
            return
        usage, details = call.unanswered(is_cut)
        if usage.prompt_tokens or usage.completion_tokens:
            self._count(call, None, usage, details)

    async def create(self, messages: Sequence[LLMMessage], **options: object) -> CreateResult:
        """One answer. Options are those of AutoGen's `create` and the wrapped client's.

        Raises:
            ReplayMismatch: the turn is repeated, and the recorded answer is one to another request.
        """
        return await result_of(self.items(ModelCall(messages, options, streams=False)))

    def create_stream(self, messages: Sequence[LLMMessage], **options: object) -> Items:
        """Pieces of text, then the result. Options are those of AutoGen's `create_stream` and the wrapped client's.

        A thought comes in front of the text, between `<think>` and `</think>`; the result has it apart. An
        agent's first piece is empty, and no other: who shows those of several calls as one sees where a call begins.

        Raises:
            ReplayMismatch: the turn is repeated, and the recorded answer is one to another request.
        """
        return self.items(ModelCall(messages, options, streams=True))

    async def items(self, call: ModelCall) -> Items:
        """Make a call; see `create_stream`."""
        # Those of a profile's client, whose attempt this is.
        notes = NOTES.get() or CallNotes(self.rules.bounds, self.thoughts, self.signed)
        model = getattr(self.inner, "model", "") if self._conforms else self._where[1]
        made = _Call(self._agent.steps, call, notes, self.meter, model)
        self.answered_by_tool = type(made.answer) is ToolAnswer
        if made.answer is not None:
            self._note(made.answer, notes)
            yield made.answer
            return
        said, text = made.said, _Text(self.rules.bounds) if call.streams else None
        self.show = None
        self.meter.under_way[made] = self._count_unanswered
        async with made:
            stream, item = await self._begun(call, notes, made)
            try:
                while item is not None:
                    if isinstance(item, CreateResult):
                        yield await self._taken(made, item, said)
                    elif item and text is not None:
                        if not said and self._agent.speaker is not None:
                            yield ""
                        text.together = text.together + 1 if text.round == text.turns.round else 0
                        if text.together % AT_A_TURN == 0 and (waiting := text.turns.take(len(said))) is not None:
                            await waiting
                        text.round = text.turns.round
                        said.append(piece := text.text(item))
                        if self.show is not None:
                            self.show(piece)
                        elif piece:  # Nothing of it may be taken where the answer is too long.
                            yield piece
                        if text.over:  # Its client has no bound of its own.
                            yield await self._taken(made, CreateResult(content="".join(said), **_CUT), said)
                            break
                    item = await anext(stream, None)
            finally:
                # `async for` does not close what it iterates; without this an abandoned answer keeps its connection.
                await stream.aclose()

    async def _begun(self, call: ModelCall, notes: CallNotes, made: _Call) -> tuple[Items, str | CreateResult | None]:
        """Send a call, and again where its endpoint refuses its messages and says why; returns its answer and the
        answer's first item. `made` is told what is reserved for it."""
        rules, options = self._ready(call.options)
        messages = await self._seen(call.messages)
        if self._agent.recall is not None and (recalled := await self._agent.recall(call.messages)) is not None:
            messages = before_question(messages, recalled)
        if self._openai is not None and call.streams:
            created_with = self._openai._create_args  # pyright: ignore[reportPrivateUsage]
            given = options.get("extra_create_args", {}).keys() | created_with
            if "stream_options" not in given:  # AutoGen raises when the two differ
                options = {"include_usage": True, **options}
        ask = partial(asked, self._agent.asks or self.inner)
        if self._text_form is not None:
            where = None if self._openai is None else self._where
            texts = TextCalls(ask, self._text_form, options, self.rules.no_stop, where, self._agent.rendered)
            ask, options, messages = partial(texts.asked, notes), texts.options, texts.rendered(messages)
        made.prompt = partial(_estimated, messages, options)
        if self.meter.reserves and self.meter.reserve is not None:
            made.reserved = await self.meter.reserve(self._where[1], made.prompt, self._longest(options))
        known, is_quoted = rules, False
        while True:
            notes.returns_thoughts = rules.reasoning
            notes.asked, notes.sent = ModelCall(self._sent(messages, rules, options), options, call.streams), None
            notes.is_sent = not self._conforms
            stream = ask(notes.asked)
            token = NOTES.set(notes)
            try:
                begun = stream, await anext(stream, None)  # Its request is sent with the first step.
                if rules is not known and not is_quoted:
                    self.rules.learn(self._where, rules)
                return begun
            except Exception as error:
                lesson = self.rules.lesson(self._where, rules, error, self.messages)
                if lesson is None:
                    self._check_refusal(error, options)
                    raise
                # What one user has made an endpoint say is not believed for all.
                rules, is_quoted = lesson, is_quoted or quotes(error, messages)
            finally:
                NOTES.reset(token)

    def _longest(self, options: Mapping[str, Any]) -> int | None:
        """Return of how many tokens an answer may be at most; None: nobody says."""
        own = {} if self._openai is None else self._openai._create_args  # pyright: ignore[reportPrivateUsage]
        given = {**own, **options.get("extra_create_args", {})}
        longest = given.get("max_completion_tokens") or given.get("max_tokens")
        return longest if isinstance(longest, int) else None

    def _check_refusal(self, error: Exception, options: JsonObject) -> None:
        """Raise ParameterRefused where an endpoint does not take a parameter of the request."""
        if self._args or self._form:
            sent = self._asked(options)
            name = refused_parameter(error, [name for name in sent if options["extra_create_args"][name] is sent[name]])
            if name is not None:
                raise ParameterRefused.of(name) from error

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
        info: ModelInfo = self.inner.model_info
        if self._agent.known is not None:
            info = cast(ModelInfo, {**info, **self._agent.known()})
        return info if self._text_form is None else {**info, "function_calling": True}

    async def close(self) -> None:
        """Close the wrapped client. Those of a `ModelClientFactory` are shared and stay open."""
        await self.inner.close()

    def dump_component(self) -> ComponentModel:
        """The wrapped client's config: a run is no part of a component."""
        return self.inner.dump_component()
