"""Asks a model for the next step in text, and makes of its answer what one that calls functions would have given."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final, cast

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    LLMMessage,
    UserMessage,
)
from autogen_core.tools import Tool, ToolSchema

from drsai_backend.errors import EndpointFailed
from drsai_backend.json_types import JsonObject
from drsai_backend.models.answer import Items, ModelCall, ReasonedResult
from drsai_backend.models.endpoints.answers import NOTES, CallNotes
from drsai_backend.models.endpoints.refused import refused_parameter
from drsai_backend.models.endpoints.thoughts import with_thought
from drsai_backend.models.text_calls.parsing import TextStep, parse_step
from drsai_backend.models.text_calls.streaming import StepStream
from drsai_backend.models.text_calls.wording import RenderedMessages, TextForm, parameters_of, rendered, repair

REPAIRS: Final = 2
"""How often a model is asked again whose answer is malformed."""
_LONGEST: Final = 100_000
"""Characters of an answer that is asked for once more."""
_STOP: Final = "\nObservation:"
_STOPS: Final = 4
"""So many stop sequences the strictest endpoints take."""
_NOT_SENT: Final = ("tools", "tool_choice")


class TextCalls:
    """One model call of an agent whose tools are called by text.

    Args:
        ask: makes a call of its client.
        form: how calls are written.
        options: of the call, as AutoGen's `create`.
        no_stop: models that take no stop sequences, by what `where` says; one that refuses them is added.
        where: the endpoint and the model; None: its client takes none.
        known: see `wording.rendered`; shared by the calls of an agent.
    """

    def __init__(
        self,
        ask: Callable[[ModelCall], Items],
        form: TextForm,
        options: JsonObject,
        no_stop: set[object],
        where: object | None,
        known: RenderedMessages,
    ) -> None:
        self._ask = ask
        self._form: TextForm = form
        choice: object = options.get("tool_choice", "auto")
        self._choice = choice if isinstance(choice, str) else cast("Tool", choice).name
        self._tools: Sequence[Tool | ToolSchema] = [] if self._choice == "none" else list(options.get("tools") or ())
        self._parameters = parameters_of(self._tools)
        self._no_stop = no_stop
        self._where = where
        self._known = known
        self.options: JsonObject = {name: value for name, value in options.items() if name not in _NOT_SENT}
        """Those of the request that is sent."""
        if "parallel_tool_calls" in self.options.get("extra_create_args", {}):
            args: JsonObject = {**self.options["extra_create_args"]}
            del args["parallel_tool_calls"]
            self.options["extra_create_args"] = args

    def rendered(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        """The messages as this model is sent them."""
        return rendered(messages, self._tools, self._form, self._choice, self._known)

    async def asked(self, notes: CallNotes, call: ModelCall) -> Items:
        """Make the call: thoughts between marks in front where it streams, then the answer, then the result, which has
        calls where the text has. `notes`: of the call; what answers have used that were asked for again is lost there,
        and the result has its own usage alone."""
        shown = StepStream()
        left = REPAIRS
        while True:
            result: CreateResult | None = None
            said: list[str] = []
            async with aclosing(self._sent(notes, call)) as items:
                async for item in items:
                    if isinstance(item, CreateResult):
                        result = self._called_nothing(with_thought(item, said))
                        break
                    said.append(item)
                    if piece := shown.feed(item):
                        yield piece
            if result is None:
                return
            notes.reported = result.usage.prompt_tokens, result.usage.completion_tokens
            step = self._step(result)
            if step is None:
                yield result
                return
            if call.streams and (piece := shown.end()):
                yield piece
            if not step.is_malformed or not left or len(str(result.content)) > _LONGEST:
                break
            left -= 1
            notes.asked_again()
            call = call._replace(messages=self._repairing(call.messages, result))
            shown.again()
        made = _made(result, step, self._tools)
        text = made.content if isinstance(made.content, str) else None
        if call.streams and (piece := shown.close(text, made.thought or "")):
            yield piece
        yield made

    async def _sent(self, notes: CallNotes, call: ModelCall) -> Items:
        """One answer of the model; once more, where it takes no stop sequences and that was not known."""
        while True:
            began = False
            try:
                stopped = call._replace(options=self._stopped(call.options))
                async with aclosing(self._ask(stopped)) as items:
                    token = NOTES.set(notes)
                    try:
                        item = await anext(items, None)  # The request is sent with it, that of a repair, too.
                    finally:
                        NOTES.reset(token)
                    while item is not None:
                        began = True
                        yield item
                        item = await anext(items, None)
                return
            except Exception as error:
                if began or not self._learnt(error):
                    raise

    def _stopped(self, options: JsonObject) -> JsonObject:
        """The options, with what ends the answer where the model would write an observation by itself."""
        if self._where is None or self._where in self._no_stop or not self._tools:
            return options
        args: JsonObject = {**options.get("extra_create_args", {})}
        own: object = args.get("stop") or []
        stops = [own] if isinstance(own, str) else list(cast("list[str]", own))
        if len(stops) >= _STOPS:
            return options
        return {**options, "extra_create_args": {**args, "stop": [*stops, _STOP]}}

    def _learnt(self, error: Exception) -> bool:
        """Whether an error says that the model takes no stop sequences."""
        if self._where is None or self._where in self._no_stop or refused_parameter(error, ["stop"]) is None:
            return False
        self._no_stop.add(self._where)
        return True

    def _called_nothing(self, result: CreateResult) -> CreateResult:
        """The result; without calls of functions where there is no tool, which some models make all the same."""
        if self._tools or isinstance(result.content, str):
            return result
        return result.model_copy(update={"content": "", "finish_reason": "stop"})

    def _step(self, result: CreateResult) -> TextStep | None:
        """Return what the model has written; None: it is no text in this form."""
        if not isinstance(result.content, str):
            return None
        if not self._tools and "json_output" in self.options and self.options["json_output"]:
            return None
        step = parse_step(result.content, self._parameters)
        if step.action is not None and not self._tools:
            return TextStep(step.thought)  # Nothing can be called any more.
        return step

    def _repairing(self, messages: Sequence[LLMMessage], result: CreateResult) -> list[LLMMessage]:
        said = cast(str, result.content).strip()
        if not said:
            return list(messages)  # An empty message is refused by some endpoints.
        return [
            *messages,
            AssistantMessage(content=said, source="assistant"),
            UserMessage(content=repair(self._form), source="user"),
        ]


def _made(result: CreateResult, step: TextStep, tools: Sequence[Tool | ToolSchema]) -> CreateResult:
    """The result as of a model that calls functions. Where no tool can be called any more, what it wrote is the answer.

    Raises:
        EndpointFailed: the answer has stayed malformed.
    """
    if step.is_malformed and tools:
        raise EndpointFailed(
            f"The model wrote neither an action nor a final answer, {1 + REPAIRS} times: its text is no step."
        )
    if step.action is not None:
        call = FunctionCall(id=f"call_{secrets.token_hex(12)}", name=step.action, arguments=step.arguments)
        result = ReasonedResult.of(result, result.thought, step.thought)
        made: JsonObject = {"content": [call], "finish_reason": "function_calls"}
    else:
        thought = "\n".join(part for part in (result.thought or "", step.thought) if part) or None
        made = {"content": step.answer or step.thought or str(result.content), "thought": thought}
    return result.model_copy(update=made)
