"""What the offline demo model says. Rules in order; the first that has an answer wins."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from autogen_core import FunctionCall, Image
from autogen_core.models import LLMMessage, UserMessage
from autogen_core.tools import ToolSchema
from pydantic import BaseModel

from drsai_backend.models._demo_json import example_json, ledger, selected_speaker
from drsai_backend.models._demo_tools import tool_calls
from drsai_backend.models._demo_view import PREFIX, Conversation, shorten, text_of

_FINAL_WORD = re.compile(r"\b(APPROVED?|TERMINATE)\b")
_AUTOGEN_DEFAULT = "Solve tasks using your tools. Reply with TERMINATE"
_NAME = re.compile(r"\b(?:my name is|call me|i am called)\s+([^\W\d_][\w'-]*(?:\s+[A-Z][\w'-]*)?)", re.IGNORECASE)
_IS_NAMED = re.compile(r"\b[Ii](?:'m| am) ([A-Z][\w'-]+)\b")
_ASKS_NAME = re.compile(r"what(?:'s| is| was) my name|who am i\b|remember my name|know my name", re.IGNORECASE)
_FACT = re.compile(r"\bmy ([a-z][\w ]{1,40}?) (?:is|are) ([^?.!\n]+)", re.IGNORECASE)
_ASKS_FACT = re.compile(r"what(?:'s| is| are| was) my ([a-z][\w ]{1,40}?)\s*\?*\s*$", re.IGNORECASE | re.MULTILINE)
_ASKS_COUNT = re.compile(r"how many (?:\w+ )?(?:messages|questions|times)", re.IGNORECASE)
_ASKS_FIRST = re.compile(r"(?:my|the) (?:very )?first (?:message|question|thing)|what did i (?:say|ask)", re.IGNORECASE)
_GREETING = re.compile(r"^\W*(?:hello|hi|hey|good (?:morning|evening|day)|greetings)\b", re.IGNORECASE)
_HELP = re.compile(r"what can you do|^\W*help\W*$|who are you|what are you", re.IGNORECASE)
_TOPIC = re.compile(r"\b(?:about|on|of|for)\s+(.+?)\s*[.?!]*\s*$", re.IGNORECASE | re.DOTALL)


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
    if tools and tool_choice != "none":
        offered = [tool for tool in tools if tool_choice in ("auto", "required", tool["name"])]
        calls = tool_calls(view, offered, required=tool_choice != "auto" and view.results is None)
        if calls:
            return calls
    progress = ledger(view)
    if progress is not None:
        return json.dumps(progress)
    if isinstance(json_output, type):
        return example_json(json_output, view.task)
    if json_output:
        return json.dumps(
            {"model": "offline demo model", "answer": shorten(view.task), "user_messages": len(view.people)}
        )
    speaker = selected_speaker(view)
    if speaker is not None:
        return speaker
    said = next(filter(None, (rule(view) for rule in _RULES)), "I have nothing to answer yet.")
    return PREFIX + said + _ending(view.system, said)


def _ending(system: str, said: str) -> str:
    """The final word a system message asks for. AutoGen's default one asks too, but nobody wrote that on purpose."""
    if "TERMINATE" not in system or _AUTOGEN_DEFAULT in system or "TERMINATE" in said:
        return ""
    return "\n\nTERMINATE"


def _tool_results(view: Conversation) -> str | None:
    if view.results is None:
        return None
    lines = [
        f"{result.name} {'failed' if result.is_error else 'says'}: {result.content}" for result in view.results.content
    ]
    return "\n".join(lines)


def _magentic(view: Conversation) -> str | None:
    """The plain-text steps of a Magentic-One orchestrator."""
    prompt = text_of(view.last) if view.last else ""
    if "pre-survey" in prompt or "fact sheet" in prompt:
        return (
            "1. GIVEN OR VERIFIED FACTS\nThe request itself.\n\n2. FACTS TO LOOK UP\nNone.\n\n3. FACTS TO DERIVE\nNone."
        )
    if "bullet-point" in prompt and "plan" in prompt:
        return "- Each member of the team contributes once, in order.\n- Then the answer is put together."
    if "provide the final answer" in prompt:
        task = re.search(r"following task:\s*(.*?)\s*We have completed", prompt, re.DOTALL)
        agents = [item for item in view.messages[:-1] if isinstance(item, UserMessage) and item.source != "user"]
        parts = [f"{item.source}: {shorten(text_of(item))}" for item in agents]
        return f"The team has worked on “{shorten(task.group(1)) if task else 'the request'}”.\n" + "\n".join(
            parts[-6:]
        )
    return None


def _reviewer(view: Conversation) -> str | None:
    """Asks for one change, then is content, so that a writer and a reviewer come to an end."""
    final = _FINAL_WORD.search(view.system)
    if final is None or not re.search(r"\b(review|critic|critique|editor|feedback)", view.system, re.IGNORECASE):
        return None
    if view.own_answers:
        return f"The change is in and the text is ready. {final.group()}"
    return "A good start. One change, please: add a concrete example to the second sentence."


def _writer(view: Conversation) -> str | None:
    if not re.search(r"\bwrit(?:e|er|ing)\b|\bauthor\b|\bpoet\b", view.system, re.IGNORECASE) or not view.task:
        return None
    topic = _topic(view.task)
    first = f"{topic[:1].upper()}{topic[1:]}: worth a closer look."
    if not view.own_answers:
        return f"{first} It is best understood step by step. Small causes add up to what we see every day."
    feedback = shorten(text_of(view.others[-1]).split(":", 1)[-1].strip(), 80) if view.others else "the feedback"
    return (
        f"{first} It is best understood step by step: take a single morning, and watch what changes. "
        f"Small causes add up to what we see every day.\n\n(Version {len(view.own_answers) + 1}, after: {feedback})"
    )


def _topic(task: str) -> str:
    found = _TOPIC.search(task)
    return shorten(found.group(1) if found else task, 60)


def _colleague(view: Conversation) -> str | None:
    """A member of a team, when a colleague has spoken last."""
    if not view.others or view.last is not view.others[-1]:
        return None
    colleague = view.others[-1]
    if "Transferred to " in text_of(colleague):
        return f"{colleague.source} handed this over to me. I take care of it: “{shorten(view.task)}”."
    return (
        f"I add to what {colleague.source} said: “{shorten(view.task, 60)}” has another side worth a look. "
        f"This is contribution {len(view.since) + 1} on it."
    )


def _name(view: Conversation) -> str | None:
    asked = _ASKS_NAME.search(view.task)
    told: str | None = None
    for message in view.people:
        for found in (_NAME.search(text_of(message)), _IS_NAMED.search(text_of(message))):
            told = found.group(1) if found else told
    if asked:
        return f"Your name is {told}." if told else "You have not told me your name yet."
    if told and (_NAME.search(view.task) or _IS_NAMED.search(view.task)):
        return f"Nice to meet you, {told}. I will remember your name in this conversation."
    return None


def _fact(view: Conversation) -> str | None:
    """ "My favourite colour is green" … "what is my favourite colour?"."""
    asked = _ASKS_FACT.search(view.task)
    if asked:
        wanted = asked.group(1).lower().strip()
        for message in reversed(view.people[:-1]):
            for thing, value in reversed(_FACT.findall(text_of(message))):
                if thing.lower().strip() == wanted:
                    return f"Your {wanted} is {value.strip()}."
        return f"You have not told me your {wanted} yet."
    told = _FACT.search(view.task)
    return f"I will remember that your {told.group(1)} is {told.group(2).strip()}." if told else None


def _past(view: Conversation) -> str | None:
    if _ASKS_COUNT.search(view.task):
        return f"You have sent {_count(len(view.people))} in this conversation, this one included."
    if _ASKS_FIRST.search(view.task):
        return f"Your first message was: “{shorten(text_of(view.people[0]))}”."
    return None


def _chat(view: Conversation) -> str | None:
    if _GREETING.search(view.task):
        return f"Hello! I answer by fixed rules and without a network. I have seen {_count(len(view.people))} from you."
    if _HELP.search(view.task):
        return (
            "I am a stand-in for a language model. I remember what you tell me (“My name is Ada”), use the tools I am "
            "given (“what is 12*7”, “what time is it in UTC”), hand over to colleagues and work in teams. "
            "Set OPENAI_API_KEY or OPENAI_BASE_URL for real answers."
        )
    return None


def _images(view: Conversation) -> str | None:
    content = view.people[-1].content if view.people else ""
    pictures = [part for part in content if isinstance(part, Image)]
    if not pictures:
        return None
    sizes = ", ".join(f"{picture.image.width} x {picture.image.height}" for picture in pictures)
    return f"I received {len(pictures)} image(s) ({sizes} pixels) with “{shorten(view.task)}”, but cannot look at them."


def _echo(view: Conversation) -> str | None:
    if not view.people:
        return None
    return f"You said: “{shorten(view.task)}”. That makes {_count(len(view.people))} from you in this conversation."


def _count(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"


_RULES: tuple[Callable[[Conversation], str | None], ...] = (
    _tool_results,
    _magentic,
    _reviewer,
    _writer,
    _colleague,
    _name,
    _past,
    _fact,
    _images,
    _chat,
    _echo,
)
