"""What the offline demo model says. Rules in order; the first that has an answer wins."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import ToolSchema
from pydantic import BaseModel

from drsai_backend.json_types import JsonObject
from drsai_backend.models.demo.tools import sample, shorten, tool_calls, words

PREFIX = "[offline demo model] "
_MAX_TEXT = 4_000
_PERSON = re.compile(r"user|human|person|customer|client", re.IGNORECASE)
_REVIEWER = re.compile(r"\b(review|critic|critique|editor|feedback)", re.IGNORECASE)
_WRITER = re.compile(r"\bwrit(?:e|er|ing)\b|\bauthor\b|\bpoet\b", re.IGNORECASE)
_AUTOGEN_DEFAULT = "Solve tasks using your tools. Reply with TERMINATE"
_FACT = re.compile(r"\bmy ([a-z][\w ]{1,40}?) (?:is|are) ([^?.!\n]+)", re.IGNORECASE)
_NAME = re.compile(
    r"\b(?:(?i:my name is|call me|i am called) |I(?:'m| am) (?=[A-Z]))([^\W\d_][\w'-]*(?: [A-Z][\w'-]*)?)"
)
_ASKS_NAME = re.compile(r"what(?:'s| is| was) my name|who am i\b|remember my name|know my name", re.IGNORECASE)
_ASKS_FACT = re.compile(r"what(?:'s| is| are| was) my ([a-z][\w ]{1,40}?)\s*\?*\s*$", re.IGNORECASE | re.MULTILINE)
_ASKS_COUNT = re.compile(r"how many (?:\w+ )?(?:messages|questions|times)", re.IGNORECASE)
_ASKS_FIRST = re.compile(r"(?:my|the) (?:very )?first (?:message|question|thing)|what did i (?:say|ask)", re.IGNORECASE)
_HELLO = re.compile(
    r"^\W*(?:hello|hi|hey|good (?:morning|evening|day))\b|what can you do|^\W*help\W*$|(?:who|what) are you", re.I
)
_TOPIC = re.compile(r"\b(?:about|on|of|for)\s+(.+?)\s*[.?!]*\s*$", re.IGNORECASE | re.DOTALL)
_NAMES = re.compile(r"\[((?:\s*['\"][^'\"\]]+['\"]\s*,?)+)\]")


def text_of(message: LLMMessage | None) -> str:
    """The words of a message, without the demo model's own prefix. Images and tool calls have none."""
    if message is None:
        return ""
    if isinstance(message, FunctionExecutionResultMessage):
        return "\n".join(result.content for result in message.content)
    parts = [message.content] if isinstance(message.content, str) else message.content
    return "\n".join(part for part in parts if isinstance(part, str)).replace(PREFIX, "")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request, split by speaker."""

    system: str
    messages: Sequence[LLMMessage]
    last: LLMMessage | None
    people: Sequence[UserMessage]
    """What people wrote, oldest first. Messages of other agents are no part of it."""
    said: Sequence[str]
    """The same as text: the first 4,000 characters of each, as the rules search it many times."""
    since: Sequence[LLMMessage]
    """Everything after the last of them: the agents' own work on it."""

    @classmethod
    def of(cls, messages: Sequence[LLMMessage]) -> Conversation:
        """Read a request."""
        system = "\n".join(message.content for message in messages if isinstance(message, SystemMessage))
        rest = [message for message in messages if not isinstance(message, SystemMessage)]
        inputs = [message for message in rest if isinstance(message, UserMessage)]
        people = [message for message in inputs if _PERSON.search(message.source)]
        people = people or [message for message in inputs if message.source == inputs[0].source]
        start = next((index + 1 for index, each in enumerate(rest) if people and each is people[-1]), 0)
        said = [text_of(message)[:_MAX_TEXT] for message in people]
        return cls(system, rest, rest[-1] if rest else None, people, said, rest[start:])

    @property
    def task(self) -> str:
        """The last thing a person wrote."""
        return self.said[-1] if self.said else ""


def answer(
    messages: Sequence[LLMMessage],
    tools: Sequence[ToolSchema],
    *,
    tool_choice: str = "auto",
    json_output: bool | type[BaseModel] | None = None,
) -> str | list[FunctionCall]:
    """The demo model's answer: text, JSON text, or tool calls.

    `tool_choice` is "auto", "none", "required", or the name of the tool to call.
    """
    view = Conversation.of(messages)
    forced = tool_choice not in ("auto", "none") and not isinstance(view.last, FunctionExecutionResultMessage)
    acted = any(isinstance(each, AssistantMessage) and isinstance(each.content, list) for each in view.since)
    if forced or (tool_choice != "none" and not acted):
        offered = [tool for tool in tools if tool_choice in ("auto", "required", tool["name"])]
        handed_over = any("Transferred to " in text_of(message) for message in view.since)
        calls = tool_calls(view.task, offered, hand_over=not handed_over, required=forced)
        if calls:
            # The same request gets the same answer, and no two answers of a conversation the same ids.
            return [FunctionCall(f"call_demo_{len(messages)}_{call.id}", call.arguments, call.name) for call in calls]
    for_a_program = _ledger(view) or _json(view, json_output) or _selected_speaker(view)
    if for_a_program is not None:
        return for_a_program
    said = _in_a_team(view) or _to_a_person(view)
    # The final word that a system message asks for. AutoGen's default one asks too, but nobody wrote that on purpose.
    ends = "TERMINATE" in view.system and _AUTOGEN_DEFAULT not in view.system and "TERMINATE" not in said
    return PREFIX + said + ("\n\nTERMINATE" if ends else "")


def _json(view: Conversation, form: bool | type[BaseModel] | None) -> str | None:
    if isinstance(form, type):
        schema = form.model_json_schema()
        return json.dumps(sample(schema, schema.get("$defs", {}), view.task), ensure_ascii=False)
    told = {"model": "offline demo model", "answer": shorten(view.task), "user_messages": len(view.people)}
    return json.dumps(told) if form else None


def _ledger(view: Conversation) -> str | None:
    """A Magentic-One progress ledger, when the prompt asks for one.

    Every member of the team speaks once, in order; then the request counts as satisfied.
    """
    prompt = text_of(view.last)
    if "is_request_satisfied" not in prompt:
        return None
    listed = re.search(r"select from:\s*([^)\n]+)\)", prompt)
    names = re.findall(r"[\w-]+", listed.group(1)) if listed else [""]
    plan = max((i for i, each in enumerate(view.messages) if "We are working to address" in text_of(each)), default=0)
    spoken = {getattr(message, "source", "") for message in view.messages[plan + 1 :]}
    silent = [name for name in names if name not in spoken]
    task = re.search(r"following request:\s*(.*?)\s*And we have assembled", prompt, re.DOTALL)
    answers: JsonObject = {
        "is_request_satisfied": not silent,
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": (silent or names)[0],
        "instruction_or_question": f"Please do your part of: {shorten(task.group(1)) if task else 'the request'}",
    }
    reason = "Offline demo model: each member speaks once, in order"
    return json.dumps({question: {"reason": reason, "answer": given} for question, given in answers.items()})


def _selected_speaker(view: Conversation) -> str | None:
    """The name to answer with when the prompt asks to select a role from a list; None when it does not.

    A participant that the person's last words name goes first, once; else whoever has been silent longest.
    """
    request = text_of(view.last) or view.system
    lists: list[str] = _NAMES.findall(request)
    if not lists or not re.search(r"\b(select|choose|pick)\b", request, re.IGNORECASE):
        return None
    names: list[str] = re.findall(r"['\"]([^'\"]+)['\"]", lists[-1])
    history = request.partition("conversation")[2] or request
    turns: list[tuple[str, str]] = re.findall(r"^([\w-]+): (.*)$", history, re.MULTILINE)
    person = max((index for index, (name, _) in enumerate(turns) if _PERSON.search(name)), default=-1)
    asked = words(turns[person][1]) if person >= 0 else set[str]()
    spoke = {name: index for index, (name, _) in enumerate(turns)}
    called = [name for name in names if spoke.get(name, -1) <= person and asked & words(name)]
    return called[0] if called else min(names, key=lambda name: spoke.get(name, -1))


def _in_a_team(view: Conversation) -> str | None:
    """What a member of a team, or one with tools, says about the agents' own work so far."""
    prompt, others = text_of(view.last), [each for each in view.since if isinstance(each, UserMessage)]
    said = [each for each in view.since if isinstance(each, AssistantMessage) and isinstance(each.content, str)]
    if isinstance(view.last, FunctionExecutionResultMessage):
        results = view.last.content
        return "\n".join(f"{each.name} {'failed' if each.is_error else 'says'}: {each.content}" for each in results)
    if "fact sheet" in prompt or "bullet-point plan" in prompt:  # of Magentic-One
        return "- Each member of the team contributes once, in order.\n- Then the answer is put together."
    if "provide the final answer" in prompt:
        task = re.search(r"following task:\s*(.*?)\s*We have completed", prompt, re.DOTALL)
        agents = [each for each in view.messages[:-1] if isinstance(each, UserMessage) and each.source != "user"]
        parts = [f"{each.source}: {shorten(text_of(each))}" for each in agents[-6:]]
        return "\n".join([f"The team has worked on “{shorten(task.group(1)) if task else 'the request'}”.", *parts])
    final = re.search(r"\b(APPROVED?|TERMINATE)\b", view.system)
    if final and _REVIEWER.search(view.system):
        # One change, so that a writer and a reviewer come to an end.
        first = "A good start. One change, please: add a concrete example to the second sentence."
        return f"The change is in and the text is ready. {final.group()}" if said else first
    if view.task and _WRITER.search(view.system):
        found = _TOPIC.search(view.task)
        topic = shorten(found.group(1) if found else view.task, 60)
        first = f"{topic[:1].upper()}{topic[1:]}: worth a closer look. It is best understood step by step"
        last = "Small causes add up to what we see every day."
        feedback = shorten(text_of(others[-1]).split(":", 1)[-1], 80) if others else "the feedback"
        version = f"(Version {len(said) + 1}, after: {feedback})"
        revised = f"{first}: take a single morning, and watch what changes. {last}\n\n{version}"
        return revised if said else f"{first}. {last}"
    if not others or view.last is not others[-1]:
        return None
    if "Transferred to " in prompt:
        return f"{others[-1].source} handed this over to me. I take care of it: “{shorten(view.task)}”."
    return f"I add to what {others[-1].source} said: “{shorten(view.task, 60)}” has another side worth a look."


def _to_a_person(view: Conversation) -> str:
    """What a single agent answers to a person: mostly what it remembers."""
    if not view.people:
        return "I have nothing to answer yet."
    count = "1 message" if len(view.people) == 1 else f"{len(view.people)} messages"
    if _ASKS_COUNT.search(view.task):
        return f"You have sent {count} in this conversation, this one included."
    if _ASKS_FIRST.search(view.task):
        return f"Your first message was: “{shorten(view.said[0])}”."
    facts: dict[str, str] = {}
    for text in view.said:
        facts |= {thing.lower().strip(): value.strip() for thing, value in _FACT.findall(text)}
        facts |= [("name", name) for name in _NAME.findall(text)]
    asked = _ASKS_FACT.search(view.task)
    thing = "name" if _ASKS_NAME.search(view.task) else asked.group(1).lower().strip() if asked else None
    if thing is not None:
        return f"Your {thing} is {facts[thing]}." if thing in facts else f"You have not told me your {thing} yet."
    if _NAME.search(view.task):
        return f"Nice to meet you, {facts['name']}. I will remember your name in this conversation."
    if told := _FACT.search(view.task):
        return f"I will remember that your {told.group(1)} is {told.group(2).strip()}."
    if pictures := [part for part in view.people[-1].content if isinstance(part, Image)]:
        sizes = ", ".join(f"{picture.image.width} x {picture.image.height}" for picture in pictures)
        about = shorten(view.task)
        return f"I received {len(pictures)} image(s) ({sizes} pixels) with “{about}”, but cannot look at them."
    if _HELLO.search(view.task):
        return (
            "Hello! I am a stand-in for a language model. I remember what you tell me (“My name is Ada”), use "
            "tools (“what is 12*7”, “what time is it in UTC”), hand over to colleagues and work in teams. "
            "Set OPENAI_API_KEY or OPENAI_BASE_URL for real answers."
        )
    return f"You said: “{shorten(view.task)}”. That makes {count} from you in this conversation."
