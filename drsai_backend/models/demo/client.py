"""The client of the offline demo model says what its rules say: they stand in order, and the first that has an answer
wins."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Literal, Self

from autogen_core import CancellationToken, Component, FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelCapabilities,  # pyright: ignore[reportDeprecated]
    ModelFamily,
    ModelInfo,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from drsai_backend.json_types import JsonObject
from drsai_backend.models.demo.prompts import PREFIX, housekeeping, own_step, plan_of, step_in_text, summed_up
from drsai_backend.models.demo.tools import sample, shorten, tool_calls, words
from drsai_backend.models.tokens import estimate_content, estimate_tokens

_CONTEXT_SIZE: Final = 128_000
_REPORT_SECONDS: Final = 60.0
_log = logging.getLogger("drsai.model")


class DemoConfig(BaseModel):
    """The component config of the demo model."""

    delay: float = 0.015


class DemoChatCompletionClient(ChatCompletionClient, Component[DemoConfig]):
    """An offline stand-in for a language model: deterministic, by fixed rules, and honest about it in every answer.

    It remembers what the conversation says, calls the tools that a message asks for, hands over, selects speakers,
    reviews, writes, and fills JSON schemas. Text answers begin with "[offline demo model]"; answers that a program
    reads (JSON, the name of a speaker) do not. Equal requests get equal answers. It honours the
    parameters `max_tokens` and `stop`, by cutting the text, `response_format`, `parallel_tool_calls` and, without
    effort, `seed`. Usage is estimated: utf-8 bytes / 4.

    Args:
        delay: seconds between two words of a stream; 0 sends all at once.
    """

    component_type = "model"
    component_config_schema = DemoConfig
    component_provider_override = "drsai_backend.models.DemoChatCompletionClient"
    takes_params = frozenset({"max_tokens", "stop", "seed", "response_format", "parallel_tool_calls", "modalities"})
    context_length = _CONTEXT_SIZE

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
        self._answers += 1
        if time.monotonic() >= self._report_at:  # A server that was meant to have a model looks healthy without.
            self._report_at = time.monotonic() + _REPORT_SECONDS
            text = "the offline demo model answers (%d so far): set OPENAI_API_KEY or OPENAI_BASE_URL for a model"
            _log.warning(text, self._answers)
        schemas = [tool.schema if isinstance(tool, Tool) else tool for tool in tools]
        choice = tool_choice if isinstance(tool_choice, str) else tool_choice.name
        view = _Conversation(messages)
        asked = None if schemas else housekeeping(view.last_text, view.system)
        calls = _calls(view, schemas, choice)
        if extra_create_args.get("parallel_tool_calls") is False:
            calls = calls[:1]
        form = extra_create_args.get("response_format") if json_output is None else json_output
        step = None if schemas else step_in_text(view.system, view.last_text, view.task)
        content = asked or calls or step or _for_a_program(view, form) or _text_of(view)
        finish: Literal["stop", "length", "function_calls"] = "stop" if isinstance(content, str) else "function_calls"
        if isinstance(content, str):
            content = _up_to(content, extra_create_args.get("stop"))
        limit = extra_create_args.get("max_tokens")
        if isinstance(content, str) and limit is not None and estimate_content(content) > limit:
            content, finish = content.encode()[: limit * 4].decode("utf-8", "ignore"), "length"
        usage = RequestUsage(estimate_tokens(messages, tools=schemas), estimate_content(content))
        self._usage = RequestUsage(
            self._usage.prompt_tokens + usage.prompt_tokens, self._usage.completion_tokens + usage.completion_tokens
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
        pieces: list[str] = re.findall(r"\s*\S+\s*$|\s*\S+", result.content) if isinstance(result.content, str) else []
        for piece in pieces:
            if self._delay:
                await asyncio.wait([stopped], timeout=self._delay)
            if stopped.cancelled():
                raise asyncio.CancelledError
            yield piece
        yield result

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimated tokens of a request."""
        return estimate_tokens(messages, tools=tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimated tokens left of a context of 128,000."""
        return _CONTEXT_SIZE - estimate_tokens(messages, tools=tools)

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
        """Do nothing, as there is nothing to close."""

    def _to_config(self) -> DemoConfig:
        return DemoConfig(delay=self._delay)

    @classmethod
    def _from_config(cls, config: DemoConfig) -> Self:
        return cls(delay=config.delay)


# --- the rules ------------------------------------------------------------------------------------------------------

_MAX_TEXT: Final = 4_000
"""Characters of a person's message that are looked at: the rules search it many times."""
_PERSON = re.compile(r"user|human|person|customer|client", re.IGNORECASE)
_REVIEWER = re.compile(r"\b(review|critic|critique|editor|feedback)", re.IGNORECASE)
_WRITER = re.compile(r"\bwrit(?:e|er|ing)\b|\bauthor\b|\bpoet\b", re.IGNORECASE)
_AUTOGEN_DEFAULT = "Solve tasks using your tools. Reply with TERMINATE"
_FACT = re.compile(r"\bmy ([a-z][\w ]{1,40}?) (?:is|are) ([^?.!\n]+)", re.IGNORECASE)
_NAME = re.compile(
    r"\b(?:(?i:my name is|call me|i am called) |I(?:'m| am) (?=[A-Z]))([^\W\d_][\w'-]*(?: [A-Z][\w'-]*)?)"
)
_ASKS = re.compile(
    r"(?:what(?:'s| is| are| was)|remember|know) my ([a-z][\w ]{1,40}?)\s*\?*\s*$|who am i\b", re.I | re.M
)
_ASKS_COUNT = re.compile(r"how many (?:\w+ )?(?:messages|questions|times)", re.IGNORECASE)
_ASKS_FIRST = re.compile(r"(?:my|the) (?:very )?first (?:message|question|thing)|what did i (?:say|ask)", re.IGNORECASE)
_HELLO = re.compile(r"^\W*(?:hello|hi|hey|good \w+)\b|what can you do|^\W*help\W*$|(?:who|what) are you", re.IGNORECASE)
_TOPIC = re.compile(r"\b(?:about|on|of|for)\s+(.+?)\s*[.?!]*\s*$", re.IGNORECASE | re.DOTALL)
_NAMES = re.compile(r"\[((?:\s*['\"][^'\"\]]+['\"]\s*,?)+)\]")
_REMINDED = re.compile(r"You have not called the tool `done`")
_HELP = (
    "Hello! I am a stand-in for a language model. I remember what you tell me (“My name is Ada”), use tools (“what is "
    "12*7”), hand over to colleagues and work in teams. Set OPENAI_API_KEY or OPENAI_BASE_URL for real answers."
)
_OF_MAGENTIC_ONE = re.compile(
    r"following (?:request|task):\s*(.*?)\s*(?:And we have assembled|We have completed)", re.S
)


def _text(message: LLMMessage | None) -> str:
    """The words of a message, without the demo model's own prefix. Images and tool calls have none."""
    if message is None:
        return ""
    if isinstance(message, FunctionExecutionResultMessage):
        return "\n".join(result.content for result in message.content)
    parts = [message.content] if isinstance(message.content, str) else message.content
    return "\n".join(part for part in parts if isinstance(part, str)).replace(PREFIX, "")


class _Conversation:
    """A request, split by speaker: what people wrote (`said`, their last words `task`), and the agents' own work
    `since`."""

    def __init__(self, messages: Sequence[LLMMessage]) -> None:
        self.count = len(messages)
        self.system = "\n".join(each.content for each in messages if isinstance(each, SystemMessage))
        self.messages = [each for each in messages if not isinstance(each, SystemMessage)]
        self.last = self.messages[-1] if self.messages else None
        self.last_text = _text(self.last)
        inputs = [each for each in self.messages if isinstance(each, UserMessage)]
        people = [each for each in inputs if _PERSON.search(each.source)]
        self.people = people or [each for each in inputs if each.source == inputs[0].source]
        self.said = [own_step(_text(each))[:_MAX_TEXT] for each in self.people]
        self.task = self.said[-1] if self.said else ""
        starts = (index + 1 for index, each in enumerate(self.messages) if each is self.people[-1])
        self.since = self.messages[next(starts, 0) :]


def _calls(view: _Conversation, tools: Sequence[ToolSchema], choice: str) -> list[FunctionCall]:
    """The tool calls that a person asks for. `choice`: "auto", "none", "required", or the name of the tool to call."""
    forced = choice not in ("auto", "none") and not isinstance(view.last, FunctionExecutionResultMessage)
    acted = any(isinstance(each, AssistantMessage) and isinstance(each.content, list) for each in view.since)
    if choice == "none" or (acted and not forced):
        return []
    if said := _to_hand_in(view, tools):
        return [FunctionCall(f"call_demo_{view.count}", json.dumps({"answer": said}, ensure_ascii=False), "done")]
    offered = [tool for tool in tools if choice in ("auto", "required", tool["name"])]
    handed_over = any("Transferred to " in _text(message) for message in view.since)
    calls = tool_calls(view.task, offered, hand_over=not handed_over, required=forced)
    # The same request gets the same answer, and no two answers of a conversation the same ids.
    return [FunctionCall(f"call_demo_{view.count}_{call.id}", call.arguments, call.name) for call in calls]


def _to_hand_in(view: _Conversation, tools: Sequence[ToolSchema]) -> str | None:
    """Return what it said last, where it is reminded that the answer is handed in by the tool `done`."""
    if not _REMINDED.match(view.last_text) or all(tool["name"] != "done" for tool in tools):
        return None
    said = [each.content for each in view.messages if isinstance(each, AssistantMessage)]
    return next((text for text in reversed(said) if isinstance(text, str)), None)


def _up_to(text: str, stop: str | Sequence[str] | None) -> str:
    """The text up to the first of the texts `stop` in it."""
    ends = [stop] if isinstance(stop, str) else stop or ()
    return text[: min((place for end in ends if (place := text.find(end)) >= 0), default=len(text))]


def _for_a_program(view: _Conversation, form: bool | type[BaseModel] | JsonObject | None) -> str | None:
    """`form`: AutoGen's `json_output`, or OpenAI's `response_format`."""
    if made := _ledger(view) or plan_of(view.system, view.task):
        return made
    schema: JsonObject | None = None
    if isinstance(form, type):
        schema = form.model_json_schema()
    elif isinstance(form, Mapping):
        named: JsonObject = form.get("json_schema") or {}
        schema = named.get("schema")
        form = form.get("type") != "text"
    if schema is not None:
        return json.dumps(sample(schema, schema.get("$defs", {}), view.task), ensure_ascii=False)
    told = {"model": "offline demo model", "answer": shorten(view.task), "user_messages": len(view.people)}
    return json.dumps(told) if form else _selected_speaker(view)


def _text_of(view: _Conversation) -> str:
    said = _in_a_team(view) or _to_a_person(view)
    # The final word that a system message asks for. AutoGen's default one asks too, but nobody wrote that on purpose.
    ends = "TERMINATE" in view.system and _AUTOGEN_DEFAULT not in view.system and "TERMINATE" not in said
    return PREFIX + said + ("\n\nTERMINATE" if ends else "")


def _ledger(view: _Conversation) -> str | None:
    """A Magentic-One progress ledger, when the prompt asks for one: every member speaks once, in order; then the
    request counts as satisfied."""
    if "is_request_satisfied" not in view.last_text:
        return None
    listed = re.search(r"select from:\s*([^)\n]+)\)", view.last_text)
    names = re.findall(r"[\w-]+", listed.group(1)) if listed else [""]
    plan = max((i for i, each in enumerate(view.messages) if "We are working to address" in _text(each)), default=0)
    spoken = {getattr(message, "source", "") for message in view.messages[plan + 1 :]}
    silent = [name for name in names if name not in spoken]
    answers = {
        "is_request_satisfied": not silent,
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": (silent or names)[0],
        "instruction_or_question": f"Please do your part of: {_task_of_magentic_one(view)}",
    }
    reason = "Offline demo model: each member speaks once, in order"
    return json.dumps({question: {"reason": reason, "answer": given} for question, given in answers.items()})


def _task_of_magentic_one(view: _Conversation) -> str:
    task = _OF_MAGENTIC_ONE.search(view.last_text)
    return shorten(task.group(1)) if task else "the request"


def _selected_speaker(view: _Conversation) -> str | None:
    """The name to answer with when the prompt asks to select a role from a list; None when it does not.

    A participant that the person's last words name goes first, once; else whoever has been silent longest.
    """
    request = view.last_text or view.system
    lists: list[str] = _NAMES.findall(request)
    if not lists or not re.search(r"\b(select|choose|pick)\b", request, re.IGNORECASE):
        return None
    names: list[str] = re.findall(r"['\"]([^'\"]+)['\"]", lists[-1])
    history = request.partition("conversation")[2] or request
    turns: list[tuple[str, str]] = re.findall(r"^([\w-]+): (.*)$", history, re.MULTILINE)
    spoke = {name: index for index, (name, _) in enumerate(turns)}
    person, task = max(
        ((index, text) for index, (name, text) in enumerate(turns) if _PERSON.search(name)), default=(-1, "")
    )
    called = [name for name in names if spoke.get(name, -1) <= person and words(task) & words(name)]
    return called[0] if called else min(names, key=lambda name: spoke.get(name, -1))


def _in_a_team(view: _Conversation) -> str | None:
    """Return what a member of a team, or one with tools, says about the agents' own work so far."""
    if done := summed_up(view.last_text):
        return done
    others = [each for each in view.since if isinstance(each, UserMessage)]
    drafts = sum(isinstance(each, AssistantMessage) and isinstance(each.content, str) for each in view.since)
    if isinstance(view.last, FunctionExecutionResultMessage):
        results = view.last.content
        return "\n".join(f"{each.name} {'failed' if each.is_error else 'says'}: {each.content}" for each in results)
    if "fact sheet" in view.last_text or "bullet-point plan" in view.last_text:  # of Magentic-One
        return "- Each member of the team contributes once, in order.\n- Then the answer is put together."
    if "provide the final answer" in view.last_text:
        return f"The team has worked on “{_task_of_magentic_one(view)}”: see what each member said."
    final = re.search(r"\b(APPROVED?|TERMINATE)\b", view.system)
    if final and _REVIEWER.search(view.system):
        # One change, so that a writer and a reviewer come to an end.
        first = "A good start. One change, please: add a concrete example to the second sentence."
        return f"The change is in and the text is ready. {final.group()}" if drafts else first
    if view.task and _WRITER.search(view.system):
        found = _TOPIC.search(view.task)
        topic = shorten(found.group(1) if found else view.task, 60)
        first = f"{topic[:1].upper()}{topic[1:]}: worth a closer look. It is best understood step by step"
        last = "Small causes add up to what we see every day."
        feedback = shorten(_text(others[-1]).split(":", 1)[-1], 80) if others else "the feedback"
        version = f"(Version {drafts + 1}, after: {feedback})"
        revised = f"{first}: take a single morning, and watch what changes. {last}\n\n{version}"
        return revised if drafts else f"{first}. {last}"
    if not others or view.last is not others[-1]:
        return None
    if "Transferred to " in view.last_text:
        return f"{others[-1].source} handed this over to me. I take care of it: “{shorten(view.task)}”."
    return f"I add to what {others[-1].source} said: “{shorten(view.task, 60)}” has another side worth a look."


def _to_a_person(view: _Conversation) -> str:
    """Return what a single agent answers to a person: mostly what it remembers."""
    if not view.people:
        return "I have nothing to answer yet."
    count = "1 message" if len(view.people) == 1 else f"{len(view.people)} messages"
    if _ASKS_COUNT.search(view.task):
        return f"You have sent {count} in this conversation, this one included."
    if _ASKS_FIRST.search(view.task):
        return f"Your first message was: “{shorten(view.said[0])}”."
    plain = [_NAME.sub(r"my name is \1.", text) for text in view.said]
    facts = {thing.lower().strip(): value.strip() for text in plain for thing, value in _FACT.findall(text)}
    if asked := _ASKS.search(view.task):
        thing = (asked.group(1) or "name").lower().strip()
        return f"Your {thing} is {facts[thing]}." if thing in facts else f"You have not told me your {thing} yet."
    if _NAME.search(view.task):
        return f"Nice to meet you, {facts['name']}. I will remember your name in this conversation."
    if told := _FACT.search(view.task):
        return f"I will remember that your {told.group(1)} is {told.group(2).strip()}."
    if pictures := [part for part in view.people[-1].content if isinstance(part, Image)]:
        sizes = ", ".join(f"{picture.image.width} x {picture.image.height}" for picture in pictures)
        return f"I received {len(pictures)} image(s) ({sizes} pixels), but cannot look at them."
    if _HELLO.search(view.task):
        return _HELP
    return f"You said: “{shorten(view.task)}”. That makes {count} from you in this conversation."
